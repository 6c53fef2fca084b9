"""Rows of numbers in, frames of bytes out, and back: what a recording of a live server consists of.

A segment file is ``MAGIC`` and then frames. A frame is a header (kind, length and CRC-32 of its body) and the body: the
columns of ``COLUMNS[kind]`` one after the other, each as an array, compressed with zlib; or JSON for ``META`` and
``LOST``. The first frame is META: the server's settings. A file that ends in the middle of a frame, or whose frame
fails its checksum, counts up to there. Only the standard library is needed: this runs inside vLLM.
"""

import json
import struct
import zlib
from array import array
from collections.abc import Sequence
from typing import Any

MAGIC = b"ARTREC01"
SUFFIX = ".rec"
META, LOST = b"meta", b"lost"
STEP, FIRST, DONE = b"step", b"frst", b"done"
UNKNOWN = -1  # of a whole number
RUNTIME_MODES = ("NONE", "PIECEWISE", "FULL")  # the number of a step's mode is its place here
FINISH_REASONS = ("stop", "length", "abort", "error", "repetition")  # vLLM's FinishReason

# name -> array type code: d and f are floats of 8 and 4 bytes, i and b whole numbers of 4 and 1. Times are seconds
# since 1970 on the front end's clock.
COLUMNS: dict[bytes, dict[str, str]] = {
    STEP: {  # one forward pass, or one report of the scheduler where passes are not told apart
        "t_s": "d",
        "mode": "b",  # place in RUNTIME_MODES, or UNKNOWN
        "num_tokens": "i",  # UNKNOWN without --cudagraph-metrics
        "padded_tokens": "i",
        "num_running": "i",
        "num_waiting": "i",
        "kv_usage": "f",
        "sampled_tokens": "i",  # that reached this front end
    },
    FIRST: {"t_s": "d", "arrival_s": "d"},  # a request's first token
    DONE: {  # a request that finished
        "t_s": "d",
        "arrival_s": "d",
        "prompt_tokens": "i",
        "output_tokens": "i",
        "cached_tokens": "i",
        "finish": "b",  # place in FINISH_REASONS, or UNKNOWN
        "tpot_s": "f",  # NaN for one output token
    },
}
ROW_BYTES = {kind: sum(array(code).itemsize for code in columns.values()) for kind, columns in COLUMNS.items()}
_HEADER = struct.Struct("<4sII")
_SMALL = 1  # zlib's fastest level


def pack_rows(kind: bytes, flat: Sequence[float]) -> bytes:
    """Return the frame of rows that lie one after the other in ``flat``: whole rows of ``COLUMNS[kind]``.

    Raises TypeError and OverflowError for a value that its column cannot hold.
    """
    columns = COLUMNS[kind]
    width = len(columns)
    # Slicing and filling an array run without the interpreter: the front end waits for no loop of ours.
    arrays = (array(code, flat[place::width]) for place, code in enumerate(columns.values()))
    return _frame(kind, zlib.compress(b"".join(each.tobytes() for each in arrays), _SMALL))


def pack_json(kind: bytes, value: dict[str, Any]) -> bytes:
    """Return the frame of a META or LOST object."""
    return _frame(kind, json.dumps(value).encode())


def _frame(kind: bytes, body: bytes) -> bytes:
    return _HEADER.pack(kind, len(body), zlib.crc32(body)) + body


def frames(data: bytes) -> tuple[list[tuple[bytes, bytes]], int]:
    """Return (kind, body) of the whole frames of a segment file, bodies unpacked, and how many bytes came after them.

    What does not begin with MAGIC has no frames.
    """
    found: list[tuple[bytes, bytes]] = []
    at = len(MAGIC)
    if data[:at] != MAGIC:
        return found, len(data)
    while at + _HEADER.size <= len(data):
        kind, length, checksum = _HEADER.unpack_from(data, at)
        body = data[at + _HEADER.size : at + _HEADER.size + length]
        if len(body) < length or zlib.crc32(body) != checksum or (unpacked := _unpacked(kind, body)) is None:
            break
        found.append((kind, unpacked))
        at += _HEADER.size + length
    return found, len(data) - at


def _unpacked(kind: bytes, body: bytes) -> bytes | None:
    if kind not in COLUMNS:
        return body
    try:
        rows = zlib.decompress(body)
    except zlib.error:
        return None
    return None if len(rows) % ROW_BYTES[kind] else rows


def columns_of(kind: bytes, body: bytes) -> dict[str, "array[Any]"]:
    """Return the columns of an unpacked body, each of one length."""
    count = len(body) // ROW_BYTES[kind]
    found: dict[str, array[Any]] = {}
    at = 0
    for name, code in COLUMNS[kind].items():
        column = array(code)
        end = at + count * column.itemsize
        column.frombytes(body[at:end])
        found[name], at = column, end
    return found

"""A trace file in, its rows out one by one: (time in ns, prompt tokens, output tokens), or why a row is none."""

import csv
import gzip
import json
import math
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from artifact.errors import InputError
from artifact.schema import TraceConfig
from artifact.workloads import recordings
from artifact.workloads.trace_kinds import FIXED_UNIT, check_options, detect, names_of

Row = tuple[int, int, int]
Parsed = tuple[int, Row | str]  # the line's number from 1, and the row or the reason why it cannot be used

_NS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_LONGEST_LINE_BYTES = 1 << 20
_MOST_TOKENS = 1_000_000_000
_MOST_NS = 1 << 62  # so that differences of two times fit into 64 bits
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STAMP = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:?\d\d)?", re.ASCII)
_NUMBER = re.compile(
    r"[+-]?(\d+)(\.\d*)?([eE][+-]?\d+)?|[+-]?\.\d+([eE][+-]?\d+)?|[+-]?(nan|inf|infinity)", re.I | re.A
)


class _BadRow(ValueError):
    """One row cannot be used; the message says why."""


def rows(path: Path, trace: TraceConfig) -> tuple[str, Iterator[Parsed]]:
    """Return the format's name, and the rows of ``path`` as they are read: memory does not grow with the file.

    Plain or gzip (told by its first bytes), UTF-8, any line ending. Times are whole nanoseconds. Raises InputError,
    at once or while rows are read, for a file that is missing, no regular file, empty, binary or damaged, without
    the header or keys of its format, or of no format that is certain. A recording of a live server is a folder, or one
    of its files, and is told by that.
    """
    if trace.format == "recording" or (trace.format == "auto" and recordings.segments(path)):
        check_options("recording", trace)
        return "recording", recordings.trace_rows(path)
    lines = _lines(path)
    first = next(lines, None)
    if first is None:
        raise InputError(f"{path}: the file is empty")
    number, head = first
    text = _text(head)
    if text is None:
        raise InputError(f"{path}:{number}: not UTF-8 text: no trace")
    kind = detect(path, text) if trace.format == "auto" else trace.format
    check_options(kind, trace)
    names = names_of(kind, trace)
    if kind in ("azure", "burstgpt", "csv"):
        fields = _csv_parser(f"{path}:{number}", text, names)
    else:
        fields, lines = _json_parser(names), _again(first, lines)
    to_row: Callable[[bytes], Row | str]
    if kind == "vllm":
        to_row = _PromptReader(fields, trace)
    else:
        to_row = _RowReader(fields, FIXED_UNIT.get(kind) or trace.time_unit)
    return kind, ((line, to_row(data)) for line, data in lines)


def _again(first: tuple[int, bytes], rest: Iterator[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    yield first
    yield from rest


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the numbers and bytes of the lines that are not blank."""
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "is no regular file" if path.exists() else "no such file"
        raise InputError(f"{path}: {what}; trace.path must name a trace file")
    try:
        with path.open("rb") as raw:
            magic = raw.read(2)
            raw.seek(0)
            stream = gzip.GzipFile(fileobj=raw) if magic == b"\x1f\x8b" else raw
            number = 0
            while line := stream.readline(_LONGEST_LINE_BYTES):
                number += 1
                if b"\0" in line:
                    raise InputError(f"{path}:{number}: binary data: no trace")
                if len(line) == _LONGEST_LINE_BYTES and not line.endswith(b"\n"):
                    raise InputError(f"{path}:{number}: a line of more than 1 MiB: no trace")
                if number == 1:
                    line = line.removeprefix(b"\xef\xbb\xbf")
                if line.strip():
                    yield number, line.rstrip(b"\r\n")
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or "the gzip data is damaged or cut off"
        raise InputError(f"{path}: cannot be read: {reason}") from None


def _text(line: bytes) -> str | None:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return None


def _csv_parser(where: str, header: str, names: Sequence[str]) -> Callable[[str], Sequence[object]]:
    """Return a function from a line to its three fields, by the header's names."""
    found = [name.strip() for name in _csv_fields(header) or []]
    for name in names:
        if found.count(name) != 1:
            problem = "more than one column" if name in found else "no column"
            shown = ", ".join(found)[:200] or "nothing readable"
            raise InputError(
                f"{where}: {problem} {name!r} in the header ({shown!r}); see trace.format and trace.columns"
            )
    positions = [found.index(name) for name in names]

    def parse(line: str) -> Sequence[object]:
        fields = _csv_fields(line)
        if fields is None:
            raise _BadRow("cannot be read as CSV")
        if len(fields) != len(found):
            raise _BadRow(f"{len(fields)} columns, the header has {len(found)}")
        return [fields[position] for position in positions]

    return parse


def _csv_fields(line: str) -> list[str] | None:
    try:
        return next(csv.reader([line], strict=True), None)
    except csv.Error:
        return None


def _json_parser(names: Sequence[str]) -> Callable[[str], Sequence[object]]:
    def parse(line: str) -> Sequence[object]:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            raise _BadRow("cannot be read as JSON") from None
        if not isinstance(record, dict):
            raise _BadRow("no JSON object")
        if missing := [name for name in names if name not in record]:
            raise _BadRow(f"no key {missing[0]!r}")
        return [record[name] for name in names]

    return parse


class _RowReader:
    """A line's bytes in, a Row or a reason out. Keeps whether the file's stamps carry a UTC offset."""

    def __init__(self, fields: Callable[[str], Sequence[object]], unit: str | None) -> None:
        self._fields = fields
        self._unit = unit
        self._offset: bool | None = None

    def __call__(self, line: bytes) -> Row | str:
        text = _text(line)
        if text is None:
            return "not UTF-8 text"
        try:
            time, prompt, output = self._fields(text)
            return self._time_ns(time), _tokens("prompt", prompt), _tokens("output", output)
        except _BadRow as reason:
            return str(reason)

    def _time_ns(self, value: object) -> int:
        if isinstance(value, str) and (match := _STAMP.fullmatch(value.strip())):
            return self._stamp_ns(value.strip(), match)
        number = _number("time", value)
        if self._unit is None:
            raise InputError("trace.time_unit: the time stamps are numbers; set it to s, ms, us or ns")
        if number < 0:
            raise _BadRow(f"time is negative: {_short(value)}")
        nanoseconds = number * _NS[self._unit]
        if nanoseconds > _MOST_NS:
            raise _BadRow(f"time is out of range: {_short(value)} {self._unit}")
        return round(nanoseconds)

    def _stamp_ns(self, text: str, match: re.Match[str]) -> int:
        day, clock, fraction, offset = match.groups()
        try:
            moment = datetime.fromisoformat(f"{day}T{clock}{offset or 'Z'}")
        except ValueError:
            raise _BadRow(f"no such time: {text}") from None
        if self._offset is None:
            self._offset = offset is not None
        if self._offset != (offset is not None):
            raise _BadRow(f"UTC offsets in some rows and not in others: {text}")
        # Whole numbers throughout: a float of seconds since 1970 keeps no 100 ns.
        nanoseconds = (moment - _EPOCH) // timedelta(seconds=1) * _NS["s"] + int((fraction or "0").ljust(9, "0"))
        if abs(nanoseconds) > _MOST_NS:
            raise _BadRow(f"time is out of range: {text}")
        return nanoseconds


class _PromptReader:
    """A line of vLLM's custom data set in, a Row out whose time is its place: the arrivals are made afterwards.

    The prompt is a list of token ids, or text, whose tokens only a tokenizer could count: ``chars_per_token`` says how.
    """

    def __init__(self, fields: Callable[[str], Sequence[object]], trace: TraceConfig) -> None:
        self._fields = fields
        self._chars_per_token = trace.chars_per_token
        self._count = 0

    def __call__(self, line: bytes) -> Row | str:
        text = _text(line)
        if text is None:
            return "not UTF-8 text"
        try:
            prompt, output = self._fields(text)
            row = self._count, _tokens("prompt", self._length(prompt)), _tokens("output", output)
        except _BadRow as reason:
            return str(reason)
        self._count += 1
        return row

    def _length(self, prompt: object) -> int:
        if isinstance(prompt, list):
            return len(prompt)
        if not isinstance(prompt, str):
            raise _BadRow("prompt is neither text nor a list of token ids")
        if self._chars_per_token is None:
            raise InputError("trace.chars_per_token: the prompts are text; set how many characters make a token, say 4")
        return math.ceil(len(prompt) / self._chars_per_token)


def _number(name: str, value: object) -> int | float:
    """Return ``value``, a JSON number or a CSV field, as a finite number."""
    if isinstance(value, str):
        text = value.strip()
        if not _NUMBER.fullmatch(text) or len(text) > 100:
            raise _BadRow(f"{name} is no number: {_short(value)!r}")
        value = int(text) if text.lstrip("+-").isdigit() else float(text)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _BadRow(f"{name} is no number: {_short(value)}")
    if isinstance(value, float) and not abs(value) < float("inf"):
        raise _BadRow(f"{name} is not finite: {value}")
    return value


def _tokens(name: str, value: object) -> int:
    number = _number(f"{name} tokens", value)
    if number != int(number):
        raise _BadRow(f"{name} tokens are no whole number: {_short(value)}")
    if not 1 <= number <= _MOST_TOKENS:
        raise _BadRow(f"{name} tokens must be 1 to {_MOST_TOKENS:,}, not {_short(value)}")
    return int(number)


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:40]}..."

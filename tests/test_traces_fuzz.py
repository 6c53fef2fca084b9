"""Whatever a file holds, reading it gives a trace or an InputError of one line, and nothing else."""

import gzip
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artifact import config
from artifact.errors import InputError
from artifact.workloads.traces import describe, read

HEADERS = {
    "auto": b"TIMESTAMP,ContextTokens,GeneratedTokens\n",
    "azure": b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n",
    "mooncake": b'{"timestamp": 0, "input_length": 1, "output_length": 1}\n',
    "burstgpt": b"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n",
    "vllm": b'{"prompt": "a b", "output_tokens": 1}\n',
    "csv": b"timestamp,prompt_tokens,output_tokens\n",
    "jsonl": b'{"timestamp": 0, "prompt_tokens": 1, "output_tokens": 1}\n',
}
PIECES = [b"0", b"7", b"-1", b"1e9", b"nan", b"Infinity", b",", b'"', b"\n", b"\r\n", b"{", b"}", b"[", b"\xff", b"\0"]
PIECES += [b'"timestamp": ', b'"input_length": ', b'"output_length": ', b"2023-11-16 18:15:46.6805900", b"+00:00", b" "]
PIECES += [b"1,2,3\n", b"9999999999999999999999", b"0001-01-01 00:00:00+14:00,1,1\n", b"9999-12-31T23:59:59Z,5,5\n"]
PIECES += [b'{"timestamp": 5, "input_length": 1, "output_length": 1}\n', b"\xef\xbb\xbf", b"\\ud800", b"true", b"null"]
PIECES += [b"5,gpt,1,2,3,api\n", b"1e3,gpt,1,0,1,api\n", b'{"prompt": [1, 2], "output_tokens": 3}\n', b'"prompt": ']
CONTENT = st.one_of(st.binary(max_size=200), st.lists(st.sampled_from(PIECES), max_size=40).map(b"".join))


@pytest.mark.parametrize("kind", list(HEADERS))
@given(content=CONTENT, lenient=st.booleans(), headed=st.booleans(), packed=st.booleans(), unit=st.booleans())
@settings(max_examples=300)
def test_any_bytes_are_a_trace_or_bad_input(
    kind: str, content: bytes, lenient: bool, headed: bool, packed: bool, unit: bool
) -> None:
    data = (HEADERS[kind] if headed else b"") + content
    options = {
        "format": kind,
        "lenient": lenient,
        "time_unit": "ms" if unit and kind in ("mooncake", "csv", "jsonl") else None,
        "rate_per_s": 2.0 if kind == "vllm" else None,
        "chars_per_token": 2.0 if kind == "vllm" and unit else None,
        "ties": "spread" if unit else "burst",
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace"
        path.write_bytes(gzip.compress(data) if packed else data)
        try:
            trace = read(config.load().trace.model_copy(update={"path": str(path), **options}))
        except InputError as error:
            assert "trace" in str(error)  # noqa: PT017  (either outcome is right)
            assert len(str(error).splitlines()) == 1  # noqa: PT017
            return
    assert trace.arrival_s[0] == 0
    assert (np.diff(trace.arrival_s) >= 0).all()
    assert min(trace.prompt_tokens.min(), trace.output_tokens.min()) >= 1
    assert lenient or not (trace.dropped or trace.reordered)
    assert describe(trace)["requests"] == len(trace)

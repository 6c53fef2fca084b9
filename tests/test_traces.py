"""Traces: formats, bad rows, and what is taken of a trace."""

import gzip
import json
from pathlib import Path

import pytest

from artifact import config
from artifact.errors import InputError
from artifact.schema import TraceConfig
from artifact.workloads.traces import Trace, describe, read

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens"
PLAIN = "timestamp,prompt_tokens,output_tokens"


def ask(path: Path | str, **options: object) -> TraceConfig:
    return config.load().trace.model_copy(update={"path": str(path), **options})


def load(tmp_path: Path, content: str | bytes, **options: object) -> Trace:
    path = tmp_path / "trace"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read(ask(path, **options))


def plain(tmp_path: Path, rows: str, **options: object) -> Trace:
    return load(tmp_path, f"{PLAIN}\n{rows}", **{"format": "csv", "time_unit": "s", **options})


def mooncake(time: object, prompt: object = 5, output: object = 2) -> str:
    return json.dumps({"timestamp": time, "input_length": prompt, "output_length": output, "hash_ids": [0]}) + "\n"


# Formats


def test_azure_stamps_keep_their_hundred_nanoseconds(tmp_path: Path) -> None:
    rows = "\r\n".join([AZURE, "2023-11-16 23:59:59.9999999,374,44", "2023-11-17 00:00:00.0000001,10,1"])
    trace = load(tmp_path, rows)
    assert trace.format == "azure"
    assert trace.arrival_s.tolist() == [0, 2e-7]
    assert (trace.prompt_tokens.tolist(), trace.output_tokens.tolist()) == ([374, 10], [44, 1])


def test_azure_stamps_with_offsets_with_and_without_a_fraction(tmp_path: Path) -> None:
    rows = "\n".join(
        [
            AZURE,
            "2024-05-10 00:00:00.009930+00:00,5,6",
            "2024-05-10 00:00:01+00:00,5,6",
            "2024-05-10 02:00:02+02:00,5,6",
        ]
    )
    assert load(tmp_path, rows).arrival_s.tolist() == pytest.approx([0, 0.99007, 1.99007])


def test_stamps_with_an_offset_do_not_mix_with_those_without(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"trace:3: UTC offsets in some rows"):
        load(tmp_path, f"{AZURE}\n2024-05-10 00:00:00,5,6\n2024-05-10 00:00:01+00:00,5,6")


def test_mooncake_counts_in_milliseconds(tmp_path: Path) -> None:
    trace = load(tmp_path, mooncake(1000) + mooncake(1000) + mooncake(4500, 7, 3))
    assert trace.format == "mooncake"
    assert trace.arrival_s.tolist() == [0, 0, 3.5]
    assert trace.ties == 1


@pytest.mark.parametrize(("unit", "expected"), [("s", 2.0), ("ms", 2e-3), ("us", 2e-6), ("ns", 2e-9)])
def test_plain_csv_with_units(tmp_path: Path, unit: str, expected: float) -> None:
    assert plain(tmp_path, "1,5,6\n3,5,6\n", time_unit=unit).arrival_s.tolist() == [0, expected]


def test_plain_files_with_their_own_names_and_more_columns(tmp_path: Path) -> None:
    names = {"time": "at", "prompt": "in", "output": "out"}
    csv_text = '\ufeffmodel, out ,at,in\n"a,b",6,0.25,5\nc,8.0,1.5e0,7\n'
    trace = load(tmp_path, csv_text, format="csv", time_unit="s", columns=names)
    assert (trace.arrival_s.tolist(), trace.prompt_tokens.tolist()) == ([0, 1.25], [5, 7])
    assert trace.output_tokens.tolist() == [6, 8]
    lines = '{"at": "2024-05-10T00:00:00Z", "in": 5, "out": 6}\n\n{"at": "2024-05-10T00:00:02Z", "in": 5, "out": 6}\n'
    assert load(tmp_path, lines, format="jsonl", columns=names).arrival_s.tolist() == [0, 2]


def test_gzip_is_told_by_its_bytes(tmp_path: Path) -> None:
    packed = gzip.compress((mooncake(0) + mooncake(1)).encode())
    assert len(load(tmp_path, packed)) == 2
    with pytest.raises(InputError, match=r"trace: cannot be read: .*damaged"):
        load(tmp_path, packed[:-12])


# Files that are refused, strict or lenient


@pytest.mark.parametrize("lenient", [False, True])
@pytest.mark.parametrize("kind", ["auto", "azure", "mooncake", "csv", "jsonl"])
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n \n",
        b"\x00\x01\x02",
        b"\xff\xfe\x00",
        b"\x89PNG\r\n\x1a\n\x00",
        "{}\n".encode("utf-16"),
        b"\xff\n1,2,3\n",
    ],
)
def test_no_text_is_no_trace(tmp_path: Path, content: bytes, kind: str, lenient: bool) -> None:
    with pytest.raises(InputError, match="trace"):
        load(tmp_path, content, format=kind, time_unit=None, lenient=lenient)


@pytest.mark.parametrize("lenient", [False, True])
def test_a_missing_header_fails_and_does_not_skip_all_rows(tmp_path: Path, lenient: bool) -> None:
    rows = "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
    with pytest.raises(InputError, match=r"trace:1: no column 'TIMESTAMP' in the header"):
        load(tmp_path, rows, format="azure", lenient=lenient)
    with pytest.raises(InputError, match=r"trace\.format"):
        load(tmp_path, rows, lenient=lenient)
    with pytest.raises(InputError, match=r"more than one column 'timestamp'"):
        load(tmp_path, f"{PLAIN},timestamp\n", format="csv", lenient=lenient)


@pytest.mark.parametrize("lenient", [False, True])
def test_files_without_a_usable_row_fail(tmp_path: Path, lenient: bool) -> None:
    with pytest.raises(InputError, match="no usable request"):
        plain(tmp_path, "", lenient=lenient)
    with pytest.raises(InputError, match=r"trace:1: no key 'input_length'|line 1: no key 'input_length'"):
        load(tmp_path, '{"timestamp": 1}\n', format="mooncake", lenient=lenient)


def test_paths_that_are_no_file(tmp_path: Path) -> None:
    for path, what in ((tmp_path / "none", "no such file"), (tmp_path, "is a folder"), (Path("/dev/null"), "regular")):
        with pytest.raises(InputError, match=what):
            read(ask(path))


def test_a_line_without_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="more than 1 MiB"):
        load(tmp_path, gzip.compress(b"{" * 3_000_000), format="jsonl", lenient=True)


@pytest.mark.parametrize(
    "content",
    [
        f"{PLAIN}\n0,1,1\n",
        AZURE.lower() + "\n",
        AZURE + ",More\n",
        '{"timestamp": 0, "input_length": 5}\n',
        '{"timestamp": 0, "input_length": 5, "output_length": 1, "user": 1}\n',
        "[1]\n",
        "7\n",
    ],
)
def test_auto_asks_unless_it_is_sure(tmp_path: Path, content: str) -> None:
    with pytest.raises(InputError, match=r"trace\.format"):
        load(tmp_path, content)


def test_options_that_a_format_does_not_take_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"trace\.time_unit: the time stamps are numbers"):
        plain(tmp_path, "0,1,1\n", time_unit=None)
    with pytest.raises(InputError, match=r"trace\.time_unit=s: the mooncake format counts in ms"):
        load(tmp_path, mooncake(0), time_unit="s")
    with pytest.raises(InputError, match=r"trace\.columns"):
        load(tmp_path, mooncake(0), columns={"time": "timestamp"})


# Rows


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("1,5", "2 columns, the header has 3"),
        ("1,5,6,7", "4 columns"),
        ('1,5,"6', "CSV"),
        ("x,5,6", "time is no number"),
        ("nan,5,6", "time is not finite"),
        ("inf,5,6", "time is not finite"),
        ("-1,5,6", "time is negative"),
        ("1e300,5,6", "out of range"),
        ("2024-02-30 00:00:00,5,6", "no such time"),
        ("1,0,6", "prompt tokens must be 1 to"),
        ("1,5,-6", "output tokens must be 1 to"),
        ("1,5,0", "output tokens must be 1 to"),
        ("1,5.5,6", "no whole number"),
        ("1,inf,6", "not finite"),
        ("1,,6", "no number"),
        ("1,1_0,6", "no number"),
        ("1,5,99999999999999999999", "1 to 1,000,000,000"),
        ("0.5,5,6", "out of time order"),
    ],
)
def test_strict_names_the_first_bad_row(tmp_path: Path, row: str, reason: str) -> None:
    with pytest.raises(InputError, match=f"trace:3: .*{reason}"):
        plain(tmp_path, f"0.75,5,6\n{row}\n-1,-1,-1\n")


@pytest.mark.parametrize(
    "row", ["{", "[]", '"x"', "{}", "[" * 100_000, mooncake(True), mooncake(1, None), mooncake(1, "", 2), mooncake([1])]
)
def test_json_rows_that_are_none(tmp_path: Path, row: str) -> None:
    content = mooncake(0) + row.rstrip("\n") + "\n" + mooncake(2)
    with pytest.raises(InputError, match="trace:2: "):
        load(tmp_path, content)
    trace = load(tmp_path, content, lenient=True)
    assert (len(trace), [line for line, _ in trace.dropped]) == (2, [2])


def test_lenient_skips_sorts_and_keeps_account(tmp_path: Path) -> None:
    trace = plain(tmp_path, "2,5,6\n3,0,6\n1,7,8\n\nx\n4,9,1\n", lenient=True)
    assert trace.arrival_s.tolist() == [0, 1, 3]
    assert trace.prompt_tokens.tolist() == [7, 5, 9]
    assert [line for line, _ in trace.dropped] == [3, 6]
    assert trace.reordered == 1
    shown = describe(trace)
    assert shown["dropped"][1] == {"line": 6, "reason": "1 columns, the header has 3"}
    assert shown["reordered"] == 1


def test_too_many_bad_rows_are_another_format(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="over 100,000 bad rows, more than good ones, the first at line 3"):
        plain(tmp_path, "0,1,1\n" + "x\n" * 100_001, lenient=True)


# What is taken of a trace


def test_window_then_speed_up_then_gap_cap_then_requests(tmp_path: Path) -> None:
    rows = "".join(f"{100 + at},{at + 1},1\n" for at in (0, 10, 20, 60, 80, 90))
    trace = plain(tmp_path, rows, window=(10.0, 90.0), speedup=10.0, gap_cap=1.5, requests=3)
    assert trace.prompt_tokens.tolist() == [11, 21, 61]
    assert trace.arrival_s.tolist() == [0, 1.0, 2.5]


def test_more_requests_than_there_are(tmp_path: Path) -> None:
    rows = "0,1,1\n1,1,1\n2,1,1\n"
    assert len(plain(tmp_path, rows, requests=3)) == 3
    with pytest.raises(InputError, match=r"trace\.requests=4: .* has 3 requests"):
        plain(tmp_path, rows, requests=4)
    with pytest.raises(InputError, match=r"trace\.requests=3: .* has 2 requests in trace\.window"):
        plain(tmp_path, rows, requests=3, window=(0.0, 2.0))


def test_windows_and_speeds_that_leave_nothing(tmp_path: Path) -> None:
    rows = "0,1,1\n1,1,1\n"
    for window in ((2.0, 1.0), (1.0, 1.0)):
        with pytest.raises(InputError, match=r"trace\.window=.*from < to"):
            plain(tmp_path, rows, window=window)
    with pytest.raises(InputError, match=r"trace\.window=.*lasts 1\.000 s"):
        plain(tmp_path, rows, window=(5.0, 9.0))
    for speedup in (1e-300, 1e300):
        with pytest.raises(InputError, match=r"trace\.speedup"):
            plain(tmp_path, rows, speedup=speedup)


def test_describe_has_nulls_where_nothing_is_defined(tmp_path: Path) -> None:
    one = describe(plain(tmp_path, "5,7,3\n"))
    assert (one["requests"], one["duration_s"]) == (1, 0)
    assert (one["rate_per_s"], one["arrival_cv"], one["rate_profile"]) == (None, None, None)
    assert one["prompt_tokens"] == {"p50": 7, "p90": 7, "p99": 7, "max": 7}
    tied = describe(plain(tmp_path, "5,7,3\n5,7,3\n5,7,3\n"))
    assert (tied["rate_per_s"], tied["arrival_cv"], tied["ties"]) == (None, None, 2)
    two = describe(plain(tmp_path, "0,7,3\n2,7,3\n"))
    assert (two["rate_per_s"], two["arrival_cv"]) == (0.5, None)


def test_describe_of_a_steady_and_of_a_bursty_trace(tmp_path: Path) -> None:
    steady = describe(plain(tmp_path, "".join(f"{i},{i + 1},2\n" for i in range(101))))
    assert (steady["rate_per_s"], steady["arrival_cv"], steady["ties"]) == (1.0, 0.0, 0)
    assert steady["rate_profile"] == [10] * 9 + [11]
    assert steady["prompt_tokens"] == {"p50": 51, "p90": 91, "p99": 100, "max": 101}
    bursty = describe(plain(tmp_path, "0,1,2\n0,1,2\n0,1,2\n3,1,2\n"))
    assert bursty["arrival_cv"] == pytest.approx(2**0.5)
    assert json.loads(json.dumps(bursty, allow_nan=False)) == bursty

"""Kind: a trace that is read as something it is not. Rows lost unseen, ties, units, order, and what does not fit.

Headers, units, order, windows, speed-up before the gap cap and too many requests asked for: tests/test_traces.py.
"""

import gzip
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from artifact import config
from artifact.errors import InputError
from artifact.workloads.build import build, fits
from artifact.workloads.traces import Trace, describe, read

FIRST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"
LATER = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type"


def load(tmp_path: Path, content: str | bytes, **options: object) -> Trace:
    path = tmp_path / "trace"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read(config.load().trace.model_copy(update={"path": str(path), **options}))


def burstgpt(*rows: tuple[object, int, int]) -> str:
    lines = [f"{time},ChatGPT,{prompt},{output},{prompt + output},Conversation log" for time, prompt, output in rows]
    return "\n".join([FIRST, *lines]) + "\n"


@pytest.mark.parametrize("header", [FIRST, LATER, LATER.replace("Session ID", "SessionID")])
def test_burstgpt_headers_of_both_releases_are_known(tmp_path: Path, header: str) -> None:
    more = "7,0.5," if header != FIRST else ""
    rows = f"{header}\n5,{more}ChatGPT,472,18,490,Conversation log\n45.5,{more}GPT-4,1087,230,1317,API log\n"
    trace = load(tmp_path, rows)
    assert trace.format == "burstgpt"
    assert trace.arrival_s.tolist() == [0, 40.5]
    assert (trace.prompt_tokens.tolist(), trace.output_tokens.tolist()) == ([472, 1087], [18, 230])


@pytest.mark.parametrize("header", [FIRST.replace(",Model", ""), FIRST + ",Place", FIRST.lower(), FIRST + ",Model"])
def test_another_header_is_not_taken_for_burstgpt(tmp_path: Path, header: str) -> None:
    with pytest.raises(InputError, match="the format is not certain"):
        load(tmp_path, header + "\n")


def test_burstgpt_without_its_header_fails_and_does_not_skip_all_rows(tmp_path: Path) -> None:
    rows = burstgpt((5, 472, 18), (6, 1, 1)).split("\n", 1)[1]
    for lenient in (False, True):
        with pytest.raises(InputError, match=r"trace:1: no column 'Timestamp' in the header"):
            load(tmp_path, rows, format="burstgpt", lenient=lenient)


def test_zero_responses_end_it_or_are_counted_with_their_lines(tmp_path: Path) -> None:
    rows = burstgpt((5, 472, 18), (6, 30, 0), (7, 10, 0), (9, 8, 3))
    with pytest.raises(InputError, match=r"trace:3: output tokens must be 1 to .*, not 0"):
        load(tmp_path, rows)
    shown = describe(load(tmp_path, rows, lenient=True))
    assert (shown["requests"], shown["dropped_count"]) == (2, 2)
    assert [row["line"] for row in shown["dropped"]] == [3, 4]


def test_more_bad_rows_than_are_listed_are_still_counted(tmp_path: Path) -> None:
    rows = burstgpt(*[(5, 1, 1)] * 100_002) + "5,M,1,0,1,log\n" * 100_002
    trace = load(tmp_path, rows, lenient=True)
    assert (len(trace), trace.dropped_count, len(trace.dropped)) == (100_002, 100_002, 100_000)


def test_ties_arrive_at_once_or_spread_by_a_seed_within_their_second(tmp_path: Path) -> None:
    rows = burstgpt((3, 1, 1), (3, 2, 1), (3, 3, 1), (5, 4, 1), (5, 5, 1), (6, 6, 1))
    burst = load(tmp_path, rows)
    assert burst.arrival_s.tolist() == [0, 0, 0, 2, 2, 3]
    assert (describe(burst)["ties"], describe(burst)["tie_rule"]) == (3, "burst")
    spread, again, other = (load(tmp_path, rows, ties="spread", seed=seed) for seed in (1, 1, 2))
    assert spread.arrival_s.tolist() == again.arrival_s.tolist() != other.arrival_s.tolist()
    assert spread.prompt_tokens.tolist() == [1, 2, 3, 4, 5, 6]
    assert (np.diff(spread.arrival_s) > 0).all()
    assert spread.arrival_s[2] < 1 < spread.arrival_s[3] < 3
    assert (describe(spread)["ties"], describe(spread)["tie_rule"]) == (3, "spread")


def test_spread_fills_the_smallest_step_whatever_the_unit_of_the_stamps(tmp_path: Path) -> None:
    """Mooncake counts in milliseconds and stamps every three seconds: a millisecond would leave the pile-ups."""
    times = [time for time in range(0, 300_000, 3000) for _ in range(10)]
    lines = "".join(f'{{"timestamp": {time}, "input_length": 1, "output_length": 1}}\n' for time in times)
    burst, spread = (describe(load(tmp_path, lines, ties=rule)) for rule in ("burst", "spread"))
    assert burst["arrival_cv"] == pytest.approx(3, rel=0.02)
    assert spread["arrival_cv"] == pytest.approx(1, rel=0.1)
    assert load(tmp_path, lines[: lines.index("3000")].rsplit("{", 1)[0], ties="spread").arrival_s.tolist() == [0] * 10


def test_spread_requests_keep_their_seconds_whatever_is_taken(tmp_path: Path) -> None:
    rows = burstgpt(*[(second, 1, 1) for second in (0, 0, 1, 1, 2, 2)])
    whole = load(tmp_path, rows, ties="spread").arrival_s
    part = load(tmp_path, rows, ties="spread", window=(1.0, 2.0)).arrival_s
    assert np.diff(whole)[2] == pytest.approx(np.diff(part)[0])
    assert len(part) == 2


def test_a_head_a_hundred_times_sparser_shows_in_the_profile_of_the_chosen_window(tmp_path: Path) -> None:
    times = [*np.arange(0, 500, 10), *np.arange(500, 1000, 0.1)]
    trace = "timestamp,prompt_tokens,output_tokens\n" + "".join(f"{time:.1f},1,1\n" for time in times)
    options = {"format": "csv", "time_unit": "s"}
    assert describe(load(tmp_path, trace, **options))["rate_profile"][:6] == [10, 10, 10, 10, 10, 1000]
    shown = describe(load(tmp_path, trace, window=(500.0, 1000.0), **options))
    assert set(shown["rate_profile"]) <= {499, 500, 501}
    assert shown["rate_per_s"] == pytest.approx(10, rel=0.01)


def test_prompts_too_long_for_the_server_are_left_out_by_an_option_and_counted(tmp_path: Path) -> None:
    rows = burstgpt((0, 100, 10), (1, 126_000, 500), (2, 8000, 192), (3, 8000, 193))
    server = config.load().server  # 8192 tokens
    everything = config.load(["workload=trace", f"trace.path={tmp_path / 'trace'}"])
    load(tmp_path, rows)
    with pytest.raises(InputError, match=r"trace\.max_tokens=8192 leaves such requests out and counts them"):
        fits(build(everything.workload, 0, everything.trace), server)
    trace = load(tmp_path, rows, max_tokens=8192)
    assert trace.prompt_tokens.tolist() == [100, 8000]
    assert describe(trace)["too_long"] == 2
    with pytest.raises(InputError, match=r"trace\.requests=3: .* has 2 requests of at most trace\.max_tokens=8192"):
        load(tmp_path, rows, max_tokens=8192, requests=3)
    with pytest.raises(InputError, match=r"trace\.max_tokens=9: all 4 requests"):
        load(tmp_path, rows, max_tokens=9)


def test_the_window_comes_before_what_is_too_long(tmp_path: Path) -> None:
    rows = burstgpt((0, 9, 1), (1, 99, 1), (2, 9, 1), (3, 99, 1))
    assert load(tmp_path, rows, max_tokens=10, window=(0.0, 3.0)).too_long == 1


def test_vllm_custom_lengths_are_those_of_the_file(tmp_path: Path) -> None:
    rows = '{"prompt": "abcdefghi", "output_tokens": 10}\n{"prompt": [5, 6, 7], "output_tokens": 1520}\n'
    given = {"rate_per_s": 2.0, "chars_per_token": 4.0}
    trace = load(tmp_path, rows, **given)
    assert trace.format == "vllm"
    assert (trace.prompt_tokens.tolist(), trace.output_tokens.tolist()) == ([3, 3], [10, 1520])
    assert trace.arrival_s.tolist() == load(tmp_path, rows, **given).arrival_s.tolist()
    assert trace.arrival_s.tolist() != load(tmp_path, rows, seed=1, **given).arrival_s.tolist()
    with pytest.raises(InputError, match=r"trace\.rate_per_s: the vllm format has no times"):
        load(tmp_path, rows, chars_per_token=4.0)
    with pytest.raises(InputError, match=r"trace\.chars_per_token: the prompts are text"):
        load(tmp_path, rows, rate_per_s=2.0)
    for bad in ('{"prompt": 7, "output_tokens": 1}', '{"prompt": "", "output_tokens": 1}', '{"prompt": "a b"}'):
        with pytest.raises(InputError, match="trace:2: "):
            load(tmp_path, rows.splitlines()[0] + "\n" + bad + "\n", **given)


def test_vllm_custom_arrivals_have_the_rate_asked_for(tmp_path: Path) -> None:
    trace = load(tmp_path, '{"prompt": [1], "output_tokens": 2}\n' * 20_000, rate_per_s=50.0)
    shown = describe(trace)
    assert shown["rate_per_s"] == pytest.approx(50, rel=0.03)
    assert shown["arrival_cv"] == pytest.approx(1, rel=0.03)


@pytest.mark.parametrize("key", ["rate_per_s", "chars_per_token"])
def test_keys_of_one_format_are_refused_by_the_others(tmp_path: Path, key: str) -> None:
    with pytest.raises(InputError, match=rf"trace\.{key}=2: the burstgpt format has its own"):
        load(tmp_path, burstgpt((0, 1, 1)), **{key: 2.0})
    with pytest.raises(InputError, match=r"trace\.time_unit=ms: the burstgpt format counts in s"):
        load(tmp_path, burstgpt((0, 1, 1)), time_unit="ms")


def test_a_long_trace_streams(tmp_path: Path) -> None:
    rows = "timestamp,prompt_tokens,output_tokens\n" + "".join(f"{n},1000,1000\n" for n in range(40_000))
    packed = gzip.compress(rows.encode())
    path = tmp_path / "trace"
    path.write_bytes(packed)
    asked = config.load(["trace.format=csv", "trace.time_unit=s", f"trace.path={path}"]).trace
    tracemalloc.start()
    trace = read(asked)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(trace) == 40_000
    assert peak < 40_000 * 24 * 6  # numbers alone: the text would take several times that

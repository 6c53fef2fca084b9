"""What is told of a recorded server, and a recording as the trace that drove it."""

import json
from pathlib import Path
from typing import Any

import pytest

from artifact.analysis.inspect_server import inspect_server
from artifact.cli import main
from artifact.config import load
from artifact.errors import InputError
from artifact.graphs.dispatch import Dispatcher
from artifact.graphs.sizes import capture_sizes
from artifact.schema import Mode, RecordConfig
from artifact.workloads.traces import Trace, read
from tests.record_support import BASE_S, Finished, Iteration, Scheduler, record, settings, step

DECODE, MIXED = (1, 7, 96, 97, 100, 200), (3, 30, 300, 600)


def asked(folder: Path, window: tuple[float, float] | None = None) -> dict[str, Any]:
    record_ = RecordConfig(path=str(folder), window=window)
    answer = inspect_server(load([]).model_copy(update={"record": record_}))
    json.dumps(answer, allow_nan=False)
    return answer


def trace_of(path: Path, **keys: Any) -> Trace:
    return read(load([]).trace.model_copy(update={"path": str(path), **keys}))


def dispatched(resolved: Mode, **changes: Any) -> list[tuple[Scheduler, Iteration]]:
    """Decode and mixed steps of a server whose mode came to ``resolved``, a second apart."""
    server = load([]).server.model_copy(
        update={name: settings(**changes)[name] for name in ("max_num_seqs", "max_num_batched_tokens")}
    )
    graphs = Dispatcher(resolved, capture_sizes(server, resolved), server)
    calls = []
    decode = [tokens for tokens in DECODE if tokens <= server.max_num_seqs]
    for uniform, batches in ((True, decode), (False, MIXED)):
        for tokens in batches:
            runtime, padded = graphs.dispatch(tokens, uniform)
            calls.append(step(len(calls), tokens, runtime, padded, sampled=tokens if uniform else tokens // 2))
    return calls


# The mode


@pytest.mark.parametrize("mode", [mode for mode in Mode if mode is not Mode.EAGER])
def test_a_mode_that_stays_is_told_from_the_steps(tmp_path: Path, mode: Mode) -> None:
    calls = dispatched(mode)
    answer = asked(record(tmp_path, calls, cudagraph_mode=mode.value, cudagraph_capture_sizes=sizes(mode)))
    assert (answer["requested_mode"], answer["resolved_modes"], answer["hollow"]) == (mode.value, [mode.value], False)
    assert answer["warnings"] == []
    shares = {row["runtime_mode"]: row["steps"] for row in answer["dispatch"]}
    told = [scheduler.cudagraph_stats.runtime_mode for scheduler, _ in calls if scheduler.cudagraph_stats]
    assert shares == {name: told.count(name) for name in ("FULL", "PIECEWISE", "NONE")}
    assert sum(row["token_share"] for row in answer["dispatch"]) == pytest.approx(1)


def sizes(mode: Mode) -> list[int]:
    return [] if mode is Mode.NONE else settings()["cudagraph_capture_sizes"]


def test_a_hollow_mode_is_predicted_by_the_rules(tmp_path: Path) -> None:
    calls = dispatched(Mode.FULL_AND_PIECEWISE)
    for backend in ("FLASHINFER", None):  # with the backend, and by the steps alone
        answer = asked(record(tmp_path / str(backend), calls, cudagraph_mode="FULL", backend=backend))
        assert (answer["resolved_modes"], answer["hollow"]) == (["FULL_AND_PIECEWISE"], True)
        (row,) = [row for row in answer["fallthrough"] if row["runtime_mode"] == "PIECEWISE"]
        assert row["reason"].startswith("hollow")
        assert row["steps"] == 3
        assert "replay nothing" in answer["mode_reason"]


def test_without_metrics_the_modes_are_unknown_and_the_flag_is_named(tmp_path: Path) -> None:
    calls = [(Scheduler(4, kv_cache_usage=0.1), Iteration(BASE_S + at, 4)) for at in range(4)]
    answer = asked(record(tmp_path, calls, cudagraph_metrics=False, cudagraph_mode="FULL", backend=None))
    assert answer["dispatch"] is None
    assert "--cudagraph-metrics" in answer["dispatch_reason"]
    assert (answer["fallthrough"], answer["padding_ratio"], answer["hollow"]) == (None, None, None)
    assert set(answer["resolved_modes"]) == {"FULL", "FULL_AND_PIECEWISE"}  # whichever the backend allows
    assert answer["stability"][0]["decode_step_share"] is None
    assert answer["stability"][0]["running_cv"] == 0


def test_steps_that_no_rule_explains_are_said(tmp_path: Path) -> None:
    calls = [*dispatched(Mode.FULL), step(60, 50, "NONE")]
    answer = asked(record(tmp_path, calls, cudagraph_mode="FULL"))
    assert answer["resolved_modes"] == ["FULL"]
    assert any(text.startswith("1 of 11 steps were dispatched otherwise") for text in answer["warnings"])
    (row,) = [row for row in answer["fallthrough"] if row["from"] == row["to"] == 50]
    assert "cascade attention" in row["reason"]


def test_settings_of_another_vllm_leave_the_mode_open(tmp_path: Path) -> None:
    for changes in ({"max_num_seqs": None}, {"cudagraph_mode": None}, {"cudagraph_mode": "HALF"}):
        answer = asked(record(tmp_path / str(len(list(tmp_path.iterdir()))), dispatched(Mode.FULL), **changes))
        assert (answer["resolved_modes"], answer["fallthrough"], answer["hollow"]) == ([], None, None)
        assert answer["dispatch"] is not None


def test_eager_is_eager(tmp_path: Path) -> None:
    eager = {"cudagraph_mode": "NONE", "enforce_eager": True, "compilation_mode": "NONE", "cudagraph_capture_sizes": []}
    answer = asked(record(tmp_path, [step(0, 8, "NONE"), step(1, 900, "NONE", sampled=1)], **eager))
    assert (answer["requested_mode"], answer["resolved_modes"]) == ("EAGER", ["NONE"])
    assert [row["reason"] for row in answer["fallthrough"]] == ["NONE has no graphs"]


# What fell through


def test_each_batch_without_its_graph_has_a_reason(tmp_path: Path) -> None:
    few = {"max_num_seqs": 100, "cudagraph_capture_sizes": [1, 2, 4, *range(8, 201, 8)]}
    calls = dispatched(Mode.FULL_AND_PIECEWISE, **few)
    rows = asked(record(tmp_path / "pair", calls, **few))["fallthrough"]
    found = {(row["runtime_mode"], row["from"], row["to"]): row["reason"] for row in rows}
    assert "pads to 104, above max_num_seqs=100" in found.pop(("PIECEWISE", 97, 100))
    assert "largest capture size (200)" in found.pop(("NONE", 300, 600))
    assert not found
    calls = dispatched(Mode.FULL_DECODE_ONLY, **few)
    rows = asked(record(tmp_path / "decode", calls, cudagraph_mode="FULL_DECODE_ONLY", **few))["fallthrough"]
    found = {(row["runtime_mode"], row["from"], row["to"]): row["reason"] for row in rows}
    assert "pads to 104" in found.pop(("NONE", 97, 100))
    assert "has graphs for decode alone" in found.pop(("NONE", 3, 30))
    assert list(found) == [("NONE", 300, 600)]


def test_the_most_frequent_sizes_come_first(tmp_path: Path) -> None:
    calls = [step(at, 600 + (at % 3 == 0), "NONE", sampled=1) for at in range(30)]
    (row,) = asked(record(tmp_path, calls))["fallthrough"]
    assert row["most_frequent"] == [{"num_tokens": 600, "steps": 20}, {"num_tokens": 601, "steps": 10}]
    assert (row["batch_sizes"], row["step_share"]) == (2, 1)


# Batches, requests, time


def test_batches_and_requests_are_described(tmp_path: Path) -> None:
    calls = [step(at, 8, "FULL", running=1 + at % 2) for at in range(10)]
    for at in range(0, 10, 2):
        calls[at][1].time_to_first_tokens_iter = [0.25]
        calls[at][1].finished_requests = [Finished(0.5, 10 + at, 20, 0.004, num_cached_tokens=5)]
    answer = asked(record(tmp_path, calls))
    (batches,) = answer["stability"]
    assert (batches["steps"], batches["running_max"], batches["decode_step_share"]) == (10, 2, 1)
    assert batches["running_cv"] == pytest.approx((20 / 81) ** 0.5 / (13 / 9))
    requests = answer["requests"]
    assert (requests["finished"], requests["rate_per_s"], requests["arrival_cv"]) == (5, 0.5, 0)
    assert requests["prompt_tokens"] == pytest.approx({"p50": 14, "p90": 17.2, "p99": 17.92, "max": 18})
    assert requests["cached_prompt_share"] == pytest.approx(25 / 70)
    assert requests["finish_reasons"]["length"] == 5
    times = answer["latency"]
    assert (times["ttft_p50_ms"], times["e2e_p50_ms"]) == pytest.approx((250, 500), abs=1e-3)
    assert times["tpot_p50_ms"] == pytest.approx(4, abs=1e-5)
    assert times["ttft_p90_ms"] is None  # five values have no 90th percentile
    assert requests["unfinished"] == 5  # no end is as old as these first tokens


def test_a_window_counts_from_the_first_request(tmp_path: Path) -> None:
    calls = [step(at, 8, "FULL") for at in range(10)]
    for at in range(2, 10):
        calls[at][1].finished_requests = [Finished(1.0, at, 20, 0.004)]
    folder = record(tmp_path, calls)
    answer = asked(folder, (2.0, 5.0))  # the first request arrived at 1
    assert (answer["steps"], answer["requests"]["finished"]) == (3, 3)
    assert answer["requests"]["prompt_tokens"]["max"] == 6
    trace = trace_of(folder, window=(2.0, 5.0))
    assert trace.prompt_tokens.tolist() == [4, 5, 6]
    with pytest.raises(InputError, match="from < to"):
        asked(folder, (5.0, 5.0))
    with pytest.raises(InputError, match=r"nothing there; the recording lasts 8\.000 s"):
        asked(folder, (50.0, 60.0))


def test_a_window_of_steps_alone(tmp_path: Path) -> None:
    folder = record(tmp_path, [step(at, 8, "FULL") for at in range(10)])
    assert asked(folder, (2.0, 4.0))["steps"] == 2
    with pytest.raises(InputError, match="nothing there"):
        asked(folder, (20.0, 40.0))


def test_of_very_many_steps_the_last_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("artifact.engines.record_writer._ROWS_A_FRAME", 5)
    monkeypatch.setattr("artifact.workloads.recordings.MOST_STEPS", 12)
    folder = record(tmp_path, [step(at, 8, "FULL" if at else "NONE") for at in range(30)])
    answer = asked(folder)
    assert answer["steps"] == 15  # whole writes, 12 at least
    assert answer["warnings"] == [
        "the last 15 steps alone are looked at, 15 came before them: record.window picks a part"
    ]
    assert asked(folder, (0.0, 3.0))["dispatch"][-1]["steps"] == 1


def test_the_last_configuration_of_a_folder_counts(tmp_path: Path) -> None:
    record(tmp_path, [step(50, 8, "FULL"), step(51, 8, "FULL")])
    record(tmp_path, [step(0, 8, "PIECEWISE")], cudagraph_mode="PIECEWISE")
    answer = asked(tmp_path)
    assert (answer["requested_mode"], answer["steps"]) == ("FULL_AND_PIECEWISE", 2)
    assert "2 configurations" in answer["warnings"][0]


def test_engines_are_told_apart(tmp_path: Path) -> None:
    record(tmp_path, [step(at, 8, "FULL", running=2) for at in range(5)], data_parallel_size=2)
    record(tmp_path, [step(at + 0.5, 8, "FULL", running=90) for at in range(5)], data_parallel_size=2)
    answer = asked(tmp_path)
    assert [row["running_cv"] for row in answer["stability"]] == [0, 0]
    assert "data parallel" in answer["mode_reason"] or answer["hollow"] is False
    assert answer["steps"] == 10


# The command


def test_people_get_tables_and_programs_an_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = record(tmp_path / "rec", dispatched(Mode.FULL_AND_PIECEWISE), cudagraph_mode="FULL", backend="FLASHINFER")
    assert main(["inspect", f"record.path={folder}"]) == 0
    out = capsys.readouterr().out
    for text in ("FULL -> FULL_AND_PIECEWISE", "hollow, by the rules", "largest capture size (512)", "PIECEWISE"):
        assert text in out
    assert main(["inspect", f"record.path={folder}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["hollow"] is True
    bare = record(tmp_path / "bare", [(Scheduler(1), None)], cudagraph_metrics=False)
    assert main(["inspect", f"record.path={bare}"]) == 0
    assert "--cudagraph-metrics" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["record.path=/nowhere"], ["record.path=.", "record.window=[-1,2]"]])
def test_a_mistake_is_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", *arguments]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "record." in err or "/nowhere" in err

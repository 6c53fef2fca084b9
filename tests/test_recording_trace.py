"""A recording as a trace: the same answers as the trace that drove the server, and what is left out of it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from artifact.analysis.inspect_server import inspect_server
from artifact.analysis.recommend import mode_trials
from artifact.analysis.recommend.recommendation import recommend
from artifact.config import load
from artifact.engines.sim_engine import SimEngine
from artifact.errors import InputError
from artifact.graphs.dispatch import dispatcher
from artifact.schema import Evidence, Mode, RecordConfig
from artifact.study.identity import identity
from artifact.workloads.build import build
from artifact.workloads.traces import Trace, read
from tests.record_support import BASE_S, Finished, Iteration, Scheduler, record, served, step
from tests.sim_support import calibration_file, launch, synthetic_calibration


def trace_of(path: Path, **keys: Any) -> Trace:
    return read(load([]).trace.model_copy(update={"path": str(path), **keys}))


GOLDEN = Path(__file__).parent / "golden" / "recording"


def test_the_recording_of_a_real_server_holds_what_was_sent_to_it() -> None:
    """`vllm serve` 0.21.0 on an H200, as benchmarks/serve_recorded.py drove it: the default mode, churn at 20/s."""
    config = load(["workload=churn", "workload.arrival.rate_per_s=20.0", "workload.duration_s=30.0"])
    sent = build(config.workload, 1, config.trace)
    got = trace_of(GOLDEN)
    pairs = [sorted(zip(each.prompt_tokens, each.output_tokens, strict=True)) for each in (sent, got)]
    assert pairs[0] == pairs[1]
    late_s = np.abs(got.arrival_s - (np.sort(sent.arrival_s) - sent.arrival_s.min()))
    assert np.percentile(late_s, 99) < 0.01  # the server notes when it got hold of a request
    told = inspect_server(config.model_copy(update={"record": RecordConfig(path=str(GOLDEN), window=None)}))
    rules = dispatcher(load(["server=study"]).server, Mode.FULL_AND_PIECEWISE)
    assert (told["resolved_modes"], told["warnings"]) == (["FULL_AND_PIECEWISE"], [])
    assert told["server"]["cudagraph_capture_sizes"] == list(rules.sizes)
    assert [row["runtime_mode"] for row in told["dispatch"]] == ["FULL", "PIECEWISE", "NONE"]
    [falling] = told["fallthrough"]
    assert falling["from"] > max(rules.sizes)


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    file = tmp_path / "trace.csv"
    rows = [f"{at * 70_001 % 4_000_000 + at},{20 + at * 37 % 300},{2 + at * 13 % 40}" for at in range(120)]
    lines = "\n".join(sorted(rows, key=lambda row: int(row.split(",")[0])))
    file.write_text(f"timestamp,prompt_tokens,output_tokens\n{lines}\n")
    return file


def test_a_recording_answers_as_the_trace_that_drove_it(
    tmp_path: Path, csv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drive the simulator with a trace, record what it says, and ask with the recording."""
    monkeypatch.setattr(mode_trials, "_PROCESSES", 1)
    calibration = calibration_file(tmp_path, synthetic_calibration(frontend_ms=0.5))
    driving = ["workload=trace", f"trace.path='{csv}'", "trace.format=csv", "trace.time_unit=us"]
    engine = SimEngine()
    engine.start(launch(calibration, *driving))
    config = load(driving)
    measurement = engine.measure(build(config.workload, 1, config.trace), 600, heavy_probe=True)
    folder = record(tmp_path / "rec", served(measurement))
    driven, recorded = read(config.trace), trace_of(folder)
    assert recorded.format == "recording"
    assert recorded.dropped_count == 0
    for name in ("arrival_s", "prompt_tokens", "output_tokens"):
        assert getattr(recorded, name).tolist() == getattr(driven, name).tolist()
    asking = [f"engine.calibration='{calibration}'", "recommend.seeds=1", "recommend.launch_us=[]"]
    ours = recommend([*asking, "workload=trace", f"trace.path='{folder}'", "trace.format=recording"])
    theirs = recommend([*asking, *driving])
    assert ours == theirs
    record_ = RecordConfig(path=str(folder), window=None)
    told = inspect_server(config.model_copy(update={"record": record_}))
    assert (told["resolved_modes"], told["warnings"]) == (["FULL_AND_PIECEWISE"], [])
    assert told["requests"]["unfinished"] == 0


def test_unfinished_requests_are_dropped_and_counted(tmp_path: Path) -> None:
    calls = [step(at, 8, "FULL") for at in range(6)]
    for at in range(3):
        calls[at][1].time_to_first_tokens_iter = [0.5]
    calls[4][1].finished_requests = [Finished(4.5, 7, 8), Finished(3.5, 9, 0)]
    calls[5][0].num_waiting_reqs = 2
    folder = record(tmp_path, calls)
    for path in (folder, *folder.iterdir()):  # the folder, or its file
        trace = trace_of(path)
        assert (len(trace), trace.dropped_count) == (1, 4)
    reasons = [reason for _, reason in trace.dropped]
    assert "nothing was generated" in reasons[0]
    assert "no end of it was recorded" in reasons[1]
    assert ["waiting" in reason for reason in reasons] == [False, False, True, True]
    assert [line for line, _ in trace.dropped] == [2, 3, 4, 5]


def test_a_recording_without_an_end_is_no_trace(tmp_path: Path) -> None:
    calls = [(Scheduler(1), Iteration(BASE_S, 1, [0.5]))]
    with pytest.raises(InputError, match="no usable request; line 1: no end of it was recorded"):
        trace_of(record(tmp_path, calls))


@pytest.mark.parametrize("key", [{"time_unit": "s"}, {"rate_per_s": 2.0}, {"columns": {"time": "a"}}])
def test_keys_that_a_recording_does_not_take(tmp_path: Path, key: dict[str, Any]) -> None:
    folder = record(tmp_path, [step(0, 8, "FULL")])
    with pytest.raises(InputError, match=rf"trace\.{next(iter(key))}.*recording"):
        trace_of(folder, **key)


def test_a_cell_is_known_by_the_whole_recording(tmp_path: Path) -> None:
    """A folder that has grown is another trace: its cells are other cells."""
    config = load(["workload=trace"])

    def digest(folder: Path) -> object:
        trace = config.trace.model_copy(update={"path": str(folder)})
        return identity(config.model_copy(update={"trace": trace}), Evidence.MEASURED)["trace_sha256"]

    same = [record(tmp_path / name, [step(0, 8, "FULL")]) for name in ("one", "other")]
    (file,) = same[0].iterdir()
    (other,) = same[1].iterdir()
    other.write_bytes(file.read_bytes())
    assert digest(same[0]) == digest(same[1])
    grown = tmp_path / "grown"
    grown.mkdir()
    (grown / file.name).write_bytes(file.read_bytes())
    record(grown, [step(1, 8, "FULL")])
    assert digest(grown) != digest(same[0])

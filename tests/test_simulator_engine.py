"""The simulated engine: hand-worked latencies through the whole path, modes, memory, faults, determinism."""

import multiprocessing
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sim_support import GIB, calibration_file, launch, schedule, synthetic_calibration

from artifact.engines.sim_engine import SimEngine
from artifact.errors import CellFailed, EnvironmentLacks, InputError
from artifact.records import Launch, Schedule
from artifact.schema import FaultConfig


@pytest.fixture
def calibration(tmp_path: Path) -> Path:
    return calibration_file(tmp_path, synthetic_calibration())


def measure(given: Launch, load: Schedule, heavy_probe: bool = False):
    engine = SimEngine()
    engine.start(given)
    return engine.measure(load, 1000.0, heavy_probe)


def test_latencies_through_one_seat_by_hand(calibration: Path) -> None:
    """NONE: launch 10 ms, GPU 2 ms + 0.01 ms a token, so every step but a 900-token prefill is the host's."""
    given = launch(calibration, "mode=none", "server.max_num_seqs=1", "server.async_scheduling=false")
    requests = measure(given, schedule([(100, 3), (900, 1)])).requests
    # 3 steps of 10 ms; then max(10, 2 + 9) ms
    assert (requests["first_token_s"] * 1e3).tolist() == pytest.approx([10, 41])
    assert (requests["last_token_s"] * 1e3).tolist() == pytest.approx([30, 41])


def test_modes_differ_by_their_graphs(calibration: Path) -> None:
    load = schedule([(100, 200)] * 20)
    periods = {}
    for mode in ("eager", "none", "piecewise", "full", "full_decode_only", "full_and_piecewise"):
        steps = measure(launch(calibration, f"mode={mode}"), load, heavy_probe=True).steps
        periods[mode] = float(steps["wall_ms"].median())
    # 24 tokens after padding: 2.24 ms of GPU time; the host needs 12, 10 and 4 ms without whole graphs
    assert periods == pytest.approx(
        {"eager": 12, "none": 10, "piecewise": 4, "full": 2.24, "full_decode_only": 2.24, "full_and_piecewise": 2.24}
    )


def test_hollow_piecewise_steps_cost_what_no_graph_costs(calibration: Path) -> None:
    given = launch(calibration, "mode=full", "backend=flashinfer")
    engine = SimEngine()
    facts = engine.start(given)
    assert facts.realised_mode == "FULL_AND_PIECEWISE:hollow"
    assert (facts.keys_piecewise, facts.graphs_piecewise) == (51, 0)
    assert any("FLASHINFER is priced as FLASH_ATTN" in warning for warning in engine.warnings)
    steps = engine.measure(schedule([(100, 5)]), 10.0, heavy_probe=True).steps
    assert steps["runtime_mode"].iloc[0] == "PIECEWISE"
    assert steps["padded_tokens"].iloc[0] == 104
    assert steps["launch_ms"].iloc[0] == pytest.approx(10)


def test_batches_above_the_largest_size_run_without_a_graph(calibration: Path) -> None:
    given = launch(calibration, "server=serve_default", "server.num_gpu_blocks_override=100000")
    steps = measure(given, schedule([(1, 3)] * 513)).steps
    assert set(steps["runtime_mode"]) == {"NONE"}


def test_equal_seeds_repeat_and_launches_differ(tmp_path: Path) -> None:
    file = calibration_file(tmp_path, synthetic_calibration(noise_sigma=0.1, launch_ms={"FULL": 5.0, "PIECEWISE": 5.0}))
    load = schedule([(100, 50)] * 5)
    first, again = (measure(launch(file), load).requests for _ in range(2))
    other = measure(launch(file, launch_id="launch-1"), load).requests
    assert first.equals(again)
    assert (first["last_token_s"] != other["last_token_s"]).all()


def test_kv_cache_follows_the_override_or_the_memory_left(calibration: Path) -> None:
    assert SimEngine().start(launch(calibration, "server.num_gpu_blocks_override=1000")).kv_tokens == 16_000
    at_equal = SimEngine().start(launch(calibration, "server.num_gpu_blocks_override=null"))
    assert at_equal.kv_tokens == 100 * GIB // (114_688 * 16) * 16
    less = SimEngine().start(
        launch(calibration, "server.num_gpu_blocks_override=null", "server.gpu_memory_utilization=0.8")
    )
    assert less.kv_tokens == (100 * GIB - int(0.1 * 150754820096)) // (114_688 * 16) * 16
    with pytest.raises(CellFailed, match="less than max_model_len=8192") as caught:
        SimEngine().start(launch(calibration, "server=small_kv"))
    assert caught.value.status == "oom"
    with pytest.raises(EnvironmentLacks, match=r"set server\.num_gpu_blocks_override"):
        SimEngine().start(launch(calibration, "mode=none", "server.num_gpu_blocks_override=null"))


def test_capture_is_scaled_by_the_number_of_graphs(calibration: Path) -> None:
    engine = SimEngine()
    default = engine.start(launch(calibration))
    assert (default.captures, default.graph_bytes, default.capture_s) == (1514, 300, 4.0)
    assert engine.warnings == []
    few = engine.start(launch(calibration, "server.cudagraph_capture_sizes=[1,2]"))
    assert (few.captures, few.graph_bytes) == (60, 300 * 60 // 1514)
    assert any("60 graphs instead of the 1514" in warning for warning in engine.warnings)
    unknown = SimEngine().start(launch(calibration, "mode=full"))
    assert unknown.graph_bytes is None
    assert unknown.start_s is None


def test_what_vllm_refuses_and_what_the_simulator_lacks(calibration: Path) -> None:
    with pytest.raises(CellFailed) as caught:
        SimEngine().start(launch(calibration, "server.max_num_batched_tokens=100"))
    assert caught.value.status == "refused"
    with pytest.raises(InputError, match=r"server\.num_speculative_tokens=3: the simulator knows 0 alone"):
        SimEngine().start(launch(calibration, "server.num_speculative_tokens=3"))
    with pytest.raises(RuntimeError, match="has not been started"):
        SimEngine().measure(schedule([(1, 1)]), 1.0)


def test_leaving_the_calibrated_range_is_said(tmp_path: Path) -> None:
    known = synthetic_calibration()
    tables = {name: table.model_copy(update={"max_requests": 4}) for name, table in known.tables.items()}
    engine = SimEngine()
    engine.start(launch(calibration_file(tmp_path, known.model_copy(update={"tables": tables}))))
    engine.measure(schedule([(10, 3)] * 6), 10.0)
    assert engine.warnings == [
        "1 of 3 steps lie beyond the calibration: more than 4 requests in a PIECEWISE step",
        "2 of 3 steps lie beyond the calibration: more than 4 requests in a FULL step",
    ]


def faulty(calibration: Path, **fault: str) -> Launch:
    given = launch(calibration)
    engine = given.config.engine.model_copy(update={"fault": FaultConfig.model_validate(fault)})
    return replace(given, config=given.config.model_copy(update={"engine": engine}))


@pytest.mark.parametrize("kind", ["oom", "engine_error"])
def test_faults_at_the_asked_place_and_arm(calibration: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    for where in ("load", "capture"):
        with pytest.raises(RuntimeError, match=f"{kind} at {where}"):
            SimEngine().start(faulty(calibration, kind=kind, where=where))
    engine = SimEngine()
    engine.start(faulty(calibration, kind=kind, where="measure"))
    with pytest.raises(RuntimeError, match=f"{kind} at measure"):
        engine.measure(schedule([(1, 1)]), 1.0)
    # as vLLM's worker has it: the log alone names the memory
    assert capsys.readouterr().out.count("torch.OutOfMemoryError") == (3 if kind == "oom" else 0)
    SimEngine().start(faulty(calibration, kind=kind, arm="OTHER"))


@pytest.mark.parametrize(("kind", "exitcode"), [("crash", -signal.SIGKILL), ("hang", None)])
def test_crash_and_hang_need_a_parent(calibration: Path, kind: str, exitcode: int | None) -> None:
    given = faulty(calibration, kind=kind)
    process = multiprocessing.get_context("spawn").Process(target=SimEngine().start, args=(given,))
    process.start()
    process.join(60 if exitcode is not None else 4)
    assert process.exitcode == exitcode
    process.kill()
    process.join()


def test_a_long_load_stays_conserved(calibration: Path) -> None:
    rng = np.random.default_rng(0)
    n = 3000
    lengths = list(zip(rng.integers(1, 500, n).tolist(), rng.integers(1, 200, n).tolist(), strict=True))
    arrivals = np.cumsum(rng.exponential(1 / 100, n)).tolist()
    given = launch(calibration, "server.num_gpu_blocks_override=600", "server.max_num_batched_tokens=512")
    measured = measure(given, schedule(lengths, arrival_s=arrivals))
    assert measured.requests["output_tokens"].tolist() == [output for _, output in lengths]
    assert measured.steps["num_running"].max() <= 256
    assert measured.steps["kv_usage"].max() <= 1
    assert measured.steps["num_tokens"].max() == 512
    # with so few blocks some are preempted and computed again
    assert measured.steps["num_tokens"].sum() > sum(prompt + output - 1 for prompt, output in lengths)

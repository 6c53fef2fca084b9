"""The measured engine and its probe on the stand-in of tests/fake_vllm; its contract: test_engine_contract.py."""

import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_support import fake_vllm
from golden import record
from sim_support import launch, schedule

import artifact.engines
from artifact.engines import vllm_engine
from artifact.engines.vllm_engine import VllmEngine
from artifact.errors import CellFailed, InputError
from artifact.records import LaunchFacts

GOLDEN = Path(__file__).parent / "golden"
HEAVY = ["num_reqs", "num_decode", "prefill_tokens", "context_tokens", "launch_ms", "gpu_ms"]
HOOKED = {"execute_model", "_model_forward", "_determine_batch_execution_and_padding", "sample_tokens"}


@pytest.fixture(scope="module", autouse=True)
def fake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with fake_vllm(tmp_path_factory.mktemp("cache")):
        yield


@pytest.fixture
def engine() -> Iterator[VllmEngine]:
    made = VllmEngine()
    yield made
    made.close()


def started(engine: VllmEngine, *overrides: str) -> LaunchFacts:
    return engine.start(launch(None, "engine=vllm", "engine.pin_cores=false", *overrides))


def runner(engine: VllmEngine) -> Any:
    return engine._engine.engine_core.worker.model_runner


def test_start_up_adds_up(engine: VllmEngine) -> None:
    facts = started(engine)
    assert facts.start_s is not None
    parts = [facts.load_s, facts.compile_s, facts.profile_s, facts.capture_s, facts.unexplained_s]
    assert all(part is not None and part >= 0 for part in parts)
    assert sum(part or 0 for part in parts) == pytest.approx(facts.start_s)
    assert facts.first_answer_s is not None
    assert facts.first_answer_s > 0
    assert facts.import_s is not None
    assert (facts.attention_backend, facts.compile_cache) == ("FLASH_ATTN (FA3)", "cold")
    assert (facts.captures, facts.graph_bytes, facts.memory_valid) == (51 * 29 + 35, 1 << 20, True)
    assert facts.copy_bytes_per_s == pytest.approx(2 * 2**29 / 1e-3, rel=0.2)  # the stand-in copies in a millisecond
    assert "capture_model" not in vars(runner(engine))  # the timing wrapper is gone


def test_eager_has_no_graphs_and_its_own_name(engine: VllmEngine) -> None:
    facts = started(engine, "mode=eager")
    assert (facts.realised_mode, facts.hollow, facts.compile_cache) == ("EAGER", False, "off")
    assert (facts.captures, facts.capture_s, facts.graph_bytes) == (0, 0.0, 0)
    steps = engine.measure(schedule([(20, 5)]), 60.0).steps
    assert set(steps["runtime_mode"]) == {"NONE"}


def test_keys_without_graphs_are_hollow(engine: VllmEngine) -> None:
    facts = started(engine, "mode=full", "backend=flashinfer")
    assert (facts.realised_mode, facts.hollow) == ("FULL_AND_PIECEWISE:hollow", True)
    assert (facts.keys_piecewise, facts.graphs_piecewise, facts.graphs_full) == (51, 0, 35)
    assert facts.attention_backend == "FLASHINFER"


def test_flash_attention_s_version_is_the_launch_s_own(engine: VllmEngine) -> None:
    assert started(engine, "backend=flash_attn_2").attention_backend == "FLASH_ATTN (FA2)"


@pytest.mark.parametrize("file", sorted(GOLDEN.glob("dispatch_*.json")), ids=lambda file: file.stem)
def test_dispatch_line_becomes_the_golden_table(
    engine: VllmEngine,
    file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measured = json.loads(file.read_text())
    mode, backend = measured["requested_mode"].lower(), measured["backend"]["name"].lower()
    if version := measured["backend"]["flash_attn_version"]:
        backend += f"_{version}"
    settings = [f"server.{key}={'null' if value is None else value}" for key, value in measured["server"].items()]
    # Weights of its own would be written, and change no table.
    shape = ["model=qwen3-4-layers", "model.weights=dummy"] if measured["model_layers"] == 4 else []
    started(engine, f"mode={mode}", f"backend={backend}", *settings, *shape)
    (tmp_path / "launch.log").write_text("noise\n" + capsys.readouterr().out)
    monkeypatch.setattr(record, "HERE", tmp_path)
    record.main(tmp_path)
    again = json.loads((tmp_path / file.name).read_text())
    del measured["gpu"], again["gpu"]
    assert again == measured


def test_heavy_probe_records_each_step_and_leaves_nothing(engine: VllmEngine) -> None:
    started(engine)
    steps = engine.measure(schedule([(9, 5)]), 60.0, heavy_probe=True).steps
    assert steps["num_tokens"].tolist() == [9, 1, 1, 1, 1]
    assert steps["context_tokens"].tolist() == [0, 9, 10, 11, 12]
    assert steps["num_decode"].tolist() == [0, 1, 1, 1, 1]
    assert steps["runtime_mode"].tolist() == ["PIECEWISE"] + ["FULL"] * 4
    assert (steps["launch_ms"] >= steps["gpu_ms"]).all()
    assert steps["wall_ms"].isna().tolist() == [False] * 4 + [True]
    assert not HOOKED & set(vars(runner(engine)))


def test_the_host_s_pace_is_taken_at_both_ends_of_a_cell(engine: VllmEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """From launches, whatever the cell itself does: the second probe, of a host twice as slow, reads twice as much."""
    started(engine)
    worker = engine._engine.engine_core.worker
    probe, paces = worker.eager_launch_us, iter((1.0, 2.0))
    assert 0 < probe() < 1e4
    monkeypatch.setattr(worker, "eager_launch_us", lambda: 5.0 * next(paces))
    conditions = engine.measure(schedule([(9, 5)]), 60.0).conditions
    assert (conditions.launch_us_before, conditions.launch_us_after) == (5.0, 10.0)


@pytest.mark.parametrize(
    ("quiet_us", "wait_s", "before"),
    [("null", 60, 9.0), ("8.0", 60, 7.0), ("5.0", 0.05, 8.5)],
    ids=["no wait", "until it is quiet", "no longer than asked"],
)
def test_a_cell_waits_for_a_quiet_host(
    engine: VllmEngine, monkeypatch: pytest.MonkeyPatch, quiet_us: str, wait_s: float, before: float
) -> None:
    monkeypatch.setattr(vllm_engine, "_LOOK_S", 0.1)
    started(engine, f"engine.quiet_launch_us={quiet_us}", f"engine.quiet_wait_s={wait_s}")
    paces = iter((9.0, 8.5, 7.0, 7.0))
    monkeypatch.setattr(engine._engine.engine_core.worker, "eager_launch_us", lambda: next(paces))
    assert engine.measure(schedule([(9, 5)]), 60.0).conditions.launch_us_before == before


def test_a_cell_that_timed_out_leaves_no_hooks_to_the_next(engine: VllmEngine) -> None:
    started(engine)
    for heavy in (True, False):
        with pytest.raises(CellFailed) as caught:
            engine.measure(schedule([(20, 4000)] * 2), 0.05, heavy_probe=True)
        assert (caught.value.status, caught.value.reason) == ("timeout", "0 of 2 requests finished in 0.05 s")
        steps = engine.measure(schedule([(20, 4)]), 60.0, heavy_probe=heavy).steps
        assert len(steps) == 4
        assert steps[HEAVY].notna().all().all() == heavy  # hooks twice would count each step twice, and not join
        assert not HOOKED & set(vars(runner(engine)))


def test_long_prompts_and_bursts_take_several_steps(engine: VllmEngine) -> None:
    started(engine)
    lengths = [(5000, 3)] * 4
    steps = engine.measure(schedule(lengths), 60.0, heavy_probe=True).steps
    assert steps["num_tokens"].max() == 8192
    assert steps.loc[steps["num_tokens"] == 8192, "runtime_mode"].eq("NONE").all()
    assert steps["num_tokens"].sum() == 4 * (5000 + 3 - 1)


def test_death_of_the_engine_is_raised_and_not_a_row(engine: VllmEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    started(engine)

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(type(runner(engine)), "_model_forward", fails)
    with pytest.raises(Exception, match="EngineCore encountered an issue") as caught:
        engine.measure(schedule([(20, 5)] * 3), 60.0)
    assert type(caught.value).__name__ == "EngineDeadError"
    engine.close()
    engine.close()


@pytest.mark.parametrize(("cores", "pinned"), [(7, False), (8, True)])
def test_cores_are_split_where_there_are_enough(
    engine: VllmEngine, monkeypatch: pytest.MonkeyPatch, cores: int, pinned: bool
) -> None:
    asked: list[tuple[int, list[int]]] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    monkeypatch.setattr(os, "sched_setaffinity", lambda thread, given: asked.append((thread, list(given))))
    engine.start(launch(None, "engine=vllm"))
    assert bool(asked) == pinned
    if pinned:
        assert asked[0] == (0, [2, 3, 4, 5, 6, 7])  # before the core is forked
        assert {tuple(given) for _, given in asked[1:]} == {(0, 1)}
        assert os.getpid() in {thread for thread, _ in asked[1:]}


def test_several_gpus_are_refused_before_anything_starts(engine: VllmEngine) -> None:
    with pytest.raises(InputError, match=r"server\.tensor_parallel_size=2"):
        started(engine, "server.tensor_parallel_size=2")
    with pytest.raises(RuntimeError, match="not been started"):
        engine._required()


def test_arguments_that_vllm_does_not_have_fail_here(engine: VllmEngine) -> None:
    from vllm.engine.arg_utils import AsyncEngineArgs

    with pytest.raises(TypeError, match="cudagraph_metric'"):
        AsyncEngineArgs(cudagraph_metric=True)


def test_the_stand_in_does_not_leak(tmp_path: Path) -> None:
    def state() -> tuple[object, ...]:
        names = ("vllm", "torch", "artifact")
        modules = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in names}
        return modules, list(sys.path), dict(os.environ), getattr(artifact.engines, "vllm_probe", None)

    before = state()
    with fake_vllm(tmp_path):
        assert "vllm" not in sys.modules
        found = importlib.util.find_spec("vllm")
        assert found is not None
        importlib.import_module("artifact.engines.vllm_probe")
        assert state() != before
    assert state() == before

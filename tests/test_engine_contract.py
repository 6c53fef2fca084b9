"""What every engine keeps to: the simulator, the measured one on a stand-in of vLLM, and vLLM on a GPU (``gpu``)."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from fake_support import fake_vllm
from sim_support import calibration_file, launch, schedule, synthetic_calibration

from artifact.engines.base import Engine
from artifact.errors import CellFailed
from artifact.records import REQUEST_COLUMNS, STEP_COLUMNS, Launch, LaunchFacts
from artifact.schema import Evidence, Mode

HEAVY = ["num_reqs", "num_decode", "prefill_tokens", "context_tokens", "wall_ms", "launch_ms", "gpu_ms"]


@pytest.fixture(params=["sim", "stand-in", pytest.param("vllm", marks=pytest.mark.gpu)], scope="module")
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "vllm":
        pytest.importorskip("vllm", reason="vLLM is not installed")
        pynvml = pytest.importorskip("pynvml")
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            pytest.skip(f"no GPU: {error}")
    return str(request.param)


@pytest.fixture(scope="module")
def started(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Engine, Launch, LaunchFacts]]:
    """One engine for all tests: a start on vLLM takes most of a minute."""
    engine: Engine
    context = ExitStack()
    if kind == "sim":
        from artifact.engines.sim_engine import SimEngine

        engine = SimEngine()
        file = calibration_file(tmp_path_factory.mktemp("calibration"), synthetic_calibration(noise_sigma=0.05))
        given = launch(file)
    else:
        from artifact.engines.vllm_engine import VllmEngine

        engine = VllmEngine()
        given = launch(None, "engine=vllm", "server.gpu_memory_utilization=0.3")
        if kind == "stand-in":
            context.enter_context(fake_vllm(tmp_path_factory.mktemp("cache")))
            given = launch(None, "engine=vllm", "engine.pin_cores=false")
    with context:
        try:
            yield engine, given, engine.start(given)
        finally:
            engine.close()
            engine.close()  # safe twice


def test_facts_name_the_three_modes(started: tuple[Engine, Launch, LaunchFacts], kind: str) -> None:
    engine, _, facts = started
    assert engine.evidence is (Evidence.SIMULATED if kind == "sim" else Evidence.MEASURED)
    assert facts.resolved_mode is Mode.FULL_AND_PIECEWISE
    assert facts.realised_mode == "FULL_AND_PIECEWISE"
    assert facts.hollow is False
    assert (facts.keys_piecewise, facts.keys_full) == (51, 35)
    assert (facts.graphs_piecewise, facts.graphs_full) == (51 * 29, 35)
    assert facts.kv_tokens == 16384 * 16


def test_open_loop_gives_every_request_and_exact_columns(started: tuple[Engine, Launch, LaunchFacts]) -> None:
    engine, _, _ = started
    lengths = [(16 + 7 * i, 1 + i % 9) for i in range(20)]
    given = schedule(lengths, arrival_s=[0.02 * i for i in range(20)])
    given = replace(given, measured=np.arange(20) >= 5)
    measured = engine.measure(given, 60.0)
    requests, steps = measured.requests, measured.steps
    assert {name: str(dtype) for name, dtype in requests.dtypes.items()} == REQUEST_COLUMNS
    assert {name: str(dtype) for name, dtype in steps.dtypes.items()} == STEP_COLUMNS
    assert requests["request"].tolist() == list(range(20))
    assert requests["output_tokens"].tolist() == [output for _, output in lengths]
    assert requests["prompt_tokens"].tolist() == [prompt for prompt, _ in lengths]
    assert requests["measured"].tolist() == given.measured.tolist()
    assert requests["failure"].isna().all()
    assert (requests["sent_s"] >= requests["intended_s"]).all()
    assert (requests["first_token_s"] > requests["sent_s"]).all()
    several = requests["output_tokens"] > 1
    assert (requests["last_token_s"] >= requests["first_token_s"]).all()
    assert (requests.loc[several, "last_token_s"] > requests.loc[several, "first_token_s"]).all()
    assert (requests.loc[~several, "last_token_s"] == requests.loc[~several, "first_token_s"]).all()
    assert measured.seconds >= requests["last_token_s"].max()


def test_steps_account_for_every_token(started: tuple[Engine, Launch, LaunchFacts]) -> None:
    engine, _, _ = started
    lengths = [(33, 12), (50, 7), (9, 30)]
    steps = engine.measure(schedule(lengths), 60.0, heavy_probe=True).steps
    # a prompt's tokens are computed once, then each output token but the last
    assert steps["num_tokens"].sum() == sum(prompt + output - 1 for prompt, output in lengths)
    assert steps["t_s"].is_monotonic_increasing
    assert set(steps["runtime_mode"].dropna()) <= {"FULL", "PIECEWISE", "NONE"}
    assert (steps["padded_tokens"] >= steps["num_tokens"]).all()
    decode = steps[steps["num_decode"] == steps["num_reqs"]]
    assert set(decode["runtime_mode"]) == {"FULL"}
    assert (steps["kv_usage"].dropna().between(0, 1)).all()
    assert (steps["num_running"] <= 256).all()
    assert (steps["launch_ms"] > 0).all()
    assert (steps["num_decode"] + steps["prefill_tokens"] == steps["num_tokens"]).all()


def test_groups_and_closed_loops_keep_their_order(started: tuple[Engine, Launch, LaunchFacts]) -> None:
    engine, _, _ = started
    bursts = engine.measure(schedule([(20, 5)] * 6, group=[0, 1, 1, 2, 2, 2]), 60.0).requests
    for group in (1, 2):
        before = bursts["last_token_s"][: {1: 1, 2: 3}[group]].max()
        assert (bursts["intended_s"][{1: slice(1, 3), 2: slice(3, 6)}[group]] >= before).all()
    closed = engine.measure(schedule([(20, 5)] * 9, concurrency=3), 60.0).requests
    for moment in closed["intended_s"]:
        flying = (closed["intended_s"] <= moment) & (closed["last_token_s"] > moment)
        assert flying.sum() <= 3


def test_limit_ends_the_cell_and_not_the_engine(started: tuple[Engine, Launch, LaunchFacts]) -> None:
    engine, _, _ = started
    with pytest.raises(CellFailed) as caught:
        engine.measure(schedule([(20, 4000)]), 0.5)
    assert caught.value.status == "timeout"
    assert len(engine.measure(schedule([(20, 3)]), 60.0).requests) == 1


def test_heavy_columns_are_null_without_the_probe(started: tuple[Engine, Launch, LaunchFacts]) -> None:
    engine, _, _ = started
    steps: pd.DataFrame = engine.measure(schedule([(20, 5)]), 60.0).steps
    assert steps[HEAVY].isna().all().all()
    assert {name: str(dtype) for name, dtype in steps.dtypes.items()} == STEP_COLUMNS

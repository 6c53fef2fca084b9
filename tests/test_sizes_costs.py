"""The expected time of a step, and what graphs take, against direct calculation."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from artifact.analysis.sizes.batches import Batches
from artifact.analysis.sizes.costs import StepCosts, host_shares, problem, replayed
from artifact.analysis.sizes.graphs import Start, _line, takes
from artifact.config import load
from artifact.errors import EnvironmentLacks
from artifact.graphs.dispatch import Dispatcher
from artifact.graphs.explain import resolve_config
from artifact.records import LaunchFacts
from artifact.schema import Mode
from artifact.simulator.cost import HostPace, load_calibration
from tests.sim_support import synthetic_calibration

SHIPPED = Path(__file__).parents[1] / "paper_figures" / "data"
MIB = 2**20
EVERY = slice(None)


def steps(*rows: tuple[int, int, int, int]) -> pd.DataFrame:
    """Steps of (decoding requests, prefills, prefill tokens, context tokens)."""
    frame = pd.DataFrame(rows, columns=["num_decode", "prefills", "prefill_tokens", "context_tokens"])
    frame["num_reqs"] = frame["num_decode"] + frame["prefills"]
    frame["num_tokens"] = frame["num_decode"] + frame["prefill_tokens"]
    return frame


def test_batches_keep_every_step_and_its_means() -> None:
    batches = Batches.of_steps(steps((3, 0, 0, 100), (3, 0, 0, 120), (3, 1, 50, 100), (1, 2, 40, 0)), 1, 8192)
    assert batches.tokens.tolist() == [3, 41, 53]
    assert batches.uniform.tolist() == [True, False, False]
    assert batches.steps.tolist() == [2, 1, 1]
    assert batches.context_tokens.tolist() == [110, 0, 100]
    assert batches.square.tolist() == [0, 800, 2500]
    twice = Batches.merged([batches, batches])
    assert twice.steps.tolist() == [4, 2, 2]
    assert twice.context_tokens.tolist() == [110, 0, 100]


def test_speculation_takes_more_tokens_a_request_and_no_more_than_the_budget() -> None:
    batches = Batches.of_steps(steps((10, 0, 0, 0), (10, 1, 70, 0)), 4, 100)
    assert batches.tokens.tolist() == [40, 100]
    assert batches.uniform.tolist() == [True, False]


@pytest.fixture
def noisy() -> StepCosts:
    calibration = synthetic_calibration(noise_sigma=0.3)
    tables = {name: table.model_copy(update={"slow_pace": 2.0}) for name, table in calibration.tables.items()}
    update = {"tables": tables, "host_pace": HostPace(slowness=(0.0, 1.0), dwell_s=1.0)}
    batches = Batches.of_steps(steps((5, 0, 0, 0), (200, 0, 0, 0)), 1, 8192)
    config = load(["mode=full"])
    return StepCosts(calibration.model_copy(update=update), resolve_config(config), batches)


@pytest.mark.parametrize(("runtime", "host_ms"), [("FULL", 1.0), ("NONE", 10.0)])
def test_the_period_is_the_expected_larger_of_host_and_gpu(noisy: StepCosts, runtime: str, host_ms: float) -> None:
    rng = np.random.default_rng(0)
    pace = rng.choice([1.0, 2.0], 400_000) * np.exp(0.3 * rng.standard_normal(400_000))
    for index, tokens in enumerate((5, 200)):
        drawn = np.maximum(host_ms * pace, 2 + 0.01 * tokens)
        mine = noisy.period_ms(runtime, noisy.batches.tokens, EVERY)[index]
        assert mine == pytest.approx(drawn.mean(), rel=4e-3)


def test_without_noise_it_is_the_larger_of_the_two() -> None:
    config = load(["mode=full_and_piecewise"])
    batches = Batches.of_steps(steps((5, 0, 0, 0), (300, 0, 0, 0)), 1, 8192)
    costs = StepCosts(synthetic_calibration(), resolve_config(config), batches)
    assert costs.period_ms("FULL", np.array([8, 304]), EVERY) == pytest.approx([2.08, 5.04], rel=5e-4)
    assert costs.period_ms("NONE", np.array([5, 300]), EVERY) == pytest.approx([10, 10], rel=5e-4)


def test_a_graph_beyond_its_calibration_is_no_cheaper_than_the_same_step_without_one() -> None:
    calibration = load_calibration(None, load().hardware, "qwen3-0.6b")
    batches = Batches.of_steps(steps((0, 1, 4000, 0)), 1, 8192)
    costs = StepCosts(calibration, resolve_config(load()), batches)
    table = calibration.tables["NONE"]
    gpu_ms = table.base(np.array([4000]))[0] + table.gpu_per_request_ms + table.square_ms_per_token2 * 4000**2
    assert costs.period_ms("PIECEWISE", np.array([4000]), EVERY)[0] >= gpu_ms


def test_a_slow_host_takes_fewer_of_the_steps(noisy: StepCosts) -> None:
    config = load(["mode=full"])
    shares = host_shares(
        noisy._calibration, resolve_config(config), noisy.batches, Dispatcher(Mode.FULL, [8, 256], config.server)
    )
    assert shares.sum() == pytest.approx(1)
    assert shares[0] > shares[1] > 0


def test_the_search_adds_up_what_the_dispatcher_replays() -> None:
    config = load(["server.max_num_seqs=20"])
    mixed = [(decode, 1, decode + 3, 0) for decode in range(0, 40, 3)]
    batches = Batches.of_steps(steps(*[(n, 0, 0, n * 50) for n in range(1, 21)], *mixed), 1, 8192)
    costs = StepCosts(load_calibration(None, config.hardware, "qwen3-0.6b"), resolve_config(config), batches)
    sizes = (1, 4, 8, 16, 20, 24, 48)
    found = problem(costs, config.server, sizes, (), 1)
    total = sum(found.segment[place, place] for place in range(len(sizes))) + found.above[-1]
    graphs = Dispatcher(Mode.FULL_AND_PIECEWISE, sizes, config.server)
    assert total / batches.steps.sum() == pytest.approx(replayed(costs, graphs).step_ms)
    assert found.low == 5


def test_steps_that_were_never_calibrated_are_not_priced() -> None:
    calibration = synthetic_calibration(launch_ms={"FULL": 1.0})
    batches = Batches.of_steps(steps((5, 0, 0, 0)), 1, 8192)
    costs = StepCosts(calibration, resolve_config(load(["mode=piecewise"])), batches)
    with pytest.raises(EnvironmentLacks, match="holds no PIECEWISE steps"):
        costs.period_ms("PIECEWISE", batches.tokens, EVERY)


def test_what_graphs_take_is_read_off_starts_of_several_lengths() -> None:
    def start(mode: Mode, piecewise: int, full: int) -> Start:
        taken = (20 + 4 * piecewise + 3 * full) * MIB
        return Start(mode, piecewise, full, 512, taken, 1 + 0.05 * piecewise + 0.01 * full)

    starts = [start(Mode.FULL_AND_PIECEWISE, *keys) for keys in ((51, 35), (8, 8), (19, 19))]
    line = _line(Mode.FULL_AND_PIECEWISE, starts, "graph_bytes")
    assert line is not None
    assert line.at(10, 9, 512) == pytest.approx((20 + 40 + 27) * MIB)
    assert line.at(0, 0, 0) == 0
    assert line.error_max == pytest.approx(0, abs=1e-9)
    # one list a mode: the slopes come from all modes, the level from the mode's own start
    mixed = [start(Mode.FULL_AND_PIECEWISE, 51, 35), start(Mode.PIECEWISE, 51, 0), start(Mode.FULL, 0, 51)]
    dear = [*mixed, Start(Mode.FULL_DECODE_ONLY, 0, 35, 256, 500 * MIB, None)]
    own = _line(Mode.FULL_DECODE_ONLY, dear, "graph_bytes")
    assert own is not None
    assert own.at(0, 35, 256) == pytest.approx(500 * MIB)
    assert _line(Mode.FULL, mixed[:2], "graph_bytes") is None


def test_memory_but_not_seconds_grows_with_the_largest_graph() -> None:
    def start(piecewise: int, full: int, largest: int) -> Start:
        return Start(Mode.FULL_AND_PIECEWISE, piecewise, full, largest, (20 + piecewise + full + largest) * MIB, 1.0)

    starts = [start(*keys) for keys in ((51, 35, 512), (8, 8, 40), (19, 19, 128), (10, 9, 512))]
    line, seconds = (_line(Mode.FULL_AND_PIECEWISE, starts, name) for name in ("graph_bytes", "capture_s"))
    assert line is not None
    assert line.at(8, 8, 512) - line.at(8, 8, 40) == pytest.approx(472 * MIB)
    assert seconds is not None
    assert seconds.at(8, 8, 512) == seconds.at(8, 8, 40) == pytest.approx(1.0)


def test_without_measured_starts_what_graphs_take_is_unknown() -> None:
    calibration = synthetic_calibration()
    found = takes(load(), calibration, None)
    assert found.lines == {"graph_bytes": None, "capture_s": None}
    assert found.source.startswith("unknown")


def test_a_hollow_start_tells_nothing() -> None:
    full = {Mode.FULL: LaunchFacts(keys_full=51, graph_bytes=252 * MIB, capture_s=2.0)}
    hollow = {mode: LaunchFacts(hollow=True, keys_piecewise=n, keys_full=35, graph_bytes=n) for n, mode in
              enumerate((Mode.FULL_AND_PIECEWISE, Mode.FULL_DECODE_ONLY, Mode.PIECEWISE), 40)}  # fmt: skip
    calibration = synthetic_calibration().model_copy(update={"launches": full | hollow})
    assert takes(load(["mode=full"]), calibration, None).graph_bytes is None


@pytest.mark.parametrize(
    ("mode", "keys", "mib"),
    [
        ("full_and_piecewise", (51, 35, 512), 360),
        ("full_and_piecewise", (10, 9, 512), 166),  # the list of study=sizes
        ("piecewise", (51, 0, 512), 250),
        ("full", (0, 51, 512), 252),
    ],
)
def test_the_shipped_starts_are_met(mode: str, keys: tuple[int, int, int], mib: float) -> None:
    """On an H200, as vLLM reported them; see paper_figures/data. The calibration's own starts all have 51 sizes."""
    config = load([f"mode={mode}"])
    calibration = load_calibration(None, config.hardware, "qwen3-0.6b")
    for root in (SHIPPED, None) if max(keys[:2]) == 51 else (SHIPPED,):
        line = takes(config, calibration, root).graph_bytes
        assert line is not None
        assert line.at(*keys) / MIB == pytest.approx(mib, rel=0.1)

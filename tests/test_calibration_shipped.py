"""The shipped calibration is the fit of the shipped steps, and predicts measured cells that it was not fitted on."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from artifact.analysis.calibration.calibrate import fit_folder
from artifact.analysis.calibration.host_fit import WINDOW_S, HostFit, unprobed_windows
from artifact.config import load
from artifact.engines.sim_engine import SimEngine
from artifact.records import Cell, Launch
from artifact.schema import Mode
from artifact.simulator import cost
from artifact.simulator.cost import Calibration, load_calibration, table_name
from artifact.workloads.build import build

DATA = Path(__file__).resolve().parents[1] / "paper_figures" / "data"
ARMS = ("EAGER", "NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")


@pytest.fixture(scope="module")
def shipped() -> Calibration:
    return load_calibration(None, load().hardware, "qwen3-0.6b")


@pytest.fixture(scope="module")
def smoke() -> dict[str, pd.DataFrame]:
    frames = {name: pd.read_parquet(DATA / "smoke" / f"{name}.parquet") for name in ("cells", "steps")}
    modes = frames["cells"][["cell_id", "launch_id", "requested_mode", "resolved_mode"]]
    steps = frames["steps"].merge(modes, on="cell_id")
    names = zip(steps["requested_mode"], steps["resolved_mode"], steps["runtime_mode"], strict=True)
    steps["table"] = [
        table_name(Mode.EAGER if requested == "EAGER" else Mode(resolved), runtime, hollow=False)
        for requested, resolved, runtime in names
    ]
    return {**frames, "steps": steps}


def test_shipped_calibration_is_the_fit_of_the_shipped_steps(shipped: Calibration) -> None:
    assert fit_folder(DATA / "calibrate", "qwen3-0.6b", load().hardware) == shipped


def slowness(shipped: Calibration, steps: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return the times in s and the host's slowness from each on, as the steps of one cell show it."""
    launch = {
        name: np.array([table.launch_fixed_ms, table.launch_per_request_ms, table.launch_prefill_ms])
        for name, table in shipped.tables.items()
    }
    loop = np.array([shipped.loop.loop_fixed_ms, shipped.loop.loop_per_request_ms])
    windows = unprobed_windows(steps, HostFit(pd.Series(dtype=float), launch, loop, pd.DataFrame()))
    slow = windows["table"].map({name: table.slow_pace for name, table in shipped.tables.items()})
    times = windows.index.str.rsplit("#", n=1).str[1].astype(int).to_numpy() * WINDOW_S
    order = np.argsort(times)
    return times[order], ((windows["pace"] - 1) / (slow - 1)).to_numpy()[order]


@pytest.mark.parametrize("workload", ["steady", "churn"])
@pytest.mark.parametrize("arm", ARMS)
def test_held_out_cells_are_met_where_the_state_of_the_host_is_given(
    shipped: Calibration, smoke: dict[str, pd.DataFrame], monkeypatch: pytest.MonkeyPatch, arm: str, workload: str
) -> None:
    cells = smoke["cells"]
    cell = cells[(cells["arm"] == arm) & (cells["workload"] == workload)].iloc[0]
    steps = smoke["steps"][smoke["steps"]["cell_id"] == cell["cell_id"]]
    times, values = slowness(shipped, steps)
    at = lambda _, now_s: float(values[max(np.searchsorted(times, now_s, side="right") - 1, 0)])  # noqa: E731
    monkeypatch.setattr(cost._Host, "at", at)
    config = load(["engine=sim", "model=qwen3-0.6b", "server=study", f"workload={workload}", f"mode={arm.lower()}"])
    only = Cell(cell_id="c", config=config, load=None, seed=int(cell["seed"]), replicate=0)
    engine = SimEngine()
    engine.start(Launch("launch", "study", arm, "tile", "block", 0, config, (only,)))
    simulated = engine.measure(build(config.workload, int(cell["seed"])), 200.0)
    sent = simulated.requests[simulated.requests["measured"]]
    tpot_ms = (sent["last_token_s"] - sent["first_token_s"]) / (sent["output_tokens"] - 1) * 1e3
    assert tpot_ms.median() == pytest.approx(cell["tpot_p50_ms"], rel=0.1)
    assert len(simulated.steps) == pytest.approx(len(steps), rel=0.1)
    assert simulated.steps["num_running"].mean() == pytest.approx(steps["num_running"].mean(), rel=0.1)

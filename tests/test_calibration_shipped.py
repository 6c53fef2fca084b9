"""The shipped calibrations are fits of the shipped steps, and predict measured cells that they were not fitted on."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from artifact.analysis.calibration.calibrate import fit_folder, save
from artifact.analysis.calibration.host_fit import recorded_pace
from artifact.analysis.calibration.step_fit import with_tables
from artifact.config import load
from artifact.engines.sim_engine import SimEngine
from artifact.records import Cell, Launch
from artifact.simulator.cost import Calibration, load_calibration
from artifact.study.store import read_cells, read_steps
from artifact.workloads.build import build

DATA = Path(__file__).resolve().parents[1] / "paper_figures" / "data"
FITTED = {
    "qwen3-0.6b": ("calibrate", "step_latency"),
    "qwen3-8b": ("step_latency",),
    "qwen3-1.7b": ("step_latency",),
    "llama-3.2-1b": ("step_latency",),
}
ARMS = ("EAGER", "NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")
HELD_OUT = [("smoke", "0", arm, workload) for arm in ARMS for workload in ("churn", "steady")]
HELD_OUT += [("load_sweep", "1", arm, "churn") for arm in ("NONE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")]


@pytest.fixture(scope="module", params=FITTED)
def shipped(request: pytest.FixtureRequest) -> Calibration:
    return load_calibration(None, load().hardware, request.param)


def test_shipped_calibrations_are_the_fit_of_the_shipped_steps(shipped: Calibration) -> None:
    config = load([f"model={shipped.model}"])
    first, *more = (DATA / study for study in FITTED[shipped.model])
    assert fit_folder(first, config.model, config.hardware, *more) == shipped
    assert (shipped.evidence, shipped.source.study) == ("measured", ", ".join(FITTED[shipped.model]))


def test_half_of_the_steps_of_every_kind_are_met_within_a_tenth(shipped: Calibration) -> None:
    assert set(shipped.tables) == {"EAGER", "NONE", "PIECEWISE", "FULL", "FULL_DECODE"}
    assert {name: table.error_p50 for name, table in shipped.tables.items() if table.error_p50 > 0.1} == {}


def test_a_graph_of_a_large_model_is_issued_in_less_time_than_it_takes() -> None:
    small, large = (
        load_calibration(None, load().hardware, model).tables["FULL_DECODE"] for model in ("qwen3-0.6b", "qwen3-8b")
    )
    assert large.base_ms[0] > 3 * small.base_ms[0]  # 4.6 and 1.4 ms of GPU time
    assert large.launch_fixed_ms == pytest.approx(small.launch_fixed_ms, rel=0.5)  # the wait for the GPU is not in it


@pytest.mark.parametrize(("study", "block", "arm", "workload"), HELD_OUT)
def test_held_out_cells_are_met_where_the_pace_of_the_host_is_given(
    tmp_path: Path, study: str, block: str, arm: str, workload: str
) -> None:
    cells = read_cells(DATA / study)
    wanted = (cells["arm"] == arm) & (cells["workload"] == workload) & (cells["block"] == block)
    cell = cells[wanted].iloc[0]
    modes = cells.loc[wanted, ["cell_id", "launch_id", "requested_mode", "resolved_mode", "realised_mode"]]
    steps = with_tables(read_steps(DATA / study, [cell["cell_id"]]).merge(modes, on="cell_id"))
    calibration = load_calibration(None, load().hardware, "qwen3-0.6b")
    pace = recorded_pace(steps, calibration)
    file = save(calibration.model_copy(update={"host_pace": pace}), tmp_path)
    rate = [] if pd.isna(cell["load"]) else [f"workload.arrival.rate_per_s={cell['offered_rate']}"]
    given = [f"engine.calibration='{file}'", f"workload={workload}", f"mode={arm.lower()}", *rate]
    config = load(["engine=sim", "model=qwen3-0.6b", "server=study", *given])
    only = Cell(cell_id="c", config=config, load=None, seed=int(cell["seed"]), replicate=0)
    engine = SimEngine()
    engine.start(Launch("launch", "study", arm, "tile", "block", 0, config, (only,)))
    simulated = engine.measure(build(config.workload, int(cell["seed"])), 200.0)
    sent = simulated.requests[simulated.requests["measured"]]
    tpot_ms = (sent["last_token_s"] - sent["first_token_s"]) / (sent["output_tokens"] - 1) * 1e3
    assert tpot_ms.median() == pytest.approx(cell["tpot_p50_ms"], rel=0.1)
    assert len(simulated.steps) == pytest.approx(len(steps), rel=0.1)
    assert simulated.steps["num_running"].mean() == pytest.approx(np.mean(steps["num_running"]), rel=0.1)

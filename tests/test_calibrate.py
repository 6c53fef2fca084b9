"""The fit finds a known cost model again, from simulated steps with noise, and says what it cannot use."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sim_support import calibration_file, launch, synthetic_calibration

from artifact.analysis.calibration.calibrate import fit_folder, save
from artifact.analysis.calibration.host_fit import left_ms
from artifact.analysis.calibration.step_fit import robust_nnls
from artifact.config import load
from artifact.engines.sim_engine import SimEngine
from artifact.errors import InputError
from artifact.records import LaunchFacts
from artifact.schema import Mode
from artifact.simulator.cost import Calibration, CostModel, HostPace, LoopCost, StepTable, load_calibration
from artifact.simulator.scheduler import Batch
from artifact.workloads.build import build

MODES = ("eager", "none", "piecewise", "full", "full_decode_only", "full_and_piecewise")
KNOTS = (1, 8, 64, 256, 512, 2048, 8192)
# ms of the launch: fixed, per request, with a prefill; factor on the GPU time; pace on a slow host
KNOWN = {
    "EAGER": (16.0, 0.004, 0.9, 1.4, 1.9),
    "NONE": (11.0, 0.004, 0.6, 1.0, 1.9),
    "PIECEWISE": (3.8, 0.004, 0.3, 1.0, 1.4),
    "FULL": (1.5, 0.004, 0.2, 1.05, 1.4),
    "FULL_DECODE": (1.5, 0.004, 0.0, 1.0, 1.4),
}
STATES = (0.0, 0.0, 0.0, 0.5, 1.0)


def known_calibration(noise_sigma: float = 0.03) -> Calibration:
    """Synthetic numbers of the size an H200 shows with a model of 0.6 B parameters."""
    base = np.array([0.8, 0.85, 1.1, 1.9, 3.0, 9.0, 34.0])
    plain = synthetic_calibration(frontend_ms=0.7)
    tables = {
        name: StepTable.model_validate(
            {
                **plain.tables[name].model_dump(),  # type: ignore[index]
                "knots_tokens": KNOTS,
                "base_ms": tuple(base * factor),
                "context_ms_per_token": 2.4e-5 * factor,
                "square_ms_per_token2": 1e-7 * factor,
                "launch_fixed_ms": fixed,
                "launch_per_request_ms": per_request,
                "launch_prefill_ms": with_prefill,
                "slow_pace": slow,
                "noise_sigma": noise_sigma,
            }
        )
        for name, (fixed, per_request, with_prefill, factor, slow) in KNOWN.items()
    }
    loop = LoopCost(loop_fixed_ms=0.4, loop_per_request_ms=0.004, tail_fixed_ms=0.15, tail_per_request_ms=0.006)
    pace = HostPace(slowness=STATES, dwell_s=1.0)
    return plain.model_copy(update={"tables": tables, "loop": loop, "host_pace": pace, "frontend_per_request_ms": 0.1})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("results")
    return results(root, known_calibration(), MODES, ("step_grid", "calibration_mix", "churn", "steady"))


def results(root: Path, known: Calibration, modes: Sequence[str], workloads: Sequence[str]) -> Path:
    """Fill a folder as the calibrate study leaves it: simulated, with one step in thirty disturbed by its host."""
    file = calibration_file(root, known)
    rng = np.random.default_rng(3)
    cells, launches, steps, requests = [], [], [], []
    for mode in modes:
        for workload in workloads:
            given = launch(file, f"mode={mode}", f"workload={workload}", launch_id=f"{mode}-{workload}")
            engine = SimEngine()
            facts = engine.start(given)
            probed = workload != "steady"
            measured = engine.measure(build(given.config.workload, 5), 1000.0, heavy_probe=probed)
            key = {"cell_id": f"{mode}-{workload}", "launch_id": mode, "status": "ok", "model": "qwen3-0.6b"}
            key |= {"requested_mode": mode.upper(), "resolved_mode": facts.resolved_mode.value}  # type: ignore[union-attr]
            key |= {"realised_mode": facts.realised_mode, "backend": "FLASH_ATTN", "evidence": "simulated"}
            cells.append(key)
            provenance = json.dumps(
                {"versions": {"vllm": "0.21.0"}, "config": {"server": given.config.server.model_dump()}}
            )
            row = LaunchFacts(start_s=30.0, capture_s=4.0, kv_available_bytes=10**11, gpu_name="NVIDIA H200")
            if workload == workloads[0]:
                launches.append({**row.model_dump(), **key, "study": "x", "host_id": "host", "provenance": provenance})
            disturbed = np.where(rng.random(len(measured.steps)) < 1 / 30, 1.5, 1.0)
            frame = measured.steps.assign(cell_id=key["cell_id"])
            for name in ("wall_ms", "launch_ms") if probed else ():
                frame[name] = frame[name] * disturbed
            steps.append(frame)
            requests.append(measured.requests.assign(cell_id=key["cell_id"]))
    pd.DataFrame(cells).to_parquet(root / "cells.parquet")
    pd.DataFrame(launches).to_parquet(root / "launches.parquet")
    pd.concat(steps).to_parquet(root / "steps.parquet")
    pd.concat(requests).to_parquet(root / "requests.parquet")
    return root


@pytest.fixture(scope="module")
def fitted(folder: Path) -> Calibration:
    return fit_folder(folder, load().model, load().hardware)


def period_ms(calibration: Calibration, mode: Mode, runtime: str, batch: Batch) -> float:
    tables = {name: table.model_copy(update={"noise_sigma": 0.0}) for name, table in calibration.tables.items()}
    quiet = calibration.model_copy(update={"tables": tables, "host_pace": HostPace(slowness=(0.0,), dwell_s=1.0)})
    costs = CostModel(quiet, mode, hollow=False, max_tokens=8192, seed=0, launch_id="")
    price = costs.pricing(batch, runtime, batch.num_tokens)(0.0, batch)
    return max(price.loop_s + price.launch_s, price.gpu_s + price.tail_s) * 1e3


CASES = [
    *((Mode.FULL_AND_PIECEWISE, "FULL", n, 0) for n in (1, 8, 64, 256)),
    *((Mode.FULL, "FULL", n, prefill) for n, prefill in ((1, 0), (64, 0), (128, 300))),
    *((Mode.PIECEWISE, "PIECEWISE", n, prefill) for n, prefill in ((1, 0), (128, 300))),
    *((Mode.NONE, "NONE", n, prefill) for n, prefill in ((1, 0), (256, 0), (64, 2000), (10, 6000))),
    *((Mode.EAGER, "NONE", n, prefill) for n, prefill in ((1, 0), (256, 0), (10, 6000))),
]


@pytest.mark.parametrize(("mode", "runtime", "decodes", "prefill"), CASES)
def test_fit_finds_the_known_periods_again(
    fitted: Calibration, mode: Mode, runtime: str, decodes: int, prefill: int
) -> None:
    prefills = -(-prefill // 1000)
    batch = Batch(0, decodes + prefill, decodes + prefills, decodes, prefill, decodes * 300, 0, (), ())
    expected = period_ms(known_calibration(), mode, runtime, batch)
    assert period_ms(fitted, mode, runtime, batch) == pytest.approx(expected, rel=0.08)


def test_fit_parts_host_from_gpu(fitted: Calibration) -> None:
    for name, (fixed, per_request, _, _, _) in KNOWN.items():
        table = fitted.tables[name]  # type: ignore[index]
        launch_ms = table.launch_fixed_ms + 64 * table.launch_per_request_ms
        assert launch_ms == pytest.approx(fixed + 64 * per_request, rel=0.05), name
    # small batches of NONE are the host's; their GPU time comes from the full graphs of the same kernels
    base = fitted.tables["NONE"].base(np.array([64]))
    assert base[0] == pytest.approx(1.1, rel=0.15)
    assert "full graphs below" in fitted.tables["NONE"].gpu_source
    assert "lower bound" in fitted.tables["EAGER"].gpu_source


def test_fit_finds_how_the_host_wanders(fitted: Calibration) -> None:
    for name in ("EAGER", "NONE", "PIECEWISE", "FULL", "FULL_DECODE"):
        slow = KNOWN[name][-1]
        assert fitted.tables[name].slow_pace == pytest.approx(slow, rel=0.2), name  # type: ignore[index]
    states = np.array(fitted.host_pace.slowness)
    assert (states < 0.2).mean() == pytest.approx(0.6, abs=0.21)
    assert states[-1] == pytest.approx(1.0, abs=0.2)
    assert 0.4 < fitted.host_pace.dwell_s < 2.0


def test_fit_says_how_good_it_is_and_what_it_covers(fitted: Calibration) -> None:
    for name, table in fitted.tables.items():
        assert table.rows > 100, name
        assert table.error_p50 < 0.05, name
        assert table.error_p50 <= table.error_p90
        assert 0.01 < table.noise_sigma < 0.2, name
    assert fitted.tables["NONE"].knots_tokens[-1] == 8192
    assert fitted.tables["FULL"].knots_tokens[-1] <= 512
    assert fitted.frontend_ms == pytest.approx(0.7, abs=0.2)


def test_launches_become_medians_with_their_source(fitted: Calibration) -> None:
    assert set(fitted.launches) == set(Mode)
    assert fitted.launches[Mode.EAGER].start_s == 30.0
    assert fitted.launches[Mode.EAGER].kv_available_bytes == 10**11
    assert fitted.launches[Mode.EAGER].graph_bytes is None
    assert fitted.vllm_version == "0.21.0"
    assert fitted.gpu_memory_utilization == 0.9
    assert fitted.source.driver is None
    assert len(fitted.source.launches) == 6
    assert fitted.evidence == "simulated"


def test_the_wait_for_the_gpu_is_no_cost_of_the_host(tmp_path: Path) -> None:
    known = known_calibration()
    tables = {
        name: table.model_copy(update={"base_ms": tuple(4 * value for value in table.base_ms)})
        for name, table in known.tables.items()
    }
    large = known.model_copy(update={"tables": tables})
    results(tmp_path, large, ("none", "full_decode_only"), ("step_grid", "churn", "steady"))
    # As vLLM's worker has it, the wait for the step before is part of the launch.
    steps = pd.read_parquet(tmp_path / "steps.parquet")
    waits = (steps["wall_ms"] - steps["launch_ms"] - (0.5 + 0.006 * steps["num_reqs"])).clip(lower=0.0)
    steps.assign(launch_ms=steps["launch_ms"] + waits.fillna(0.0)).to_parquet(tmp_path / "steps.parquet")
    table = fit_folder(tmp_path, load().model, load().hardware).tables["FULL_DECODE"]
    assert table.launch_fixed_ms == pytest.approx(KNOWN["FULL_DECODE"][0], rel=0.25)
    assert table.base(np.array([64]))[0] == pytest.approx(4 * 1.1, rel=0.1)
    assert table.error_p50 < 0.05


def test_what_is_left_of_a_step_is_what_the_gpu_has_not_done_when_the_host_has_issued_it() -> None:
    names = ("cell_id", "step", "runtime_mode", "wall_ms", "launch_ms")
    rows = [("a", 0, "FULL", 2.0, 1.5), ("a", 1, "NONE", 13.0, 12.0), ("a", 2, "NONE", 13.0, 12.0)]
    rows += [("a", 3, "FULL", np.nan, 1.5), ("a", 4, "FULL", 2.0, 1.5), ("b", 5, "FULL", 2.0, 1.5)]
    steps = pd.DataFrame(rows, columns=names)
    # A graph is all left; of the first NONE 20 - (12 - 4.5) of the GPU's queue, of the second 20 - (12 - 11.5); nothing
    # before a first step, one after a pause, and one of another cell.
    left = left_ms(steps, np.array([5.0, 20.0, 20.0, 5.0, 5.0, 5.0]))
    assert left == pytest.approx([0.0, 5.0, 4.5 + 20 - 12, 11.5 + 20 - 12, 0.0, 0.0])


def test_folders_are_fitted_together_and_starts_are_the_first_one_s(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for each in (first, second):
        each.mkdir()
        results(each, known_calibration(), ("none",), ("churn",))
    for name in ("cells", "launches", "steps", "requests"):
        rows = pd.read_parquet(second / f"{name}.parquet")
        for column in {"cell_id", "launch_id"} & set(rows):
            rows[column] = "again-" + rows[column]
        rows.to_parquet(second / f"{name}.parquet")
    launches = pd.read_parquet(second / "launches.parquet")
    launches.assign(study="y", start_s=99.0).to_parquet(second / "launches.parquet")
    one, both = (fit_folder(first, load().model, load().hardware, *more) for more in ([], [second]))
    assert (both.source.study, both.source.launches) == ("x, y", ("again-none", "none"))
    assert both.launches[Mode.NONE].start_s == 30.0
    assert both.tables["NONE"].rows == 2 * one.tables["NONE"].rows


def test_saved_file_is_found_by_gpu_and_model(fitted: Calibration, tmp_path: Path) -> None:
    file = save(fitted, tmp_path)
    assert file.name == "h200__qwen3-0.6b.json"
    assert load_calibration(str(file), load().hardware, "qwen3-0.6b") == fitted


def test_missing_gpu_times_still_give_periods(folder: Path, tmp_path: Path) -> None:
    for name in ("cells", "launches", "requests"):
        (tmp_path / f"{name}.parquet").symlink_to(folder / f"{name}.parquet")
    steps = pd.read_parquet(folder / "steps.parquet")
    steps.assign(gpu_ms=np.nan).to_parquet(tmp_path / "steps.parquet")
    fitted = fit_folder(tmp_path, load().model, load().hardware)
    assert all("wall_ms" in table.gpu_source for table in fitted.tables.values())
    assert all(table.error_p50 < 0.15 for table in fitted.tables.values())


def test_unusable_results_end_in_one_line(folder: Path, tmp_path: Path) -> None:
    hardware, model = load().hardware, load().model
    with pytest.raises(InputError, match=r"cells\.parquet: no such file"):
        fit_folder(tmp_path, model, hardware)
    with pytest.raises(InputError, match="no ok cell of model qwen3-4b"):
        fit_folder(folder, load(["model=qwen3-4b"]).model, hardware)
    with pytest.raises(InputError, match="measured on NVIDIA H200, not on NVIDIA L4"):
        fit_folder(folder, model, load(["hardware=l4"]).hardware)
    for name in ("cells", "launches", "requests"):
        (tmp_path / f"{name}.parquet").symlink_to(folder / f"{name}.parquet")
    steps = pd.read_parquet(folder / "steps.parquet")
    light = steps.assign(launch_ms=np.nan, wall_ms=np.nan)
    light.to_parquet(tmp_path / "steps.parquet")
    with pytest.raises(InputError, match=r"launch_ms, wall_ms null in all of \d+ steps.*engine\.heavy_probe=true"):
        fit_folder(tmp_path, model, hardware)
    steps.head(5).to_parquet(tmp_path / "steps.parquet")
    with pytest.raises(InputError, match="no kind of step has 8 rows"):
        fit_folder(tmp_path, model, hardware)


def test_robust_nnls_ignores_outliers_and_stays_positive() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(1, 100, 400)
    y = 2 + 0.1 * x
    y[::10] *= 1.6
    design = np.column_stack([np.ones(400), x, -x])
    fitted = robust_nnls(design, y)
    assert fitted[0] == pytest.approx(2, rel=0.02)
    assert fitted[1] - fitted[2] == pytest.approx(0.1, rel=0.02)
    assert (fitted >= 0).all()

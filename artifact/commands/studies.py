"""Overrides in; a study planned, run, fitted and brought to the tracker, out."""

from pathlib import Path

from artifact.commands import confirm
from artifact.commands.common import Answer, say, shipped_folder
from artifact.config import load
from artifact.schema import Evidence


def plan(overrides: list[str]) -> Answer:
    """Return the study's launches and cells in order, with what they are expected to take."""
    from artifact.engines import nvml
    from artifact.engines.choose import choose
    from artifact.study.plan import describe, plan

    overrides = confirm.arranged(overrides)
    engine = load(overrides).engine
    # What a study costs on a GPU is asked where there is none, too.
    evidence = Evidence.MEASURED if engine.kind == "vllm" else choose(engine).evidence
    return describe(plan(overrides, evidence, nvml.describe().name))


def run(overrides: list[str]) -> Answer:
    """Run what is left of the study; return the summary and its rows. Exit code 1 where a cell failed."""
    from artifact.engines import nvml
    from artifact.engines.choose import choose
    from artifact.simulator.cost import load_calibration
    from artifact.study.executors import execute
    from artifact.study.plan import plan
    from artifact.study.store import Store
    from artifact.study.tracking import Tracker

    overrides = confirm.arranged(overrides)
    config = load(overrides)
    choice = choose(config.engine, here=config.executor.kind in ("local", "gpus"))
    say(choice.sentence)
    gpu = nvml.describe()
    planned = plan(overrides, choice.evidence, gpu.name)
    source = f"measured on {gpu.name}, vLLM {config.engine.vllm_version}"
    if choice.evidence is Evidence.SIMULATED:
        models = {launch.config.model.name: launch.config for launch in planned.launches}
        for name, of_launch in models.items():
            calibration = load_calibration(of_launch.engine.calibration, of_launch.hardware, name)
            source = f"simulated, calibrated on {calibration.gpu_name}"
            say(f"evidence: {source} with {name}")
    folder = Path(config.executor.results) / config.study.name
    tracker = Tracker(config.tracking, folder)
    try:
        summary = execute(planned, Store(folder), choice, on_launch=tracker.log)
    finally:
        tracker.close()
    asked = {cell.cell_id for launch in planned.launches for cell in launch.cells}
    rows = confirm.verdicts(overrides, asked, _rows(folder, config.study.name, choice.evidence, asked))
    return {**summary, "source": source, **rows, "exit_code": 1 if summary["failed"] else 0}


def _rows(folder: Path, study: str, evidence: Evidence, asked: set[str]) -> Answer:
    """Return the rows of ``asked`` and, for simulated ones, the shipped measurements of the same cells beside them.

    Whatever else lies in the folder was asked for another time, with other settings perhaps.
    """
    from artifact.analysis.compare import overview, side_by_side
    from artifact.study.store import read_cells, read_launches

    cells = read_cells(folder)
    cells = cells[cells["cell_id"].isin(asked)]
    rows: Answer = {"rows": overview(cells, read_launches(folder)).to_dict("records")}
    measured = shipped_folder() / study
    if evidence is Evidence.SIMULATED and measured.is_dir():
        rows["beside_measured"] = side_by_side(cells, read_cells(measured)).to_dict("records")
    return rows


def calibrate(overrides: list[str]) -> Answer:
    """Fit the model's costs from study=calibrate, measured first where a GPU is; return the file and its fit.

    What study=step_latency measured of the model in the same results is fitted with it.
    """
    from artifact.analysis.calibration.calibrate import fit_folder, save

    overrides = ["study=calibrate", *overrides]
    config = load(overrides)
    name = config.model.name
    if config.study.only is None and name in {tile.name for tile in config.study.tiles}:
        overrides.append(f"study.only=[{name}]")
    folder = Path(config.executor.results) / config.study.name
    if config.engine.kind != "sim":
        run(overrides)
    others = {Path(config.executor.results) / "step_latency"} - {folder}
    calibration = fit_folder(folder, config.model, config.hardware, *(each for each in others if each.is_dir()))
    fit = {
        name: f"{t.error_p50:.1%} median, {t.error_p90:.1%} p90 of {t.rows} steps"
        for name, t in calibration.tables.items()
    }
    return {"file": str(save(calibration, folder)), "gpu": calibration.gpu_name, "fit": fit}


def sync(overrides: list[str]) -> Answer:
    """Rebuild the tracker's view of the study from its results."""
    from artifact.study.tracking import sync

    config = load(overrides)
    folder = Path(config.executor.results) / config.study.name
    return dict(sync(folder, config.tracking))

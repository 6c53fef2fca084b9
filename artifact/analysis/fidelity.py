"""Measured studies in; their cells simulated, and how far the simulator is off, out.

Open loops alone, and none that the calibration was fitted on: the studies ``calibrate`` and ``step_latency``, and cells
of the heavy probe. Simulating takes a minute or two, so ``simulate``'s rows are shipped beside the measurements and
``read`` joins them.
"""

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from artifact.analysis.calibration.calibrate import save
from artifact.analysis.calibration.host_fit import recorded_pace
from artifact.analysis.calibration.step_fit import with_tables
from artifact.analysis.contrasts.sweep import DEFAULT
from artifact.analysis.every_study import studies
from artifact.config import groups
from artifact.engines.sim_engine import SimEngine
from artifact.errors import CellFailed, EnvironmentLacks, InputError
from artifact.metrics import latency, stability
from artifact.records import Cell, Launch
from artifact.schema import Evidence, Status
from artifact.simulator.cost import HostPace, load_calibration
from artifact.study.plan import plan
from artifact.study.store import read_cells, read_launches, read_steps
from artifact.workloads.build import build
from artifact.workloads.fetch import FOLDER

FILE = "fidelity.parquet"
METRICS = ("tpot_p50_ms", "tpot_p99_ms", "ttft_p50_ms", "ttft_p99_ms")
SHARES = ("share_full", "share_piecewise", "share_none")  # of steps, by runtime mode
GIVEN = "_given"  # suffix: simulated at the pace that the host had in that very cell
QUIET = "_quiet"  # suffix: simulated on a host that stays quiet
_FITTED_ON = ("calibrate", "step_latency")
_DRAWS = 5  # of the host's pace, which is not known beforehand; the median of what they give is what is simulated
_AT_A_PACE = [f"{metric}{end}" for end in (GIVEN, QUIET) for metric in METRICS]
_STEPS = ("steps_full", "steps_piecewise", "steps_none")
_SAME = ["tile", "block", "arm", "workload", "load", "seed"]
_GROUP = ["study", "tile", "block", "workload", "load"]


def simulate(root: Path) -> pd.DataFrame:
    """Return a row for each measured cell below ``root`` that the simulator can be asked about.

    Columns: cell_id (of the measured cell), METRICS and SHARES as simulated, and METRICS with suffix ``_given``: with
    the host's pace as the cell's own steps show it, so that what is left is not the host's; and ``_quiet``. Left out
    are cells of presets that are gone, models without a calibration and what the simulator does not take. A public
    trace that was served is read from where `make traces` puts it; InputError where it is not there.
    """
    rows = [row for folder, cells in _held_out(root) for row in _simulated(folder, cells)]
    columns = ["cell_id", *METRICS, *SHARES, *_AT_A_PACE]
    return pd.DataFrame(rows, columns=columns).sort_values("cell_id", ignore_index=True)


def read(root: Path) -> pd.DataFrame:
    """Return the measured cells below ``root`` that FILE there has simulated, with both.

    Columns: study, tile, block, arm, workload, load, model, backend, and each of METRICS and SHARES measured and, with
    suffix ``_simulated``, simulated; METRICS with ``_given`` and ``_quiet`` too: see ``simulate``. NaN where one does
    not exist. Raises InputError without the file.
    """
    file = root / FILE
    if not file.exists():
        raise InputError(f"{file}: no such file; python paper_figures/fidelity.py makes it")
    measured = [_with_shares(cells) for _, cells in _held_out(root)]
    rows = pd.concat(measured, ignore_index=True).merge(
        pd.read_parquet(file), on="cell_id", suffixes=("", "_simulated")
    )
    both = [f"{name}{end}" for name in (*METRICS, *SHARES) for end in ("", "_simulated")]
    both += _AT_A_PACE
    return rows[["cell_id", *_GROUP, "arm", "model", "backend", *both]].astype(dict.fromkeys(both, float))


def _held_out(root: Path) -> Iterator[tuple[Path, pd.DataFrame]]:
    for folder in studies(root):
        if folder.name in groups()["study"] and folder.name not in _FITTED_ON:
            cells = read_cells(folder)
            keep = (cells["status"] == Status.OK) & (cells["evidence"] == Evidence.MEASURED)
            keep &= cells["offered_rate"].notna() & ~cells["flags"].str.contains("heavy_probe")
            if keep.any():
                yield folder, cells[keep].astype({"load": float}).reset_index(drop=True)


def _key(tile: str, block: str, arm: str, workload: str, load: float | None, seed: int) -> tuple[object, ...]:
    return (tile, block, arm, workload, None if load is None or np.isnan(load) else round(load, 9), seed)


def _simulated(folder: Path, cells: pd.DataFrame) -> Iterator[dict[str, Any]]:
    study = str(cells["study"].iloc[0])
    modes = cells[["cell_id", "launch_id", "requested_mode", "resolved_mode", "realised_mode"]]
    steps = with_tables(read_steps(folder, cells["cell_id"]).dropna(subset=["runtime_mode"]).merge(modes, on="cell_id"))
    asked = _asked(folder)
    wanted = {_key(*row): name for name, *row in cells[["cell_id", *_SAME]].itertuples(index=False, name=None)}
    for block in sorted(cells["block"].unique()):
        match = re.fullmatch(r"(.*?)(\d+)", block)
        if match is None:
            continue
        tiles = ",".join(sorted(cells[cells["block"] == block]["tile"].unique()))
        only = [f"study.block_prefix='{match[1]}'", f"study.first_block={match[2]}", "study.blocks=1"]
        for launch in plan(
            [f"study={study}", f"study.only=[{tiles}]", *asked, *only, "engine=sim"], Evidence.SIMULATED
        ).launches:
            for cell in launch.cells:
                key = _key(launch.tile, launch.block, launch.arm, cell.config.workload.name, cell.load, cell.seed)
                if key in wanted:
                    name = wanted[key]
                    with contextlib.suppress(CellFailed, EnvironmentLacks):
                        yield {"cell_id": name, **_of_cell(launch, cell, steps[steps["cell_id"] == name])}


def _asked(folder: Path) -> list[str]:
    """Return the overrides that a user gave with a study whose preset leaves the trace open; none for the others."""
    config = json.loads(read_launches(folder)["provenance"].iloc[0]).get("config") or {}
    trace, study = config.get("trace") or {}, config.get("study") or {}
    named = any("trace.path" in override for tile in study.get("tiles", ()) for override in tile["overrides"])
    if named or trace.get("path") is None:
        return []
    given = {key: value for key, value in trace.items() if key != "path" and value is not None}
    return [
        f"trace.path={Path(FOLDER) / trace['path']}",
        *(f"trace.{key}={json.dumps(value)}" for key, value in given.items()),
        *(f"study.arms.{arm}={json.dumps(overrides)}" for arm, overrides in study["arms"].items()),
    ]


def _of_cell(launch: Launch, cell: Cell, steps: pd.DataFrame) -> dict[str, float]:
    draws = [_served(replace(launch, launch_id=f"{launch.launch_id}#{draw}"), cell) for draw in range(_DRAWS)]
    medians = pd.DataFrame(draws).astype(float).median()
    columns = {str(name): float(value) for name, value in medians.items()}
    config = launch.config
    calibration = load_calibration(config.engine.calibration, config.hardware, config.model.name)
    paces = {QUIET: HostPace(slowness=(0.0,), dwell_s=1.0)}
    if not steps.empty and (recorded := recorded_pace(steps, calibration)) is not None:
        paces[GIVEN] = recorded
    for end, pace in paces.items():
        with TemporaryDirectory() as folder:
            file = save(calibration.model_copy(update={"host_pace": pace}), Path(folder))
            engine = config.engine.model_copy(update={"calibration": str(file)})
            found = _served(replace(launch, config=config.model_copy(update={"engine": engine})), cell)
        columns |= {f"{metric}{end}": found[metric] for metric in METRICS}
    return columns


def _served(launch: Launch, cell: Cell) -> dict[str, Any]:
    """Return METRICS and SHARES of one cell, on an engine of its own."""
    engine = SimEngine()
    engine.start(launch)
    schedule = build(cell.config.workload, cell.seed, cell.config.trace)
    got = engine.measure(schedule, cell.config.engine.cell_limit_s)
    columns, _ = latency.summarise(got.requests, cell.config.workload, schedule.offered_rate)
    window = latency.measured_window(got.requests, cell.config.workload)
    return {metric: columns[metric] for metric in METRICS} | _shares(stability.summarise(got.steps, window))


def _shares(row: dict[str, Any]) -> dict[str, float]:
    steps = np.array([np.nan if pd.isna(row[name]) else row[name] for name in _STEPS], float)
    return dict(zip(SHARES, steps / steps.sum() if steps.sum() else steps * np.nan, strict=True))


def _with_shares(cells: pd.DataFrame) -> pd.DataFrame:
    steps = zip(*(cells[name] for name in _STEPS), strict=True)
    return cells.join(pd.DataFrame([_shares(dict(zip(_STEPS, row, strict=True))) for row in steps]))


class Error(NamedTuple):
    """The simulator's relative errors of one metric: 0.1 is 10 %. ``median`` and ``p90`` of sizes, ``bias`` signed."""

    what: str
    metric: str
    n: int
    median: float
    p90: float
    bias: float


def errors(rows: pd.DataFrame, by: str = "arm", end: str = "_simulated") -> list[Error]:
    """Return the errors of the columns with ``end``: of all ``rows`` of ``read``, and of each value of ``by``."""
    found = []
    for name, part in [("all", rows), *((str(name), part) for name, part in rows.groupby(by))]:
        for metric in METRICS:
            error = (part[f"{metric}{end}"] / part[metric] - 1).dropna()
            if len(error):
                size = error.abs()
                found.append(
                    Error(
                        name, metric, len(error), float(size.median()), float(size.quantile(0.9)), float(error.median())
                    )
                )
    return found


def floor(rows: pd.DataFrame, metric: str) -> tuple[float | None, int]:
    """Return how far two measurements of one arm's cell in different blocks lie apart, and how many pairs there are.

    Median of |a / b - 1| over all ordered pairs; null without one. No prediction comes closer to one of the two but by
    chance: the host's state differs between them.
    """
    apart = []
    for _, part in rows.groupby(["study", "tile", "arm", "workload", "load"], dropna=False):
        values = part[metric].dropna().to_numpy(float)
        apart += [abs(a / b - 1) for one, a in enumerate(values) for other, b in enumerate(values) if one != other]
    return (float(np.median(apart)) if apart else None), len(apart) // 2


def choices(rows: pd.DataFrame, metric: str = "tpot_p50_ms") -> pd.DataFrame:
    """Return a row for each block's workload and load in which the default and another arm were measured.

    Columns: study, tile, block, workload, load, best (the arm with the least measured ``metric``), chosen (with the
    least simulated one), regret and default_regret: what ``chosen`` and the default cost over ``best``, measured.
    """
    found = []
    for names, part in rows.dropna(subset=[metric, f"{metric}_simulated"]).groupby(_GROUP, dropna=False):
        values = part.groupby("arm")[[metric, f"{metric}_simulated"]].median()
        if len(values) > 1 and DEFAULT in values.index:
            measured = values[metric]
            chosen = str(values[f"{metric}_simulated"].idxmin())
            found.append(
                {
                    **dict(zip(_GROUP, names, strict=True)),
                    "best": str(measured.idxmin()),
                    "chosen": chosen,
                    "regret": measured[chosen] / measured.min() - 1,
                    "default_regret": measured[DEFAULT] / measured.min() - 1,
                }
            )
    return pd.DataFrame(found, columns=[*_GROUP, "best", "chosen", "regret", "default_regret"])

"""Folders of studies in; the cells of the load sweeps with what they stand for, and their paired log-ratios, out.

A cell is ranked if it ended ok, carries no flag, is below saturation and realised the mode that was asked for; else
``unranked`` says why not, and it is shown and counted. Two arms pair where they served the same requests in the same
block on the same machine and GPU.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd

from artifact.analysis.contrasts.inference import Floats
from artifact.analysis.contrasts.measured_cells import needed_blocks
from artifact.analysis.correctness import screened
from artifact.config import load
from artifact.metrics.memory import believed
from artifact.schema import Mode
from artifact.study.store import read_cells, read_launches

DEFAULT = Mode.FULL_AND_PIECEWISE.value
AGAIN = f"{DEFAULT}@AA"  # the same mode in a second launch of the block
MODES = (Mode.NONE.value, Mode.PIECEWISE.value, Mode.FULL.value, Mode.FULL_DECODE_ONLY.value, DEFAULT)
STUDIES = ("load_sweep", "load_sweep_aa", "load_sweep_8b", "traces", "sharegpt", "small_kv", "closed_loop")
METRICS = ("tpot_p50_ms", "tpot_p99_ms", "ttft_p50_ms", "ttft_p99_ms")
STABILITIES = ("steady", "churn", "bursty")
SATURATED = "overload"  # the flag of a cell whose queue grows

_FEW = "under_sampled"

_Served = tuple[str, int, float]


class Place(NamedTuple):
    """Where a contrast is: a tile's workload at one level of load. ``level`` reads "0.35", "16rps" or "own"."""

    model: str
    tile: str
    workload: str
    level: str

    @property
    def load(self) -> float | None:
        """The level as a fraction of the default's saturation; None where it is none."""
        return None if self.level.endswith("rps") else self.amount

    @property
    def amount(self) -> float | None:
        """The load, or the rate; None where the level is neither."""
        return float(self.level.removesuffix("rps")) if self.level != "own" else None

    @property
    def words(self) -> str:
        """Workload and level as a reader wants them, with the tile's name where the workload does not say it."""
        kind = self.tile.removeprefix(self.model).removeprefix("-")
        name = self.workload if kind.replace("-", "_") in self.workload else f"{self.workload}, {kind}"
        if self.load is not None:
            return f"{name}, load {self.level}"
        return name if self.amount is None else f"{name}, {self.amount:g} requests/s"


@dataclass(frozen=True, eq=False)
class Sweep:
    """Cells (records.CellRow, ``level``, ``unranked``) and engine starts of the sweeps, of one kind of evidence.

    ``block`` is as ``blocks`` has it.
    """

    cells: pd.DataFrame
    launches: pd.DataFrame
    evidence: str
    gpus: tuple[str, ...]
    _values: dict[tuple[Place, str], dict[str, dict[_Served, float]]] = field(default_factory=dict)

    @cached_property
    def _by_place(self) -> dict[Place, pd.DataFrame]:
        groups = self.cells.groupby(list(Place._fields), sort=False)
        return {Place(*map(str, key)): rows for key, rows in groups}

    def places(self) -> list[Place]:
        """Return the places in a fixed order: model, workload (steady, churn, bursty first), load."""
        order = {name: rank for rank, name in enumerate(STABILITIES)}
        return sorted(
            self._by_place,
            key=lambda p: (p.model, order.get(p.workload, 9), p.tile, p.workload, p.amount or 0.0, p),
        )

    def at(self, place: Place) -> pd.DataFrame:
        """Return the cells of a place."""
        return self._by_place[place]

    def values(self, place: Place, metric: str) -> dict[str, dict[_Served, float]]:
        """Return the ranked values of ``metric`` at a place: by arm, then by block, seed and requests/s offered.

        The rate tells requests apart that one seed gave: of another window of a trace, or at another speed. 0: a closed
        loop's, which offers none.
        """
        if (place, metric) not in self._values:
            cells = self.at(place)
            cells = cells[cells["unranked"].isna() & cells[metric].notna()]
            found: dict[str, dict[_Served, float]] = {}
            rates = cells["offered_rate"].astype("float64").round(6).fillna(0.0)
            columns = (cells["arm"], cells["block"], cells["seed"], rates, cells[metric])
            for arm, block, seed, rate, value in zip(*(column.tolist() for column in columns), strict=True):
                found.setdefault(arm, {})[block, seed, rate] = float(value)
            self._values[place, metric] = found
        return self._values[place, metric]

    def only(self, cell_ids: Collection[str]) -> Self:
        """Return the sweep of those cells and their engine starts alone."""
        cells = self.cells[self.cells["cell_id"].isin(cell_ids)]
        launches = self.launches[self.launches["launch_id"].isin(cells["launch_id"])]
        return type(self)(cells, launches, self.evidence, self.gpus)

    def blocks_of(self, tile: str) -> "pd.Series[bool]":
        """Return, by block of ``tile`` in which a cell ended ok, whether every mode did."""
        cells = self.cells[(self.cells["tile"] == tile) & (self.cells["status"] == "ok")]
        return cells.groupby("block")["requested_mode"].nunique() == len(MODES)

    def log_ratios(self, place: Place, arm: str, metric: str, reference: str = DEFAULT) -> dict[str, float]:
        """Return ln(arm / reference) of ``metric`` by block, where both are ranked and served the same requests."""
        values = self.values(place, metric)
        one, other = values.get(arm, {}), values.get(reference, {})
        return {key[0]: math.log(one[key] / other[key]) for key in sorted(one.keys() & other.keys())}

    def sample(self, place: Place, arm: str, metric: str, reference: str = DEFAULT) -> Floats:
        """Return the numbers of ``log_ratios``, one a block."""
        return np.array(list(self.log_ratios(place, arm, metric, reference).values()), dtype=np.float64)


def read(root: Path, studies: Sequence[str] = STUDIES) -> Sweep | None:
    """Return the sweeps below ``root``, measured rows where there are any, else simulated; None where there is none.

    Raises InputError for a folder that cannot be read.
    """
    folders = [root / name for name in studies if (root / name / "cells.parquet").exists()]
    if not folders:
        return None
    cells, launches = (
        pd.concat([function(folder) for folder in folders], ignore_index=True)
        for function in (read_cells, read_launches)
    )
    if cells.empty:
        return None
    return of(screened(cells, root), believed(launches))


def of(cells: pd.DataFrame, launches: pd.DataFrame) -> Sweep:
    """Return the sweep of rows that were read already; ``cells`` holds at least one."""
    evidence = str(min(cells["evidence"]))  # measured, before simulated
    cells = cells[cells["evidence"] == evidence].reset_index(drop=True)
    launches = launches[launches["evidence"] == evidence].reset_index(drop=True)
    levels = [_level(cell_id, load_) for cell_id, load_ in zip(cells["cell_id"], cells["load"], strict=True)]
    cells = cells.assign(block=blocks(cells), level=pd.Series(levels, dtype="string"), unranked=_unranked(cells))
    gpus = tuple(sorted(launches["gpu_name"].dropna().unique()))
    return Sweep(cells, launches, evidence, gpus)


def blocks(rows: pd.DataFrame) -> "pd.Series[str]":
    """Return the block of cells or starts with its study, machine and GPU: what pairs within itself."""
    return rows["study"] + "/" + rows["block"] + " on " + rows["host_id"] + " " + rows["gpu_uuid"].fillna("")


def _level(cell_id: str, load_: Any) -> str:
    """Return what the plan writes before the id's digits: the load, a rate as 16rps, or own."""
    return f"{load_:g}" if pd.notna(load_) else cell_id.rsplit("-", 2)[1]


def _unranked(cells: pd.DataFrame) -> pd.Series:
    """Return why each cell is not ranked, null where it is.

    ``under_sampled`` speaks against 99th percentiles alone, which are null then.
    """
    why = pd.Series(pd.NA, index=cells.index, dtype="string")
    asked, realised = cells["requested_mode"], cells["realised_mode"]
    why = why.mask((realised.notna() & (realised != asked)).astype(bool), "realised as " + realised.fillna(""))
    flags = cells["flags"].fillna("").map(lambda text: ", ".join(flag for flag in text.split(",") if flag != _FEW))
    why = why.mask(flags != "", flags)
    saturated = (cells["load"] >= 1).fillna(value=False).astype(bool) | queue_grows(cells)
    why = why.mask(saturated, "at or above saturation")
    return why.mask(cells["status"] != "ok", cells["status"])


def queue_grows(cells: pd.DataFrame) -> "pd.Series[bool]":
    """Return which cells have a queue that grows (metrics.latency)."""
    return cells["flags"].fillna("").str.split(",").map(lambda flags: SATURATED in flags).astype(bool)


@cache
def blocks_needed(model: str) -> int:
    """Return in how many blocks a contrast of ``model`` is to be measured: below that it is exploratory."""
    return needed_blocks(load([f"model={model}"]).model)

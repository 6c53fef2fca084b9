"""Cells and steps of the load sweeps in, the figures of how batches were dispatched and how stable they were out."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from artifact.analysis.contrasts import sweep
from artifact.analysis.contrasts.sweep import DEFAULT, MODES, STABILITIES, Place, Sweep
from artifact.metrics.stability import graph_changes_per_s
from artifact.plots.data import Data, NothingToDraw
from artifact.plots.load_latency import explain, loads_of
from artifact.study.store import read_steps

_KINDS = {
    "steps_full": ("FULL", "0.35", ""),
    "steps_piecewise": ("PIECEWISE", "0.75", "///"),
    "steps_none": ("NONE", "1.0", ""),
}
_LOOKS = {"steady": ("#0072B2", "o", "-"), "churn": ("#D55E00", "s", "--"), "bursty": ("#009E73", "^", ":")}


def dispatch(data: Data) -> Figure:
    """Share of steps by runtime mode, a panel per mode that has graphs, a bar per workload; beside it the padding."""
    found = sweep.of(data.cells, data.launches)
    places = [place for place in found.places() if found.at(place)["steps_none"].notna().any()]
    modes = [mode for mode in MODES if mode != "NONE" and (found.cells["arm"] == mode).any()]
    if not places or not modes:
        raise NothingToDraw("no cell whose steps say how they were dispatched")
    figure = Figure(figsize=(2.0 + 2.0 * len(modes), 1.3 + 0.24 * len(places)), layout="constrained")
    grid = figure.subplots(1, len(modes), sharey=True, squeeze=False)[0]
    for axes, mode in zip(grid, modes, strict=True):
        for y, place in enumerate(places):
            _bar(axes, y, found.at(place), mode)
        axes.set_title(mode, fontsize=8)
        axes.set_xlim(0, 1.28)
        axes.set_xticks([0, 0.5, 1])
        axes.set_xlabel("share of steps", fontsize=8)
    several = len({place.model for place in places}) > 1
    names = [f"{f'{p.model}, ' if several else ''}{p.words}" for p in places]
    grid[0].set_yticks(range(len(places)), names, fontsize=7)
    grid[0].set_ylim(len(places) - 0.4, -0.6)
    handles = [
        grid[0].barh(-9, 0, color=shade, hatch=hatch, ec="k", label=words) for words, shade, hatch in _KINDS.values()
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=3, fontsize=8)
    explain(figure, data, found, places, "beside a bar: padded tokens over tokens, less one; means over blocks")
    return figure


def _bar(axes: Axes, y: int, cells: pd.DataFrame, mode: str) -> None:
    rows = cells[(cells["arm"] == mode) & cells["steps_none"].notna()]
    if rows.empty:
        axes.text(0.02, y, "not measured", fontsize=6, va="center", color="#999999")
        return
    counts = rows[list(_KINDS)].astype("float64")
    shares = counts.div(counts.sum(axis=1), axis=0).mean()
    left = 0.0
    for column, (_, shade, hatch) in _KINDS.items():
        axes.barh(y, shares[column], 0.7, left=left, color=shade, hatch=hatch, ec="k", linewidth=0.5)
        left += float(shares[column])
    padding = rows["padding_ratio"].astype("float64").mean()
    axes.annotate("" if np.isnan(padding) else f"{padding:.1%}", (1.02, y), fontsize=6, va="center")


def realised_stability(data: Data) -> Figure:
    """What stability came to in the default mode, against load: a point per block, a line through the medians."""
    found, by_model = loads_of(data)
    cells = found.cells[found.cells["arm"].eq(DEFAULT) & found.cells["workload"].isin(STABILITIES)]
    steps = cells[["steps_full", "steps_piecewise", "steps_none"]].astype("float64")
    cells = cells.assign(
        decode_share=steps["steps_full"] / steps.sum(axis=1), changes_per_s=_changes(data.folders, cells["cell_id"])
    )
    panels = {
        "running_cv": "CV of running requests over time",
        "decode_share": "share of steps that replay a decode graph",
        "changes_per_s": "changes of the replayed graph per s",
    }
    figure = Figure(figsize=(9.0, 0.9 + 2.6 * len(by_model)), layout="constrained")
    grid = figure.subplots(len(by_model), len(panels), squeeze=False, sharex=True)
    for axes_row, (model, places) in zip(grid, by_model.items(), strict=True):
        for axes, (column, words) in zip(axes_row, panels.items(), strict=True):
            _by_load(axes, found, cells, places, column)
            axes.set_ylabel(words, fontsize=7)
            axes.set_ylim(bottom=0)
            axes.grid(alpha=0.3)
            axes.set_title(model if len(by_model) > 1 else "", fontsize=8)
    for axes in grid[-1]:
        axes.set_xlabel("load, of the default's saturation", fontsize=8)
        axes.set_xlim(0, 1)
    lines = {line.get_label(): line for axes in grid.flat for line in axes.get_lines()}
    figure.legend(lines.values(), lines.keys(), loc="outside upper center", ncols=3, fontsize=8)
    everywhere = [place for places in by_model.values() for place in places]
    explain(figure, data, found, everywhere, f"{DEFAULT}; point: one block, line: median")
    return figure


def _changes(folders: Sequence[Path], cell_ids: pd.Series) -> pd.Series:
    """Return the changes of the replayed graph per second of each cell, by the index of ``cell_ids``."""
    by_cell: dict[str, float | None] = {}
    for folder in folders:
        steps = read_steps(folder, list(cell_ids))
        by_cell |= {str(name): graph_changes_per_s(rows.sort_values("t_s")) for name, rows in steps.groupby("cell_id")}
    return cell_ids.map(by_cell.get).astype("float64")


def _by_load(axes: Axes, found: Sweep, cells: pd.DataFrame, places: Sequence[Place], column: str) -> None:
    for number, stability in enumerate(STABILITIES):
        color, marker, line = _LOOKS[stability]
        middle = []
        for place in (each for each in places if each.workload == stability):
            values = cells.loc[cells.index.isin(found.at(place).index), column].dropna().astype("float64")
            at = (place.load or 0.0) + (number - 1) * 0.012
            axes.scatter([at] * len(values), values, s=9, marker=marker, color=color, alpha=0.6, linewidths=0)
            if len(values):
                middle.append((at, float(values.median())))
        if middle:
            axes.plot(*zip(*middle, strict=True), line, color=color, marker=marker, markersize=4, label=stability)

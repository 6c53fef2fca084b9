"""Rows of a step study in, the figures of what a decode step and a mixed step take, by model and mode, out."""

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from artifact.analysis.steps.effects import BIN_EDGES, MIXED, mixed_table
from artifact.analysis.steps.floor import GRIDS, copies_below
from artifact.analysis.steps.mpk import MODEL, PUBLISHED
from artifact.analysis.steps.table import step_table
from artifact.plots.data import Data, NothingToDraw
from artifact.plots.step_panels import (
    LEAVES,
    SERVE,
    batch_axis,
    by_arm,
    explain,
    fit_to_marks,
    frame,
    launches_an_arm,
    legend,
    mark_uncaptured,
    marks,
    panels,
    title,
)
from artifact.plots.style import BESIDE, arm_style

_FLOOR: dict[str, Any] = {"color": "#BBBBBB", "linewidth": 4, "solid_capstyle": "butt", "zorder": 1}


def step_latency(data: Data) -> Figure:
    """Decode step against batch size, a panel a model: wall time, GPU time of whole graphs, and memory's floor."""
    known = copies_below(data.folders[0].resolve().parent)
    table = step_table(data.cells, data.steps, data.launches, known).dropna(subset=["wall_ms"])
    if table.empty:
        raise NothingToDraw("no decode step of a grid without the heavy probe")
    figure, found = panels(table, (4.6, 3.2))
    for axes, rows in found:
        _decode_panel(axes, rows)
    legend(figure, 4)
    explain(
        figure,
        data,
        GRIDS,
        int(table["n_steps"].sum()),
        "mark: geometric mean over launches of their median step (wall, heavy probe off), line: its 95 % t-interval; "
        f"{LEAVES}; GPU time: heavy probe on, in its mode's colour; {SERVE}",
        f"floor: bytes of weights and KV cache over {'; '.join(table['floor_bandwidth'].dropna().unique())}"
        if table["floor_ms"].notna().any()
        else "no floor: the bandwidth or the bytes of the weights are not known",
        *(["MPK: published for one A100 (OSDI 2026), not measured here"] if MODEL in set(table["model"]) else []),
    )
    return figure


def _decode_panel(axes: Axes, table: pd.DataFrame) -> None:
    frame(axes, f"{title(table)}, {launches_an_arm(table['n_launches'])}")
    places = batch_axis(axes, table["batch"])
    floor = table.groupby("batch")["floor_ms"].median().dropna()
    axes.plot(floor.index.map(places), floor, label="floor: weights + KV", **_FLOOR)
    for arm, rows, x in by_arm(table, table["batch"].map(places)):
        marks(axes, arm, x, rows["wall_ms"], rows["wall_low_ms"], rows["wall_high_ms"])
        _gpu_time(axes, arm, x, rows["gpu_ms"])
    if set(table["model"]) == {MODEL} and 1 in places:
        left = -0.9 - 0.2 * len(places)  # of batch 1, so that the words end before its marks
        for words, value in PUBLISHED.items():
            axes.plot(left, value, "k*", markerfacecolor="w", markersize=7, label="MPK's paper, batch 1, A100 (ms)")
            axes.annotate(words, (left, value), **{**BESIDE, "fontsize": 6})
    fit_to_marks(axes, log=True)
    axes.set_ylabel("decode step (ms)", fontsize=8)


def _gpu_time(axes: Axes, arm: str, x: "pd.Series[float]", gpu_ms: "pd.Series[float]") -> None:
    if gpu_ms.notna().any():
        dots = {"color": arm_style(arm)["color"], "linestyle": (0, (1, 1)), "linewidth": 1.0}
        axes.plot(x, gpu_ms, label="GPU time of the graph", **dots)


def mixed_axis(axes: Axes) -> dict[float, int]:
    """Make x the bins of a mixed step's tokens; return the place of each by its upper end."""
    labels = [*(f"{low + 1}-{high}" for low, high in pairwise(BIN_EDGES)), f"> {BIN_EDGES[-1]}"]
    axes.set_xticks(range(len(labels)), labels)
    axes.set_xlabel("tokens in the step (decodes and prefill)", fontsize=8)
    return {float(end): place for place, end in enumerate((*BIN_EDGES[1:], np.inf))}


def mixed_steps(data: Data) -> Figure:
    """Steps that decode and prefill at once against their tokens, a panel a model: period and GPU time by mode."""
    table = mixed_table(data.cells, data.steps)
    if table.empty:
        raise NothingToDraw("no step that decodes and prefills: a mixed_steps cell needs engine.heavy_probe=true")
    figure, found = panels(table, (4.6, 3.2))
    for axes, rows_of in found:
        frame(axes, f"{title(rows_of)}, {launches_an_arm(rows_of['n_launches'])}")
        places = mixed_axis(axes)
        for arm, rows, x in by_arm(rows_of, rows_of["size"].map(places)):
            marks(axes, arm, x, rows["period_ms"], rows["period_low_ms"], rows["period_high_ms"])
            _gpu_time(axes, arm, x, rows["gpu_ms"])
        mark_uncaptured(axes, len(places) - 1, len(places))
        fit_to_marks(axes, log=True)
        axes.set_ylabel("mixed step (ms)", fontsize=8)
    legend(figure, 4)
    explain(
        figure,
        data,
        (MIXED,),
        int(table["n_steps"].sum()),
        f"mark: geometric mean over launches of their median step, line: its 95 % t-interval; {LEAVES}; heavy probe on",
        "a step's time: the longer of the host's period and the span of its forward pass on the GPU, of mixed steps "
        "that follow a decode step; GPU time in its mode's colour",
    )
    return figure

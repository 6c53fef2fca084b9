"""Rows of a step study in, the figures of what compilation and each kind of graph saves a step out."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from artifact.analysis.steps.effects import MIXED, compile_vs_graph, graph_benefit, mixed_table
from artifact.analysis.steps.floor import GRIDS
from artifact.analysis.steps.table import grid_steps
from artifact.plots.data import Data, NothingToDraw
from artifact.plots.step_latency import mixed_axis
from artifact.plots.step_panels import (
    LEAVES,
    SERVE,
    batch_axis,
    by_arm,
    explain,
    fit_to_marks,
    frame,
    legend,
    marks,
    panels,
    replicates,
    title,
)
from artifact.plots.style import arm_order, arm_style

_PAIRED = "mark: geometric mean over blocks, line: 95 % t-interval, paired by block"


def compile_against_graph(data: Data) -> Figure:
    """How much faster compilation makes a decode step, and how much faster graphs then make it, a panel a model."""
    table = compile_vs_graph(data.cells, data.steps)
    if table.empty:
        raise NothingToDraw("no block with NONE and another mode in a grid without the heavy probe")
    figure, found = panels(table, (4.6, 3.0))
    for axes, own in found:
        frame(axes, f"{title(own)}, {replicates(own['n_blocks'])}")
        for arm, rows, x in by_arm(own, own["batch"].map(batch_axis(axes, own["batch"]))):
            label = "compilation: EAGER / NONE" if arm == "NONE" else f"graphs: NONE / {arm}"
            marks(axes, arm, x, rows["speedup"], rows["low"], rows["high"], label=label)
        axes.axhline(1, color="k", linewidth=0.8)
        fit_to_marks(axes, log=True)
        axes.set_ylabel("decode step: times as fast", fontsize=8)
    legend(figure, 3)
    explain(figure, data, GRIDS, _light(data), f"{_PAIRED}; {LEAVES}; heavy probe off; {SERVE}")
    return figure


def _light(data: Data) -> int:
    return int((~grid_steps(data.cells, data.steps)["heavy"]).sum())


def benefit_by_size(data: Data) -> Figure:
    """What replaying a graph saves of a step of NONE, by captured size and kind: decode left, mixed right."""
    table = graph_benefit(data.cells, data.steps, data.launches)
    mixed_tiles = set(table["tile"][table["steps"] == "mixed"])
    table = table[table["tile"].isin(mixed_tiles or set(table["tile"]))]
    if table.empty:
        raise NothingToDraw("no block with NONE and a mode that replays graphs")
    names = list(dict.fromkeys(table["tile"]))
    figure = Figure(figsize=(9.2, 2.9 * len(names) + 1.2), layout="constrained")
    for name, (left, right) in zip(names, figure.subplots(len(names), 2, squeeze=False), strict=True):
        own = table[table["tile"] == name]
        decode, mixed = own[own["steps"] == "decode"], own[own["steps"] == "mixed"]
        frame(left, f"{name}: decode steps, {replicates(decode['n_blocks'])}")
        _savings(left, decode, decode["size"].map(batch_axis(left, decode["size"])))
        frame(right, f"{name}: mixed steps, {replicates(mixed['n_blocks'])}")
        _savings(right, mixed, mixed["size"].map(mixed_axis(right)))
    legend(figure, 4)
    counts = table["verdict"].value_counts()
    verdicts = ", ".join(f"{word} {counts.get(word, 0)}" for word in ("helps", "hurts", "unclear"))
    mixed_count = int(mixed_table(data.cells, data.steps)["n_steps"].sum())
    lines = (
        f"{_PAIRED}; heavy probe off in decode steps, on in mixed ones; {LEAVES}; of {len(table)} sizes and modes: "
        f"{verdicts}; open mark: unclear, ringed: hurts"
    )
    memory = [f"graphs of {name}: {_memory(table[table['tile'] == name])}" for name in names]
    explain(figure, data, (*GRIDS, MIXED), _light(data) + mixed_count, lines, *memory)
    return figure


def _savings(axes: Axes, table: pd.DataFrame, places: "pd.Series[float]") -> None:
    """Draw the share of NONE's step that is saved at each place, with its interval and verdict."""
    if table.empty:
        axes.annotate("not measured", (0.5, 0.5), xycoords="axes fraction", ha="center", fontsize=8)
        return
    for arm, rows, x in by_arm(table.sort_values("size"), places):
        share, low, high = (100 * (1 - 1 / rows[name]) for name in ("speedup", "low", "high"))
        marks(axes, arm, x, share, low, high)
        unclear, hurts = rows["verdict"] == "unclear", rows["verdict"] == "hurts"
        own = {**arm_style(arm), "linestyle": "", "markersize": 4, "markerfacecolor": "w", "zorder": 3}
        axes.plot(x[unclear], share[unclear], **own)
        axes.plot(x[hurts], share[hurts], "o", color="k", markersize=9, markerfacecolor="none")
    axes.axhline(0, color="k", linewidth=0.8)
    fit_to_marks(axes, log=False)
    axes.set_ylim(top=105)  # no more than all of a step can be saved
    axes.set_ylabel("saved of NONE's step (%)", fontsize=8)


def _memory(table: pd.DataFrame) -> str:
    """Return the number of graphs of each arm and their memory."""
    known = []
    for arm in arm_order(table["arm"]):
        graphs, each = table[table["arm"] == arm][["graphs", "bytes_per_graph"]].iloc[0].to_numpy(float)
        known.append(f"{arm} unknown" if np.isnan(each) else f"{arm} {graphs:.0f}, {graphs * each / 2**20:.0f} MiB")
    return "; ".join(known)

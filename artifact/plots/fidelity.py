"""Measured cells beside the same cells simulated in, the figure of how far apart they are out."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from artifact.analysis import fidelity
from artifact.plots.data import Data, NothingToDraw
from artifact.plots.style import STYLES, arm_order, arm_style, caption, plain_numbers

_PANELS = {"tpot_p50_ms": "TPOT p50", "tpot_p99_ms": "TPOT p99", "ttft_p50_ms": "TTFT p50", "ttft_p99_ms": "TTFT p99"}


def held_out(data: Data) -> Figure:
    """Simulated against measured, one mark a cell; the line is equality, the band how far repeats lie apart."""
    root = data.folders[0].parent
    if not (root / fidelity.FILE).exists():
        raise NothingToDraw(f"{root}: no {fidelity.FILE}; it is made for the shipped measurements alone")
    rows = fidelity.read(root)
    names = rows["arm"].where(rows["arm"].isin(list(STYLES)), "other arms")
    figure = Figure(figsize=(8.4, 7.6), layout="constrained")
    errors, notes = fidelity.errors(rows), []
    for axes, (metric, words) in zip(figure.subplots(2, 2).flat, _PANELS.items(), strict=True):
        for arm in arm_order(names):
            part = rows[names == arm]
            style = {**arm_style(arm), "linestyle": ""}
            axes.plot(part[metric], part[f"{metric}_simulated"], markersize=5, label=arm, **style)
        apart, pairs = fidelity.floor(rows, metric)
        _equality(axes, rows[[metric, f"{metric}_simulated"]].to_numpy(float), apart)
        axes.set_xlabel(f"{words}, measured (ms)")
        axes.set_ylabel(f"{words}, simulated (ms)")
        error = next((each for each in errors if each.metric == metric), None)
        if error is not None:
            repeats = "no repeats" if apart is None else f"repeats {apart:.0%} apart ({pairs} pairs)"
            notes.append(f"{words}: median error {error.median:.0%} of {error.n} cells, {repeats}")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, fontsize=7)
    lines = "\n".join("; ".join(notes[at : at + 2]) for at in range(0, len(notes), 2))
    what = f"simulated against {data.label}; held-out open loops, n = {len(rows)} cells"
    caption(figure, f"{what}\n{lines}\nband: median distance of the same cell measured in two blocks")
    return figure


def _equality(axes: Axes, values: np.ndarray, apart: float | None) -> None:
    low, high = np.nanmin(values) / 1.3, np.nanmax(values) * 1.3
    ends = np.array([low, high])
    axes.plot(ends, ends, color="#000000", linewidth=0.8)
    if apart is not None:
        axes.fill_between(ends, ends / (1 + apart), ends * (1 + apart), color="#BBBBBB", alpha=0.4, linewidth=0)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(low, high)
    plain_numbers(axes.xaxis)
    plain_numbers(axes.yaxis)
    axes.grid(alpha=0.3)

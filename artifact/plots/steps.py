"""Recorded steps in, the figures of what a step takes out."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from artifact.errors import InputError
from artifact.plots.data import Data
from artifact.plots.style import arm_order, arm_style, caption, plain_numbers


def decode_steps(data: Data) -> pd.DataFrame:
    """Return the pure decode steps of the designed grid that have a period: arm, batch, wall_ms, launch_id among them.

    Loads are left out: there a batch size is met in passing, at the times when the host is busiest.
    """
    grid = data.cells[data.cells["workload"] == "step_grid"]
    steps = data.steps.merge(grid[["cell_id", "arm", "launch_id"]], on="cell_id")
    decode = steps["wall_ms"].notna() & (steps["num_decode"] == steps["num_reqs"])
    steps = steps[decode].rename(columns={"num_reqs": "batch"}).astype({"batch": "int64"})
    # Batches that stand for a few steps while a burst starts or ends do not speak for their size.
    return steps[steps.groupby(["arm", "batch"])["wall_ms"].transform("size") >= 20]


def step_time(data: Data) -> Figure:
    """Median decode step (wall) against batch size, one line per arm; the band is the middle half of the steps."""
    steps = decode_steps(data)
    if steps.empty:
        raise InputError("no decode step with a period: a step_grid cell needs engine.heavy_probe=true")
    figure = Figure(figsize=(6.6, 4.6), layout="constrained")
    axes = figure.subplots()
    for arm in arm_order(steps["arm"]):
        groups = steps[steps["arm"] == arm].groupby("batch")["wall_ms"]
        middle, low, high = groups.median(), groups.quantile(0.25), groups.quantile(0.75)
        axes.plot(middle.index, middle, label=arm, markersize=4, linewidth=1.2, **arm_style(arm))
        axes.fill_between(middle.index, low, high, color=arm_style(arm)["color"], alpha=0.15, linewidth=0)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    ticks = [2**power for power in range(int(np.log2(max(steps["batch"]))) + 1)]
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    plain_numbers(axes.yaxis)
    axes.set_xlabel("requests in the batch, one token each")
    axes.set_ylabel("decode step, wall time (ms)")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside upper center", ncols=3, fontsize=8)
    bands = "line: median, band: middle half of the steps"
    caption(figure, f"{data.label}; n = {len(steps)} steps of {steps['launch_id'].nunique()} launches; {bands}")
    return figure

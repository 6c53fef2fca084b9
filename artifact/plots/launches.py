"""Cells and launches in, the figure of what a mode gives and what it holds out."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from artifact.metrics.memory import believed
from artifact.plots.data import Data
from artifact.plots.style import BESIDE, arm_order, caption, plain_numbers, realised


def tpot_memory(data: Data) -> Figure:
    """TPOT p50 (mark) to p90 (end of the line) by arm and workload; memory of the captured graphs by arm."""
    arms = arm_order(data.cells["arm"])
    workloads = sorted(data.cells["workload"].unique())
    figure = Figure(figsize=(8.4, 4.0), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.5, 1))
    place = np.arange(len(arms))
    for number, workload in enumerate(workloads):
        rows = data.cells[data.cells["workload"] == workload].groupby("arm")[["tpot_p50_ms", "tpot_p90_ms"]].mean()
        middle, high = rows.reindex(arms).to_numpy(float).T
        at = place + (number - (len(workloads) - 1) / 2) * 0.36
        left.hlines(at, middle, high, color="#777777", linewidth=1)
        left.plot(middle, at, "osD^"[number % 4], color=("#000000", "#0072B2", "#E69F00")[number % 3], label=workload)
        for y, low, value in zip(at, middle, high, strict=True):
            if np.isfinite(value):
                left.annotate(f"{low:.2f}", (value, y), **BESIDE)
    left.set_yticks(place, [realised(data.cells, arm) for arm in arms], fontsize=8)
    left.invert_yaxis()
    left.set_xscale("log")
    left.margins(x=0.12)
    plain_numbers(left.xaxis)
    left.set_xlabel("TPOT (ms); mark: p50, end of the line: p90")
    left.grid(axis="x", alpha=0.3)
    figure.legend(loc="outside upper left", ncols=len(workloads), fontsize=8)
    memory = believed(data.launches).groupby("arm")["graph_bytes"].mean().astype("float64").reindex(arms) / 2**20
    right.barh(place, memory, 0.6, color="#BBBBBB", ec="k")
    for y, value in zip(place, memory, strict=True):
        right.annotate("unknown" if pd.isna(value) else f"{value:.0f}", (0 if pd.isna(value) else value, y), **BESIDE)
    right.margins(x=0.2)
    right.set_yticks(place, [])
    right.invert_yaxis()
    right.set_xlabel("memory of captured graphs (MiB)")
    requests, launches = int(data.cells["n_requests"].sum()), len(data.launches)
    once = "; one launch per arm, so small differences are the host's" if launches == len(arms) else ""
    caption(figure, f"{data.label}; n = {requests} requests, {launches} launches{once}")
    return figure

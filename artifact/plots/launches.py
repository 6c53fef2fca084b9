"""Cells and launches in, the figures of what a mode costs to start and to hold out."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from artifact.errors import InputError
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
    memory = believed(data.launches).groupby("arm")["graph_bytes"].mean().reindex(arms) / 2**20
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


_PHASES = {
    "load_s": ("load weights", ""),
    "compile_s": ("compile", "///"),
    "profile_s": ("profile memory", "..."),
    "capture_s": ("capture graphs", "xxx"),
    "unexplained_s": ("unexplained", ""),
}


def startup(data: Data) -> Figure:
    """Seconds from asking for an engine until it is ready, by phase: mean of the launches of an arm, cold and warm."""
    launches = data.launches.dropna(subset=["start_s", "compile_cache"])
    if launches.empty:
        raise InputError("no launch with a start-up time to draw")
    groups = {
        f"{arm}, {cache}" if cache != "off" else arm: rows
        for arm in arm_order(launches["arm"])
        for cache in ("cold", "warm", "off")
        if len(rows := launches[(launches["arm"] == arm) & (launches["compile_cache"] == cache)])
    }
    figure = Figure(figsize=(8.0, 0.42 * len(groups) + 1.4), layout="constrained")
    axes = figure.subplots()
    place, left = np.arange(len(groups)), np.zeros(len(groups))
    for shade, (column, (words, hatch)) in zip(("1.0", "0.85", "0.7", "0.9", "0.4"), _PHASES.items(), strict=True):
        width = np.array([rows[column].astype(float).mean() for rows in groups.values()])
        axes.barh(place, width, 0.7, left=left, color=shade, hatch=hatch, ec="k", linewidth=0.6, label=words)
        left = left + np.nan_to_num(width)
    for y, end, rows in zip(place, left, groups.values(), strict=True):
        axes.annotate(f"{end:.1f} (n = {len(rows)})", (end, y), **BESIDE)
    axes.set_yticks(place, list(groups), fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.17)
    axes.set_xlabel("start-up without importing vLLM (s); cold, warm: the compile cache")
    figure.legend(loc="outside upper center", ncols=len(_PHASES), fontsize=8)
    caption(figure, f"{data.label}; n = {len(launches)} launches")
    return figure

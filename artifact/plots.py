"""Stored rows in, figures out. The one user of matplotlib; needs the columnar files alone.

Every figure says measured or simulated, the GPU, the model and n, and can be read in grey: modes differ in marker
and line style as well as in colour.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from artifact.errors import InputError
from artifact.study.store import read_cells, read_launches, read_steps

mpl.use("agg")

# Okabe-Ito colours: distinct for the colour-blind too, and of different lightness.
STYLES: dict[str, dict[str, Any]] = {
    "EAGER": {"color": "#999999", "marker": "x", "linestyle": ":"},
    "NONE": {"color": "#000000", "marker": "s", "linestyle": "--"},
    "PIECEWISE": {"color": "#E69F00", "marker": "^", "linestyle": "-."},
    "FULL": {"color": "#0072B2", "marker": "o", "linestyle": "-"},
    "FULL_DECODE_ONLY": {"color": "#009E73", "marker": "v", "linestyle": "--"},
    "FULL_AND_PIECEWISE": {"color": "#CC79A7", "marker": "D", "linestyle": "-"},
}


@dataclass(frozen=True, eq=False)
class Data:
    """The rows of one study folder and the line that says what they are."""

    cells: pd.DataFrame
    launches: pd.DataFrame
    steps: pd.DataFrame
    label: str


def load(folder: Path) -> Data:
    """Read a study's folder (shipped or of results). Raises InputError where there is none or no cell finished."""
    cells, launches = read_cells(folder), read_launches(folder)
    cells = cells[cells["status"] == "ok"]
    if cells.empty:
        raise InputError(f"{folder}: no finished cell to draw")
    launches = launches[launches["launch_id"].isin(cells["launch_id"])]
    gpu = ", ".join(sorted(launches["gpu_name"].dropna().unique())) or "GPU unknown"
    evidence = " and ".join(sorted(cells["evidence"].unique()))
    models = ", ".join(sorted(cells["model"].unique()))
    return Data(cells, launches, read_steps(folder), f"{evidence}, {gpu}, {models}, vLLM 0.21.0")


def arm_style(arm: str) -> dict[str, Any]:
    """Return colour, marker and line style of an arm: its mode's, or a grey of its own for another backend."""
    return STYLES.get(arm, {"color": "#56B4E9", "marker": "P", "linestyle": ":"})


def arm_order(arms: pd.Series) -> list[str]:
    """Return the distinct arms, modes first in the order of STYLES."""
    known = list(STYLES)
    return sorted(set(arms), key=lambda arm: (known.index(arm) if arm in known else len(known), arm))


def decode_steps(data: Data) -> pd.DataFrame:
    """Return pure decode steps with a period: columns arm, batch, wall_ms, gpu_ms, runtime_mode (heavy probe)."""
    steps = data.steps.merge(data.cells[["cell_id", "arm", "launch_id"]], on="cell_id")
    decode = steps["wall_ms"].notna() & (steps["num_decode"] == steps["num_reqs"])
    return steps[decode].rename(columns={"num_reqs": "batch"}).astype({"batch": "int64"})


def step_time(data: Data) -> Figure:
    """Median decode step (wall) against batch size, one line per arm; the band is the middle half of the steps."""
    steps = decode_steps(data)
    if steps.empty:
        raise InputError("no decode step with a period: the study's cells need engine.heavy_probe=true")
    # Batches met only in passing, while others finish, have too few steps to speak for their size.
    counted = steps.groupby(["arm", "batch"])["wall_ms"].transform("size")
    steps = steps[counted >= 20]
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
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
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}")
    axes.tick_params(axis="y", which="both", labelsize=8)
    axes.set_xlabel("requests in the batch, one token each")
    axes.set_ylabel("decode step, wall time (ms)")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    _caption(figure, f"{data.label}; n = {len(steps)} steps of {steps['launch_id'].nunique()} launches")
    return figure


def tpot_memory(data: Data) -> Figure:
    """TPOT p50 (bar) and p90 (tick) by arm and workload; memory of the captured graphs by arm."""
    arms = arm_order(data.cells["arm"])
    workloads = sorted(data.cells["workload"].unique())
    figure = Figure(figsize=(8.2, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.5, 1))
    place = np.arange(len(arms))
    height = 0.8 / len(workloads)
    hatches = ("", "///", "...", "xxx")
    for number, workload in enumerate(workloads):
        rows = data.cells[data.cells["workload"] == workload].groupby("arm")[["tpot_p50_ms", "tpot_p90_ms"]].mean()
        rows = rows.reindex(arms)
        at = place + (number - (len(workloads) - 1) / 2) * height
        left.barh(at, rows["tpot_p50_ms"], height, label=workload, hatch=hatches[number % 4], color="#BBBBBB", ec="k")
        left.plot(rows["tpot_p90_ms"], at, "k|", markersize=9, label="p90" if number == 0 else None)
        for y, value in zip(at, rows["tpot_p50_ms"], strict=True):
            if pd.notna(value):
                left.annotate(f"{value:.2f}", (value, y), xytext=(-2, 0), textcoords="offset points", **_INSIDE)
    left.set_yticks(place, arms, fontsize=8)
    left.invert_yaxis()
    left.set_xscale("log")
    left.xaxis.set_major_formatter("{x:g}")
    left.set_xlabel("TPOT (ms), bar: p50")
    left.legend(fontsize=8)
    memory = data.launches.groupby("arm")["graph_bytes"].mean().reindex(arms) / 2**20
    right.barh(place, memory, color="#BBBBBB", ec="k")
    for y, value in zip(place, memory, strict=True):
        right.annotate("unknown" if pd.isna(value) else f"{value:.0f}", (0 if pd.isna(value) else value, y), **_BESIDE)
    right.margins(x=0.2)
    right.set_yticks(place, [])
    right.invert_yaxis()
    right.set_xlabel("memory of captured graphs (MiB)")
    requests = int(data.cells["n_requests"].sum())
    _caption(figure, f"{data.label}; n = {requests} requests, {data.launches.shape[0]} launches")
    return figure


_INSIDE = {"ha": "right", "va": "center", "fontsize": 7}
_BESIDE = {"xytext": (3, 0), "textcoords": "offset points", "va": "center", "fontsize": 7}


def _caption(figure: Figure, text: str) -> None:
    figure.supxlabel(text, fontsize=7, color="#444444")


# name of the file -> the study whose rows it shows, and the function that draws it
FIGURES: dict[str, tuple[str, Callable[[Data], Figure]]] = {
    "fig01_step_time": ("calibrate", step_time),
    "fig02_tpot_memory": ("smoke", tpot_memory),
}


def draw(name: str, data_root: Path, out: Path) -> list[Path]:
    """Draw figure ``name`` from the study folders below ``data_root``; return the PDF and the PNG written to ``out``.

    Both are the same bytes for the same data: no date is stored in them.
    """
    study, function = FIGURES[name]
    figure = function(load(data_root / study))
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for suffix, metadata in ((".pdf", {"CreationDate": None}), (".png", {"Software": None})):
        path = out / f"{name}{suffix}"
        figure.savefig(path, dpi=160, metadata=metadata)
        written.append(path)
    return written

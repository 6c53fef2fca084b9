"""Stored rows in, figures out. The one user of matplotlib; needs the columnar files alone.

Every figure says measured or simulated, the GPU, the model and n, and can be read in grey: modes differ in marker
and line style as well as in colour.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from artifact.analysis.objectives import OBJECTIVES, Objective
from artifact.errors import InputError
from artifact.metrics.memory import believed
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
    """The rows of one or more studies and the line that says what they are."""

    cells: pd.DataFrame
    launches: pd.DataFrame
    folders: tuple[Path, ...]
    label: str

    @cached_property
    def steps(self) -> pd.DataFrame:
        """The studies' steps, read when a figure asks for them: by far the largest of the files."""
        return pd.concat([read_steps(folder) for folder in self.folders], ignore_index=True)


def load(*folders: Path) -> Data:
    """Read those of the studies' folders that exist; one kind of evidence alone, measured where there is any.

    Raises InputError where none exists or no cell is finished.
    """
    found = [folder for folder in folders if (folder / "cells.parquet").exists()] or list(folders[:1])
    cells, launches = (
        pd.concat([read(folder) for folder in found], ignore_index=True) for read in (read_cells, read_launches)
    )
    cells = cells[cells["status"] == "ok"]
    if cells.empty:
        raise InputError(f"{found[0]}: no finished cell to draw")
    evidence = min(cells["evidence"])  # measured, before simulated
    cells = cells[cells["evidence"] == evidence]
    launches = launches[launches["launch_id"].isin(cells["launch_id"])]
    gpu = ", ".join(sorted(launches["gpu_name"].dropna().unique())) or "GPU unknown"
    models = ", ".join(sorted(cells["model"].unique()))
    return Data(cells, launches, tuple(found), f"{evidence}, {gpu}, {models}, vLLM 0.21.0")


def arm_style(arm: str) -> dict[str, Any]:
    """Return colour, marker and line style of an arm: its mode's, or a grey of its own for another backend."""
    return STYLES.get(arm, {"color": "#56B4E9", "marker": "P", "linestyle": ":"})


def arm_order(arms: pd.Series) -> list[str]:
    """Return the distinct arms, modes first in the order of STYLES."""
    known = list(STYLES)
    return sorted(set(arms), key=lambda arm: (known.index(arm) if arm in known else len(known), arm))


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
    _plain_numbers(axes.yaxis)
    axes.set_xlabel("requests in the batch, one token each")
    axes.set_ylabel("decode step, wall time (ms)")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside upper center", ncols=3, fontsize=8)
    bands = "line: median, band: middle half of the steps"
    _caption(figure, f"{data.label}; n = {len(steps)} steps of {steps['launch_id'].nunique()} launches; {bands}")
    return figure


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
                left.annotate(f"{low:.2f}", (value, y), **_BESIDE)
    left.set_yticks(place, [_realised(data.cells, arm) for arm in arms], fontsize=8)
    left.invert_yaxis()
    left.set_xscale("log")
    left.margins(x=0.12)
    _plain_numbers(left.xaxis)
    left.set_xlabel("TPOT (ms); mark: p50, end of the line: p90")
    left.grid(axis="x", alpha=0.3)
    figure.legend(loc="outside upper left", ncols=len(workloads), fontsize=8)
    memory = believed(data.launches).groupby("arm")["graph_bytes"].mean().reindex(arms) / 2**20
    right.barh(place, memory, 0.6, color="#BBBBBB", ec="k")
    for y, value in zip(place, memory, strict=True):
        right.annotate("unknown" if pd.isna(value) else f"{value:.0f}", (0 if pd.isna(value) else value, y), **_BESIDE)
    right.margins(x=0.2)
    right.set_yticks(place, [])
    right.invert_yaxis()
    right.set_xlabel("memory of captured graphs (MiB)")
    requests, launches = int(data.cells["n_requests"].sum()), len(data.launches)
    once = "; one launch per arm, so small differences are the host's" if launches == len(arms) else ""
    _caption(figure, f"{data.label}; n = {requests} requests, {launches} launches{once}")
    return figure


def _realised(cells: pd.DataFrame, arm: str) -> str:
    """Return the arm's name, with what it came to where that is something else."""
    realised = ", ".join(sorted(cells[cells["arm"] == arm]["realised_mode"].dropna().unique()))
    return arm if realised == arm or not realised else f"{arm}\n= {realised.replace(':', ', ')}"


def _plain_numbers(axis: Any) -> None:
    """Write 2 and not 2 x 10^0, on the marks of 1, 2 and 5 alone."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter("")


_BESIDE: dict[str, Any] = {"xytext": (4, 0), "textcoords": "offset points", "va": "center", "fontsize": 7}


def _caption(figure: Figure, text: str) -> None:
    figure.supxlabel(text, fontsize=7, color="#444444")


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
        axes.annotate(f"{end:.1f} (n = {len(rows)})", (end, y), **_BESIDE)
    axes.set_yticks(place, list(groups), fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.17)
    axes.set_xlabel("start-up without importing vLLM (s); cold, warm: the compile cache")
    figure.legend(loc="outside upper center", ncols=len(_PHASES), fontsize=8)
    _caption(figure, f"{data.label}; n = {len(launches)} launches")
    return figure


# name of the file -> the studies whose rows it shows, and the function that draws it
FIGURES: dict[str, tuple[tuple[str, ...], Callable[[Data], Figure]]] = {
    "fig01_step_time": (("calibrate",), step_time),
    "fig02_tpot_memory": (("smoke",), tpot_memory),
    "fig03_startup": (("smoke", "calibrate", "saturation", "load_sweep"), startup),
}


def draw(name: str, data_root: Path, out: Path) -> list[Path]:
    """Draw figure ``name`` from the study folders below ``data_root``; return the PDF and the PNG written to ``out``.

    Both are the same bytes for the same data: no date is stored in them.
    """
    studies, function = FIGURES[name]
    figure = function(load(*(data_root / study for study in studies)))
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for suffix, metadata in ((".pdf", {"CreationDate": None}), (".png", {"Software": None})):
        path = out / f"{name}{suffix}"
        figure.savefig(path, dpi=160, metadata=metadata)
        written.append(path)
    return written


def recommendation(answer: dict[str, Any], out: Path) -> Path:
    """Draw the answer of ``recommend`` as ``recommend.png`` in ``out`` and return its path.

    Left: the objective by mode, with the interval of its ratio to the recommended mode; right: memory of the graphs.
    """
    objective = OBJECTIVES[answer["objective"]]
    rows = [row for row in answer["ranking"] if row[objective.column] is not None]
    of_recommended = next(row[objective.column] for row in rows if row["mode"] == answer["recommended"])
    figure = Figure(figsize=(8.4, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.5, 1), sharey=True)
    for place, row in enumerate(rows):
        if row["difference_interval"] is not None:
            ends = [_moved(of_recommended, each, objective) for each in row["difference_interval"]]
            left.hlines(place, *ends, color="#777777", linewidth=1)
        left.plot(row[objective.column], place, **{**arm_style(row["mode"]), "linestyle": ""})
        left.annotate(f"{row[objective.column]:.3g}", (row[objective.column], place), **_ABOVE)
        mib = None if row["graph_bytes"] is None else row["graph_bytes"] / 2**20
        right.barh(place, mib or 0, 0.6, color="#BBBBBB", ec="k")
        right.annotate("unknown" if mib is None else f"{mib:.0f}", (mib or 0, place), **_BESIDE)
    marked = [f"> {row['mode']}" if row["mode"] == answer["recommended"] else row["mode"] for row in rows]
    left.set_yticks(range(len(rows)), marked, fontsize=8)
    left.set_ylim(len(rows) - 0.4, -0.6)
    for axes in (left, right):
        axes.margins(x=0.18)
    if not objective.higher:
        left.set_xscale("log")
        _plain_numbers(left.xaxis)
    left.set_xlabel(f"{objective.words} ({objective.unit})")
    left.grid(axis="x", alpha=0.3)
    right.set_xlabel("memory of captured graphs (MiB)")
    _caption(figure, f"{answer['source']}; line: interval of the ratio to {answer['recommended']}")
    out.mkdir(parents=True, exist_ok=True)
    path = out / "recommend.png"
    figure.savefig(path, dpi=160, metadata={"Software": None})
    return path


_ABOVE: dict[str, Any] = {"xytext": (0, 5), "textcoords": "offset points", "ha": "center", "fontsize": 7}


def _moved(value: float, share: float, objective: Objective) -> float:
    """Return the value that is better than ``value`` by ``share`` of it, of a share by so much."""
    if objective.is_share:
        return value + share
    return value * (1 + share if objective.higher else 1 - share)

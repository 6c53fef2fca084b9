"""Engine starts of every study in, the figure of what captured graphs take, in bytes, KV tokens and seconds, out."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from artifact.analysis.every_study import read, studies
from artifact.analysis.intervals import line
from artifact.analysis.starts.start_up import kv_tokens, memory, ready
from artifact.plots.data import Data, NothingToDraw
from artifact.plots.style import BESIDE, arm_order, arm_style, caption, said

_MIB = 2**20
_ABOVE: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": 2, "fontsize": 7, "frameon": False}
_HOW = {"derived": ("D", "derived"), "measured": ("o", "measured")}


def graph_memory(data: Data) -> Figure:
    """Memory of the captured graphs beside vLLM's estimate; the KV tokens it costs; both against the capture sizes.

    Of every study's launches. Above, modes with vLLM's own list of capture sizes; below, every list that was tried.
    """
    launches = ready(read(studies(data.folders[0].parent)).launches)
    launches = launches[launches["graph_bytes"].notna()]
    default = launches[launches["default_sizes"]]
    if not (default["graphs"] > 0).any():
        raise NothingToDraw("no launch with graphs of vLLM's own capture sizes whose bytes are known")
    table, tokens = memory(default), kv_tokens(default)
    tokens = tokens[
        tokens["lost"].notna() & (tokens["realised_mode"] != "NONE") & (tokens["requested_mode"] != "EAGER")
    ]
    table, tokens = (rows.assign(label=_labels(rows)) for rows in (table, tokens))
    labels = _order(table)
    tried = _most_lists(launches)
    room = 0.3 * len(labels) + 1.3
    figure = Figure(figsize=(11.5, room + 0.4 + (3.2 if len(tried) else 0.0)), layout="constrained")
    if len(tried):
        panels = figure.subplots(2, 2, height_ratios=(room, 3.2)).flat
        _by_sizes(panels[2], tried, "graph_bytes", _MIB, "memory of captured graphs (MiB)")
        _by_sizes(panels[3], tried, "capture_s", 1.0, "capture (s)")
    else:
        panels = figure.subplots(1, 2).flat
    _bytes(panels[0], table, labels)
    _tokens(panels[1], tokens, labels)
    shown = pd.concat([default[default["graphs"] > 0], tried]).drop_duplicates("launch_id")
    lines = "; lines: least squares, ± half of the slope's 95 % interval" if len(tried) else ""
    caption(figure, f"{said(shown)}; n = {len(shown)} launches; (piecewise + full graphs){lines}")
    return figure


def _labels(table: pd.DataFrame) -> list[str]:
    """Return a name a row: model, backend where a model has more than one, mode, decode graphs where lists differ."""
    labels = []
    row: Any
    for row in table.itertuples():
        name = str(row.realised_mode).replace(":", ", ")
        labels.append(f"{row.model}, {row.attention}\n{name} ({int(row.graphs_piecewise):,} + {int(row.graphs_full)})")
    return labels


def _order(table: pd.DataFrame) -> list[str]:
    place = {mode: number for number, mode in enumerate(arm_order(table["realised_mode"]))}
    ordered = table.sort_values(
        ["model", "attention", "realised_mode", "graphs_full"],
        key=lambda column: column.map(place) if column.name == "realised_mode" else column,
    )
    return list(dict.fromkeys(ordered["label"]))


def _bytes(axes: Axes, table: pd.DataFrame, labels: list[str]) -> None:
    rows = table.drop_duplicates("label").set_index("label").reindex(labels)
    place = np.arange(len(labels))
    measured, estimate = (rows[name].astype(float).to_numpy() / _MIB for name in ("graph_bytes", "estimate_bytes"))
    axes.barh(place, np.nan_to_num(measured), 0.62, color="#BBBBBB", ec="k", linewidth=0.6, label="measured")
    axes.plot(estimate, place, "|", color="k", markersize=11, markeredgewidth=2, label="vLLM's estimate")
    for y, value, guess, share, n in zip(place, measured, estimate, rows["error_share"], rows["n"], strict=True):
        error = "" if pd.isna(share) else f", estimate {share:+.0%}"
        known = "unknown" if np.isnan(value) else f"{value:.0f}{error} (n = {n})"
        axes.annotate(known, (np.nanmax([0.0, value, guess]), y), **BESIDE)
    _rows(axes, place, labels)
    axes.set_xlim(0, 1.5 * float(np.nanmax([measured, estimate])))
    axes.set_xlabel("memory of captured graphs (MiB)", fontsize=8)
    axes.legend(**_ABOVE)


def _tokens(axes: Axes, tokens: pd.DataFrame, labels: list[str]) -> None:
    place = {label: number for number, label in enumerate(labels)}
    found = tokens[tokens["label"].isin(labels)].sort_values("how", ascending=False)
    found = found.drop_duplicates(["label", "utilisation"])  # measured, where it was
    same = found.groupby("label")["how"]
    found["at"] = found["label"].map(place) + (same.cumcount() - (same.transform("size") - 1) / 2) * 0.42
    kinds = sorted(set(zip(found["how"].astype(str), found["utilisation"].astype(float), strict=True)))
    for how, utilisation in kinds:
        rows = found[(found["how"] == how) & (found["utilisation"] == utilisation)]
        at = rows["at"].astype(float).to_numpy()
        marker, words = _HOW[how]
        lost, low, high = (rows[name].astype(float).to_numpy() for name in ("lost", "low", "high"))
        axes.errorbar(
            lost,
            at,
            xerr=np.nan_to_num(np.abs([lost - low, high - lost])),
            marker=marker,
            linestyle="",
            color="k",
            markerfacecolor="k" if how == "measured" else "w",
            markersize=5,
            elinewidth=1,
            label=f"at {utilisation:g} of the GPU, {words}",
        )
        for y, row, end in zip(at, rows.itertuples(), np.fmax(lost, high), strict=True):
            axes.annotate(f"  {row.lost:,.0f} = {row.share:.2%} (n = {row.n})", (end, y), **BESIDE)
    _rows(axes, np.arange(len(labels)), None)
    if kinds:
        axes.set_xlim(0, 1.5 * float(found[["lost", "high"]].astype(float).max().max()))
        axes.legend(**_ABOVE)
    axes.set_xlabel("KV tokens fewer than under NONE, and their share", fontsize=8)


def _rows(axes: Axes, place: np.ndarray, labels: list[str] | None) -> None:
    axes.set_yticks(place, labels if labels is not None else [""] * len(place), fontsize=6.5)
    axes.set_ylim(len(place) - 0.4, -0.6)
    axes.tick_params(axis="x", labelsize=7)
    axes.grid(axis="x", alpha=0.3)


def _most_lists(launches: pd.DataFrame) -> pd.DataFrame:
    """Return the launches of the model, backend and seats for which most lists were captured; none if one list was.

    Of vLLM's own list and its first sizes alone: sizes that were chosen one by one lie elsewhere.
    """
    found = launches[(launches["graphs"] > 0) & launches["own_list"]]
    found = found[~found["hollow"].fillna(value=False).astype(bool)]
    same = ["model", "attention", "max_num_seqs"]
    lists = found.groupby(same)["capture_sizes"].transform("nunique")
    most: pd.DataFrame = found[(lists == lists.max()) & (lists > 1)]
    first = most.groupby(same).ngroup() == 0
    return most.loc[first]


def _by_sizes(axes: Axes, launches: pd.DataFrame, column: str, unit: float, words: str) -> None:
    """Draw one mark a launch and, where three lists were tried, the line through them with its slope."""
    for mode in arm_order(launches["realised_mode"]):
        rows = launches[(launches["realised_mode"] == mode) & launches[column].notna()]
        x, y = rows["capture_sizes"].astype(float), rows[column].astype(float) / unit
        look, name = arm_style(mode), mode
        if (fit := line(x, y)) is not None and fit.low is not None:
            ends = np.array([x.min(), x.max()])
            axes.plot(ends, fit.intercept + fit.slope * ends, color=look["color"], linestyle=look["linestyle"])
            name = f"{mode}: {fit.slope:.3g} ± {fit.slope - fit.low:.1g} a size"
        marks = {**look, "linestyle": "", "markersize": 4, "markerfacecolor": "none"}
        axes.plot(x, y, label=f"{name} (n = {len(rows)})", **marks)
    axes.set_xlabel("capture sizes", fontsize=8)
    axes.set_ylabel(words, fontsize=8)
    axes.set_ylim(bottom=0)
    axes.set_title(f"{launches['model'].iloc[0]}, {launches['attention'].iloc[0]}", fontsize=9)
    axes.tick_params(labelsize=7)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)

"""Loads and engine starts of every study in, the figure of how soon graphs have paid out."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from artifact.analysis.every_study import read, studies
from artifact.analysis.starts.break_even import break_even, request_seconds
from artifact.plots.data import Data, NothingToDraw
from artifact.plots.style import arm_order, arm_style, caption, said

# What is earned back, and against which mode: a panel each.
_PANELS = (("capture", "NONE"), ("capture", "PIECEWISE"), ("cold start", "EAGER"))
_LEAST = 1.0  # requests; below it the axis is linear, so that 0 can be shown


def until_paid(data: Data) -> Figure:
    """Requests until what a start took longer has been saved, by load: capture against NONE and against PIECEWISE,
    compile and capture (a cold start) against eager.
    """
    folders = studies(data.folders[0].parent)
    rows = read(folders)
    table = break_even(rows.cells, rows.launches, request_seconds(folders, rows.cells))
    table = table[table["requests"].notna()]
    panels = [(cost, against) for cost, against in _PANELS if len(_of(table, cost, against))]
    if not panels:
        raise NothingToDraw("no open-loop load that two modes served without a flag, with starts of both")
    table = pd.concat([_of(table, cost, against) for cost, against in panels])
    table = table.assign(label=[_label(row) for row in table.itertuples()])
    labels = list(dict.fromkeys(table.sort_values(["model", "attention", "workload", "rate_per_s"])["label"]))
    figure = Figure(figsize=(3.2 + 3.1 * len(panels), 0.36 * len(labels) + 1.9), layout="constrained")
    for axes, (cost, against) in zip(figure.subplots(1, len(panels), squeeze=False).flat, panels, strict=True):
        _panel(axes, _of(table, cost, against), labels)
        axes.set_title(f"{cost}, against {against}", fontsize=9)
        axes.set_yticks(range(len(labels)), labels if cost == panels[0][0] and against == panels[0][1] else [])
    entries = {
        label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(entries.values(), entries.keys(), loc="outside upper center", ncols=len(entries), fontsize=8)
    started = rows.launches[rows.launches["model"].isin(table["model"])]
    none = "no interval: one block or launch" if table["requests_low"].isna().all() else "line: 95 % interval (Fieller)"
    caption(
        figure,
        f"{said(started)}; n = {int(table['blocks'].min())} to {int(table['blocks'].max())} blocks, "
        f"{int(table[['launches', 'launches_against']].min().min())} to "
        f"{int(table[['launches', 'launches_against']].max().max())} launches a side; {none}; 0: starts no later",
    )
    return figure


def _of(table: pd.DataFrame, cost: str, against: str) -> pd.DataFrame:
    return table[(table["cost"] == cost) & (table["against"] == against)]


def _label(row: Any) -> str:
    load = "" if pd.isna(row.load) else f" (load {row.load:g})"
    return f"{row.model}, {row.attention}\n{row.study}: {row.workload}, {row.rate_per_s:.1f}/s{load}"


def _panel(axes: Axes, table: pd.DataFrame, labels: list[str]) -> None:
    modes = arm_order(table["mode"])
    place = {label: number for number, label in enumerate(labels)}
    for number, mode in enumerate(modes):
        rows = table[table["mode"] == mode]
        at = [place[label] + (number - (len(modes) - 1) / 2) * 0.18 for label in rows["label"]]
        middle, low, high = (
            rows[name].astype(float).to_numpy() for name in ("requests", "requests_low", "requests_high")
        )
        reach = np.nan_to_num([middle - low, high - middle])
        style = {**arm_style(mode), "linestyle": "", "markersize": 4.5, "elinewidth": 1}
        axes.errorbar(middle, at, xerr=np.clip(reach, 0, None), label=mode, **style)
    axes.set_xscale("symlog", linthresh=_LEAST)
    far = float(np.nanmax(table[["requests", "requests_high"]].astype(float).to_numpy()))
    axes.set_xlim(-_LEAST / 6, 2 * max(far, _LEAST))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.set_xlabel("requests until it has paid", fontsize=8)
    axes.tick_params(labelsize=7)
    axes.grid(axis="x", alpha=0.3)
    for y in range(len(labels) - 1):
        axes.axhline(y + 0.5, color="0.9", linewidth=0.6)

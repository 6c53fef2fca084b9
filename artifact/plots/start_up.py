"""Engine starts of every study in, the figure of what a start takes by phase, cold and warm, out."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from artifact.analysis.every_study import read, studies
from artifact.analysis.starts.start_up import phases, ready
from artifact.plots.data import Data, NothingToDraw
from artifact.plots.style import BESIDE, arm_order, caption, said

_PHASES = {
    "load_s": ("load weights", "1.0", ""),
    "compile_s": ("compile", "0.85", "///"),
    "profile_s": ("profile memory", "0.7", "..."),
    "capture_s": ("capture graphs", "0.9", "xxx"),
    "unexplained_s": ("unexplained", "0.4", ""),
}
_STATES = ("cold", "warm", "off")
_COLUMNS = 2


def startup(data: Data) -> Figure:
    """Seconds from asking for an engine until it is ready, by phase: means over launches, a panel a model.

    Of every study's launches. Modes on the attention backend that a model was started with most; other backends have a
    panel of their own, in the default mode and where they changed another. Starts that were the first on their machine
    are left out: kernels outside the compile cache compile in them again.
    """
    launches = ready(read(studies(data.folders[0].parent)).launches)
    launches = launches[launches["state"].isin(_STATES)]
    panels = list(_panels(launches))
    if not panels:
        raise NothingToDraw("no launch with a start-up time to draw")
    bars = [[len(groups) for _, groups in panels[at : at + _COLUMNS]] for at in range(0, len(panels), _COLUMNS)]
    heights = [max(row) for row in bars]
    wide = min(_COLUMNS, len(panels))
    figure = Figure(
        figsize=(8.0 if wide == 1 else 12.5, 0.3 * sum(heights) + 1.0 * len(heights) + 0.6), layout="constrained"
    )
    axes = list(figure.subplots(len(heights), wide, height_ratios=heights, squeeze=False).flat)
    for number, ((title, groups), one) in enumerate(zip(panels, axes, strict=False)):
        _panel(one, title, groups)
        one.set_ylim(heights[number // wide] - 0.5, -0.5)  # bars of a row are of one thickness
    for one in axes[len(panels) :]:
        one.remove()
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), fontsize=8)
    shown = pd.concat([rows for _, groups in panels for rows in groups.values()])
    caption(
        figure,
        f"{said(shown)}; n = {len(shown)} launches (dots); line: 95 % interval from n = 3 on\n"
        "cold, warm: the compile cache; without importing vLLM",
    )
    return figure


def _panels(launches: pd.DataFrame) -> Iterator[tuple[str, dict[str, pd.DataFrame]]]:
    """Yield the title of each panel and its bars: label and launches."""
    for model, rows in launches.groupby("model"):
        default = rows["default_sizes"] & (rows["graphs"] > 0)
        # Where nothing was captured with vLLM's own list, another list is shown rather than nothing.
        of_model = rows[rows["default_sizes"] | (rows["graphs"] == 0)] if default.any() else rows
        counts = of_model["attention"].value_counts()
        main = max(counts.index, key=lambda name: (counts[name], name.startswith("FLASH_ATTN"), name))
        own = of_model[of_model["attention"] == main]
        groups = {
            f"{mode}, {state}" if state != "off" else mode: rows
            for mode in arm_order(own["requested_mode"])
            for state in _STATES
            if len(rows := own[(own["requested_mode"] == mode) & (own["state"] == state)])
        }
        if groups:
            yield f"{model}, {main}", groups
        other = of_model[of_model["attention"] != main]
        changed = other["realised_mode"] != other["requested_mode"]
        other = other[(other["requested_mode"] == "FULL_AND_PIECEWISE") | changed]
        groups = {
            f"{attention}, {_asked(str(mode), other)}, {state}": rows
            for attention in sorted(set(other["attention"]))
            for mode in arm_order(other[other["attention"] == attention]["requested_mode"])
            for state in _STATES
            if len(
                rows := other[
                    (other["attention"] == attention) & (other["requested_mode"] == mode) & (other["state"] == state)
                ]
            )
        }
        if groups:
            yield f"{model}, other backends", groups


def _asked(mode: str, launches: pd.DataFrame) -> str:
    realised = set(launches[launches["requested_mode"] == mode]["realised_mode"].dropna())
    return mode if realised == {mode} else f"{mode} asked"


def _panel(axes: Axes, title: str, groups: dict[str, pd.DataFrame]) -> None:
    """Draw one bar a group, its phases stacked, each launch's total as a dot."""
    place, left = np.arange(len(groups)), np.zeros(len(groups))
    for column, (words, shade, hatch) in _PHASES.items():
        width = np.array([rows[column].astype(float).mean() for rows in groups.values()])
        axes.barh(place, width, 0.7, left=left, color=shade, hatch=hatch, ec="k", linewidth=0.6, label=words)
        left = left + np.nan_to_num(width)
    for y, end, rows in zip(place, left, groups.values(), strict=True):
        totals = rows["start_s"].astype(float)
        axes.plot(totals, np.full(len(totals), y), "o", color="k", markersize=3.5, markeredgecolor="w")
        whole = phases(rows).query("phase == 'start_s'")
        reach = max(end, float(totals.max()))
        if len(totals) >= 3 and len(whole) == 1 and whole["high"].notna().all():
            low, high = float(whole["low"].iloc[0]), float(whole["high"].iloc[0])
            axes.hlines(y + 0.22, max(low, 0.0), high, color="k", linewidth=1.2)
            reach = max(reach, high)
        axes.annotate(f"{totals.mean():.1f} (n = {len(rows)})", (reach, y), **BESIDE)
    axes.set_yticks(place, list(groups), fontsize=7)
    axes.margins(x=0.25)
    axes.set_xlim(left=0)
    axes.set_title(title, fontsize=9)
    axes.set_xlabel("start-up (s)", fontsize=8)
    axes.tick_params(axis="x", labelsize=7)

"""Cells of the load sweeps in, the figures of the best mode by stability and load and of the default's regret out."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from artifact.analysis.contrasts import outcomes, sweep, verdicts
from artifact.analysis.contrasts.inference import MARGIN
from artifact.analysis.contrasts.outcomes import Regret
from artifact.analysis.contrasts.sweep import DEFAULT, STABILITIES, Place
from artifact.analysis.contrasts.verdicts import Finding
from artifact.plots.data import Data, NothingToDraw
from artifact.plots.load_latency import explain, loads_of
from artifact.plots.style import arm_style

_SHADES = {"better": "#9ECAE1", "equivalent": "#E5E5E5", "inconclusive": "#FFFFFF", "worse": "#FDD0A2"}
_METRICS = {"tpot_p50_ms": "TPOT p50", "ttft_p99_ms": "TTFT p99"}


def mode_map(data: Data) -> Figure:
    """Best mode, its ratio to the default with interval, and the verdict: stability down, load across, by metric."""
    found, by_model = loads_of(data)
    contrasts = verdicts.findings(found, tuple(_METRICS))
    loads = sorted({place.load or 0.0 for places in by_model.values() for place in places})
    rows = [(model, name) for model in by_model for name in STABILITIES if _has(by_model[model], name)]
    figure = Figure(figsize=(max(6.6, 1.5 + 2.1 * len(loads)), 1.4 + 2 * 0.75 * len(rows)), layout="constrained")
    for axes, (metric, words) in zip(figure.subplots(2, 1), _METRICS.items(), strict=True):
        for y, (model, stability) in enumerate(rows):
            for x, load_ in enumerate(loads):
                place = [p for p in by_model[model] if (p.workload, p.load) == (stability, load_)]
                _box(axes, x, y, [each for each in contrasts if each.metric == metric and each.place in place])
        axes.set_xlim(-0.5, len(loads) - 0.5)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xticks(range(len(loads)), [f"{load_:g}" for load_ in loads])
        labels = [stability if len(by_model) == 1 else f"{stability}\n{model}" for model, stability in rows]
        axes.set_yticks(range(len(rows)), labels, fontsize=8)
        axes.tick_params(length=0)
        axes.set_title(f"{words}: best mode, and its value over the default's", fontsize=9)
    axes.set_xlabel("load, of the default's saturation", fontsize=8)
    everywhere = [place for places in by_model.values() for place in places]
    shades = "blue: better than the default, grey: equal within 2 %, white: inconclusive (Holm over a tile)"
    explain(figure, data, found, everywhere, f"{shades}; brackets: 95 % interval; dashed edge: exploratory")
    return figure


def _has(places: Sequence[Place], stability: str) -> bool:
    return any(place.workload == stability for place in places)


def _box(axes: Axes, x: int, y: int, contrasts: Sequence[Finding]) -> None:
    known = [each for each in contrasts if each.ratio is not None]
    if not known:
        axes.text(x, y, "not measured", ha="center", va="center", fontsize=7, color="#999999")
        return
    best = min(known, key=lambda each: each.ratio or 1.0)
    is_default = (best.ratio or 1.0) >= 1
    name = f"{DEFAULT}\nnext: {best.mode}" if is_default else best.mode
    interval = "" if best.interval is None else f" [{best.interval[0]:.2f}, {best.interval[1]:.2f}]"
    standing = f"{best.verdict}, {best.blocks} of {best.needed} blocks"
    edge: dict[str, Any] = {"edgecolor": "#000000", "linestyle": "-"}
    if best.is_exploratory:
        edge = {"edgecolor": "#999999", "linestyle": "--"}
    shade = _SHADES["inconclusive" if is_default else best.verdict]
    axes.add_patch(Rectangle((x - 0.48, y - 0.46), 0.96, 0.92, facecolor=shade, linewidth=0.8, **edge))
    axes.text(x, y, f"{name}\n{best.ratio:.2f}{interval}\n{standing}", ha="center", va="center", fontsize=6)


def regret(data: Data) -> Figure:
    """How much lower the best mode's latency is than the default's at each place, with an interval, by metric."""
    found = sweep.of(data.cells, data.launches)
    by_metric = {metric: outcomes.regrets(found, metric) for metric in _METRICS}
    places = [place for place in found.places() if any(place == each.place for each in by_metric["tpot_p50_ms"])]
    if not places:
        raise NothingToDraw("no block with the default and another mode")
    figure = Figure(figsize=(9.0, 1.4 + 0.3 * len(places)), layout="constrained")
    for axes, (metric, words) in zip(figure.subplots(1, 2, sharey=True), _METRICS.items(), strict=True):
        for each in by_metric[metric]:
            _mark(axes, places.index(each.place), each)
        axes.axvline(100 * MARGIN, color="#777777", linestyle="--", linewidth=0.8)
        axes.set_xlim(left=-1, right=max(20, *(130 * each.regret for of in by_metric.values() for each in of)))
        axes.set_xlabel(f"{words}: lower in the best mode, % of the default's", fontsize=8)
        axes.grid(axis="x", alpha=0.3)
    several = len({place.model for place in places}) > 1
    names = [f"{f'{p.model}, ' if several else ''}{p.words}" for p in places]
    axes.set_yticks(range(len(places)), names, fontsize=7)
    axes.set_ylim(len(places) - 0.5, -0.7)
    marks = "hollow: fewer blocks than needed; line: 95 % interval over all modes; dashed: the margin of 2 %"
    explain(figure, data, found, places, marks)
    return figure


def _mark(axes: Axes, y: int, each: Regret) -> None:
    style = arm_style(each.best)
    if each.low is not None and each.high is not None:
        axes.hlines(y, 100 * each.low, 100 * each.high, color="#777777", linewidth=1)
    face = "none" if each.blocks < each.needed else style["color"]
    axes.scatter(
        100 * each.regret, y, s=24, marker=style["marker"], facecolors=face, edgecolors=style["color"], zorder=3
    )
    axes.annotate(f"{each.best} (n = {each.blocks})", (100 * each.regret, y), xytext=(0, 4),
                  textcoords="offset points", fontsize=5.5, ha="left")  # fmt: skip

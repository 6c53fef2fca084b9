"""Cells and engine starts of study=sizes in, the figure of what fewer capture sizes cost and save out."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from artifact.analysis.contrasts.chosen_sizes import METRICS, Compared, Taken, compare
from artifact.analysis.contrasts.inference import MARGIN
from artifact.analysis.contrasts.sweep import Place
from artifact.analysis.contrasts.verdicts import Finding
from artifact.analysis.guide.answers import WORDS, span
from artifact.plots.data import Data, NothingToDraw
from artifact.plots.style import BESIDE, caption, said

_MARKERS = {"better": "v", "equivalent": "o", "worse": "^", "inconclusive": "D"}
_BARS = {
    "graph_bytes": ("graph memory less", "0.45", "", 2**20, "{:.0f} to {:.0f} MiB"),
    "capture_s": ("capture seconds less", "0.8", "///", 1.0, "{:.1f} to {:.1f} s"),
    "tokens": ("KV tokens more", "1.0", "", 1.0, "{:,.0f} to {:,.0f}"),
}


def chosen_against_own(data: Data) -> Figure:
    """A row a tile and load: ratios of the chosen sizes to vLLM's own by metric, and what capturing them saves."""
    found = compare(data.folders)
    places = list(dict.fromkeys(each.place for each in found.findings if each.ratio is not None))
    if not places:
        raise NothingToDraw("no block with both lists of capture sizes")
    figure = Figure(figsize=(11.5, 1.9 + 0.62 * len(places)), layout="constrained")
    *panels, saved = figure.subplots(1, len(METRICS) + 1, sharey=True, width_ratios=(1, 1, 1, 1.5))
    for axes, metric in zip(panels, METRICS, strict=True):
        _ratios(axes, places, [each for each in found.findings if each.metric == metric and each.place in places])
        axes.set_xlabel(f"{WORDS[metric]}, chosen / vLLM's own", fontsize=8)
    _savings(saved, places, found.taken)
    several = len({place.model for place in places}) > 1
    names = [f"{f'{place.model}, ' if several else ''}{place.words}".replace(", ", "\n") for place in places]
    panels[0].set_yticks(range(len(places)), names, fontsize=8)
    panels[0].set_ylim(len(places) - 0.5, -0.5)
    marks = [
        Line2D([], [], color="k", marker=marker, markerfacecolor=_face(name), linestyle="", label=name)
        for name, marker in _MARKERS.items()
    ]
    figure.legend(handles=[*marks, *saved.containers], loc="outside upper center", ncols=7, fontsize=7.5)
    caption(figure, _caption(found))
    return figure


def _caption(found: Compared) -> str:
    launches = found.launches
    blocks = span((each.blocks for each in found.findings), "{:d}")
    needed = {each.place.model: str(each.needed) for each in found.findings}
    below = ", ".join(needed.values() if len(needed) == 1 else map(" ".join, needed.items()))
    counts = f"n = {len(launches)} launches, {blocks} blocks a ratio; exploratory below {below}"
    marks = f"line: 95 % interval over blocks; dashed: the margin of {100 * MARGIN:.0f} %; verdicts by Holm over a tile"
    tokens = "KV tokens: as profiling left them, before the study's fixed number of blocks"
    return f"{said(launches)}; {found.lists}; {counts}\n{marks}\n{tokens}"


def _face(verdict: str) -> str:
    return "w" if verdict == "inconclusive" else "k"


def _ratios(axes: Axes, places: list[Place], findings: list[Finding]) -> None:
    axes.axvline(1, color="k", linewidth=0.8)
    for margin in (1 / (1 + MARGIN), 1 + MARGIN):
        axes.axvline(margin, color="0.5", linestyle="--", linewidth=0.8)
    for each in findings:
        if each.ratio is None:
            continue
        y = places.index(each.place)
        if each.interval is not None:
            axes.hlines(y, *each.interval, color="0.4", linewidth=1.2)
        axes.plot(each.ratio, y, _MARKERS[each.verdict], color="k", markerfacecolor=_face(each.verdict), markersize=5)
        ends = "" if each.interval is None else f" [{each.interval[0]:.2f}, {each.interval[1]:.2f}]"
        paper = {"facecolor": "w", "edgecolor": "none", "pad": 0.5}
        axes.annotate(f"{each.ratio:.2f}{ends} (n = {each.blocks})", (each.ratio, y), xytext=(0, 7),
                      textcoords="offset points", ha="center", fontsize=6.5, bbox=paper)  # fmt: skip
    axes.margins(x=0.25)
    axes.tick_params(labelsize=7)
    axes.grid(axis="x", alpha=0.3)


def _savings(axes: Axes, places: list[Place], taken: list[Taken]) -> None:
    """Draw each tile's shares beside its rows: of graph bytes and seconds what is saved, of KV tokens what is won."""
    at_rows: dict[tuple[str, str], list[int]] = {}
    for y, place in enumerate(places):
        at_rows.setdefault((place.model, place.tile), []).append(y)
    middle = {tile: sum(ys) / len(ys) for tile, ys in at_rows.items()}
    for number, (what, (words, shade, hatch, unit, form)) in enumerate(_BARS.items()):
        rows = [each for each in taken if each.what == what and (each.model, each.tile) in middle]
        shares = [100 * each.saved for each in rows]
        at = [middle[each.model, each.tile] + (number - 1) * 0.27 for each in rows]
        look: dict[str, Any] = {"color": shade, "hatch": hatch, "edgecolor": "k", "linewidth": 0.6}
        axes.barh(at, shares, 0.25, label=words, **look)
        for center, share, each in zip(at, shares, rows, strict=True):
            ends = form.format(each.own / unit, each.chosen / unit)
            axes.annotate(f"{share:.2g} %: {ends} (n = {each.blocks})", (max(share, 0.0), center), **BESIDE)
    axes.set_xlim(0, 190)
    axes.set_xticks(range(0, 101, 25))
    axes.set_xlabel("saved or won, % of vLLM's own list's", fontsize=8)
    axes.tick_params(labelsize=7)

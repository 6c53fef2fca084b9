"""Cells of the load sweeps in, the figures of latency against load and of latency against graph memory out."""

from collections.abc import Sequence
from textwrap import wrap
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from artifact.analysis.contrasts import outcomes, sweep, verdicts
from artifact.analysis.contrasts.sweep import DEFAULT, MODES, STABILITIES, Place, Sweep
from artifact.plots.data import Data, NothingToDraw
from artifact.plots.style import arm_style, caption, plain_numbers

_WORDS = {"tpot_p50_ms": "TPOT p50 (ms)", "ttft_p50_ms": "TTFT p50 (ms)"}


def loads_of(data: Data) -> tuple[Sweep, dict[str, list[Place]]]:
    """Return the sweep and its places at loads of steady, churn and bursty, by model. Raises NothingToDraw."""
    found = sweep.of(data.cells, data.launches)
    places = [p for p in found.places() if p.workload in STABILITIES and p.load is not None]
    if not places:
        raise NothingToDraw("no cell at a load of steady, churn or bursty")
    models = sorted({place.model for place in places})
    return found, {model: [place for place in places if place.model == model] for model in models}


def explain(figure: Figure, data: Data, found: Sweep, places: Sequence[Place], marks: str) -> None:
    """Write below the figure what the rows are, each tile's whole blocks and those needed, and what the marks mean."""
    counts = [
        f"{tile} {found.blocks_of(tile).sum()}/{sweep.blocks_needed(model)}"
        for tile, model in sorted({(place.tile, place.model) for place in places})
    ]
    rows = f"{data.label}; blocks with every mode / needed, exploratory below: {', '.join(counts)}"
    letters = int(17 * figure.get_figwidth())
    caption(figure, "\n".join([*wrap(rows, letters), *wrap(marks, letters)]))


def load_latency(data: Data) -> Figure:
    """TPOT and TTFT (p50) against load, a column per stability, a line per mode; a point is one block."""
    found, by_model = loads_of(data)
    columns = [name for name in STABILITIES if any(p.workload == name for each in by_model.values() for p in each)]
    rows = [(model, metric) for model in by_model for metric in _WORDS]
    figure = Figure(figsize=(max(6.6, 2.2 + 2.6 * len(columns)), 0.9 + 2.3 * len(rows)), layout="constrained")
    grid = figure.subplots(len(rows), len(columns), squeeze=False, sharex=True, sharey="row")
    for axes_row, (model, metric) in zip(grid, rows, strict=True):
        for axes, stability in zip(axes_row, columns, strict=True):
            places = [place for place in by_model[model] if place.workload == stability]
            _lines(axes, found, places, metric)
            axes.set_yscale("log")
            plain_numbers(axes.yaxis)
            axes.grid(alpha=0.3)
        axes_row[0].set_ylabel(_WORDS[metric] + (f"\n{model}" if len(by_model) > 1 else ""), fontsize=8)
    for axes, stability in zip(grid[0], columns, strict=True):
        axes.set_title(stability, fontsize=9)
    for axes in grid[-1]:
        axes.set_xlabel("load, of the default's saturation", fontsize=8)
        axes.set_xlim(0, 1)
    handles = {line.get_label(): line for axes in grid.flat for line in axes.get_lines() if line.get_label()[0] != "_"}
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=3, fontsize=8)
    everywhere = [place for places in by_model.values() for place in places]
    marks = "point: one block, hollow if flagged and not ranked; line: geometric mean of the ranked"
    explain(figure, data, found, everywhere, marks)
    return figure


def _lines(axes: Axes, found: Sweep, places: Sequence[Place], metric: str) -> None:
    for number, mode in enumerate(MODES):
        style = arm_style(mode)
        means: list[tuple[float, float]] = []
        for place in places:
            cells = found.at(place)
            cells = cells[(cells["arm"] == mode) & cells[metric].notna()]
            at = (place.load or 0.0) + (number - 2) * 0.012  # side by side
            ranked = cells["unranked"].isna()
            for rows, face in ((cells[ranked], style["color"]), (cells[~ranked], "none")):
                points: dict[str, Any] = {"marker": style["marker"], "facecolors": face, "edgecolors": style["color"]}
                axes.scatter([at] * len(rows), rows[metric], s=10, linewidths=0.7, alpha=0.7, **points)
            if ranked.any():
                logs = np.log(cells[ranked][metric].to_numpy(dtype=np.float64))
                means.append((at, float(np.exp(logs.mean()))))
        if means:
            axes.plot(*zip(*means, strict=True), label=mode, linewidth=1.1, **(style | {"markersize": 5}))


def pareto(data: Data) -> Figure:
    """TPOT p50 over the default's against memory of the graphs: a panel per stability, a mark per mode and load."""
    found, by_model = loads_of(data)
    columns = [name for name in STABILITIES if any(p.workload == name for each in by_model.values() for p in each)]
    figure = Figure(figsize=(max(6.6, 2.2 + 2.6 * len(columns)), 1.3 + 2.5 * len(by_model)), layout="constrained")
    grid = figure.subplots(len(by_model), len(columns), squeeze=False, sharex=True, sharey="row")
    memory = {(cost.model, cost.mode): cost.graph_mib for cost in outcomes.costs(found)}
    contrasts = verdicts.findings(found, ("tpot_p50_ms",))
    for axes_row, model in zip(grid, by_model, strict=True):
        for axes, stability in zip(axes_row, columns, strict=True):
            own = [each for each in contrasts if each.place.model == model and each.place.workload == stability]
            _front(axes, own, {mode: memory.get((model, mode)) for mode in MODES})
            axes.set_title(stability if len(by_model) == 1 else f"{model}, {stability}", fontsize=9)
        axes_row[0].set_ylabel("TPOT p50, over the default's", fontsize=8)
    for axes in grid[-1]:
        axes.set_xlabel("memory of captured graphs (MiB)", fontsize=8)
    handles = {line.get_label(): line for axes in grid.flat for line in axes.get_lines() if line.get_label()[0] != "_"}
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=3, fontsize=8)
    everywhere = [place for places in by_model.values() for place in places]
    marks = "mark: geometric mean over blocks, larger at higher load; line: 95 % interval, from three blocks on"
    explain(figure, data, found, everywhere, f"{marks}; dotted: nothing is lower in both")
    return figure


def _front(axes: Axes, contrasts: Sequence[verdicts.Finding], memory: dict[str, float | None]) -> None:
    loads = sorted({each.place.load or 0.0 for each in contrasts})
    means: dict[str, list[float]] = {}
    if loads and (own := memory[DEFAULT]) is not None:
        means[DEFAULT] = [1.0]
        axes.plot(own, 1.0, label=DEFAULT, **(arm_style(DEFAULT) | {"linestyle": "", "markersize": 7}))
    for each in contrasts:
        mib = memory[each.mode]
        if mib is None or each.ratio is None:
            continue
        rank = loads.index(each.place.load or 0.0)
        at = mib + 5 * (rank - (len(loads) - 1) / 2)  # loads side by side
        style = arm_style(each.mode)
        if each.interval is not None:
            axes.vlines(at, *each.interval, color=style["color"], linewidth=0.9)
        marker = style | {"linestyle": "", "markersize": 4 + 1.5 * rank}
        axes.plot(at, each.ratio, label=each.mode, **marker)
        means.setdefault(each.mode, []).append(each.ratio)
    axes.axhline(1, color="#777777", linewidth=0.8)
    axes.set_yscale("log")
    plain_numbers(axes.yaxis)
    axes.grid(alpha=0.3)
    points = sorted((memory[mode] or 0.0, float(np.exp(np.mean(np.log(values))))) for mode, values in means.items())
    front = pd.DataFrame(points, columns=["mib", "ratio"])
    front = front[front["ratio"] <= front["ratio"].cummin()]
    axes.step(front["mib"], front["ratio"], where="post", color="#555555", linestyle=":", linewidth=1)

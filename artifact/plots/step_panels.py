"""Tables of a step study in, the parts that its figures share out: a panel a model, marks with intervals, axes."""

from collections.abc import Iterator
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from artifact.analysis.steps.table import finished
from artifact.plots.data import Data
from artifact.plots.style import arm_order, arm_style, caption, plain_numbers

COLUMNS = 2
LEAVES = "an interval that leaves the frame goes on"
SERVE = "-serve: the server's defaults, 1,024 seats"
_ROOM = 2.0  # around the marks
_LARGEST_CAPTURED = 512  # vLLM's default: above it nothing is captured in any mode


def panels(table: pd.DataFrame, size: tuple[float, float]) -> tuple[Figure, list[tuple[Axes, pd.DataFrame]]]:
    """Return a figure of ``COLUMNS`` panels a row, each of ``size`` inches; a panel a tile, with the tile's rows."""
    tiles = [rows for _, rows in table.groupby("tile", sort=False)]
    columns = min(COLUMNS, len(tiles))
    rows = -(-len(tiles) // columns)
    # Legend and caption need their room whatever the number of panels.
    width = size[0] * columns if columns > 1 else size[0] * 1.6
    figure = Figure(figsize=(width, size[1] * rows + 1.0), layout="constrained")
    found = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in found[len(tiles) :]:
        axes.remove()
    return figure, list(zip(found, tiles, strict=False))


def frame(axes: Axes, title: str) -> None:
    """Give a panel its title and grid."""
    axes.set_title(title, fontsize=9)
    axes.tick_params(labelsize=7)
    axes.grid(alpha=0.3)


def title(rows: pd.DataFrame) -> str:
    """Return the name of the rows' tile, its model's before it where that is not a part of it."""
    model, tile = map(str, rows[["model", "tile"]].iloc[0])
    return tile if tile.startswith(model) else f"{model}, {tile}"


def by_arm(table: pd.DataFrame, places: "pd.Series[Any]") -> Iterator[tuple[str, pd.DataFrame, "pd.Series[float]"]]:
    """Yield each arm, its rows and where they are drawn: beside their ``places``, so that none hides another."""
    arms = arm_order(table["arm"])
    for number, arm in enumerate(arms):
        rows = table[table["arm"] == arm]
        yield arm, rows, places[rows.index].astype(float) + (number - (len(arms) - 1) / 2) * 0.11


def marks(axes: Axes, arm: str, x: Any, middle: Any, low: Any, high: Any, **style: Any) -> None:
    """Draw an arm's line through ``middle`` with its intervals; a value without one has a mark alone."""
    x, middle, low, high = (np.asarray(values, dtype=float) for values in (x, middle, low, high))
    reach = np.nan_to_num(np.vstack([middle - low, high - middle]))
    axes.errorbar(
        x, middle, yerr=reach, **{"label": arm, "markersize": 4, "linewidth": 1.1, **arm_style(arm), **style}
    ).lines[2][0].set_alpha(0.6)


def fit_to_marks(axes: Axes, *, log: bool) -> None:
    """Make y as long as the marks need, and some more: an interval of two launches would make it many times that."""
    in_y = [line for line in axes.get_lines() if line.get_transform().contains_branch_seperately(axes.transData)[1]]
    drawn = np.concatenate([np.asarray(line.get_ydata(), dtype=float) for line in in_y])
    low, high = float(np.nanmin(drawn)), float(np.nanmax(drawn))
    if log:
        axes.set_yscale("log")
        plain_numbers(axes.yaxis)
        axes.set_ylim(low / _ROOM, high * _ROOM)
    else:
        more = (high - low) * (_ROOM - 1) / 2
        axes.set_ylim(low - more, high + more)


def batch_axis(axes: Axes, batches: pd.Series) -> dict[int, int]:
    """Make x the batches that were measured, one place each; return the places."""
    places = {int(batch): place for place, batch in enumerate(sorted(set(batches)))}
    axes.set_xticks(list(places.values()), [str(batch) for batch in places])
    axes.set_xlabel("requests in the batch, one token each", fontsize=8)
    mark_uncaptured(axes, sum(batch <= _LARGEST_CAPTURED for batch in places), len(places))
    return places


def mark_uncaptured(axes: Axes, captured: int, places: int) -> None:
    """Draw a line behind the first ``captured`` places where there are more, for which nothing is captured."""
    if captured < places:
        axes.axvline(captured - 0.5, color="#777777", linewidth=0.8)
        axes.annotate("nothing captured", (captured - 0.45, 0.02), xycoords=("data", "axes fraction"), fontsize=6)


def legend(figure: Figure, columns: int) -> None:
    """Put one legend above all panels, each entry of them once."""
    found: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    figure.legend(list(found.values()), list(found), loc="outside upper center", ncols=columns, fontsize=8)


def explain(figure: Figure, data: Data, workloads: tuple[str, ...], steps: int, *lines: str) -> None:
    """Write below the figure what the rows are, n of launches, blocks and ``steps``, and ``lines``, to its width."""
    cells = finished(data.cells, workloads)
    blocks, launches = cells["pair"].nunique(), cells["launch_id"].nunique()
    counted = f"{data.label}; n = {launches} launches in {blocks} block{'s' * (blocks != 1)}, {steps} steps"
    letters = int(figure.get_figwidth() * 72 / 3.9)
    caption(figure, "\n".join(fill(line, letters) for line in (counted, *lines)))


def replicates(numbers: pd.Series, one: str = "block", several: str = "blocks") -> str:
    """Return "3 blocks", or "2-3" where they differ; of one alone, that it has no interval."""
    if numbers.empty:
        return f"no {one}"
    few, many = int(numbers.min()), int(numbers.max())
    if many == 1:
        return f"n = 1 {one}, no interval"
    return f"{few} {several}" if few == many else f"{few}-{many} {several}"


def launches_an_arm(numbers: pd.Series) -> str:
    """Return ``replicates`` of an arm's launches."""
    return replicates(numbers, "launch an arm", "launches an arm")

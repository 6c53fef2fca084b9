"""An answer of ``recommend`` in, its picture out."""

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from artifact.analysis.recommend.objectives import OBJECTIVES, Objective
from artifact.plots.style import ABOVE, BESIDE, arm_style, caption, plain_numbers


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
        left.annotate(f"{row[objective.column]:.3g}", (row[objective.column], place), **ABOVE)
        mib = None if row["graph_bytes"] is None else row["graph_bytes"] / 2**20
        right.barh(place, mib or 0, 0.6, color="#BBBBBB", ec="k")
        right.annotate("unknown" if mib is None else f"{mib:.0f}", (mib or 0, place), **BESIDE)
    marked = [f"> {row['mode']}" if row["mode"] == answer["recommended"] else row["mode"] for row in rows]
    left.set_yticks(range(len(rows)), marked, fontsize=8)
    left.set_ylim(len(rows) - 0.4, -0.6)
    for axes in (left, right):
        axes.margins(x=0.18)
    if not objective.higher:
        left.set_xscale("log")
        plain_numbers(left.xaxis)
    left.set_xlabel(f"{objective.words} ({objective.unit})")
    left.grid(axis="x", alpha=0.3)
    right.set_xlabel("memory of captured graphs (MiB)")
    caption(figure, f"{answer['source']}; line: interval of the ratio to {answer['recommended']}")
    out.mkdir(parents=True, exist_ok=True)
    path = out / "recommend.png"
    figure.savefig(path, dpi=160, metadata={"Software": None})
    return path


def _moved(value: float, share: float, objective: Objective) -> float:
    """Return the value that is better than ``value`` by ``share`` of it, of a share by so much."""
    if objective.is_share:
        return value + share
    return value * (1 + share if objective.higher else 1 - share)

"""Cells and engine starts of the fallback study in, the grid of what every backend makes of every mode out."""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from artifact.analysis.every_study import read
from artifact.analysis.starts.fallback import MODES, matrix
from artifact.plots.data import Data, NothingToDraw
from artifact.plots.style import caption, said

_SHARES = {
    "full_share": ("FULL", "0.35", ""),
    "piecewise_share": ("PIECEWISE", "0.8", "///"),
    "none_share": ("NONE", "1.0", ""),
}
_SHORT = {"FULL_AND_PIECEWISE": "FULL_AND_\nPIECEWISE", "FULL_DECODE_ONLY": "FULL_\nDECODE_ONLY"}
_SMALL: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7}


def fallback_matrix(data: Data) -> Figure:
    """A row a backend, a column a requested mode: what it became, the graphs captured, the steps dispatched under load.

    A heavy frame marks a mode that vLLM changed, hatching behind the text one that is hollow.
    """
    rows = read(data.folders)
    table = matrix(rows.cells, rows.launches)
    if table.empty:
        raise NothingToDraw("no engine start that asked for a mode")
    backends = list(dict.fromkeys(table["backend"]))
    figure = Figure(figsize=(1.6 + 1.75 * len(MODES), 1.5 + 1.05 * len(backends)), layout="constrained")
    axes = figure.subplots()
    for y, backend in enumerate(backends):
        for x, mode in enumerate(MODES):
            found = table[(table["backend"] == backend) & (table["requested_mode"] == mode)]
            _cell(axes, x, y, found)
    axes.set_xlim(0, len(MODES))
    axes.set_ylim(len(backends), 0)
    axes.set_xticks([x + 0.5 for x in range(len(MODES))], [_SHORT.get(mode, mode) for mode in MODES], fontsize=8)
    axes.set_yticks(
        [y + 0.5 for y in range(len(backends))], [name.replace(" (", "\n(") for name in backends], fontsize=8
    )
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.set_xlabel("requested", fontsize=9)
    axes.tick_params(length=0)
    handles = [
        Patch(fc=shade, ec="k", hatch=hatch, label=f"dispatched {name}") for name, shade, hatch in _SHARES.values()
    ]
    handles += [
        Patch(fc="w", ec="k", linewidth=2.2, label="vLLM changed the mode"),
        Patch(fc="0.93", ec="0.6", hatch="xx", label="hollow: PIECEWISE replays nothing"),
        Patch(fc="0.87", ec="0.6", label="no start"),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), fontsize=7)
    agreed = table["agrees"].dropna()
    words = f"our rules foretold {int(agreed.sum())} of {len(agreed)} outcomes (✓; ✗ where they were wrong)"
    caption(
        figure,
        f"{said(rows.launches)}; n = {len(rows.launches)} launches, {int(table['steps'].sum()):,} steps; {words}",
    )
    return figure


def _cell(axes: Axes, x: int, y: int, found: pd.DataFrame) -> None:
    """Draw one field: outcomes below each other where launches disagree, the shares of the first as a bar."""
    if found.empty:
        axes.add_patch(Rectangle((x, y), 1, 1, fc="w", ec="0.7"))
        axes.text(x + 0.5, y + 0.5, "not run", color="0.4", **_SMALL)
        return
    row = found.iloc[0]
    hollow = str(row["realised_mode"]).endswith(":hollow")
    known = found[found["realised_mode"].notna()]
    changed = bool((known["realised_mode"] != known["requested_mode"]).any())
    grey, hatch = ("0.93", "xx") if hollow else (("0.87", "") if known.empty else ("w", ""))
    axes.add_patch(Rectangle((x, y), 1, 1, fc=grey, ec="0.6", hatch=hatch))
    if changed:
        axes.add_patch(Rectangle((x + 0.02, y + 0.025), 0.96, 0.95, fill=False, ec="k", linewidth=2.2))
    paper = {"bbox": {"fc": "w", "ec": "none", "pad": 1.0}}
    for number, outcome in enumerate(found.itertuples()):
        axes.text(x + 0.5, y + (0.36 if len(found) == 1 else 0.23 + 0.3 * number), _words(outcome), **_SMALL, **paper)
    if pd.notna(row["agrees"]):
        axes.text(
            x + 0.92, y + 0.13, "✓" if found["agrees"].dropna().all() else "✗", **{**_SMALL, "fontsize": 8}, **paper
        )
    left = x + 0.07
    for column, (_, shade, hatch) in _SHARES.items():
        if pd.notna(row[column]) and len(known):
            width = 0.86 * float(row[column])
            axes.add_patch(Rectangle((left, y + 0.7), width, 0.18, fc=shade, ec="k", hatch=hatch, linewidth=0.6))
            if row[column] >= 0.12:
                ink = {"color": "w"} if shade == "0.35" else {"bbox": {"fc": "w", "ec": "none", "pad": 0.4}}
                axes.text(left + width / 2, y + 0.79, f"{row[column]:.0%}", **{**_SMALL, "fontsize": 6}, **ink)
            left += width


def _words(outcome: Any) -> str:
    """Return what became of it and how many graphs there are, or why it failed."""
    if outcome.status == "refused" or pd.isna(outcome.realised_mode):
        reason = str(outcome.reason or "").split(":")[0]
        short = reason if len(reason) <= 44 else f"{reason[:41]}..."
        return f"{outcome.status}\n{short}"
    name = str(outcome.realised_mode).replace(":hollow", ", hollow")
    graphs = f"{int(outcome.graphs_piecewise):,} piecewise, {int(outcome.graphs_full)} full"
    failed = "" if outcome.status == "ok" else f"\n{outcome.status} when serving"
    flags = f"\n{outcome.flags} under load" if outcome.flags else ""
    return f"{name}\n{graphs}{failed}{flags}"

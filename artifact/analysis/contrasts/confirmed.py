"""A folder of studies in; what study=confirm found there on one trace, the default against another mode, out.

Several traces may have been served into the folder: what counts is the one that was started last, with all starts that
were asked for the same.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from artifact.analysis.contrasts import sweep
from artifact.analysis.contrasts.verdicts import Finding, findings

STUDY = "confirm"
_ASKED = ("trace", "workload", "model", "server", "backend")  # of a start's configuration: all but the mode


class Confirmed(NamedTuple):
    """The contrasts by metric, the cells and starts they rest on, and the trace in words."""

    findings: tuple[Finding, ...]
    cells: pd.DataFrame
    launches: pd.DataFrame
    trace: str


def read(root: Path) -> Confirmed | None:
    """Return the rows of study=confirm below ``root`` compared; None where there are none."""
    rows = sweep.read(root, (STUDY,))
    if rows is None or rows.launches.empty:
        return None
    notes = [json.loads(text) for text in rows.launches["provenance"]]
    configs = [note.get("config") or {} for note in notes]
    settings = [{name: config.get(name) for name in _ASKED} for config in configs]
    last = max(range(len(notes)), key=lambda place: str(notes[place].get("started")))
    like = rows.launches[[each == settings[last] for each in settings]]["launch_id"]
    rows = rows.only(rows.cells[rows.cells["launch_id"].isin(like)]["cell_id"])
    modes = [mode for mode in sweep.MODES if mode in set(rows.cells["arm"])]
    return Confirmed(
        tuple(findings(rows, modes=modes)), rows.cells, rows.launches, _words(settings[last]["trace"] or {})
    )


def _words(trace: dict[str, Any]) -> str:
    """Return file, window and speed of the trace, as a start's provenance has them."""
    words = [str(trace.get("path"))]
    if trace.get("window"):
        words.append("seconds {:g} to {:g}".format(*trace["window"]))
    if trace.get("speedup", 1) != 1:
        words.append(f"{trace['speedup']:g} times its speed")
    if trace.get("max_tokens"):
        words.append(f"requests of up to {trace['max_tokens']:,} tokens")
    return ", ".join(words)

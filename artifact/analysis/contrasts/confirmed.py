"""A folder of studies in; what study=confirm found there on one trace, the default against one other mode, out."""

import json
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from artifact.analysis.contrasts import sweep
from artifact.analysis.contrasts.verdicts import Finding, findings

STUDY = "confirm"


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
    modes = [mode for mode in sweep.MODES if mode in set(rows.cells["arm"])]
    return Confirmed(tuple(findings(rows, modes=modes)), rows.cells, rows.launches, _trace(rows.launches))


def _trace(launches: pd.DataFrame) -> str:
    """Return file, window and speed of the trace, as the starts' provenance has them."""
    configs = [json.loads(text).get("config") or {} for text in launches["provenance"]]
    traces = [config.get("trace") or {} for config in configs]
    if not traces[0].get("path") or any(trace != traces[0] for trace in traces):
        return "a trace"
    trace = traces[0]
    words = [str(trace["path"])]
    if trace.get("window"):
        words.append("seconds {:g} to {:g}".format(*trace["window"]))
    if trace.get("speedup", 1) != 1:
        words.append(f"{trace['speedup']:g} times its speed")
    if trace.get("max_tokens"):
        words.append(f"requests of up to {trace['max_tokens']:,} tokens")
    return ", ".join(words)

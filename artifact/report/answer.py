"""Cells and launches in; what they say of every mode against the default, with what stands behind it, out.

The verdicts are those of ``analysis.verdicts``; here they are put into words, places in rows.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pandas as pd

from artifact.analysis.contrasts import sweep
from artifact.analysis.contrasts.verdicts import Finding, findings
from artifact.errors import InputError
from artifact.metrics.memory import believed
from artifact.report.table import Table, table, text

_METRIC = "tpot_p50_ms"
_METRICS = {"tpot_p50_ms": "TPOT p50", "tpot_p99_ms": "TPOT p99", "ttft_p50_ms": "TTFT p50", "ttft_p99_ms": "TTFT p99"}
_VERDICTS = {
    "better": "better than the default",
    "worse": "worse",
    "equivalent": "equivalent",
    "inconclusive": "undecided",
}
_CONTRASTS = {
    "where": "where",
    "mode": "mode",
    "metric": "metric",
    "ratio": "over the default's",
    "interval": "95 % interval",
    "verdict": "verdict",
    "blocks": "blocks",
    "needed": "needed",
    "reason": "what stands against it",
    "unranked": "cells not ranked",
}


class Line(NamedTuple):
    """What the rows say at one place: the verdicts in words, and the numbers behind them."""

    evidence: str
    where: str
    says: str
    numbers: str


class Answer(NamedTuple):
    """A line for each place, how to read them, and every contrast behind them."""

    lines: tuple[Line, ...]
    notes: tuple[str, ...]
    contrasts: tuple[Table, ...]


def answer(cells: pd.DataFrame, launches: pd.DataFrame) -> Answer:
    """Return the answer of each kind of evidence for itself; where it cannot be given, a note says why."""
    lines: list[Line] = []
    contrasts: list[Table] = []
    notes = [
        f"The default is {sweep.DEFAULT}, which vLLM takes unless it is told otherwise. TPOT is the time per output "
        "token after the first, TTFT the time to the first. 0.80x: in 0.80 of the default's time."
    ]
    for evidence in sorted(cells["evidence"].unique()):  # measured before simulated
        rows = sweep.of(cells[cells["evidence"] == evidence], believed(launches))
        try:
            found = findings(rows)
        except InputError as error:
            notes.append(f"No verdict on the {evidence} rows: {error}.")
            continue
        lines += _lines(rows, found)
        notes += _notes(rows, found)
        caption = f"{evidence}: every mode against the default, with intervals"
        there = set(rows.cells["arm"])
        shown = (_contrast(each) for each in found if each.mode in there)
        contrasts.append(table(caption, _CONTRASTS, shown, folded=True))
    return Answer(tuple(lines), tuple(notes), tuple(contrasts))


def _where(place: sweep.Place) -> str:
    if place.load is not None:
        return f"{place.tile}, {place.workload}, load {place.level}"
    rate = "" if place.amount is None else f", {place.amount:g} requests/s"
    return f"{place.tile}, {place.workload}{rate}"


def _lines(rows: sweep.Sweep, found: Sequence[Finding]) -> Iterator[Line]:
    graph_mib = rows.launches.set_index("launch_id")["graph_bytes"].astype("float64") / 2**20
    for place in rows.places():
        cells = rows.at(place)
        ranked = cells[cells["unranked"].isna() & cells[_METRIC].notna()]
        tpot_ms = ranked.groupby("arm")[_METRIC].median().astype("float64").sort_values()
        memory = ranked["launch_id"].map(graph_mib).astype("float64").groupby(ranked["arm"]).median()
        arms = set(cells["arm"])
        says = _says([f for f in found if f.place == place and f.metric == _METRIC and f.mode in arms])
        lowest = [] if tpot_ms.empty else [str(tpot_ms.index[0])]
        shown = [*lowest, *(name for name in [sweep.DEFAULT] if name in tpot_ms and name not in lowest)]
        numbers = ", ".join(f"{name} {tpot_ms[name]:.2f} ms with {text(memory[name])} MiB of graphs" for name in shown)
        yield Line(rows.evidence, _where(place), says, f"Lowest TPOT p50: {numbers}." if numbers else "")


def _says(found: Sequence[Finding]) -> str:
    """Return a place's verdicts on TPOT p50 in a line: only an interval over some blocks makes one."""
    judged = [each for each in found if each.paired is not None]
    few = [each for each in found if each.paired is None and each.ratio is not None]
    parts = [
        f"{words}: {', '.join(names)}"
        for verdict, words in _VERDICTS.items()
        if (names := [f"{each.mode} ({each.ratio:.2f}x)" for each in judged if each.verdict == verdict])
    ]
    if few:
        ratios = ", ".join(f"{each.mode} {each.ratio:.2f}x" for each in few)
        parts.append(f"no verdict from {max(each.blocks for each in few)} of {few[0].needed} blocks: {ratios}")
    unranked: dict[str, list[str]] = {}
    for each in found:
        if each.ratio is None and each.unranked:
            unranked.setdefault(", ".join(each.unranked), []).append(each.mode)
    parts += [f"not ranked ({why}): {', '.join(modes)}" for why, modes in unranked.items()]
    exploratory = "exploratory, " if any(each.is_exploratory for each in judged) else ""
    return exploratory + ("; ".join(parts) or "nothing to compare with the default") + "."


def _contrast(finding: Finding) -> dict[str, Any]:
    interval = finding.interval
    return {
        "where": _where(finding.place),
        "mode": finding.mode,
        "metric": _METRICS[finding.metric],
        "ratio": finding.ratio,
        "interval": None if interval is None else f"{text(interval[0])} to {text(interval[1])}",
        "verdict": finding.verdict if finding.paired is not None else None,
        "blocks": finding.blocks,
        "needed": finding.needed,
        "reason": finding.reason,
        "unranked": finding.unranked or None,
    }


def _notes(rows: sweep.Sweep, found: Sequence[Finding]) -> Iterator[str]:
    if rows.evidence == "simulated":
        yield "Simulated rows come from a model of vLLM's scheduler with fitted step times: no GPU gave these numbers."
    most = max((each.blocks for each in found), default=0)
    needed = max((each.needed for each in found), default=0)
    if most < needed:
        yield (
            f"{rows.evidence.capitalize()} in {most} {'block' if most == 1 else 'blocks'} where {needed} are needed: "
            "that tells graphs from no graphs and ranks no more: a mode differs from one engine start to the next."
        )

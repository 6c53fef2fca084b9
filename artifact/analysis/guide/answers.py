"""Contrasts, costs and cells in; the sentences that answer the study's questions out, each with its numbers.

Where too few blocks are there, the sentence says how many and ranks nothing. Nothing is said that the rows do not say.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from artifact.analysis.contrasts.inference import MARGIN
from artifact.analysis.contrasts.outcomes import Cost, Regret
from artifact.analysis.contrasts.rates import Capacity
from artifact.analysis.contrasts.stability_effects import Moved
from artifact.analysis.contrasts.sweep import DEFAULT, MODES
from artifact.analysis.contrasts.verdicts import Finding

OTHERS = tuple(mode for mode in MODES if mode != DEFAULT)
WORDS = {"tpot_p50_ms": "TPOT p50", "tpot_p99_ms": "TPOT p99", "ttft_p50_ms": "TTFT p50", "ttft_p99_ms": "TTFT p99"}
_PRIMARY = "tpot_p50_ms"


def than_default(ratio: float) -> str:
    """Return a ratio to the default as a reader wants it: 7.0 times, 12 % higher, 18 % lower."""
    if ratio >= 1.5:
        return f"{ratio:.1f} times"
    return f"{(ratio - 1) * 100:.0f} % higher" if ratio >= 1 else f"{(1 - ratio) * 100:.0f} % lower"


def span(values: Iterable[float], form: str = "{:.2f}") -> str:
    """Return the least and the largest of ``values``, or the one that both round to."""
    known = list(values)
    ends = [form.format(value) for value in (min(known), max(known))]
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def too_few(findings: Sequence[Finding]) -> str:
    """Return that the data cannot tell, with the most blocks that any of ``findings`` has."""
    most = max(findings, key=lambda each: each.blocks, default=None)
    if most is None:
        return "the data cannot tell yet: not measured"
    return f"the data cannot tell yet: {most.blocks} of {most.needed} blocks"


def standing(findings: Sequence[Finding]) -> str:
    """Return, in brackets, that findings are exploratory; empty where all have the blocks they need."""
    few = [each for each in findings if each.paired is not None and each.is_exploratory]
    if not few:
        return ""
    least = min(few, key=lambda each: each.blocks)
    return f" (exploratory: from {least.blocks} of {least.needed} blocks on)"


def headline(findings: Sequence[Finding], regrets: Sequence[Regret], costs: Sequence[Cost]) -> list[str]:
    """Return the answer of one model, of its open loops' contrasts of TPOT p50, in a few sentences."""
    known = [each for each in findings if each.paired is not None]
    if not known:
        said = too_few(findings)
        single = {mode: [ratio for each in findings if each.mode == mode for ratio in each.ratios] for mode in OTHERS}
        seen = ", ".join(f"{mode} {span(values)}" for mode, values in single.items() if values)
        shown = [f"TPOT p50 over the default's in single blocks, shown and not ranked: {seen}."] if seen else []
        return [f"{said[0].upper()}{said[1:]}, so keep the default, {DEFAULT}.", *shown]
    few = min(known, key=lambda each: each.blocks / each.needed)
    lines = []
    if few.is_exploratory:
        lines.append(
            f"Exploratory, in part on {few.blocks} of {few.needed} blocks; keep the default, {DEFAULT}, till then."
        )
    lines.append(_good_enough(regrets))
    faster = [mode for mode in OTHERS if _with(known, mode, "better")]
    if not faster:
        lines.append("No mode is known to be faster than it anywhere.")
    for mode in faster:
        better, worse = _with(known, mode, "better"), _with(known, mode, "worse")
        gains = span([100 * (1 - (each.ratio or 1)) for each in better], "{:.0f}")
        but = f", slower at {len(worse)}" if worse else ""
        lines.append(f"{mode} is faster at {_of(better, known)} (TPOT p50 {gains} % lower){but}.")
    for mode in OTHERS:
        equal, worse = _with(known, mode, "equivalent"), _with(known, mode, "worse")
        if equal:
            lines.append(f"{mode} equals it within 2 % at {_of(equal, known)}{_saves(mode, costs)}.")
        if worse and mode not in faster:
            ratios = span([each.ratio or 1 for each in worse])
            lines.append(f"{mode} is slower at {_of(worse, known)}: {ratios} times its TPOT p50.")
    return lines


def _good_enough(regrets: Sequence[Regret]) -> str:
    """Return at how many loads the default is as good as the best mode, as far as the intervals say."""
    known = [each for each in regrets if each.low is not None and each.high is not None]
    sure = sum(each.high is not None and each.high <= MARGIN for each in known)
    not_so = sum(each.low is not None and each.low > MARGIN for each in known)
    unclear = len(known) - sure - not_so
    return (
        f"Of {_loads(len(known))} with an interval the default is within {100 * MARGIN:.0f} % of the best mode's TPOT "
        f"p50 at {sure}, above that at {not_so}; at {unclear} the intervals leave it open."
    )


def _of(findings: Sequence[Finding], known: Sequence[Finding]) -> str:
    mode = findings[0].mode
    return f"{len(findings)} of {_loads(sum(each.mode == mode for each in known))}"


def _loads(count: int) -> str:
    return f"{count} load{'' if count == 1 else 's'}"


def _with(findings: Sequence[Finding], mode: str, verdict: str) -> list[Finding]:
    return [each for each in findings if each.mode == mode and each.verdict == verdict]


def _saves(mode: str, costs: Sequence[Cost]) -> str:
    memory = {cost.mode: cost.graph_mib for cost in costs}
    its, default = memory.get(mode), memory.get(DEFAULT)
    return "" if its is None or default is None or its >= default else f" and takes {default - its:.0f} MiB less"


def advice(of_place: Sequence[Finding]) -> str:
    """Return what to run at one place, from its contrasts of all metrics; TPOT p50 decides, TTFT p99 may object."""
    primary = [each for each in of_place if each.metric == _PRIMARY]
    known = [each for each in primary if each.paired is not None]
    if not known:
        return too_few(primary)
    better = [each for each in known if each.verdict == "better"]
    unclear = ", ".join(each.mode for each in known if each.verdict == "inconclusive")
    equal = ", ".join(each.mode for each in known if each.verdict == "equivalent")
    if better:
        best = min(better, key=lambda each: each.ratio or 1.0)
        other = [each for each in of_place if (each.mode, each.metric) == (best.mode, "ttft_p99_ms")]
        trade = f", for a TTFT p99 {than_default(other[0].ratio or 1)}" if other and other[0].verdict == "worse" else ""
        told = f"take {best.mode}{trade}"
    else:
        told = (
            "keep the default"
            + (f"; no difference: {equal}" if equal else "")
            + (f"; unclear: {unclear}" if unclear else "")
        )
    least = min(known, key=lambda each: each.blocks)
    return f"{told} (exploratory, {least.blocks} of {least.needed} blocks)" if least.is_exploratory else told


def full_against_default(findings: Sequence[Finding], cells: pd.DataFrame) -> str:
    """Return when FULL beats the default, and what differs between them."""
    own = [each for each in findings if each.mode == "FULL"]
    if not any(each.paired for each in own):
        return f"{too_few(own).capitalize()}. {_mixed_steps(cells)}"
    return f"{by_metric(own)} {_mixed_steps(cells)}"


def _mixed_steps(cells: pd.DataFrame) -> str:
    """Return how the two modes ran their steps: FULL replays a whole graph where the default replays pieces."""
    shares = {}
    for mode in (DEFAULT, "FULL"):
        own = cells[(cells["arm"] == mode) & cells["steps_none"].notna()]
        steps = own[["steps_full", "steps_piecewise", "steps_none"]].astype("float64")
        shares[mode] = 100 * steps.div(steps.sum(axis=1), axis=0)
    if any(each.empty for each in shares.values()):
        return ""
    pieces, whole = shares[DEFAULT]["steps_piecewise"], shares["FULL"]["steps_full"]
    return (
        f"What differs between them: of the default's steps {span(pieces, '{:.0f}')} % hold prompts and replay pieces, "
        f"where FULL replays one graph ({span(whole, '{:.0f}')} % of its steps)."
    )


def by_metric(findings: Sequence[Finding]) -> str:
    """Return one mode's verdicts by metric, with where they hold."""
    sentences = []
    for metric, words in WORDS.items():
        known = [each for each in findings if each.metric == metric and each.paired is not None]
        parts = []
        for verdict in ("better", "worse", "equivalent", "inconclusive"):
            at = [each for each in known if each.verdict == verdict]
            if at and verdict == "inconclusive":
                parts.append(f"inconclusive at {len(at)}")
            elif at:
                parts.append(f"{verdict} at " + ", ".join(f"{each.place.words} ({each.ratio:.2f})" for each in at))
        if parts:
            sentences.append(f"{words}: {'; '.join(parts)}{standing(known)}.")
    return " ".join(sentences)


def enough(findings: Sequence[Finding], mode: str) -> str:
    """Return where ``mode`` is as good as the default."""
    own = [each for each in findings if each.mode == mode]
    known = [each for each in own if each.paired is not None]
    if not known:
        ratios = [ratio for each in own if each.metric == _PRIMARY for ratio in each.ratios]
        seen = f" (TPOT p50 in single blocks {span(ratios)} times the default's)" if ratios else ""
        return f"{too_few(own).capitalize()}{seen}."
    fine = [each for each in known if each.verdict in ("better", "equivalent")]
    worst = [each.ratio or 1.0 for each in known if each.metric == _PRIMARY]
    nowhere = f"Nowhere measured: its TPOT p50 is {span(worst)} times the default's{standing(known)}." if worst else ""
    return by_metric(own) if fine else nowhere


def none_at_load(findings: Sequence[Finding], capacities: Sequence[Capacity]) -> str:
    """Return where NONE is as good as the default, by load, and with every seat taken."""
    own = [each for each in findings if each.mode == "NONE" and each.metric == _PRIMARY and each.place.load]
    known = [each for each in own if each.ratio is not None]
    text = enough(findings, "NONE")
    if any(each.paired for each in own) and known:
        loads = sorted({each.place.load or 0.0 for each in known})
        by_load = {load: [each.ratio or 1 for each in known if each.place.load == load] for load in loads}
        text += " By load, its TPOT p50 over the default's: "
        text += ", ".join(f"{load:g}: {span(ratios)}" for load, ratios in by_load.items()) + "."
    for each in capacities:
        if each.mode == "NONE" and each.ratio is not None:
            ends = "" if each.interval is None else f" [{each.interval[0]:.2f}, {each.interval[1]:.2f}]"
            blocks = f"{each.blocks} of {each.needed} blocks"
            text += (
                f" With 256 in flight {each.model} gives {each.ratio:.2f}{ends} of the default's tokens/s ({blocks})."
            )
    return text


def stability(moved: Sequence[Moved]) -> str:
    """Return whether margins, and the default itself, move with stability at equal load."""
    if not moved:
        return "The data cannot tell yet: no two of steady, churn and bursty have three blocks at the same load."
    lines = []
    for kind, words in ((False, "modes' margins on the default"), (True, "the default's own TPOT p50")):
        of_kind = [each for each in moved if (each.mode == DEFAULT) is kind]
        differ = [each for each in of_kind if each.verdict in ("better", "worse")]
        same = sum(each.verdict == "equivalent" for each in of_kind)
        counted = f"{len(differ)} of {len(of_kind)} contrasts at equal load differ, {same} are equal within 2 %"
        named = "; ".join(f"{each.mode}, load {each.load}: {_apart(each)}" for each in differ)
        lines.append(f"Of {words}, {counted}{': ' + named if named else ''}.")
    few = min(min(each.blocks) for each in moved)
    needed = min(each.needed for each in moved)
    return " ".join(lines) + (f" Exploratory: from {few} of {needed} blocks on." if few < needed else "")


def _apart(each: Moved) -> str:
    than = "that" if each.ratio >= 1.5 else "than"
    what = "" if each.mode == DEFAULT else "its ratio "
    return f"{what}under {each.one} {than_default(each.ratio)} {than} under {each.other}"


def scarce_kv(scarce: Sequence[Finding], plenty: Sequence[Finding], launches: pd.DataFrame) -> str:
    """Return the contrasts with little KV cache, and whether the modes' order is the one with plenty."""
    if not scarce:
        return "The data cannot tell yet: not measured."
    tokens = {
        mode: rows.median()
        for mode in MODES
        if len(rows := launches[launches["requested_mode"] == mode]["kv_tokens"].dropna())
    }
    kv = "KV cache, tokens: " + ", ".join(f"{mode} {value:,.0f}" for mode, value in tokens.items()) + "."
    if not any(each.paired for each in scarce):
        return f"{too_few(scarce).capitalize()}. {kv}"
    changes = []
    for load in sorted({each.place.load for each in scarce if each.place.load}):
        orders = []
        for findings in (plenty, scarce):
            at = [
                each
                for each in findings
                if each.place.load == load and each.metric == _PRIMARY and each.ratio is not None
            ]
            ratios = {DEFAULT: 1.0} | {each.mode: each.ratio or 1.0 for each in at}
            orders.append(sorted(ratios, key=lambda mode: float(np.log(ratios[mode]))))
        if len(orders[0]) == len(orders[1]):
            same = (
                "same order"
                if orders[0] == orders[1]
                else f"{' < '.join(orders[1])} instead of {' < '.join(orders[0])}"
            )
            changes.append(f"load {load:g}: {same}")
    compared = (
        f"By the means of TPOT p50, against the same loads with plenty of KV: {'; '.join(changes)}." if changes else ""
    )
    return f"{by_metric([each for each in scarce if each.metric == _PRIMARY])} {compared} {kv}"

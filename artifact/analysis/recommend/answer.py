"""The trials of every mode, the limits and the default in; the mode to take, the ranking and the reason, out."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from artifact.analysis.recommend.mode_trials import Outcome, Simulated
from artifact.analysis.recommend.objectives import OBJECTIVES, Choice, Objective, Trial, choose, rank_against
from artifact.errors import InputError
from artifact.schema import Config, Evidence, Mode, RecommendConfig

_COLUMNS = ("tpot_p50_ms", "tpot_p99_ms", "ttft_p50_ms", "ttft_p99_ms", "e2e_p99_ms", "output_tokens_per_s", "goodput")
_MIB = 2**20


@dataclass(frozen=True)
class Verdicts:
    """The choice, and the parts of the command's answer that follow from it."""

    choice: Choice
    answer: dict[str, Any]
    warnings: list[str]


def conclude(
    config: Config,
    trials: Sequence[Trial],
    simulated: Simulated,
    evidence: Evidence,
    default: Mode,
    outside: Sequence[str],
) -> Verdicts:
    """Return what follows from ``trials``; ``outside`` says what no evidence covers, in which case the default stays.

    Raises InputError where no mode could serve the load.
    """
    if not trials:
        reasons = "; ".join(sorted({str(first.reason) for first in simulated.first.values() if first.reason}))
        raise InputError(f"no mode can serve this load on this server: {reasons}")
    asked = config.recommend
    objective = OBJECTIVES[asked.objective]
    overloaded = simulated.overloaded if evidence is Evidence.SIMULATED else frozenset()
    allowed, warnings = _allowed(trials, config, overloaded)

    def pick(of: Sequence[Trial], modes: Sequence[Mode]) -> Choice:
        present = {trial.mode for trial in of}
        if outside and default in present:
            first = choose(of, [default], objective, asked.margin, default)
            return first._replace(clear=False)
        return choose(of, [mode for mode in modes if mode in present], objective, asked.margin, default)

    choice = pick(trials, allowed)
    uptime = _uptime(config, simulated, choice, allowed)
    if uptime is not None and uptime[0] is not choice.recommended and not outside:
        choice = rank_against(trials, uptime[0], choice, objective, asked.margin)
    by_mode = {trial.mode: trial for trial in trials}
    listed = {
        verdict: [mode.value for mode, its in choice.verdicts.items() if its == verdict]
        for verdict in ("equivalent", "inconclusive")
    }
    reason = _reason(choice, by_mode, objective, asked, default, outside, allowed)
    answer = {
        "objective": asked.objective,
        "reason": reason if uptime is None else f"{reason} {uptime[1]}",
        **_margin(choice, objective),
        **listed,
        "ranking": _ranking(config, trials, simulated, choice, objective, overloaded, allowed),
        "sensitivity": [
            _sensitive(us, pick(of, allowed), objective)
            for us, of in simulated.by_launch_us.items()
            if {trial.mode for trial in of} & set(allowed)
        ],
    }
    return Verdicts(choice, answer, warnings)


def median(trial: Trial, column: str) -> float | int | None:
    """Return the median of a column over a mode's runs; None where a run has none."""
    values = [run.get(column) for run in trial.runs]
    known = [value for value in values if value is not None]
    return statistics.median(known) if known and len(known) == len(values) else None


def _allowed(trials: Sequence[Trial], config: Config, overloaded: frozenset[Mode]) -> tuple[list[Mode], list[str]]:
    """Return the modes that may be recommended. A limit that none keeps is left out, and a warning says so."""
    asked, warnings = config.recommend, []
    left = list(trials)
    limits: list[tuple[str, Callable[[Trial], bool]]] = []
    if asked.max_graph_mib is not None:
        key, most_bytes = f"recommend.max_graph_mib={asked.max_graph_mib:g}", asked.max_graph_mib * _MIB
        limits.append((key, lambda trial: trial.graph_bytes is not None and trial.graph_bytes <= most_bytes))
    if asked.max_capture_s is not None:
        key, most_s = f"recommend.max_capture_s={asked.max_capture_s:g}", asked.max_capture_s
        limits.append((key, lambda trial: trial.capture_s is not None and trial.capture_s <= most_s))
    if asked.require_slo:
        limits.append(("recommend.require_slo=true", lambda trial: _meets(trial, asked) is True))
    for key, keeps in limits:
        if kept := [trial for trial in left if keeps(trial)]:
            left = kept
        else:
            warnings.append(f"{key}: no mode keeps it, the answer is without it")
    if overloaded:
        names = ", ".join(sorted(mode.value for mode in overloaded))
        warnings.append(f"{names}: the queue grows, the load is more than the mode sustains")
    steady = [trial.mode for trial in left if trial.mode not in overloaded]
    if not steady:
        warnings.append("no mode sustains this load: its latencies grow with the length of the run")
    return (steady if steady and asked.objective != "throughput" else [trial.mode for trial in left]), warnings


def _meets(trial: Trial, asked: RecommendConfig) -> bool | None:
    goodput = median(trial, "goodput")
    return None if goodput is None else goodput >= asked.slo_share


def _margin(choice: Choice, objective: Objective) -> dict[str, Any]:
    """Return the recommended mode's advantage on the reference: a contrast turned round."""
    if choice.reference is None:
        return {"margin": None, "interval": [None, None], "margin_against": None}
    its = choice.contrasts[choice.reference]
    return {
        "margin": objective.shown(-its.mean),
        "interval": [objective.shown(-its.high), objective.shown(-its.low)],
        "margin_against": choice.reference.value,
    }


def _sensitive(launch_us: float, choice: Choice, objective: Objective) -> dict[str, Any]:
    inconclusive = [mode.value for mode, verdict in choice.verdicts.items() if verdict == "inconclusive"]
    found = {"launch_us": launch_us, "recommended": choice.recommended.value, "inconclusive": inconclusive}
    return found | _margin(choice, objective)


def _ranking(
    config: Config,
    trials: Sequence[Trial],
    simulated: Simulated,
    choice: Choice,
    objective: Objective,
    overloaded: frozenset[Mode],
    allowed: Sequence[Mode],
) -> list[dict[str, Any]]:
    """Return a row per mode, the best value of the objective first, modes that gave none last."""
    rows: list[dict[str, Any]] = []
    for trial in trials:
        against = choice.contrasts.get(trial.mode)
        rows.append(
            {
                "mode": trial.mode.value,
                **{column: median(trial, column) for column in _COLUMNS},
                "graph_bytes": trial.graph_bytes,
                "kv_tokens": median(trial, "kv_tokens"),
                "capture_s": trial.capture_s,
                "meets_slo": _meets(trial, config.recommend),
                "verdict": choice.verdicts.get(trial.mode, "recommended"),
                "difference": None if against is None else objective.shown(against.mean),
                "difference_interval": None
                if against is None
                else [objective.shown(against.low), objective.shown(against.high)],
                "allowed": trial.mode in allowed,
                "reason": "overload" if trial.mode in overloaded else None,
            }
        )
    worst = -math.inf if objective.higher else math.inf
    rows.sort(
        key=lambda row: worst if row[objective.column] is None else row[objective.column], reverse=objective.higher
    )
    ranked = {trial.mode for trial in trials}
    for mode, first in simulated.first.items():
        if mode not in ranked:
            empty = dict.fromkeys(rows[0])
            rows.append(
                empty | {"mode": mode.value, "allowed": False, "reason": first.reason or "a run did not finish"}
            )
    return rows


def _uptime(config: Config, simulated: Simulated, choice: Choice, allowed: Sequence[Mode]) -> tuple[Mode, str] | None:
    """Return the mode that ``recommend.uptime_s`` leaves and a sentence; None where there is nothing to weigh.

    A mode that is worse but captures faster wins where the n requests of an uptime save less, in mean end-to-end
    time, than the recommended mode's longer capture costs: n < longer capture / saving per request.
    """
    uptime_s, mode = config.recommend.uptime_s, choice.recommended
    outcome = simulated.first.get(mode)
    rate = None if outcome is None else outcome.columns.get("offered_rate")
    worse = [other for other, verdict in choice.verdicts.items() if verdict == "worse" and other in allowed]
    even = {other: needed for other in worse if (needed := _break_even(simulated, mode, other)) is not None}
    if uptime_s is None or not rate or not even:
        return None
    requests = uptime_s * rate
    served = f"{requests:,.0f} requests in {uptime_s:g} s"
    if ahead := [other for other, needed in even.items() if requests < needed]:
        least = min(ahead, key=lambda other: _spent_s(simulated.first[other], requests))
        return least, f"With {served}, the longer capture of {mode.value} is not earned back."
    return mode, f"Its longer capture is earned back after {max(even.values()):,.0f} of {served}."


def _spent_s(outcome: Outcome, requests: float) -> float:
    """Return capture and all requests' end-to-end time; both are there where ``_break_even`` gave a number."""
    capture_s = outcome.facts.capture_s if outcome.facts is not None else None
    return (capture_s or 0.0) + requests * (outcome.columns["e2e_mean_ms"] or 0.0) / 1e3


def _break_even(simulated: Simulated, mode: Mode, other: Mode) -> float | None:
    """Return the requests after which the longer capture of ``mode`` is earned back; None where it is not longer."""
    mine, its = simulated.first[mode], simulated.first[other]
    my_capture_s, its_capture_s = (None if each.facts is None else each.facts.capture_s for each in (mine, its))
    my_e2e_ms, its_e2e_ms = (each.columns.get("e2e_mean_ms") for each in (mine, its))
    if my_capture_s is None or its_capture_s is None or my_e2e_ms is None or its_e2e_ms is None:
        return None
    if my_capture_s <= its_capture_s:
        return None
    saving_s = (its_e2e_ms - my_e2e_ms) / 1e3
    return (my_capture_s - its_capture_s) / saving_s if saving_s > 0 else None


def _reason(
    choice: Choice,
    by_mode: Mapping[Mode, Trial],
    objective: Objective,
    asked: RecommendConfig,
    default: Mode,
    outside: Sequence[str],
    allowed: Sequence[Mode],
) -> str:
    mode, reference = choice.recommended, choice.reference
    if outside:
        return f"Outside the evidence ({'; '.join(outside)}): the default {mode.value} stays, the numbers are a sketch."
    value = median(by_mode[mode], objective.column)
    number = objective.words
    if value is not None:
        number += f" {value:,.0f} {objective.unit}" if value >= 1000 else f" {value:.3g} {objective.unit}"
    unclear = [
        other.value for other, verdict in choice.verdicts.items() if verdict == "inconclusive" and other in allowed
    ]
    if reference is None:
        return f"{mode.value} is the only mode that can be ranked here."
    if choice.verdicts[reference] == "equivalent":
        than = f"equal to {reference.value} within {asked.margin:.0%}{_saved(by_mode[mode], by_mode[reference])}"
    elif choice.verdicts[reference] == "inconclusive":
        than = f"its advantage on {reference.value} is between {_interval(choice, objective)}"
    else:
        gained = (_margin(choice, objective)["margin"] >= 0) == objective.higher
        share = abs(_margin(choice, objective)["margin"])
        than = f"{share:.1%} {'more' if gained else 'less'} than {reference.value} ({_interval(choice, objective)})"
    if choice.clear:
        return f"{mode.value}: {number}, {than}."
    others = f"{', '.join(unclear)} cannot be told from it" if unclear else "none is known to be better"
    keep = f"keep the default {mode.value}" if mode is default else f"take {mode.value}"
    return f"No clear winner: {keep}, {others} ({number}; {than})."


def _interval(choice: Choice, objective: Objective) -> str:
    low, high = _margin(choice, objective)["interval"]
    return f"{low:+.1%} and {high:+.1%}"


def _saved(mine: Trial, its: Trial) -> str:
    """Return what the recommended mode takes less than an equivalent one, as the end of a sentence."""
    parts = []
    if mine.graph_bytes is not None and its.graph_bytes is not None and its.graph_bytes > mine.graph_bytes:
        parts.append(f"{(its.graph_bytes - mine.graph_bytes) / _MIB:.0f} MiB less graph memory")
    if mine.capture_s is not None and its.capture_s is not None and its.capture_s > mine.capture_s:
        parts.append(f"{its.capture_s - mine.capture_s:.1f} s less capture")
    return f", with {' and '.join(parts)}" if parts else ""

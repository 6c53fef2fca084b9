"""What each mode gave in paired runs in; contrasts with intervals, verdicts and the mode to take out.

A contrast is the mean over runs of the gain of one mode on another: ln of the ratio, positive where the first is
better; for goodput the difference of shares. With n paired runs of standard deviation s, and b the calibration's part,

    interval = mean +- sqrt((t s / sqrt(n))^2 + (z b)^2)

at 95 % over all contrasts of an answer together (Bonferroni). b^2 is the sum over the kinds of step of (gain with
that kind slower by its error - gain without)^2: what two modes share cancels, what one of them alone runs does not.
With a single run there is no s, and the interval is the calibration's error alone.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from scipy import stats

from artifact.schema import Mode

Columns = Mapping[str, float | int | None]
Verdict = Literal["better", "worse", "equivalent", "inconclusive"]
_ERROR_RATE = 0.05


class Objective(NamedTuple):
    """A column of records.CellRow, and how it is compared."""

    column: str
    words: str
    unit: str
    higher: bool = False
    is_share: bool = False

    def gain(self, value: float, reference: float) -> float:
        """Return how much better ``value`` is than ``reference``, both positive unless they are shares."""
        if self.is_share:
            return value - reference
        ratio = math.log(value / reference)
        return ratio if self.higher else -ratio

    def shown(self, gain: float) -> float:
        """Return ``gain`` as a share of the reference: 0.1 is 10 % lower latency, or 10 % more throughput."""
        if self.is_share:
            return gain
        return math.expm1(gain) if self.higher else -math.expm1(-gain)


OBJECTIVES = {
    "tpot_p50": Objective("tpot_p50_ms", "TPOT p50", "ms"),
    "tpot_p99": Objective("tpot_p99_ms", "TPOT p99", "ms"),
    "ttft_p99": Objective("ttft_p99_ms", "TTFT p99", "ms"),
    "e2e_p99": Objective("e2e_p99_ms", "end-to-end p99", "ms"),
    "throughput": Objective("output_tokens_per_s", "throughput", "tokens/s", higher=True),
    "goodput": Objective("goodput", "goodput", "of requests", higher=True, is_share=True),
}


@dataclass(frozen=True)
class Trial:
    """One mode: its paired runs, in the same order for every mode, and what it takes.

    ``base`` are runs with the calibration as it is, ``slower`` those runs with one kind of step slower by its error,
    by the kind's name; kinds that the mode does not run are left out. Measured trials have neither.
    """

    mode: Mode
    runs: tuple[Columns, ...]
    graph_bytes: int | None = None
    capture_s: float | None = None
    base: tuple[Columns, ...] = ()
    slower: Mapping[str, tuple[Columns, ...]] = field(default_factory=dict)


class Contrast(NamedTuple):
    """The gain of one mode on another, with its interval."""

    mean: float
    low: float
    high: float

    def verdict(self, margin: float) -> Verdict:
        """Return what the interval says; within +-``margin`` (a gain) the modes are equivalent, even if they differ."""
        if -margin <= self.low and self.high <= margin:
            return "equivalent"
        if self.low > 0:
            return "better"
        return "worse" if self.high < 0 else "inconclusive"


def contrast(one: Trial, other: Trial, objective: Objective, comparisons: int) -> Contrast:
    """Return the gain of ``one`` on ``other``, one of ``comparisons`` of an answer. Raises ValueError for no runs."""
    gains = _gains(one.runs, other.runs, objective)
    tail = 1 - _ERROR_RATE / max(comparisons, 1) / 2
    n = len(gains)
    half = float(stats.t.ppf(tail, n - 1) * gains.std(ddof=1) / math.sqrt(n)) if n > 1 else 0.0
    half = math.hypot(half, float(stats.norm.ppf(tail)) * _calibration_error(one, other, objective))
    mean = float(gains.mean())
    return Contrast(mean, mean - half, mean + half)


def _gains(mine: Sequence[Columns], its: Sequence[Columns], objective: Objective) -> np.ndarray:
    column = objective.column
    values = [(one[column], other[column]) for one, other in zip(mine, its, strict=True)]
    gains = [objective.gain(one, other) for one, other in values if one is not None and other is not None]
    if not gains or len(gains) != len(values):
        raise ValueError(f"{column} is missing in a run that is compared")
    return np.array(gains)


def _calibration_error(one: Trial, other: Trial, objective: Objective) -> float:
    kinds = one.slower.keys() | other.slower.keys()
    if not kinds:
        return 0.0
    plain = _gains(one.base, other.base, objective)
    moved = (
        _gains(one.slower.get(kind, one.base), other.slower.get(kind, other.base), objective) for kind in sorted(kinds)
    )
    return math.sqrt(sum(float((gains - plain).mean()) ** 2 for gains in moved))


class Choice(NamedTuple):
    """The mode to take. ``contrasts`` and ``verdicts`` hold every other mode against it.

    ``clear``: every allowed mode is known to be as good as the best or worse. ``reference`` is what the margin is
    against: the default, or the best of the others where the default is taken; null where there is no other.
    """

    recommended: Mode
    clear: bool
    contrasts: dict[Mode, Contrast]
    verdicts: dict[Mode, Verdict]
    reference: Mode | None


def choose(
    trials: Sequence[Trial], allowed: Collection[Mode], objective: Objective, margin: float, default: Mode
) -> Choice:
    """Return which of ``allowed`` (at least one) to take; ``margin`` as in schema.RecommendConfig.

    The anchor is the best where all allowed modes are known against it, else ``default`` unless that is not allowed
    or worse than the best. Of the modes that are equivalent to the anchor the one with the least graph memory is
    taken, then with the shortest capture; unknown counts as most.
    """
    by_mode = {trial.mode: trial for trial in trials}
    width = margin if objective.is_share else math.log1p(margin)

    def against(anchor: Mode) -> dict[Mode, Contrast]:
        others = [trial for trial in trials if trial.mode is not anchor]
        return {trial.mode: contrast(trial, by_mode[anchor], objective, len(others)) for trial in others}

    def mean_gain(mode: Mode) -> float:
        return contrast(by_mode[mode], trials[0], objective, 1).mean

    best = max(sorted(allowed, key=lambda mode: mode is not default), key=mean_gain)
    verdicts = {mode: each.verdict(width) for mode, each in against(best).items()}
    clear = "inconclusive" not in (verdicts[mode] for mode in allowed if mode is not best)
    anchor = best if clear or default not in allowed or verdicts.get(default) == "worse" else default
    same = [mode for mode, each in against(anchor).items() if mode in allowed and each.verdict(width) == "equivalent"]
    recommended = min([anchor, *same], key=lambda mode: _cost(by_mode[mode]))
    contrasts = against(recommended)
    return Choice(
        recommended,
        clear,
        contrasts,
        {mode: each.verdict(width) for mode, each in contrasts.items()},
        _reference(recommended, by_mode, default, mean_gain),
    )


def rank_against(trials: Sequence[Trial], mode: Mode, choice: Choice, objective: Objective, margin: float) -> Choice:
    """Return ``choice`` with ``mode`` in the place of the recommended one."""
    return choose(trials, [mode], objective, margin, mode)._replace(clear=choice.clear)


def _reference(
    recommended: Mode, by_mode: Mapping[Mode, Trial], default: Mode, mean_gain: Callable[[Mode], float]
) -> Mode | None:
    if recommended is not default and default in by_mode:
        return default
    others = [mode for mode in by_mode if mode is not recommended]
    return max(others, key=mean_gain) if others else None


def _cost(trial: Trial) -> tuple[float, float]:
    memory = math.inf if trial.graph_bytes is None else trial.graph_bytes
    return memory, math.inf if trial.capture_s is None else trial.capture_s

"""A sweep in; whether stability moves the modes' latencies or margins beyond what load explains, out.

Loads are equal by design: the same absolute rate and mean lengths under steady, churn and bursty. Their tiles are
measured in blocks of their own, so two stabilities are compared as unpaired samples of blocks.
"""

import math
from itertools import combinations
from typing import NamedTuple

from artifact.analysis.contrasts import inference
from artifact.analysis.contrasts.sweep import DEFAULT, MODES, STABILITIES, Place, Sweep, blocks_needed
from artifact.analysis.intervals import Estimate


class Moved(NamedTuple):
    """Whether stability moves a log-ratio at equal load: ``one`` less ``other``, of different blocks (Welch).

    ``mode`` is held against the default; for the default itself the logarithm of its own value is compared. ``ratio``
    is exp of the difference: 1.1 reads "10 % slower, relative to the default, under ``one``". p-values are Holm's.
    """

    model: str
    load: str
    metric: str
    mode: str
    one: str
    other: str
    blocks: tuple[int, int]
    ratio: float
    interval: tuple[float, float]
    verdict: inference.Verdict  # better: lower under ``one``
    needed: int


def stability_effects(sweep: Sweep, metric: str) -> list[Moved]:
    """Return every contrast of two stabilities at one load with enough blocks on either side."""
    at = {(p.model, p.level, p.workload): p for p in sweep.places() if p.workload in STABILITIES and p.load}
    rows: list[tuple[tuple[str, str], str, str, str, Estimate, Estimate]] = []
    for key in sorted({(model, level) for model, level, _ in at}):
        for one, other in combinations(STABILITIES, 2):
            both = [at[(*key, name)] for name in (one, other) if (*key, name) in at]
            for mode in MODES if len(both) == 2 else ():
                means = [Estimate.of(_values(sweep, place, mode, metric)) for place in both]
                first, second = means
                if first is not None and second is not None and min(first.n, second.n) >= inference.FEWEST:
                    rows.append((key, mode, one, other, first, second))
    differences = [row[4].less(row[5]) for row in rows]
    tests = [inference.p_values(each.mean, each.error or 0.0, each.freedom) for each in differences]
    adjusted = zip(*(inference.holm([test[kind] for test in tests]) for kind in (0, 1)), strict=True)
    return [
        Moved(
            *key,
            metric,
            mode,
            one,
            other,
            (first.n, second.n),
            math.exp(difference.mean),
            (
                math.exp(difference.mean - (difference.half or 0.0)),
                math.exp(difference.mean + (difference.half or 0.0)),
            ),
            inference.verdict(difference.mean, *p_values),
            blocks_needed(key[0]),
        )
        for (key, mode, one, other, first, second), difference, p_values in zip(
            rows, differences, adjusted, strict=True
        )
    ]


def _values(sweep: Sweep, place: Place, mode: str, metric: str) -> list[float]:
    if mode != DEFAULT:
        return sorted(sweep.log_ratios(place, mode, metric).values())
    return sorted(math.log(value) for value in sweep.values(place, metric).get(DEFAULT, {}).values())

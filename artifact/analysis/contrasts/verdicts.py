"""A sweep in; for every mode against the default, by place and metric, the ratio with its interval and a verdict out.

What the statistics are is said in ``inference``. A family of Holm's adjustment is one tile and metric: all its loads
and modes. The interval is of one contrast alone and the verdict holds over its family, so an interval that leaves 1
out may go with "inconclusive". Fewer blocks than ``measured_cells.needed_blocks`` make a verdict exploratory, and
fewer than three make none.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from artifact.analysis.contrasts import inference
from artifact.analysis.contrasts.inference import Floats, Paired, Spread, Verdict
from artifact.analysis.contrasts.sweep import DEFAULT, METRICS, MODES, Place, Sweep, blocks_needed

_Key = tuple[str, Place]  # a mode at a place


class Finding(NamedTuple):
    """One contrast. ``ratios``: the mode's value over the default's in each block, below 1 where it is faster.

    ``unranked`` counts the cells of both that are not ranked, by why; p-values are Holm's.
    """

    place: Place
    mode: str
    metric: str
    ratios: tuple[float, ...]
    needed: int
    unranked: dict[str, int]
    paired: Paired | None = None  # of the logs; null for fewer than inference.FEWEST blocks
    p_difference: float | None = None
    p_equivalence: float | None = None
    verdict: Verdict = "inconclusive"

    @property
    def blocks(self) -> int:
        """In how many blocks both were ranked."""
        return len(self.ratios)

    @property
    def is_exploratory(self) -> bool:
        """Whether there are fewer blocks than a verdict needs."""
        return self.blocks < self.needed

    @property
    def ratio(self) -> float | None:
        """Geometric mean over blocks; null without any."""
        return float(np.exp(np.mean(np.log(sorted(self.ratios))))) if self.ratios else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The ratio's 95 % interval."""
        return None if self.paired is None else (math.exp(self.paired.low), math.exp(self.paired.high))

    @property
    def reason(self) -> str:
        """What stands against the verdict, empty where nothing does."""
        if self.paired is None:
            return f"{self.blocks} of {self.needed} blocks: no interval" if self.ratios else "no block with both ranked"
        return f"exploratory: {self.blocks} of {self.needed} blocks" if self.is_exploratory else ""

    def row(self) -> dict[str, Any]:
        """Return the contrast as JSON-able values."""
        paired = self.paired
        return {
            **self.place._asdict(),
            "mode": self.mode,
            "metric": self.metric,
            "blocks": self.blocks,
            "blocks_needed": self.needed,
            "ratio": self.ratio,
            "interval": self.interval,
            "bootstrap": None if paired is None else tuple(math.exp(end) for end in paired.bootstrap),
            "p_difference": self.p_difference,
            "p_equivalence": self.p_equivalence,
            "sd_log": None if paired is None else paired.spread.sd,
            "df": None if paired is None else paired.spread.df,
            "pooled": None if paired is None else paired.spread.is_pooled,
            "verdict": self.verdict,
            "exploratory": self.is_exploratory,
            "unranked": self.unranked,
            "reason": self.reason,
        }


def findings(
    sweep: Sweep, metrics: Sequence[str] = METRICS, modes: Sequence[str] = MODES, reference: str = DEFAULT
) -> list[Finding]:
    """Return every contrast of ``modes`` with the default: by place, metric and mode, each in its order.

    Where arms are no modes, ``modes`` are their names and ``reference`` the one that takes the default's place.
    """
    others = [mode for mode in modes if mode != reference]
    places = sweep.places()
    by_metric = {metric: _of_metric(sweep, places, metric, others, reference) for metric in metrics}
    return [by_metric[metric][mode, place] for place in places for metric in metrics for mode in others]


def _of_metric(
    sweep: Sweep, places: Iterable[Place], metric: str, modes: Sequence[str], reference: str
) -> dict[_Key, Finding]:
    """Return the metric's contrasts: the spread is pooled by model and mode, p-values are adjusted by tile."""
    found: dict[_Key, Finding] = {}
    estimates: dict[_Key, Paired] = {}
    for mode in modes:
        samples = {place: sweep.sample(place, mode, metric, reference) for place in places}
        for place, spread in spread_by_model(samples).items():
            estimates[mode, place] = inference.estimate(samples[place], spread)
        for place, values in samples.items():
            cells = sweep.at(place)
            reasons = cells[cells["arm"].isin([mode, reference])]["unranked"].dropna()
            ratios = tuple(float(each) for each in np.exp(values))
            unranked = dict(sorted(Counter(map(str, reasons)).items()))
            found[mode, place] = Finding(place, mode, metric, ratios, blocks_needed(place.model), unranked)
    for key, (p_difference, p_equivalence) in _adjusted(estimates).items():
        paired = estimates[key]
        found[key] = found[key]._replace(
            paired=paired,
            p_difference=p_difference,
            p_equivalence=p_equivalence,
            verdict=inference.verdict(paired.mean, p_difference, p_equivalence),
        )
    return found


def spread_by_model(samples: dict[Place, Floats]) -> dict[Place, Spread]:
    """Return the spread to use at each place with enough blocks, pooled within a model."""
    found: dict[Place, Spread] = {}
    for model in sorted({place.model for place in samples}):
        of_model = {place: each for place, each in samples.items() if place.model == model}
        found |= inference.spreads(of_model, lambda place: place.tile)
    return found


def _adjusted(estimates: dict[_Key, Paired]) -> dict[_Key, tuple[float, float]]:
    """Return Holm's p-values of difference and of equivalence, each over the contrasts of a tile."""
    found: dict[_Key, tuple[float, float]] = {}
    for tile in sorted({place.tile for _, place in estimates}):
        family = [key for key in estimates if key[1].tile == tile]
        differences = inference.holm([estimates[key].p_difference for key in family])
        equivalences = inference.holm([estimates[key].p_equivalence for key in family])
        found |= dict(zip(family, zip(differences, equivalences, strict=True), strict=True))
    return found

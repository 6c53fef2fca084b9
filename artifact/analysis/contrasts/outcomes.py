"""A sweep in; what follows from it beside the verdicts out: noise floor, the default's regret, costs of each mode."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from artifact.analysis.contrasts import inference
from artifact.analysis.contrasts.sweep import AGAIN, DEFAULT, METRICS, MODES, Place, Sweep, blocks_needed
from artifact.analysis.contrasts.verdicts import spread_by_model


class Noise(NamedTuple):
    """How two launches of the default in one block differ, all places of a model together.

    ``sd``: root mean square of ln(A/A), whose mean is known to be 0; ``blocks`` are its degrees of freedom.
    """

    model: str
    metric: str
    cells: int
    blocks: int
    ratio: float  # geometric mean of A/A
    sd: float
    largest: float  # the ratio farthest from 1, taken above 1

    def seen_with(self, blocks: int) -> float:
        """Return what difference ``blocks`` blocks can show: half a 95 % interval's width, as a share."""
        spread = inference.Spread(self.sd, self.blocks, is_pooled=True)
        mean = inference.estimate(np.zeros(blocks), spread)
        return math.expm1(mean.high)


def noise_floor(sweep: Sweep, metrics: Sequence[str] = METRICS) -> list[Noise]:
    """Return the noise of each model and metric that has A/A launches."""
    found = []
    for model in sorted({place.model for place in sweep.places()}):
        for metric in metrics:
            by_place = {p: sweep.log_ratios(p, AGAIN, metric) for p in sweep.places() if p.model == model}
            blocks = {(place.tile, block) for place, values in by_place.items() for block in values}
            values = np.sort([value for each in by_place.values() for value in each.values()])
            if len(values):
                sd = math.sqrt(float(np.mean(values**2)))
                largest = math.exp(float(np.abs(values).max()))
                found.append(Noise(model, metric, len(values), len(blocks), math.exp(values.mean()), sd, largest))
    return found


class Regret(NamedTuple):
    """How much lower the best mode's value is than the default's, as a share of the default's; 0 where it is best.

    The interval holds the largest of all modes' true gains: from the modes' intervals together (Bonferroni), so that
    picking the best after the fact is paid for. Null with too few blocks.
    """

    place: Place
    metric: str
    best: str
    blocks: int
    needed: int
    regret: float
    low: float | None
    high: float | None


def regrets(sweep: Sweep, metric: str) -> list[Regret]:
    """Return the default's regret at each place where any other mode pairs with it."""
    samples = {
        mode: {place: sweep.sample(place, mode, metric) for place in sweep.places()}
        for mode in MODES
        if mode != DEFAULT
    }
    spreads = {mode: spread_by_model(of_mode) for mode, of_mode in samples.items()}
    found = []
    for place in sweep.places():
        means = {mode: float(of_mode[place].mean()) for mode, of_mode in samples.items() if len(of_mode[place])}
        if not means:
            continue
        paired = [
            inference.estimate(samples[mode][place], spreads[mode][place], len(means))
            for mode in means
            if place in spreads[mode]
        ]
        best = min(means, key=lambda mode: means[mode])
        ends: tuple[float | None, float | None] = (None, None)
        if len(paired) == len(means):
            ends = (_gain(min(each.high for each in paired)), _gain(min(each.low for each in paired)))
        found.append(
            Regret(
                place,
                metric,
                best if means[best] < 0 else DEFAULT,
                len(samples[best][place]),
                blocks_needed(place.model),
                _gain(means[best]),
                *ends,
            )
        )
    return found


def _gain(log_ratio: float) -> float:
    return max(0.0, -math.expm1(log_ratio))


class Cost(NamedTuple):
    """What a mode takes of a model's launches: medians; null where no launch says."""

    model: str
    mode: str
    launches: int
    graph_mib: float | None
    capture_s: float | None
    warm_start_s: float | None  # on a warm compile cache, without importing vLLM


def costs(sweep: Sweep) -> list[Cost]:
    """Return the costs of each model and mode, of launches of the study's server that ended ok."""
    fine = sweep.launches[sweep.launches["status"] == "ok"]
    found = []
    for model in sorted(fine["model"].unique()):
        of_model = fine[fine["model"] == model]
        server = Counter(of_model["server_hash"]).most_common(1)[0][0]
        for mode in MODES:
            rows = of_model[(of_model["requested_mode"] == mode) & (of_model["server_hash"] == server)]
            if len(rows):
                warm = rows[rows["compile_cache"] == "warm"]["start_s"]
                mib = rows["graph_bytes"].astype("float64") / 2**20
                medians = [_median(column) for column in (mib, rows["capture_s"], warm)]
                found.append(Cost(str(model), mode, len(rows), *medians))
    return found


def _median(column: pd.Series) -> float | None:
    values = column.dropna().astype("float64")
    return None if values.empty else float(values.median())

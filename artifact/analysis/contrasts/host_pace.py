"""A sweep in; its contrasts at equal pace of the host, by analysis of covariance, out.

A shared host is now quiet, now slow, and a block's arms rarely meet the same. How fast it was is told by what launching
a kernel that does nothing costs the CPU, which no arm changes. With one pair of numbers a block,

    d = ln(value / value of the reference),  x = ln(microseconds a launch / those of the reference)

least squares of d = m + k x gives m, the contrast where both met the same host, with a t-interval of n - 2 degrees of
freedom (Snedecor and Cochran, Statistical Methods, analysis of covariance). The unadjusted contrasts are the primary
ones: this was chosen after the first blocks were seen.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from artifact.analysis.contrasts.inference import ALPHA, Floats
from artifact.analysis.contrasts.sweep import DEFAULT, MODES, Place, Sweep

FEWEST = 5  # blocks: two go into the line


class AtEqualPace(NamedTuple):
    """One contrast: ``mode`` over the reference, the plain ratio and the one at equal pace with its 95 % interval.

    ``explained``: the share of the variance over blocks that goes with the host's pace (R^2).
    """

    place: Place
    mode: str
    metric: str
    blocks: int
    plain: float
    ratio: float
    low: float
    high: float
    explained: float


def at_equal_pace(
    sweep: Sweep, metrics: Sequence[str], modes: Sequence[str] = MODES, reference: str = DEFAULT
) -> list[AtEqualPace]:
    """Return the contrasts of ``modes`` with the reference that have FEWEST blocks in which both paces are known."""
    paces = pace_us(sweep)
    found = []
    for place in sweep.places():
        cells = sweep.at(place)
        of_cells = dict(zip(zip(cells["arm"], cells["block"], strict=True), paces[cells.index], strict=True))
        for metric in metrics:
            for mode in modes:
                logs = {} if mode == reference else sweep.log_ratios(place, mode, metric, reference)
                pairs = [
                    (difference, math.log(of_cells[mode, block] / of_cells[reference, block]))
                    for block, difference in logs.items()
                    if of_cells[mode, block] > 0 and of_cells[reference, block] > 0
                ]
                if len(pairs) >= FEWEST and (fit := adjusted(np.array(sorted(pairs)))) is not None:
                    plain = math.exp(float(np.mean([each[0] for each in pairs])))
                    found.append(AtEqualPace(place, mode, metric, len(pairs), plain, *fit))
    return found


def pace_us(sweep: Sweep) -> "pd.Series[float]":
    """Return microseconds a kernel launch by row of ``cells``: the mean of before and after, else before its launch's.

    Null where neither was taken.
    """
    starts = sweep.launches.drop_duplicates("launch_id").set_index("launch_id")["eager_launch_us"].astype("float64")
    of_cell = sweep.cells[["launch_us_before", "launch_us_after"]].astype("float64").mean(axis=1, skipna=False)
    return of_cell.fillna(sweep.cells["launch_id"].map(starts))


def adjusted(pairs: Floats) -> tuple[float, float, float, float] | None:
    """Return ratio, low, high and R^2 of rows of d and x, shape (n, 2); None where either is one and the same."""
    d, x = pairs.T
    if not (np.ptp(x) > 0 and np.ptp(d) > 0):
        return None
    line = stats.linregress(x, d)
    half = float(stats.t.ppf(1 - ALPHA / 2, len(d) - 2)) * float(line.intercept_stderr)
    ratio, low, high = (math.exp(float(line.intercept) + end) for end in (0.0, -half, half))
    return ratio, low, high, float(line.rvalue) ** 2

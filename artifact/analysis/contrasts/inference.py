"""Differences of paired runs in; intervals, p-values and the four verdicts out. Pure statistics, on log-ratios.

A *sample* holds one number a block: ln(value / value of the reference) of one contrast in one cell of the grid. Below,
n is the number of blocks, m the sample's mean and s a standard deviation with v degrees of freedom:

    interval          m +- t(v, 97.5 %) s / sqrt(n)
    difference        two-sided p of m / (s / sqrt(n)) under t(v)
    equivalence       TOST: the larger p of the one-sided tests m > -d and m < d, d = ln(1 + margin)
    adjusted          Holm over the family, differences and equivalences each on their own

A launch serves all loads of its tile, and five blocks tell little of a variance, so s is pooled over the cells of one
mode and metric: s^2 = sum (n - 1) s_cell^2 / sum (n - 1). The cells of a tile share their launches, so a tile counts
once in v: the sum over tiles of the largest n - 1. A cell that is noisier than the others together (one-sided F test,
20 %) keeps its own s and n - 1 and stays out of the pool: by simulation (tests/test_inference.py) differences are then
found by chance in 3 to 6 % of cells where 5 % is said, in up to 11 % of the noisiest.
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from scipy import stats

Verdict = Literal["better", "worse", "equivalent", "inconclusive"]
ALPHA = 0.05
MARGIN = 0.02  # declared beforehand: within it two modes count as equal
FEWEST = 3  # blocks for an interval: two say nothing of their spread
_NOISIER = 0.2
_RESAMPLES = 4000
_SEED = 20260102

Floats = npt.NDArray[np.float64]
Cell = TypeVar("Cell", bound=Hashable)


class Spread(NamedTuple):
    """A standard deviation of one block's log-ratio, and the degrees of freedom behind it."""

    sd: float
    df: int
    is_pooled: bool


class Paired(NamedTuple):
    """One contrast: logs, and p-values before any adjustment. The bootstrap's interval is a check on the other."""

    blocks: int
    mean: float
    low: float
    high: float
    p_difference: float
    p_equivalence: float
    spread: Spread
    bootstrap: tuple[float, float]


def spreads(samples: Mapping[Cell, Floats], tile_of: Callable[[Cell], str]) -> dict[Cell, Spread]:
    """Return the spread to use for each cell of ``samples`` with FEWEST blocks or more; ``tile_of`` names its tile."""
    squares = {cell: float(((each - each.mean()) ** 2).sum()) for cell, each in samples.items() if len(each) >= FEWEST}
    free = {cell: len(samples[cell]) - 1 for cell in squares}

    def pool(cells: Sequence[Cell]) -> tuple[float, int]:
        by_tile: dict[str, int] = {}
        for cell in cells:
            by_tile[tile_of(cell)] = max(by_tile.get(tile_of(cell), 0), free[cell])
        return sum(squares[cell] for cell in cells) / sum(free[cell] for cell in cells), sum(by_tile.values())

    def is_noisier(cell: Cell) -> bool:
        others = [each for each in squares if each != cell]
        own, (rest, df) = squares[cell] / free[cell], pool(others) if others else (math.inf, 1)
        return own > rest and (rest == 0 or bool(stats.f.sf(own / rest, free[cell], df) < _NOISIER))

    alone = {cell for cell in squares if is_noisier(cell)}
    found = {cell: Spread(math.sqrt(squares[cell] / free[cell]), free[cell], is_pooled=False) for cell in alone}
    if together := [cell for cell in squares if cell not in alone]:
        variance, df = pool(together)
        found |= {cell: Spread(math.sqrt(variance), df, is_pooled=len(together) > 1) for cell in together}
    return found


def estimate(values: Floats, spread: Spread, comparisons: int = 1) -> Paired:
    """Return mean, 95 % interval, p-values and bootstrap of a sample.

    The interval holds over ``comparisons`` of its kind together (Bonferroni); p-values and bootstrap do not.
    """
    values = np.sort(values)  # the same numbers whatever the order of the blocks
    mean, error = float(np.mean(values)), spread.sd / math.sqrt(len(values))
    half = float(stats.t.ppf(1 - ALPHA / 2 / comparisons, spread.df)) * error
    both = p_values(mean, error, spread.df)
    return Paired(len(values), mean, mean - half, mean + half, *both, spread, bootstrap(values))


def p_values(mean: float, error: float, df: float, margin: float = MARGIN) -> tuple[float, float]:
    """Return the p-values of difference and of equivalence of a mean with that standard error."""
    width = math.log1p(margin)
    if error > 0:
        return 2 * float(stats.t.sf(abs(mean) / error, df)), float(stats.t.sf((width - abs(mean)) / error, df))
    return float(mean == 0), float(abs(mean) >= width)  # every block gave the same: nothing is left to chance


def bootstrap(values: Floats) -> tuple[float, float]:
    """Return the 95 % percentile interval of the mean over resampled blocks; the same for any order of ``values``."""
    picks = np.random.default_rng(_SEED).integers(0, len(values), (_RESAMPLES, len(values)))
    means = np.sort(values)[picks].mean(axis=1)
    low, high = np.quantile(means, [ALPHA / 2, 1 - ALPHA / 2])
    return float(low), float(high)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p-values: under ALPHA exactly where the step-down test rejects."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def verdict(mean: float, p_difference: float, p_equivalence: float) -> Verdict:
    """Return what adjusted p-values say of a latency's log-ratio, lower being better; within the margin comes first."""
    if p_equivalence < ALPHA:
        return "equivalent"
    if p_difference < ALPHA:
        return "better" if mean < 0 else "worse"
    return "inconclusive"

"""Independent numbers in, their mean with a t-interval out; means in, their difference and quotient, with intervals.

Nothing here pools what is not independent: callers give one number a launch, or one a block.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple, Self

import numpy as np
import pandas as pd
from scipy import stats

CONFIDENCE = 0.95


class Estimate(NamedTuple):
    """A mean of ``n`` independent numbers; ``error`` is its standard error, null where one number alone was there."""

    mean: float
    error: float | None
    freedom: float  # degrees of freedom of ``error``
    n: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Self | None:
        """Return the mean of the numbers that are there, or None where there are none."""
        numbers = pd.to_numeric(pd.Series(list(values), dtype="object"), errors="coerce").dropna().to_numpy(np.float64)
        n = len(numbers)
        if not n:
            return None
        error = float(numbers.std(ddof=1) / math.sqrt(n)) if n > 1 else None
        return cls(float(numbers.mean()), error, n - 1, n)

    @property
    def half(self) -> float | None:
        """Half of the 95 % t-interval; None where there is none."""
        return None if self.error is None else float(stats.t.ppf((1 + CONFIDENCE) / 2, self.freedom)) * self.error

    @property
    def low(self) -> float | None:
        """Lower end of the 95 % t-interval."""
        return None if self.half is None else self.mean - self.half

    @property
    def high(self) -> float | None:
        """Upper end of the 95 % t-interval."""
        return None if self.half is None else self.mean + self.half

    def less(self, other: "Estimate") -> "Estimate":
        """Return the difference of two independent means, with Welch and Satterthwaite's degrees of freedom."""
        n = min(self.n, other.n)
        if self.error is None or other.error is None:
            return Estimate(self.mean - other.mean, None, 0, n)
        one, two = self.error**2, other.error**2
        if one + two == 0:
            return Estimate(self.mean - other.mean, 0.0, min(self.freedom, other.freedom), n)
        freedom = (one + two) ** 2 / (one**2 / self.freedom + two**2 / other.freedom)
        return Estimate(self.mean - other.mean, math.sqrt(one + two), freedom, n)


def geometric(ratios: Iterable[float]) -> tuple[float, float | None, float | None, int] | None:
    """Return geometric mean, low, high and n of positive ratios: the t-interval of their logarithms; None for none."""
    found = Estimate.of(math.log(ratio) for ratio in ratios if ratio > 0)
    if found is None:
        return None
    ends = [None if end is None else math.exp(end) for end in (found.low, found.high)]
    return math.exp(found.mean), ends[0], ends[1], found.n


def quotient(above: Estimate, below: Estimate) -> tuple[float | None, float | None]:
    """Return the 95 % interval of ``above`` over ``below``, two independent means, by Fieller's theorem.

    The ratios r for which above - r x below does not differ from zero at t of the smaller degrees of freedom. Both
    ends are None where a standard error is unknown, or where ``below`` itself does not differ from zero: then the
    interval has no end. Source: Fieller, 1954, Some problems in interval estimation. Assumes normal means.
    """
    if above.error is None or below.error is None:
        return None, None
    t = float(stats.t.ppf((1 + CONFIDENCE) / 2, min(above.freedom, below.freedom)))
    square = below.mean**2 - (t * below.error) ** 2
    if square <= 0:
        return None, None
    product, constant = above.mean * below.mean, above.mean**2 - (t * above.error) ** 2
    root = math.sqrt(max(product**2 - square * constant, 0.0))
    return (product - root) / square, (product + root) / square


class Line(NamedTuple):
    """A least-squares line through n points; the slope's 95 % t-interval has n - 2 degrees of freedom."""

    slope: float
    low: float | None
    high: float | None
    intercept: float
    n: int


def line(x: Iterable[float], y: Iterable[float]) -> Line | None:
    """Return the line through the points (x, y), launches as independent points; None for fewer than 3 distinct x."""
    points = pd.DataFrame({"x": list(x), "y": list(y)}).apply(pd.to_numeric, errors="coerce").dropna()
    if points["x"].nunique() < 3:
        return None
    fit = stats.linregress(points["x"].to_numpy(np.float64), points["y"].to_numpy(np.float64))
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(points) - 2)) * float(fit.stderr)
    slope = float(fit.slope)
    return Line(slope, slope - half, slope + half, float(fit.intercept), len(points))

"""A length distribution and a random generator in, whole numbers of tokens out."""

from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

from artifact.schema import LengthConfig

_LEAST = 1e-6  # of variation, or of tokens: less than this is none


def draw(length: LengthConfig, n: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return ``n`` lengths in tokens, int64, shape (n,).

    ``lognormal`` draws with coefficient of variation ``cv``, cuts at [low, high], and rounds up or down at random.
    Cutting moves the mean, so the location parameter is solved for the mean *after* cutting: the mean that is
    promised is the mean that is drawn. ``cv`` is that of the distribution before cutting.
    """
    if length.kind == "fixed":
        return np.full(n, int(length.mean), dtype=np.int64)
    low, high = length.low or 1, length.longest
    if length.kind == "uniform":
        return rng.integers(low, high, size=n, dtype=np.int64, endpoint=True)
    cv = length.cv or 0.0
    if cv < _LEAST or min(length.mean - low, high - length.mean) < _LEAST:  # a mean at a bound leaves no room
        cut = np.full(n, float(length.mean))
    else:
        mu, sigma = _location(length.mean, cv, low, high)
        with np.errstate(over="ignore"):  # an infinite draw is cut like any long one
            cut = np.clip(np.exp(mu + sigma * rng.standard_normal(n)), low, high)
    # Rounding to nearest would move the mean of short lengths; this does not: E[floor(x + U)] = x.
    rounded: npt.NDArray[np.int64] = np.minimum(np.floor(cut + rng.random(n)), high).astype(np.int64)
    return rounded


@lru_cache(maxsize=64)
def _location(mean: float, cv: float, low: int, high: int) -> tuple[float, float]:
    """Return mu and sigma of the log-normal whose values cut to [low, high] have the mean ``mean``.

    sigma^2 = ln(1 + cv^2), as for any log-normal; mu is the root of ``_cut_mean`` - ``mean``.
    """
    sigma = float(np.sqrt(2 * np.log(np.hypot(1, cv))))
    low_log, high_log = np.log(low), np.log(high)
    mu = brentq(lambda mu: _cut_mean(mu, sigma, low_log, high_log) - mean, low_log - 40 * sigma, high_log + 40 * sigma)
    return float(mu), sigma


def _cut_mean(mu: float, sigma: float, low_log: float, high_log: float) -> float:
    """Return E[min(max(X, low), high)] of a log-normal X: the mass at each bound, and the partial mean between."""
    below, above = (low_log - mu) / sigma, (high_log - mu) / sigma
    full = mu + sigma**2 / 2  # log of the uncut mean; kept as a log, for it may not fit a float
    between = np.exp(full + log_ndtr(above - sigma)) - np.exp(full + log_ndtr(below - sigma))
    return float(np.exp(low_log) * ndtr(below) + between + np.exp(high_log) * ndtr(-above))

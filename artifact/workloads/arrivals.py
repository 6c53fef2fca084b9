"""An arrival process, a rate and a duration in, arrival times out."""

import numpy as np
import numpy.typing as npt

from artifact.errors import InputError
from artifact.schema import ArrivalConfig

_MOST_REQUESTS = 10_000_000


def open_loop(arrival: ArrivalConfig, duration_s: float, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Return the arrival times in [0, ``duration_s``) in seconds, float64, ascending, shape (n,) with n random.

    ``constant``: k / rate from 0 on. ``poisson`` is ``gamma`` with cv 1. ``gamma``: gaps of shape 1 / cv^2 and mean
    1 / rate. Time 0 is an arbitrary instant, not an arrival: the first gap is what is left of one that is under way,
    so the expected number of arrivals is rate x length in every window. Times are never rescaled to end at n / rate.

    Raises InputError where more than ten million requests would be drawn.
    """
    rate = arrival.rate_per_s or 0.0
    if arrival.process not in ("constant", "poisson", "gamma"):
        raise ValueError(f"{arrival.process} is no open loop with a rate")
    if rate * duration_s > _MOST_REQUESTS:
        raise _too_many()
    if arrival.process == "constant":
        times = np.arange(np.ceil(rate * duration_s) + 1) / rate
        return times[times < duration_s]
    return _gamma(rate, arrival.cv or 1.0, duration_s, rng)


def _gamma(rate_per_s: float, cv: float, duration_s: float, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    shape = cv**-2
    scale_s = 1 / (rate_per_s * shape)
    # An instant falls into a gap with a chance in proportion to its length: such a gap has shape + 1 and the rest of
    # it is a uniform share (residual life of a renewal process; Cox, Renewal Theory, 1962, section 5.1).
    times = [np.array([rng.random() * rng.standard_gamma(shape + 1) * scale_s])]
    count = 1
    while times[-1][-1] < duration_s:
        if count > _MOST_REQUESTS:
            raise _too_many()
        gaps = rng.standard_gamma(shape, size=4096) * scale_s
        times.append(times[-1][-1] + np.cumsum(gaps))
        count += len(gaps)
    joined: npt.NDArray[np.float64] = np.concatenate(times)
    return joined[joined < duration_s]


def _too_many() -> InputError:
    return InputError(
        "workload.arrival: more than 10,000,000 requests in one cell; lower rate_per_s, cv or workload.duration_s"
    )


def bursts(batches: tuple[int, ...], repeats: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return the group of each request, int64, ascending from 0: every size of ``batches`` once a round, shuffled."""
    sizes = np.concatenate([rng.permutation(np.array(batches, dtype=np.int64)) for _ in range(repeats)])
    return np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)

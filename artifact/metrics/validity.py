"""A cell's steps and conditions in; what speaks against ranking it, beside the flags of its requests, out.

| flag | rule |
|---|---|
| unsteady | open loops: the running requests have a trend over the measured window, see ``trend`` |
| heavy_probe | every step was recorded in the worker, which slows it: such a cell is for steps, not for latencies |
| host_jitter | the host overslept a 1 ms sleep by more than 1 ms in one of a hundred before the cell |
"""

from typing import NamedTuple

import numpy as np
import pandas as pd

from artifact.records import Conditions
from artifact.schema import WorkloadConfig

_SLICES = 10
_TREND_CHANGE = 0.5
_TREND_ERRORS = 4.0
_JITTER_US = 1000.0  # a quiet host stays under 100; a decode step under full graphs takes about 2 ms
_OPEN_LOOPS = ("constant", "poisson", "gamma")  # a trace's load changes by itself, and a closed loop's cannot


class Trend(NamedTuple):
    """A straight line through the slices' means: its change over the window over the mean, and over its own error."""

    change: float
    errors: float


def trend(steps: pd.DataFrame, window: tuple[float, float] | None) -> Trend | None:
    """Return the trend of ``num_running`` in ``window`` (seconds, [from, to)); None where too little is known.

    A step's number holds until the next step. The window is cut into ten equal slices, the least-squares line goes
    through their time-weighted means, and its slope's standard error comes from the residuals (8 degrees of freedom).
    """
    known = steps[["t_s", "num_running"]].dropna().sort_values("t_s", kind="stable")
    if window is None or not window[1] > window[0] or len(known) < _SLICES:
        return None
    t_s, running = known["t_s"].to_numpy(np.float64), known["num_running"].to_numpy(np.float64)
    edges = np.linspace(*window, _SLICES + 1)
    if t_s[0] > edges[1] or t_s[-1] < edges[-2]:
        return None  # a slice at an end would be a guess
    area = np.concatenate([[0.0], np.cumsum(np.diff(t_s) * running[:-1])])
    means = np.diff(np.interp(edges, t_s, area)) / np.diff(np.clip(edges, t_s[0], t_s[-1]))
    if not means.mean() > 0:
        return None
    x = np.arange(_SLICES) - (_SLICES - 1) / 2
    slope = (x @ means) / (x @ x)
    residual = means - means.mean() - slope * x
    error = np.sqrt((residual @ residual) / (_SLICES - 2) / (x @ x))
    change = abs(slope) * _SLICES / means.mean()
    return Trend(float(change), float(abs(slope) / error) if error > 0 else float(np.inf if slope else 0.0))


def flags(
    steps: pd.DataFrame, window: tuple[float, float] | None, workload: WorkloadConfig, conditions: Conditions
) -> list[str]:
    """Return the flags that hold.

    ``unsteady``: the line changes by more than half of the mean, and by more than four of its standard errors: neither
    a small drift nor the ups and downs of bursty arrivals. What is unknown raises no flag.
    """
    found = trend(steps, window) if workload.arrival.process in _OPEN_LOOPS else None
    jitter_us = conditions.cpu_jitter_us
    held = {
        "heavy_probe": bool(steps["wall_ms"].notna().any()),
        "unsteady": found is not None and found.change > _TREND_CHANGE and found.errors > _TREND_ERRORS,
        "host_jitter": jitter_us is not None and jitter_us > _JITTER_US,
    }
    return [name for name, holds in held.items() if holds]

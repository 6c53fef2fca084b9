"""Engine starts and the calibration in; how the answer moves with what a launch costs the host, measured and simulated.

Measured: each start probes its host, and the calibration tells how much slower each kind of step is in the host's slow
state. Simulated: the modes on a churning load, with the host's time to launch scaled.
"""

from typing import Any

import numpy as np

from artifact.analysis.contrasts.sweep import Sweep
from artifact.analysis.recommend.recommendation import recommend
from artifact.config import load
from artifact.simulator.cost import load_calibration
from artifact.study.grid import saturation_rate

MODEL = "qwen3-0.6b"  # the one that is calibrated
_LOADS = (0.35, 0.6)
_SHORT = ("recommend.seeds=1", "workload.duration_s=8.0")  # one run of a few seconds: a sketch, and said so


def probes(sweep: Sweep) -> dict[str, dict[str, float]]:
    """Return min, median and max of the starts' host probes, by probe; a probe that no start has is left out."""
    found = {}
    for name in ("eager_launch_us", "graph_launch_us"):
        values = sweep.launches[name].dropna().to_numpy(dtype=np.float64)
        if len(values):
            found[name] = {
                "starts": len(values),
                "min": float(values.min()),
                "median": float(np.median(values)),
                "max": float(values.max()),
            }
    return found


def slow_host() -> dict[str, float]:
    """Return how many times longer a step's host time is in the slow state, by kind of step, as calibrated."""
    config = load([f"model={MODEL}"])
    calibration = load_calibration(None, config.hardware, MODEL)
    return {name: table.slow_pace for name, table in calibration.tables.items()}


def sensitivity() -> list[dict[str, Any]]:
    """Return, by load and launch cost, the mode that ``recommend`` takes on the simulator, and its margin.

    Keys: load, launch_us, recommended, margin, interval, margin_against, inconclusive.
    """
    rows = []
    for load_ in _LOADS:
        rate = f"workload.arrival.rate_per_s={load_ * saturation_rate(MODEL):.4g}"
        answer = recommend([f"model={MODEL}", "server=study", "workload=churn", rate, *_SHORT])
        rows += [{"load": load_, **each} for each in answer["sensitivity"]]
    return rows

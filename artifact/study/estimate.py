"""A launch or a schedule in; the seconds and bytes it is expected to take out: estimates, for plans and limits."""

import numpy as np

from artifact.records import Schedule
from artifact.schema import Config, Evidence

# Seconds from forking an engine until its first cell begins, Qwen3-0.6B on one H200 (paper_figures/data): its start
# and 4 s of probes and warm-up. The first FLASHINFER start compiles its kernels besides.
_COLD_START_S = 50.0
_WARM_START_S = 19.0
_FIRST_FLASHINFER_S = 160.0
_DRAIN_S = 5.0
_STEP_S = 0.01  # of a decode step, generously: NONE takes 13 ms, the graphs 2 to 6
_SIM_START_S = 0.5
_SIM_CELL_S = 1.0

_CELL_BYTES = 40_000  # files of their own before they are put together
_REQUEST_BYTES = 120
_STEP_BYTES = 60
_STEPS_PER_S = 300


def start_seconds(config: Config, evidence: Evidence, compiled: set[str]) -> float:
    """Return what a start takes; ``compiled`` holds what an earlier one has left in the caches, and is added to."""
    if evidence is Evidence.SIMULATED:
        return _SIM_START_S
    graphs = f"{config.model.name} {config.mode.name} {config.backend.name} {config.server.model_dump_json()}"
    kernels = config.backend.name
    seconds = _WARM_START_S if graphs in compiled or config.mode.enforce_eager else _COLD_START_S
    if kernels == "FLASHINFER" and kernels not in compiled:
        seconds = _FIRST_FLASHINFER_S
    compiled.update((graphs, kernels))
    return seconds


def serving_seconds(schedule: Schedule) -> float:
    """Return how long an engine that keeps up takes for ``schedule``."""
    if not len(schedule):
        return 0.0
    groups = int(schedule.group[-1]) + 1
    answer_s = float(np.mean(schedule.output_tokens)) * _STEP_S
    if schedule.concurrency is not None:
        return len(schedule) / schedule.concurrency * answer_s
    if groups > 1:
        return groups * answer_s
    return float(schedule.arrival_s[-1]) + answer_s + _DRAIN_S


def cell_seconds(schedule: Schedule, evidence: Evidence) -> float:
    """Return what measuring ``schedule`` takes on the clock of the wall."""
    return _SIM_CELL_S if evidence is Evidence.SIMULATED else serving_seconds(schedule)


def cell_bytes(schedule: Schedule) -> int:
    """Return what the cell's records take on disk: requests, steps and rows, once on their own and once together."""
    steps = serving_seconds(schedule) * _STEPS_PER_S
    return round(_CELL_BYTES + 2 * (len(schedule) * _REQUEST_BYTES + steps * _STEP_BYTES))

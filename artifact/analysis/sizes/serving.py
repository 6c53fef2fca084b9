"""A configuration (a workload or a trace) in; what serving it on the simulator gives, as batches, out.

Short schedules are served over several seeds, a long one in slices spread evenly over it.
"""

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from artifact.analysis.sizes.batches import Batches, Served
from artifact.engines.sim_engine import SimEngine
from artifact.errors import CellFailed, InputError
from artifact.metrics import latency, stability
from artifact.records import Cell, Launch, Schedule
from artifact.schema import Config
from artifact.workloads.build import build, fits

_SHORT_REQUESTS = 2500
_SHORT_SEEDS = 8
_SLICES = 4
_RAMP = 0.2  # of a slice's requests, at its start: batches grow from nothing there
_PROCESSES = 2
_PARALLEL_FROM_STEPS = 400_000  # below, starting processes takes longer than they save
_STEPS_PER_S = 500  # of a busy server, about: a decode step takes 2 ms
_LIMIT_SPANS = 10  # a load that needs more than these times the schedule's length is not sustained


class Job(NamedTuple):
    """What the simulator is to serve, and how many tokens a decoding request would have taken in a step."""

    config: Config
    schedule: Schedule
    query_len: int

    @property
    def steps(self) -> float:
        """How many steps it may take, roughly."""
        tokens = float(self.schedule.output_tokens.sum())
        if self.schedule.concurrency is not None:
            return tokens / self.schedule.concurrency
        span_s = float(self.schedule.arrival_s[-1])
        return min(tokens, span_s * _STEPS_PER_S) if span_s > 0 else tokens


class Wanted(NamedTuple):
    """What stands for one load: ``taken`` of its ``requests``, of all seeds, ``left_out`` being too long."""

    jobs: tuple[Job, ...]
    requests: int
    taken: int
    left_out: int
    seeds: int


def wanted(config: Config, query_len: int) -> Wanted:
    """Return the schedules that stand for ``config.workload``, without the requests that the server does not take.

    Raises InputError as ``build`` and ``fits`` do.
    """
    asked = config.sizes
    first = build(config.workload, 0, config.trace)
    seeds = asked.seeds or (_SHORT_SEEDS if len(first) <= _SHORT_REQUESTS else 1)
    found: list[Job] = []
    requests = left_out = 0
    for seed in range(seeds):
        schedule = first if seed == 0 else build(config.workload, seed, config.trace)
        kept = _servable(schedule, config)
        requests += len(schedule)
        left_out += len(schedule) - len(kept)
        found += [_job(config, part, query_len) for part in _slices(kept, asked.requests)]
    taken = sum(len(job.schedule) for job in found)
    return Wanted(tuple(found), requests, taken, left_out, seeds)


def shifted(config: Config, factor: float) -> Config:
    """Return ``config`` under ``factor`` times the load: its rate, its requests in flight or the size of its bursts."""
    workload, trace = config.workload, config.trace
    arrival = workload.arrival
    if arrival.process == "trace":
        trace = trace.model_copy(update={"speedup": trace.speedup * factor})
    elif arrival.concurrency is not None:
        more = math.ceil(arrival.concurrency * factor)
        requests = math.ceil((workload.requests or 0) * max(factor, 1.0))
        workload = workload.model_copy(
            update={"arrival": arrival.model_copy(update={"concurrency": more}), "requests": requests}
        )
    elif arrival.process == "bursts":
        sizes = tuple(math.ceil(size * factor) for size in arrival.batches or ())
        workload = workload.model_copy(update={"arrival": arrival.model_copy(update={"batches": sizes})})
    else:
        rate = (arrival.rate_per_s or 0.0) * factor
        workload = workload.model_copy(update={"arrival": arrival.model_copy(update={"rate_per_s": rate})})
    return config.model_copy(update={"workload": workload, "trace": trace})


def _servable(schedule: Schedule, config: Config) -> Schedule:
    """Return the requests that the server takes, prompts less what the prefix cache holds."""
    fitting = schedule.prompt_tokens + schedule.output_tokens <= config.server.max_model_len
    if not fitting.any():
        fits(schedule, config.server)
    kept = schedule if fitting.all() else _only(schedule, fitting)
    computed = np.maximum(np.ceil(kept.prompt_tokens * (1 - config.workload.prefix_hit_rate)), 1).astype(np.int64)
    return replace(kept, prompt_tokens=computed)


def _only(schedule: Schedule, chosen: npt.NDArray[np.bool_]) -> Schedule:
    names = ("arrival_s", "prompt_tokens", "output_tokens", "group", "measured")
    return replace(schedule, **{name: getattr(schedule, name)[chosen] for name in names})


def _slices(schedule: Schedule, most: int | None) -> list[Schedule]:
    """Return the schedule, or of a longer one than ``most`` requests slices of as many in all.

    Of an open loop, evenly spread ones whose first requests only fill the batch; of a closed loop or bursts, which
    are alike throughout, the first requests.
    """
    n = len(schedule)
    if most is None or n <= most:
        return [schedule]
    if schedule.concurrency is not None or schedule.group[-1] > 0:
        return [_only(schedule, np.arange(n) < max(most, 3 * (schedule.concurrency or 0)))]
    length = max(most // _SLICES, 1)
    found = []
    for start in np.linspace(0, n - length, _SLICES).astype(int):
        part = _only(schedule, (np.arange(n) >= start) & (np.arange(n) < start + length))
        counts = np.arange(length) >= int(length * _RAMP)
        found.append(replace(part, arrival_s=part.arrival_s - part.arrival_s[0], measured=counts, offered_rate=None))
    return found


def _job(config: Config, schedule: Schedule, query_len: int) -> Job:
    """Return the job; a slice is counted from its own first measured request on."""
    if schedule.offered_rate is None and schedule.concurrency is None and config.workload.duration_s is not None:
        whole = {"duration_s": None, "warmup_s": 0.0, "cooldown_s": 0.0}
        config = config.model_copy(update={"workload": config.workload.model_copy(update=whole)})
    return Job(config, schedule, query_len)


def _served(job: Job) -> Served:
    """Serve one schedule. Raises InputError where the server cannot."""
    config, schedule, query_len = job
    engine = SimEngine()
    limit_s = 60 + _LIMIT_SPANS * max(float(schedule.arrival_s[-1]), 60.0)
    limit_s = limit_s if schedule.concurrency is None and schedule.group[-1] == 0 else math.inf
    try:
        # The same launch id whatever the sizes: the same draws of the host's pace and noise.
        engine.start(Launch("sizes", "sizes", "sizes", "tile", "0", 0, config, (Cell("cell", config, None, 0, 0),)))
        measurement = engine.measure(schedule, limit_s, heavy_probe=True)
    except CellFailed as failure:
        raise InputError(f"mode={config.mode.name.value.lower()} cannot serve this load: {failure.reason}") from None
    _, flags = latency.summarise(measurement.requests, config.workload, schedule.offered_rate)
    steps = stability.inside(measurement.steps, latency.measured_window(measurement.requests, config.workload))
    if steps.empty:
        steps = measurement.steps
    wall_ms = steps["wall_ms"].mean()
    batches = Batches.of_steps(steps, query_len, config.server.max_num_batched_tokens)
    return Served(batches, None if pd.isna(wall_ms) else float(wall_ms), len(steps), "overload" in flags)


class Servers:
    """Serves jobs, in processes of its own where the work is worth it; to be used in a ``with`` statement."""

    def __init__(self, advance: Callable[[float], None] | None = None) -> None:
        """``advance`` is told of each schedule that was served, by ``Job.steps``."""
        self._advance = advance
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def serve(self, loads: Sequence[Wanted]) -> list[Served]:
        """Return what each load's schedules gave together."""
        flat = [job for load in loads for job in load.jobs]
        steps = [job.steps for job in flat]
        workers = min(_PROCESSES, os.cpu_count() or 1)
        if self._pool is None and workers > 1 and sum(steps) >= _PARALLEL_FROM_STEPS:
            self._pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
        served = []
        mapped = map(_served, flat) if self._pool is None else self._pool.map(_served, flat)
        for one, of_job in zip(mapped, steps, strict=True):
            served.append(one)
            if self._advance is not None:
                self._advance(of_job)
        each = iter(served)
        return [_together([next(each) for _ in load.jobs]) for load in loads]


def _together(parts: Sequence[Served]) -> Served:
    steps = sum(part.steps for part in parts)
    times = [(part.step_ms, part.steps) for part in parts if part.step_ms is not None]
    mean_ms = sum(ms * count for ms, count in times) / sum(count for _, count in times) if times else None
    overload = sum(part.overload for part in parts) > len(parts) / 2
    return Served(Batches.merged([part.batches for part in parts]), mean_ms, steps, overload)

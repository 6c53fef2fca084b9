"""A configuration and the modes to compare in; what each gave on one set of simulated schedules out.

Every mode serves the same schedules. A long schedule is served once; what is asked of the model beside that (how far
the calibration's error carries, other launch costs) is asked on its first requests.
"""

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from artifact.analysis.recommend.objectives import Columns, Trial
from artifact.engines.sim_engine import SimEngine
from artifact.errors import CellFailed, InputError
from artifact.graphs.modes import decode_kind, mixed_kind
from artifact.metrics import latency
from artifact.records import Cell, Launch, LaunchFacts, Schedule
from artifact.schema import Config, Mode, ModeConfig
from artifact.simulator.cost import Calibration, StepTable, table_name
from artifact.workloads.build import build, fits

_SHORT_REQUESTS = 2500
_SHORT_SEEDS = 8
_HEAD_REQUESTS = 1000  # of a long schedule
_SIDE_SEEDS = 4  # of what is asked of the model beside the answer
_PARALLEL_FROM_TOKENS = 1_500_000  # below, starting processes takes longer than they save
_PROCESSES = 2
_LIMIT_SPANS = 10  # a mode that needs more than these times the schedule's length does not keep up
_PLAIN = "plain"


class Job(NamedTuple):
    """One mode on one schedule with one calibration, and where its outcome belongs."""

    key: tuple[Mode, str, int]  # mode, variant of the calibration, seed
    config: Config
    schedule: Schedule


class Outcome(NamedTuple):
    """What a job gave: columns of records.CellRow, ``e2e_mean_ms`` and ``kv_tokens``, or why there are none."""

    columns: Columns
    flags: frozenset[str]
    facts: LaunchFacts | None
    warnings: tuple[str, ...]
    reason: str | None


@dataclass(frozen=True)
class Simulated:
    """All outcomes of an answer."""

    trials: tuple[Trial, ...]  # modes whose runs all finished
    first: Mapping[Mode, Outcome]  # of the first seed
    overloaded: frozenset[Mode]
    by_launch_us: Mapping[float, tuple[Trial, ...]]
    seeds: int
    requests: int
    left_out: int  # requests longer than the server takes
    head_requests: int  # of the schedule that stands for a long one in what is asked beside it


def simulate(
    config: Config, modes: Sequence[Mode], calibration: Calibration, advance: Callable[[float], None] | None = None
) -> Simulated:
    """Serve ``config.workload`` in each of ``modes``, on the simulator with ``calibration``.

    ``config`` is what the simulator models: one GPU, no speculation, no adapters. ``advance`` is told the share of
    the work that was done. Raises InputError as ``build`` and ``fits`` do.
    """
    seeds = _seeds(config)
    built = [_schedule(config, seed) for seed in range(seeds)]
    schedules = [schedule for schedule, _ in built]
    heads = [_head(schedule) for schedule in schedules]
    with TemporaryDirectory() as folder:
        files = _variants(calibration, config, Path(folder))

        def job(mode: Mode, variant: str, seed: int, schedule: Schedule) -> Job:
            engine = config.engine.model_copy(update={"calibration": files[variant]})
            update = {"mode": ModeConfig(name=mode), "engine": engine}
            return Job((mode, variant, seed), config.model_copy(update=update), schedule)

        jobs = [job(mode, _PLAIN, seed, each) for seed, each in enumerate(schedules) for mode in modes]
        is_long = len(heads[0]) < len(schedules[0])
        sides = list(enumerate(heads[:1] if is_long else heads[:_SIDE_SEEDS]))
        if is_long:
            jobs += [job(mode, f"{_PLAIN} head", seed, head) for seed, head in sides for mode in modes]
        for variant in files:
            if variant.startswith("slower "):
                moved = [mode for mode in modes if variant.removeprefix("slower ") in _reachable(mode)]
                jobs += [job(mode, variant, seed, head) for seed, head in sides for mode in moved]
            elif variant.startswith("launch "):
                jobs += [job(mode, variant, seed, head) for seed, head in sides for mode in modes]
        outcomes = _run(jobs, advance)
    base = f"{_PLAIN} head" if is_long else _PLAIN
    slower = {variant: variant.removeprefix("slower ") for variant in files if variant.startswith("slower ")}

    def trials(variant: str, count: int) -> tuple[Trial, ...]:
        found = (_trial(outcomes, mode, variant, count, (base, len(sides)), slower) for mode in modes)
        return tuple(trial for trial in found if trial is not None)

    return Simulated(
        trials=trials(_PLAIN, seeds),
        first={mode: outcomes[mode, _PLAIN, 0] for mode in modes},
        overloaded=frozenset(
            mode for mode in modes if sum(_keeps_up(outcomes[mode, _PLAIN, seed]) for seed in range(seeds)) <= seeds / 2
        ),
        by_launch_us={
            us: trials(f"launch {us:g}", len(sides)) for us in config.recommend.launch_us if f"launch {us:g}" in files
        },
        seeds=seeds,
        requests=len(schedules[0]),
        left_out=built[0][1],
        head_requests=len(heads[0]),
    )


def _seeds(config: Config) -> int:
    if config.recommend.seeds is not None:
        return config.recommend.seeds
    return _SHORT_SEEDS if len(build(config.workload, 0, config.trace)) <= _SHORT_REQUESTS else 1


def _schedule(config: Config, seed: int) -> tuple[Schedule, int]:
    """Return the requests that the server takes, prompts less what the prefix cache holds, and how many it refuses."""
    schedule = build(config.workload, seed, config.trace)
    fitting = schedule.prompt_tokens + schedule.output_tokens <= config.server.max_model_len
    if not (fitting & schedule.measured).any():
        fits(schedule, config.server)
        raise InputError("workload: no measured request is left")
    kept = schedule if fitting.all() else _only(schedule, fitting)
    computed = np.maximum(np.ceil(kept.prompt_tokens * (1 - config.workload.prefix_hit_rate)), 1).astype(np.int64)
    return replace(kept, prompt_tokens=computed), int((~fitting).sum())


def _only(schedule: Schedule, chosen: np.ndarray) -> Schedule:
    names = ("arrival_s", "prompt_tokens", "output_tokens", "group", "measured")
    return replace(schedule, **{name: getattr(schedule, name)[chosen] for name in names})


def _head(schedule: Schedule) -> Schedule:
    """Return the first requests of a long schedule; all are measured where too few for a 99th percentile were."""
    if len(schedule) <= _SHORT_REQUESTS:
        return schedule
    head = _only(schedule, np.arange(len(schedule)) < _HEAD_REQUESTS)
    enough = head.measured.sum() >= latency.NEEDS[99]
    return head if enough else replace(head, measured=np.ones(len(head), dtype=bool))


def _variants(calibration: Calibration, config: Config, folder: Path) -> dict[str, str]:
    """Write the calibration as it is, with each kind of step slower, and with other launch costs; return the files.

    The error of a kind of step is taken as a bias of it all: median |error| / 0.6745, the standard deviation of a
    normal distribution with that median. Launch costs scale the time that the host needs to issue a step.
    """
    variants = {_PLAIN: calibration}
    for name, table in calibration.tables.items():
        if name != "EAGER" and table.error_p50 > 0:
            slower = _scaled(table, 1 + table.error_p50 / 0.6745, _costs())
            variants[f"slower {name}"] = calibration.model_copy(update={"tables": calibration.tables | {name: slower}})
    if calibration.graph_launch_us:
        launch = [name for name in _costs() if name.startswith("launch_")]
        for us in config.recommend.launch_us:
            factor = us / calibration.graph_launch_us
            tables = {name: _scaled(table, factor, launch) for name, table in calibration.tables.items()}
            variants[f"launch {us:g}"] = calibration.model_copy(update={"tables": tables})
    files = {f"{_PLAIN} head": str(folder / "0.json")}
    for number, (variant, each) in enumerate(variants.items()):
        files[variant] = str(folder / f"{number}.json")
        Path(files[variant]).write_text(each.model_dump_json())
    return files


def _costs() -> list[str]:
    return [name for name in StepTable.model_fields if "_ms" in name]


def _scaled(table: StepTable, factor: float, names: Sequence[str]) -> StepTable:
    values = {name: getattr(table, name) for name in names}
    scaled = {
        name: tuple(each * factor for each in value) if isinstance(value, tuple) else value * factor
        for name, value in values.items()
    }
    return table.model_copy(update=scaled)


def _reachable(mode: Mode) -> set[str]:
    return {table_name(mode, kind, hollow=False) for kind in (decode_kind(mode), mixed_kind(mode), "NONE")}


def _run(jobs: list[Job], advance: Callable[[float], None] | None) -> dict[tuple[Mode, str, int], Outcome]:
    """Return the outcomes by key; in processes where the work is worth it, the longest jobs first."""
    weights = [
        float(job.schedule.output_tokens.sum()) / (1 if job.key[0].value.startswith("FULL") else 3) for job in jobs
    ]
    order = sorted(range(len(jobs)), key=lambda index: -weights[index])
    total = sum(weights)
    outcomes = {}
    for index, outcome in _finished(jobs, order, total):
        outcomes[jobs[index].key] = outcome
        if advance is not None:
            advance(weights[index] / total)
    return outcomes


def _finished(jobs: list[Job], order: list[int], total: float) -> Iterator[tuple[int, Outcome]]:
    workers = min(_PROCESSES, os.cpu_count() or 1)
    if workers == 1 or total < _PARALLEL_FROM_TOKENS:
        for index in order:
            yield index, _served(jobs[index])
        return
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
    try:
        futures = {pool.submit(_served, jobs[index]): index for index in order}
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _served(job: Job) -> Outcome:
    """Run one job; a mode that cannot serve the load is an outcome, not an error."""
    config, (mode, _, seed) = job.config, job.key
    engine = SimEngine()
    # The same launch id for every mode: the same draws of the host's pace and noise, as far as the steps agree.
    launch = Launch(
        "recommend", "recommend", mode.value, "tile", "0", 0, config, (Cell("cell", config, None, seed, 0),)
    )
    facts = None
    try:
        facts = engine.start(launch)
        limit_s = 60 + _LIMIT_SPANS * max(float(job.schedule.arrival_s[-1]), 60.0)
        limit_s = limit_s if job.schedule.concurrency is None else math.inf
        measurement = engine.measure(job.schedule, limit_s, heavy_probe=False)
    except CellFailed as failure:
        return Outcome({}, frozenset(), facts, tuple(engine.warnings), failure.reason)
    columns, flags = latency.summarise(measurement.requests, config.workload, job.schedule.offered_rate)
    e2e = latency.per_request(measurement.requests)["e2e_s"]
    columns["e2e_mean_ms"] = float(e2e.mean() * 1e3) if len(e2e) else None
    columns["kv_tokens"] = facts.kv_tokens
    return Outcome(columns, frozenset(flags), facts, tuple(engine.warnings), None)


def _keeps_up(outcome: Outcome) -> bool:
    return outcome.reason is None and "overload" not in outcome.flags


def _trial(
    outcomes: Mapping[tuple[Mode, str, int], Outcome],
    mode: Mode,
    variant: str,
    seeds: int,
    base: tuple[str, int],
    slower: Mapping[str, str],
) -> Trial | None:
    """Return a mode's runs; None where one of them did not finish. ``base``: a variant and its number of seeds."""

    def runs(of: str, count: int) -> tuple[Outcome, ...]:
        return tuple(outcomes[mode, of, seed] for seed in range(count))

    own, plain = runs(variant, seeds), runs(*base)
    moved = {kind: runs(each, base[1]) for each, kind in slower.items() if (mode, each, 0) in outcomes}
    if any(outcome.reason for outcome in (*own, *plain, *(each for every in moved.values() for each in every))):
        return None
    facts = own[0].facts
    return Trial(
        mode,
        tuple(run.columns for run in own),
        None if facts is None else facts.graph_bytes,
        None if facts is None else facts.capture_s,
        tuple(run.columns for run in plain),
        {kind: tuple(run.columns for run in each) for kind, each in moved.items()},
    )

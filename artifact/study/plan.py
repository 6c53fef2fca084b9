"""Overrides in; the study's launches in order, each with its cells, seeds and expected minutes, out.

Pure but for ``conf/`` and the trace: the same overrides give the same plan, ids and seeds in every process and on
every machine. Whatever is wrong with any cell is found here, before an engine starts.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from artifact.config import load
from artifact.errors import InputError
from artifact.records import Cell, Launch, LaunchFacts, Schedule
from artifact.schema import Config, Evidence, StudyConfig, TraceConfig, WorkloadConfig
from artifact.study.estimate import cell_bytes, cell_seconds, start_seconds
from artifact.study.grid import Grid, refuse_conflicts
from artifact.study.identity import id_of, identity, seed_of
from artifact.workloads.build import build, fits


@dataclass(frozen=True)
class Plan:
    """A study, ready to run. ``seconds`` holds what each launch is expected to take, by its id.

    ``duplicates`` names, for a launch that would realise the same mode as another arm of its block, that arm: such a
    launch becomes rows with status ``duplicate`` and is not run.
    """

    study: str
    evidence: Evidence
    config: Config  # of the base overrides: executor, tracking, engine
    launches: tuple[Launch, ...]
    seconds: dict[str, float]
    disk_bytes: int
    duplicates: dict[str, str] = field(default_factory=dict)

    @property
    def cells(self) -> int:
        """How many cells are planned."""
        return sum(len(launch.cells) for launch in self.launches)

    @property
    def minutes(self) -> float:
        """How long all launches are expected to take."""
        return sum(self.seconds.values()) / 60

    def arm_that_asks_for(self, launch: Launch, facts: LaunchFacts) -> str | None:
        """Return the arm of the launch's block that asks for what this launch ``realised``, asking for another mode.

        What vLLM changes for reasons that the rules do not know (a pooling model, a KV connector) is found when it has
        started: measuring it again under another name would take time and prove nothing. None where nothing is.
        """
        asked = launch.config.mode.name.value
        if facts.realised_mode in (None, asked):
            return None
        for other in self.launches:
            mode, beside = other.config.mode, (other.block, other.tile) == (launch.block, launch.tile)
            same = launch.config.model_copy(update={"mode": mode})
            if beside and mode.name.value == facts.realised_mode and other.config == same:
                return other.arm
        return None

    def pieces(self) -> list[list[str]]:
        """Return the launch ids in groups that each take at most ``executor.limit_minutes``; one group without it."""
        limit = self.config.executor.limit_minutes
        groups: list[list[str]] = []
        spent = 0.0
        for launch in self.launches:
            minutes = self.seconds[launch.launch_id] / 60
            if not groups or (limit is not None and spent + minutes > limit):
                groups.append([])
                spent = 0.0
            groups[-1].append(launch.launch_id)
            spent += minutes
        return groups


def plan(overrides: Sequence[str], evidence: Evidence, gpu_name: str | None = None) -> Plan:
    """Return the plan of the study that ``overrides`` select, for an engine that gives ``evidence``.

    ``gpu_name`` is NVML's name of the GPU: duplicates are told by ``hardware``, so on a GPU that it does not describe
    none are. Blocks are the outer loop: what stops early has every tile. Raises InputError for an override of what
    the study sets itself, for a cell that cannot run, and for names that cannot be told apart.
    """
    config = load(overrides)
    study = config.study
    if not study.arms or not study.chosen:
        raise InputError(f"study {study.name}: needs at least one arm and one tile")
    refuse_conflicts(overrides, study)
    known_gpu = evidence is Evidence.SIMULATED or gpu_name == config.hardware.full_name
    launches: list[Launch] = []
    seconds: dict[str, float] = {}
    duplicates: dict[str, str] = {}
    compiled: set[str] = set()
    disk_bytes = 0
    grids = [Grid.of(overrides, study, tile) for tile in study.chosen]
    for number in range(study.first_block, study.first_block + study.blocks):
        block = f"{study.block_prefix}{number}"
        for grid in grids:
            copies = grid.duplicates() if known_gpu else {}
            for launch in _block(study, grid, block, number, evidence):
                launches.append(launch)
                if launch.arm in copies:
                    duplicates[launch.launch_id] = copies[launch.arm]
                    seconds[launch.launch_id] = 0.0
                    continue
                schedules = [_schedule(cell) for cell in launch.cells]
                for cell, schedule in zip(launch.cells, schedules, strict=True):
                    _check(cell, schedule, evidence)
                disk_bytes += sum(cell_bytes(schedule) for schedule in schedules)
                start = start_seconds(launch.config, evidence, compiled)
                seconds[launch.launch_id] = start + sum(cell_seconds(schedule, evidence) for schedule in schedules)
    _refuse_repeats(launches)
    _refuse_small_limit(config, seconds)
    return Plan(study.name, evidence, config, tuple(launches), seconds, disk_bytes, duplicates)


def _block(study: StudyConfig, grid: Grid, block: str, number: int, evidence: Evidence) -> Iterator[Launch]:
    """Yield every arm once, in the block's random order."""
    names = list(grid.arms)
    order = np.random.default_rng(seed_of(study.seed, grid.tile.name, block)).permutation(len(names))
    for position, arm in enumerate(names[index] for index in order):
        cells = []
        for config, load_ in grid.arms[arm]:
            # Of the block, workload and load alone: all arms of the block serve the same requests.
            rate = config.workload.arrival.rate_per_s
            seed = seed_of(study.seed, grid.tile.name, block, config.workload.model_dump_json(), load_)
            of_load = f"{load_:g}" if load_ is not None else ("own" if rate is None else f"{rate:.6g}rps")
            readable = [grid.tile.name, block, arm, config.workload.name, of_load]
            cell_id = id_of(readable, identity(config, evidence) | {"seed": seed, "load": load_})
            cells.append(Cell(cell_id, config, load_, seed, number))
        launch_id = id_of([grid.tile.name, block, arm], {"cells": [cell.cell_id for cell in cells]})
        yield Launch(launch_id, study.name, arm, grid.tile.name, block, position, cells[0].config, tuple(cells))


def _schedule(cell: Cell) -> Schedule:
    """Return the cell's schedule, built once for all arms: a trace's does not depend on the seed."""
    is_trace = cell.config.workload.arrival.process == "trace"
    return _built(
        cell.config.workload.model_dump_json(), 0 if is_trace else cell.seed, cell.config.trace.model_dump_json()
    )


@lru_cache(maxsize=64)  # more than the cells of a launch
def _built(workload: str, seed: int, trace: str) -> Schedule:
    return build(WorkloadConfig.model_validate_json(workload), seed, TraceConfig.model_validate_json(trace))


def _check(cell: Cell, schedule: Schedule, evidence: Evidence) -> None:
    """Raise InputError where a request does not fit the server, or the requests do not fit into the time limit."""
    fits(schedule, cell.config.server)
    if cell.config.workload.prefix_hit_rate:
        raise InputError("workload.prefix_hit_rate: a study's prompts are random; `artifact recommend` alone models it")
    limit_s, needed_s = cell.config.engine.cell_limit_s, cell_seconds(schedule, evidence)
    if needed_s > limit_s:
        raise InputError(
            f"engine.cell_limit_s={limit_s:g}: {cell.cell_id} needs about {needed_s:.0f} s; raise it, or shorten "
            "workload.duration_s"
        )


def _refuse_repeats(launches: Sequence[Launch]) -> None:
    """Raise InputError where two launches or cells cannot be told apart: one would take the other's place."""
    names = Counter(
        [*(launch.launch_id for launch in launches), *(c.cell_id for launch in launches for c in launch.cells)]
    )
    repeated = next((name for name, count in names.items() if count > 1), None)
    if repeated is not None:
        raise InputError(
            f"study.tiles: {repeated} is planned twice; give tiles names of their own, and each load and workload once"
        )


def _refuse_small_limit(config: Config, seconds: dict[str, float]) -> None:
    limit = config.executor.limit_minutes
    longest = max(seconds.values()) / 60
    if limit is not None and longest > limit:
        raise InputError(f"executor.limit_minutes={limit:g}: the longest launch needs {longest:.1f}; raise it to that")


def describe(plan: Plan) -> dict[str, Any]:
    """Return the plan as JSON-able values: launches and cells in order, minutes, GPU-minutes, disk, pieces."""
    return {
        "study": plan.study,
        "evidence": plan.evidence.value,
        "cells": plan.cells,
        "minutes": round(plan.minutes, 2),
        "gpu_minutes": round(plan.minutes, 2) if plan.evidence is Evidence.MEASURED else 0.0,
        "disk_bytes": plan.disk_bytes,
        "pieces": plan.pieces(),
        "launches": [
            {
                "launch_id": launch.launch_id,
                "block": launch.block,
                "tile": launch.tile,
                "arm": launch.arm,
                "position": launch.position,
                "minutes": round(plan.seconds[launch.launch_id] / 60, 2),
                "duplicate_of": plan.duplicates.get(launch.launch_id),
                "cells": [
                    {
                        "cell_id": cell.cell_id,
                        "workload": cell.config.workload.name,
                        "load": cell.load,
                        "rate_per_s": cell.config.workload.arrival.rate_per_s,
                        "seed": cell.seed,
                    }
                    for cell in launch.cells
                ],
            }
            for launch in plan.launches
        ],
    }

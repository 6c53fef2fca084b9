"""Overrides in; the study's launches in order, each with its cells, seeds and expected minutes, out.

Pure but for ``conf/`` and the trace: the same overrides give the same plan, ids and seeds in every process and on
every machine. Whatever is wrong with any cell is found here, before an engine starts.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import OmegaConf

from artifact.config import CONF_DIR, load
from artifact.errors import CellFailed, InputError
from artifact.graphs.explain import resolve_config, validate
from artifact.records import Cell, Launch, Schedule
from artifact.schema import Config, Evidence, Mode, StudyConfig, TileConfig, WorkloadConfig
from artifact.study.estimate import cell_seconds, start_seconds
from artifact.workloads.build import build, fits

_OPEN_LOOPS = ("constant", "poisson", "gamma")
_RATE_KEY = "workload.arrival.rate_per_s"
_LONGEST_NAME = 40  # characters of a name within an id: ids are file names


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
    schedules_requests: int
    duplicates: dict[str, str] = field(default_factory=dict)

    @property
    def cells(self) -> int:
        """How many cells are planned."""
        return sum(len(launch.cells) for launch in self.launches)

    @property
    def minutes(self) -> float:
        """How long all launches are expected to take."""
        return sum(self.seconds.values()) / 60

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


def server_hash(config: Config) -> str:
    """Return 8 hex digits over the server's configuration."""
    return _digest(config.server.model_dump(mode="json"))[:8]


def plan(overrides: Sequence[str], evidence: Evidence, gpu_name: str | None = None) -> Plan:
    """Return the plan of the study that ``overrides`` select, for an engine that gives ``evidence``.

    ``gpu_name`` is NVML's name of the GPU: duplicates are told by ``hardware``, so on a GPU that it does not describe
    none are. Blocks are the outer loop: what stops early has every tile. Raises InputError for an override of what
    the study sets itself, for a cell that cannot run, and for names that cannot be told apart.
    """
    config = load(overrides)
    study = config.study
    if not study.arms or not study.tiles:
        raise InputError(f"study {study.name}: needs at least one arm and one tile")
    _refuse_conflicts(overrides, study)
    known_gpu = evidence is Evidence.SIMULATED or gpu_name == config.hardware.full_name
    launches: list[Launch] = []
    seconds: dict[str, float] = {}
    duplicates: dict[str, str] = {}
    compiled: set[str] = set()
    requests = 0
    grids = [_Grid.of(overrides, study, tile) for tile in study.tiles]
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
                    fits(schedule, cell.config.server)
                requests += sum(map(len, schedules))
                start = start_seconds(launch.config, evidence, compiled)
                seconds[launch.launch_id] = start + sum(cell_seconds(schedule, evidence) for schedule in schedules)
    _refuse_repeats(launches)
    _refuse_small_limit(config, seconds)
    return Plan(study.name, evidence, config, tuple(launches), seconds, requests, duplicates)


@dataclass(frozen=True)
class _Grid:
    """A tile, composed: for each arm, the configuration and load of each cell in order."""

    tile: TileConfig
    arms: dict[str, list[tuple[tuple[str, ...], Config, float | None]]]

    @classmethod
    def of(cls, overrides: Sequence[str], study: StudyConfig, tile: TileConfig) -> "_Grid":
        arms = {}
        for arm, arm_overrides in study.arms.items():
            cells = []
            for workload in tile.workloads:
                try:
                    config = load([*overrides, *tile.overrides, *arm_overrides, *workload])
                    validate(config)
                    cells += [(workload, at_load, load_) for at_load, load_ in _loads(tile, config)]
                except InputError as error:
                    raise InputError(f"study {study.name}, tile {tile.name}, arm {arm}: {error}") from None
            if not cells:
                raise InputError(f"study {study.name}, tile {tile.name}: needs at least one workload")
            arms[arm] = cells
        return cls(tile, arms)

    def duplicates(self) -> dict[str, str]:
        """Return the arms whose mode vLLM changes to what another arm, asking for another mode, realises already."""
        seen: dict[str, tuple[str, Mode]] = {}
        found: dict[str, str] = {}
        resolved = {}
        for arm, cells in self.arms.items():
            try:
                resolved[arm] = resolve_config(cells[0][1])
            except CellFailed:
                continue  # vLLM refuses it, which is a result of its own
        # Arms that get what they asked for come first: the changed one is the copy.
        for arm in sorted(resolved, key=lambda arm: resolved[arm].requested is not resolved[arm].resolved):
            result, config = resolved[arm], self.arms[arm][0][1]
            if result.requested is Mode.EAGER:
                continue
            realised = _digest([result.resolved, result.hollow, config.backend.model_dump(), server_hash(config)])
            other, asked = seen.setdefault(realised, (arm, result.requested))
            if asked is not result.requested:
                found[arm] = other
        return found


def _loads(tile: TileConfig, config: Config) -> Iterator[tuple[Config, float | None]]:
    """Yield the configuration at each of the tile's rates; closed loops, bursts and traces have one of their own."""
    if config.workload.arrival.process not in _OPEN_LOOPS or (tile.loads is None and tile.rates_per_s is None):
        yield config, None
    for rate in tile.rates_per_s or ():
        if config.workload.arrival.process in _OPEN_LOOPS:
            yield _at_rate(config, rate), None
    for load_ in tile.loads or ():
        if config.workload.arrival.process in _OPEN_LOOPS:
            yield _at_rate(config, load_ * saturation_rate(config.model.name)), load_


def _at_rate(config: Config, rate_per_s: float) -> Config:
    values = config.workload.model_dump()
    values["arrival"]["rate_per_s"] = rate_per_s
    return config.model_copy(update={"workload": WorkloadConfig.model_validate(values)})


def saturation_rate(model: str, file: Path | None = None) -> float:
    """Return the reference mode's saturation for ``model`` in requests per second, from conf/saturation.yaml."""
    file = file or CONF_DIR / "saturation.yaml"
    entries: Any = OmegaConf.to_container(OmegaConf.load(file)) if file.exists() else {}
    rate = (entries.get(model) or {}).get("rate_per_s")
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < float("inf"):
        raise InputError(
            f"{file.name}: no rate_per_s for model {model}, which study.tiles.loads are fractions of; "
            "measure it and add it, or give the tile rates_per_s"
        )
    return float(rate)


def _block(study: StudyConfig, grid: _Grid, block: str, number: int, evidence: Evidence) -> Iterator[Launch]:
    """Yield every arm once, in the block's random order."""
    names = list(grid.arms)
    order = np.random.default_rng(_seed(study.seed, grid.tile.name, block)).permutation(len(names))
    for position, arm in enumerate(names[index] for index in order):
        cells = []
        for overrides, config, load_ in grid.arms[arm]:
            # Of the block, workload and load alone: all arms of the block serve the same requests.
            rate = config.workload.arrival.rate_per_s
            seed = _seed(study.seed, grid.tile.name, block, overrides, load_, rate)
            of_load = f"{load_:g}" if load_ is not None else ("own" if rate is None else f"{rate:.6g}rps")
            readable = [grid.tile.name, block, arm, config.workload.name, of_load]
            cell_id = _id(readable, _identity(config, evidence) | {"seed": seed, "load": load_})
            cells.append(Cell(cell_id, config, load_, seed, number))
        launch_id = _id([grid.tile.name, block, arm], {"cells": [cell.cell_id for cell in cells]})
        yield Launch(launch_id, study.name, arm, grid.tile.name, block, position, cells[0].config, tuple(cells))


def _identity(config: Config, evidence: Evidence) -> dict[str, object]:
    """Return all that makes a cell's numbers what they are; a change of any of it is another cell."""
    parts: dict[str, object] = config.model_dump(mode="json", include={"mode", "backend", "model", "server", "workload"})
    parts |= {"heavy_probe": config.engine.heavy_probe, "evidence": evidence.value}
    if evidence is Evidence.SIMULATED:
        parts |= {"hardware": config.hardware.gpu, "calibration": config.engine.calibration}
    if config.workload.arrival.process == "trace":
        parts["trace"] = config.trace.model_dump(mode="json", exclude={"path"})
        parts["trace_sha256"] = _file_digest(config.trace.path)
    return parts


def _id(names: Sequence[str], identity: dict[str, object]) -> str:
    readable = "-".join(re.sub(r"[^A-Za-z0-9_.@]+", "_", name)[:_LONGEST_NAME].lstrip(".") for name in names)
    return f"{readable}-{_digest([*names, identity])[:8]}"


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _seed(*parts: object) -> int:
    """Return 32 bits that depend on ``parts`` alone, in every process: Python's own hash does not do that."""
    return int(_digest(parts)[:8], 16)


@cache
def _file_digest(path: str | None) -> str:
    if path is None:
        raise InputError("trace.path: workload=trace needs the trace's file, trace.path=FILE")
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); trace.path names a request trace") from None


def _schedule(cell: Cell) -> Schedule:
    """Return the cell's schedule, built once for all arms: a trace's does not depend on the seed."""
    is_trace = cell.config.workload.arrival.process == "trace"
    return _built(
        cell.config.workload.model_dump_json(), 0 if is_trace else cell.seed, cell.config.trace.model_dump_json()
    )


@cache
def _built(workload: str, seed: int, trace: str) -> Schedule:
    from artifact.schema import TraceConfig

    return build(WorkloadConfig.model_validate_json(workload), seed, TraceConfig.model_validate_json(trace))

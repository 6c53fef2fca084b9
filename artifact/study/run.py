"""A plan and a store in; every planned cell with a row, whatever happened, and a summary out.

A cell that failed becomes a row and the sweep goes on. What is final in the store is not run again, so a run that
was stopped, or killed, goes on where it was; it repeats the cell that was in flight.
"""

import json
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from artifact.engines import nvml
from artifact.engines.base import Engine
from artifact.errors import CellFailed
from artifact.metrics import latency, stability, validity
from artifact.records import Cell, CellRow, Launch, LaunchFacts, LaunchRow, Measurement, Schedule
from artifact.schema import Config, Evidence, Status
from artifact.study.identity import server_hash
from artifact.study.plan import Plan
from artifact.study.progress import StudyProgress
from artifact.study.provenance import collect, host_id
from artifact.study.store import FINAL, Store
from artifact.workloads.build import build

_MEMORY_WAIT_S = 30.0
_MEMORY_SLACK_BYTES = 64 * 2**20
_TABLES_SHARE = 0.05  # of a run's time that putting the tables together may take: with thousands of cells it takes long

EngineFactory = Callable[[Path], Engine]  # given the launch's log
OnLaunch = Callable[[LaunchRow | None, Sequence[CellRow]], object]  # e.g. tracking.Tracker.log


def run(plan: Plan, store: Store, engine_factory: EngineFactory, on_launch: OnLaunch | None = None) -> dict[str, Any]:
    """Run what of ``plan`` has no final row in ``store``; return the summary that ``artifact run --json`` prints.

    Keys: study, results, cells (how many of the plan ended in each status, and ``remaining`` without a row),
    evidence, seconds, ran (cells run by this call), failed (cells that timed out or broke: neither a result nor out
    of memory). ``on_launch`` gets the rows of each launch once they are stored. With ``executor.limit_minutes`` it
    stops before the launch that would end later. Raises InputError where another run holds the folder and
    EnvironmentLacks where the disk takes no more.
    """
    begin = time.monotonic()
    with store.locked():
        pending = _pending(plan, store)
        seconds = sum(plan.seconds[launch.launch_id] for launch, _ in pending)
        with StudyProgress(seconds, len(pending)) as progress:
            if not pending:
                progress.say(f"nothing to do: all {plan.cells} cells of study {plan.study} are in {store.folder}")
            ran = _run_all(_Runner(plan, store, engine_factory, progress), pending, on_launch, begin)
        rows = store.cells()
        ended = Counter(
            rows[cell.cell_id].status for launch in plan.launches for cell in launch.cells if cell.cell_id in rows
        )
    return {
        "study": plan.study,
        "results": str(store.folder),
        "cells": {status.value: ended[status] for status in Status} | {"remaining": plan.cells - ended.total()},
        "evidence": plan.evidence.value,
        "seconds": round(time.monotonic() - begin, 3),
        "ran": ran,
        "failed": ended[Status.TIMEOUT] + ended[Status.ENGINE_ERROR],
    }


def _pending(plan: Plan, store: Store) -> list[tuple[Launch, list[Cell]]]:
    """Return the launches that have cells without a final row, with those cells: the ones never tried first.

    Else a cell that ends its engine every time would keep those behind it from ever being run.
    """
    rows = store.cells()
    failed = {name for name, row in rows.items() if row.status not in (*FINAL, Status.SKIPPED)}
    pending = []
    for launch in plan.launches:
        cells = [cell for cell in launch.cells if cell.cell_id not in rows or rows[cell.cell_id].status not in FINAL]
        if cells:
            pending.append((launch, sorted(cells, key=lambda cell: cell.cell_id in failed)))
    return pending


def _run_all(
    runner: "_Runner", pending: list[tuple[Launch, list[Cell]]], on_launch: OnLaunch | None, begin: float
) -> int:
    limit = runner.plan.config.executor.limit_minutes
    ran = 0
    try:
        for launch, wanted in pending:
            ends_s = time.monotonic() - begin + runner.plan.seconds[launch.launch_id]
            if limit is not None and ran and ends_s > limit * 60:
                runner.progress.say(f"stopped at executor.limit_minutes={limit:g}: the same command goes on from here")
                break
            left = wanted
            while left:
                cells = left
                launch_row, rows = runner.launch(launch, cells)
                runner.write_tables()
                if on_launch is not None:
                    on_launch(launch_row, rows)
                # What ended the engine costs its own cell alone: those behind it get an engine of their own.
                skipped = {row.cell_id for row in rows if row.status is Status.SKIPPED}
                left = [cell for cell in cells if cell.cell_id in skipped]
                if len(left) == len(cells):
                    break
            ran += len(wanted) - len(left)
    finally:
        runner.store.finish()
    return ran


def _started(engine: Engine, launch: Launch) -> tuple[LaunchFacts, Status, str | None]:
    try:
        return engine.start(launch), Status.OK, None
    except CellFailed as failure:
        return LaunchFacts(), Status(failure.status), failure.reason


class _Runner:
    """One run's surroundings; ``launch`` turns a launch into rows that are stored as they come."""

    def __init__(self, plan: Plan, store: Store, engine_factory: EngineFactory, progress: StudyProgress) -> None:
        self.plan = plan
        self.store = store
        self.progress = progress
        self._engine_factory = engine_factory
        self._host_id = host_id()
        self._measured = plan.evidence is Evidence.MEASURED
        self._baseline_bytes = nvml.used_bytes().value if self._measured else None
        self._tables_due_s = 0.0

    def write_tables(self) -> None:
        """Put the small tables together, unless that was done a moment ago; ``Store.finish`` does it at the end."""
        begin = time.monotonic()
        if begin >= self._tables_due_s:
            self.store.write_tables()
            took_s = time.monotonic() - begin
            self._tables_due_s = begin + took_s / _TABLES_SHARE

    def launch(self, launch: Launch, cells: list[Cell]) -> tuple[LaunchRow | None, list[CellRow]]:
        name = f"block {launch.block}, {launch.tile}, {launch.arm}"
        self.progress.launch(name, len(cells))
        share_s = self.plan.seconds[launch.launch_id] / (len(cells) + 1)
        if (other := self.plan.duplicates.get(launch.launch_id)) is not None:
            same = f"would realise the same mode as arm {other}: not run again"
            return None, [self._failed_row(launch, cell, None, Status.DUPLICATE, same) for cell in cells]
        self._wait_for_memory()
        started = datetime.now(UTC)
        provenance = json.dumps(collect(launch.config, started))
        attempt = self._attempt(launch)
        log = self.store.log(attempt)
        with closing(self._engine_factory(log)) as engine:
            facts, status, reason = _started(engine, launch)
            if status is Status.OK and (other := self.plan.arm_that_asks_for(launch, facts)) is not None:
                status, reason = Status.DUPLICATE, f"realised {facts.realised_mode}, as arm {other}: not run again"
            launch_row = self._launch_row(launch, attempt, facts, status, reason, provenance)
            self.store.write_launch(launch_row)
            self.progress.advance(share_s)
            rows = []
            for cell in cells:
                self.progress.now(f"{name}: {cell.config.workload.name}")
                if status is Status.OK:
                    rows.append(self._measure(engine, launch, launch_row, cell, log))
                else:
                    rows.append(self._failed_row(launch, cell, launch_row, status, reason))
                self.progress.advance(share_s)
        for row in rows:
            if row.status not in (Status.OK, Status.DUPLICATE, Status.SKIPPED):
                self.progress.say(f"{row.cell_id}: {row.status.value}: {row.reason}")
        return launch_row, rows

    def _attempt(self, launch: Launch) -> str:
        """Return the id of this engine start: one that is repeated is another start, with a row of its own."""
        names = (launch.launch_id if n == 1 else f"{launch.launch_id}.{n}" for n in count(1))
        return next(name for name in names if not self.store.has_launch(name))

    def _measure(self, engine: Engine, launch: Launch, launch_row: LaunchRow, cell: Cell, log: Path) -> CellRow:
        schedule = build(cell.config.workload, cell.seed, cell.config.trace)
        try:
            measurement = engine.measure(schedule, cell.config.engine.cell_limit_s, cell.config.engine.heavy_probe)
            row = self._ok_row(launch, launch_row, cell, schedule, measurement)
        except CellFailed as failure:
            return self._failed_row(launch, cell, launch_row, Status(failure.status), failure.reason)
        except Exception as error:  # records that make no sense are this cell's failure, not the sweep's
            with log.open("a") as file:
                traceback.print_exc(file=file)
            reason = f"its records cannot be summarised: {type(error).__name__}: {error}".splitlines()[0]
            return self._failed_row(launch, cell, launch_row, Status.ENGINE_ERROR, reason)
        self.store.write_cell(row, measurement)
        return row

    def _ok_row(
        self, launch: Launch, launch_row: LaunchRow, cell: Cell, schedule: Schedule, measurement: Measurement
    ) -> CellRow:
        workload = cell.config.workload
        columns, flags = latency.summarise(measurement.requests, workload, schedule.offered_rate)
        if not columns["n_requests"]:
            raise CellFailed("engine_error", "no measured request finished")
        window = latency.measured_window(measurement.requests, workload)
        flags += validity.flags(measurement.steps, window, workload, measurement.conditions)
        return CellRow.model_validate(
            {
                **self._of_cell(launch, cell, launch_row),
                **columns,
                **stability.summarise(measurement.steps, window),
                **asdict(measurement.conditions),
                "status": Status.OK,
                "seconds": measurement.seconds,
                "flags": ",".join(flags),
            }
        )

    def _failed_row(
        self, launch: Launch, cell: Cell, launch_row: LaunchRow | None, status: Status, reason: str | None
    ) -> CellRow:
        values = self._of_cell(launch, cell, launch_row)
        row = CellRow.model_validate({**values, "status": status, "reason": reason or status.value})
        self.store.write_cell(row)
        return row

    def _of_cell(self, launch: Launch, cell: Cell, launch_row: LaunchRow | None) -> dict[str, Any]:
        values = self._common(launch, cell.config)
        del values["position"]
        if launch_row is not None:
            values |= launch_row.model_dump(include={"launch_id", "gpu_uuid", "resolved_mode", "realised_mode"})
        else:
            values["launch_id"] = launch.launch_id
        return values | {
            "cell_id": cell.cell_id,
            "replicate": cell.replicate,
            "workload": cell.config.workload.name,
            "load": cell.load,
            "seed": cell.seed,
        }

    def _launch_row(
        self, launch: Launch, attempt: str, facts: LaunchFacts, status: Status, reason: str | None, provenance: str
    ) -> LaunchRow:
        return LaunchRow.model_validate(
            {
                **facts.model_dump(),
                **self._common(launch, launch.config),
                "launch_id": attempt,
                "status": status,
                "reason": reason,
                "provenance": provenance,
            }
        )

    def _common(self, launch: Launch, config: Config) -> dict[str, Any]:
        return {
            "study": launch.study,
            "arm": launch.arm,
            "tile": launch.tile,
            "block": launch.block,
            "position": launch.position,
            "evidence": self.plan.evidence,
            "requested_mode": config.mode.name,
            "backend": config.backend.name,
            "model": config.model.name,
            "kv_policy": config.server.kv_policy,
            "server_hash": server_hash(config),
            "host_id": self._host_id,
        }

    def _wait_for_memory(self) -> None:
        """Wait until the GPU's memory is back to what it was before the run; where NVML cannot say, go on."""
        if self._baseline_bytes is None:
            return
        begin = time.monotonic()
        while time.monotonic() - begin < _MEMORY_WAIT_S:
            used = nvml.used_bytes().value
            if used is None or used <= self._baseline_bytes + _MEMORY_SLACK_BYTES:
                return
            time.sleep(0.5)
        self.progress.say(f"GPU memory is still in use {_MEMORY_WAIT_S:g} s after the last launch; going on")

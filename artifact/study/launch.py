"""A launch and the cells to measure in it, in; their rows, each stored as it comes, out.

A cell that fails becomes a row; what concerns every cell (InputError, EnvironmentLacks) is raised.
"""

import json
import time
import traceback
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
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
from artifact.study.store import Store
from artifact.workloads.build import build

_MEMORY_WAIT_S = 30.0
_MEMORY_SLACK_BYTES = 64 * 2**20

EngineFactory = Callable[[Path], Engine]  # given the launch's log


@cache
def _memory_before_bytes() -> float | None:
    """Return what was in use on this process's GPU before its first launch; a later part of a plan asks the same."""
    return nvml.used_bytes().value


def _started(engine: Engine, launch: Launch) -> tuple[LaunchFacts, Status, str | None]:
    try:
        return engine.start(launch), Status.OK, None
    except CellFailed as failure:
        return LaunchFacts(), Status(failure.status), failure.reason


class Runner:
    """One worker's surroundings; ``launch`` turns a launch into rows that are stored as they come.

    ``workers`` is how many the executor lets work at once, this one included: it is part of a launch's provenance.
    """

    def __init__(
        self, plan: Plan, store: Store, engine_factory: EngineFactory, progress: StudyProgress, workers: int = 1
    ) -> None:
        self.plan = plan
        self.store = store
        self.progress = progress
        self._engine_factory = engine_factory
        self._host_id = host_id()
        self._measured = plan.evidence is Evidence.MEASURED
        self._baseline_bytes = _memory_before_bytes() if self._measured else None
        self._where = {"executor": plan.config.executor.kind, "workers": workers}

    def launch(self, launch: Launch, cells: list[Cell]) -> tuple[LaunchRow | None, list[CellRow]]:
        """Start an engine for ``launch``, measure ``cells`` and return what was stored; no row for a duplicate."""
        name = f"block {launch.block}, {launch.tile}, {launch.arm}"
        self.progress.launch(name, len(cells))
        share_s = self.plan.seconds[launch.launch_id] / (len(cells) + 1)
        if (other := self.plan.duplicates.get(launch.launch_id)) is not None:
            same = f"would realise the same mode as arm {other}: not run again"
            return None, [self._failed_row(launch, cell, None, Status.DUPLICATE, same) for cell in cells]
        self._wait_for_memory()
        started = datetime.now(UTC)
        provenance = json.dumps(collect(launch.config, started) | self._where)
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
                at = "" if cell.load is None else f", load {cell.load:g}"
                self.progress.now(f"{name}: {cell.config.workload.name}{at}")
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

"""A plan's pending launches in, whole blocks of a tile out; and such a unit carried out, wherever that is.

All arms of a block and tile stay together, in the plan's order: they are compared with each other, on one GPU.
"""

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from artifact.engines.choose import Choice, choose
from artifact.engines.isolate import Isolated
from artifact.errors import ArtifactError, EnvironmentLacks
from artifact.records import CellRow, Launch, LaunchFacts, LaunchRow
from artifact.schema import Config, Evidence
from artifact.study.doctor import cache_folder
from artifact.study.identity import id_of, server_hash
from artifact.study.launch import Runner
from artifact.study.plan import Plan
from artifact.study.progress import StudyProgress
from artifact.study.run import Pending, expected_seconds, pending, run_launches
from artifact.study.store import Store


@dataclass(frozen=True)
class Unit:
    """All launches of one tile and block, and what a worker has to know besides. It can be sent to any host."""

    name: str
    plan: Plan  # of these launches alone
    cells: frozenset[str]  # without a final row when the unit was made
    seconds: float  # that the launches of those are expected to take
    folder: Path  # of the results; absolute
    work_dir: Path  # that paths in the configuration are relative to
    choice: Choice
    workers: int  # at most at once
    end: float | None  # seconds since the epoch: no launch begins that would end later
    first_always: bool  # but the unit's first, so that every call gets on
    gpu_uuid: str | None  # where its finished cells were measured


def split(plan: Plan, store: Store, choice: Choice, workers: int, end: float | None) -> list[Unit]:
    """Return what of ``plan`` has no final row in ``store`` as units, in the plan's order."""
    todo: dict[tuple[str, str], Pending] = {}
    for launch, cells in pending(plan, store):
        todo.setdefault((launch.block, launch.tile), []).append((launch, cells))
    rows = store.cells()
    units: list[Unit] = []
    for (block, tile), parts in todo.items():
        whole = tuple(launch for launch in plan.launches if (launch.block, launch.tile) == (block, tile))
        gpus = [row.gpu_uuid for name in _cells(whole) if (row := rows.get(name)) and row.gpu_uuid]
        units.append(
            Unit(
                name=id_of([tile, block], {"launches": [launch.launch_id for launch in whole]}),
                plan=replace(plan, launches=whole),
                cells=frozenset(cell.cell_id for _, cells in parts for cell in cells),
                seconds=expected_seconds(plan, parts),
                folder=store.folder.absolute(),
                work_dir=Path.cwd(),
                choice=choice,
                workers=min(workers, len(todo)),
                end=end,
                first_always=not units,
                gpu_uuid=gpus[-1] if gpus else None,
            )
        )
    return units


def _cells(launches: Sequence[Launch]) -> list[str]:
    return [cell.cell_id for launch in launches for cell in launch.cells]


def carry_out(unit: Unit) -> ArtifactError | None:
    """Run what of ``unit`` has no final row, as ``study.run`` does; return the error that concerns every cell, if any.

    Waits for another worker that holds the unit, one of an earlier run whose parent was killed, say; it then finds
    the rows of that one and does only what is left.
    """
    try:
        os.chdir(unit.work_dir)
        if not (unit.folder / ".lock").exists():
            raise EnvironmentLacks(
                f"{unit.folder}: not seen from where the work is done; put executor.results where all nodes see it"
            )
        if unit.choice.evidence is Evidence.MEASURED:
            choose(unit.plan.config.engine)  # the machine that made the plan need not have a GPU: this one must
        store = Store(unit.folder)
        engine_class = unit.choice.engine_class()
        engine = _OneCompiles if unit.choice.evidence is Evidence.MEASURED else Isolated
        with store.unit_locked(unit.name):
            todo = pending(unit.plan, store)
            with StudyProgress(expected_seconds(unit.plan, todo), len(todo)) as progress:
                runner = Runner(
                    unit.plan,
                    store,
                    lambda log: engine(engine_class, unit.choice.preload, log),
                    progress,
                    unit.workers,
                )
                run_launches(runner, todo, _stored, unit.end, unit.first_always)
    except ArtifactError as error:
        return error
    except OSError as error:
        return EnvironmentLacks(f"{error.filename or unit.folder}: {error.strerror or error}")
    return None


def _stored(launch: LaunchRow | None, rows: Sequence[CellRow]) -> None:
    """Nothing: who handed the unit out sees the rows in the store."""


class _OneCompiles(Isolated):
    """An engine whose first start of a configuration waits for another worker's.

    vLLM writes its compile cache file by file and reads whatever is there, so two that start cold together could
    read half of each other's. A cache for each worker would compile everything once a GPU; the waiting costs one cold
    start, and once both have started they never wait again.
    """

    def start(self, launch: Launch) -> LaunchFacts:
        """See ``Engine.start``."""
        with _first_alone(launch.config):
            return super().start(launch)


_started: set[str] = set()  # by this process


@contextmanager
def _first_alone(config: Config) -> Iterator[None]:
    # The lock goes by less than the cache does: what is compiled may be the same for two servers.
    graphs = f"{config.model.name}-{config.mode.name}-{config.backend.name}"
    name = f"{graphs}-{server_hash(config)}"
    if config.mode.enforce_eager or name in _started:
        yield
        return
    folder = cache_folder() / "artifact_locks"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{graphs}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    _started.add(name)

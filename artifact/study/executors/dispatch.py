"""A plan, a store and an executor in; every unit handed out, watched until its end, and a summary out."""

import time
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from typing import Any, Protocol

from artifact.engines.choose import Choice
from artifact.engines.isolate import Isolated
from artifact.errors import ArtifactError
from artifact.records import CellRow
from artifact.schema import Status
from artifact.study.executors.unit import Unit, split
from artifact.study.plan import Plan
from artifact.study.progress import StudyProgress
from artifact.study.run import OnLaunch, Tables, ends_at, nothing_to_do, pending, run, stopped, summary
from artifact.study.store import Marks, Store

_LOOK_S = 0.5
_ARRIVE_S = 60.0  # until rows that another host has written are seen here: file systems cache what a folder holds
_TRIES = 2  # of a unit whose worker dies: the second goes on where the first was


class Executor(Protocol):
    """Where units are carried out; see the package."""

    workers: int

    def add(self, unit: Unit) -> None:
        """Take ``unit``, to be carried out when there is room."""
        ...

    def ended(self, timeout_s: float) -> Iterable[tuple[Unit, ArtifactError | str | None]]:
        """Wait ``timeout_s`` at most and give the units that ended, each with what went wrong."""
        ...

    def close(self) -> None:
        """End what still runs."""
        ...


def execute(plan: Plan, store: Store, choice: Choice, on_launch: OnLaunch | None = None) -> dict[str, Any]:
    """Run what of ``plan`` has no final row in ``store``, where ``executor.kind`` says; return ``study.run.summary``.

    ``on_launch`` gets rows of a launch as they come, in this process. Raises what ``study.run.run`` raises, and
    EnvironmentLacks for a package or GPUs that the executor needs.
    """
    if plan.config.executor.kind == "local":
        engine_class = choice.engine_class()
        return run(plan, store, lambda log: Isolated(engine_class, choice.preload, log), on_launch)
    begin, end = time.monotonic(), ends_at(plan)
    with store.locked(), closing(_executor(plan, store, choice)) as executor:
        marks = store.cell_marks()  # first, so that no row of a worker of an earlier run is missed
        units = split(plan, store, choice, executor.workers, end)
        seconds, launches = sum(unit.seconds for unit in units), len(pending(plan, store))
        with StudyProgress(seconds, launches, max(1, min(executor.workers, len(units)))) as progress:
            if not units:
                progress.say(nothing_to_do(plan, store))
            watch = _Watch(plan, store, units, marks, progress, on_launch)
            try:
                lost = _work(executor, units, watch, progress)
            finally:
                executor.close()
                watch.look()
                store.finish()
            found = summary(plan, store, len(watch.ran), begin)
            if end is not None and found["cells"]["remaining"] and not lost:
                progress.say(stopped(plan))
    return {**found, "failed": found["failed"] + lost}


def _executor(plan: Plan, store: Store, choice: Choice) -> Executor:
    kind, logs = plan.config.executor.kind, store.folder.absolute() / "logs"
    if kind == "gpus":
        from artifact.study.executors.gpus import GpusExecutor

        return GpusExecutor(plan.config.executor, choice.evidence, logs)
    if kind == "slurm":
        from artifact.study.executors.slurm import SlurmExecutor

        return SlurmExecutor(plan.config.executor, choice.evidence, logs, plan.study)
    from artifact.study.executors.ray import RayExecutor

    return RayExecutor(plan.config.executor, choice.evidence)


def _work(executor: Executor, units: list[Unit], watch: "_Watch", progress: StudyProgress) -> int:
    """Hand out ``units`` until all have ended; return how many cells were lost with workers that died twice."""
    left = {unit.name for unit in units}
    deaths: Counter[str] = Counter()
    lost = 0
    for unit in units:
        executor.add(unit)
    while left:
        for unit, failure in executor.ended(_LOOK_S):
            watch.look()
            if isinstance(failure, ArtifactError):
                raise failure
            if failure is not None:
                deaths[unit.name] += 1
                again = deaths[unit.name] < _TRIES
                progress.say(f"{unit.name}: {failure}; {'it goes on' if again else 'given up'}")
                if again:
                    executor.add(unit)
                    continue
                lost += len(unit.cells - watch.seen)
            elif unit.end is None and (missing := watch.missing(unit)):
                progress.say(f"{unit.name}: done, but its rows are not here: all nodes must share executor.results")
                lost += missing
            left.remove(unit.name)
        watch.look()
    return lost


class _Watch:
    """Sees in the store what the workers have done: progress, tables and tracker follow from the rows alone."""

    def __init__(
        self,
        plan: Plan,
        store: Store,
        units: list[Unit],
        marks: Marks,
        progress: StudyProgress,
        on_launch: OnLaunch | None,
    ) -> None:
        self.seen: set[str] = set()  # cells with a new row
        self.ran: set[str] = set()  # those of them that need no other engine
        self._store = store
        self._progress = progress
        self._on_launch = on_launch
        self._tables = Tables(store)
        wanted = frozenset[str]().union(*(unit.cells for unit in units))
        self._launches = {c.cell_id: launch for launch in plan.launches for c in launch.cells if c.cell_id in wanted}
        self._cells = Counter(launch.launch_id for launch in self._launches.values())
        self._seconds = plan.seconds
        self._begun: set[str] = set()
        self._marks = marks

    def look(self) -> None:
        """Take notice of every row that is new, or another, since the last look."""
        marks = self._store.cell_marks()
        news = [name for name in self._launches if name in marks and marks[name] != self._marks.get(name)]
        self._marks = marks
        starts: dict[str, list[CellRow]] = {}
        for name in news:
            row = self._store.cell(name)
            self._tell(row)
            starts.setdefault(row.launch_id, []).append(row)
        if news:
            self._tables.write()
        for launch_id, rows in starts.items():
            if self._on_launch is not None:
                self._on_launch(self._store.launch(launch_id), rows)

    def missing(self, unit: Unit) -> int:
        """Return how many cells of ``unit``, which has ended, have no row even after a while."""
        end = time.monotonic() + _ARRIVE_S
        while (missing := len(unit.cells - self.seen)) and time.monotonic() < end:
            time.sleep(_LOOK_S)
            self.look()
        return missing

    def _tell(self, row: CellRow) -> None:
        launch = self._launches[row.cell_id]
        cells = self._cells[launch.launch_id]
        self.seen.add(row.cell_id)
        if row.status is Status.SKIPPED:
            return  # its launch is begun again for it
        if row.cell_id not in self.ran:
            self.ran.add(row.cell_id)
            self._progress.advance(self._seconds[launch.launch_id] / cells)
        if launch.launch_id not in self._begun:
            self._begun.add(launch.launch_id)
            self._progress.launch(f"block {launch.block}, {launch.tile}, {launch.arm}", cells)
        if row.status not in (Status.OK, Status.DUPLICATE):
            self._progress.say(f"{row.cell_id}: {row.status.value}: {row.reason}")

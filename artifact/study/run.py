"""A plan and a store in; every planned cell with a row, whatever happened, and a summary out.

A cell that failed becomes a row and the sweep goes on. What is final in the store is not run again, so a run that
was stopped, or killed, goes on where it was; it repeats the cell that was in flight.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from artifact.records import Cell, CellRow, Launch, LaunchRow
from artifact.schema import Status
from artifact.study.launch import EngineFactory, Runner
from artifact.study.plan import Plan
from artifact.study.progress import StudyProgress
from artifact.study.store import FINAL, Store

_TABLES_SHARE = 0.05  # of a run's time that putting the tables together may take: with thousands of cells it takes long

OnLaunch = Callable[[LaunchRow | None, Sequence[CellRow]], object]  # e.g. tracking.Tracker.log
Pending = list[tuple[Launch, list[Cell]]]


def run(plan: Plan, store: Store, engine_factory: EngineFactory, on_launch: OnLaunch | None = None) -> dict[str, Any]:
    """Run what of ``plan`` has no final row in ``store``, one launch after the other, in this process; see ``summary``.

    ``on_launch`` gets the rows of each launch once they are stored. With ``executor.limit_minutes`` it
    stops before the launch that would end later. Raises InputError where another run holds the folder and
    EnvironmentLacks where the disk takes no more.
    """
    begin = time.monotonic()
    with store.locked():
        todo = pending(plan, store)
        tables = Tables(store)

        def stored(launch_row: LaunchRow | None, rows: Sequence[CellRow]) -> None:
            tables.write()
            if on_launch is not None:
                on_launch(launch_row, rows)

        with StudyProgress(expected_seconds(plan, todo), len(todo)) as progress:
            if not todo:
                progress.say(nothing_to_do(plan, store))
            try:
                runner = Runner(plan, store, engine_factory, progress)
                ran = run_launches(runner, todo, stored, ends_at(plan))
            finally:
                store.finish()
        return summary(plan, store, ran, begin)


def summary(plan: Plan, store: Store, ran: int, begin: float) -> dict[str, Any]:
    """Return what ``artifact run --json`` prints, after a run that began at ``begin`` on the monotonic clock.

    Keys: study, results, cells (how many of the plan ended in each status, and ``remaining`` without a row),
    evidence, seconds, ran (cells run by this call), failed (cells that timed out or broke: neither a result nor out
    of memory).
    """
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


def nothing_to_do(plan: Plan, store: Store) -> str:
    """Return what to say where every cell has its row."""
    return f"nothing to do: all {plan.cells} cells of study {plan.study} are in {store.folder}"


def pending(plan: Plan, store: Store) -> Pending:
    """Return the launches that have cells without a final row, with those cells: the ones never tried first.

    Else a cell that ends its engine every time would keep those behind it from ever being run.
    """
    rows = store.cells()
    failed = {name for name, row in rows.items() if row.status not in (*FINAL, Status.SKIPPED)}
    found = []
    for launch in plan.launches:
        cells = [cell for cell in launch.cells if cell.cell_id not in rows or rows[cell.cell_id].status not in FINAL]
        if cells:
            found.append((launch, sorted(cells, key=lambda cell: cell.cell_id in failed)))
    return found


def expected_seconds(plan: Plan, todo: Pending) -> float:
    """Return what the plan expects ``todo`` to take, one launch after the other."""
    return sum(plan.seconds[launch.launch_id] for launch, _ in todo)


def ends_at(plan: Plan) -> float | None:
    """Return when a run that begins now is to end by ``executor.limit_minutes``, as seconds since the epoch."""
    limit = plan.config.executor.limit_minutes
    return None if limit is None else time.time() + limit * 60


def run_launches(runner: Runner, todo: Pending, stored: OnLaunch, end: float | None, first_always: bool = True) -> int:
    """Run ``todo`` in order and return how many cells were run; stop before the launch that would end after ``end``.

    ``end`` is seconds since the epoch, one clock for all hosts. The first launch runs whatever it says if
    ``first_always``, so that every call gets on. ``stored`` is told of every engine start.
    """
    ran = 0
    for launch, wanted in todo:
        ends = time.time() + runner.plan.seconds[launch.launch_id]
        if end is not None and (ran or not first_always) and ends > end:
            runner.progress.say(stopped(runner.plan))
            break
        left = wanted
        while left:
            cells = left
            launch_row, rows = runner.launch(launch, cells)
            stored(launch_row, rows)
            # What ended the engine costs its own cell alone: those behind it get an engine of their own.
            skipped = {row.cell_id for row in rows if row.status is Status.SKIPPED}
            left = [cell for cell in cells if cell.cell_id in skipped]
            if len(left) == len(cells):
                break
        ran += len(wanted) - len(left)
    return ran


def stopped(plan: Plan) -> str:
    """Return what to say where the limit ended a run."""
    limit = plan.config.executor.limit_minutes
    return f"stopped at executor.limit_minutes={limit:g}: the same command goes on from here"


class Tables:
    """The store's small tables, put together as rows come, but for no more than a small share of the time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._due_s = 0.0

    def write(self) -> None:
        """Put them together, unless that was done a moment ago; ``Store.finish`` does it at the end."""
        begin = time.monotonic()
        if begin >= self._due_s:
            self._store.write_tables()
            took_s = time.monotonic() - begin
            self._due_s = begin + took_s / _TABLES_SHARE

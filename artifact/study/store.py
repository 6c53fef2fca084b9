"""Finished cells and launches in; a results folder that loses nothing, and frames read from it, out.

``parts/`` holds one JSON row a cell and a launch, and the cell's requests and steps, and its scores where it has any,
each written at once and whole. ``cells``, ``launches``, ``requests`` and ``steps.parquet``, and ``scores.parquet``
where a cell was scored, are put together from the parts.
"""

import fcntl
import os
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from artifact.errors import InputError
from artifact.records import REQUEST_COLUMNS, SCORE_COLUMNS, STEP_COLUMNS, CellRow, LaunchRow, Measurement, typed
from artifact.schema import Status
from artifact.study import parts
from artifact.study.archive import opened
from artifact.study.parts import CELLS, LAUNCHES, REQUESTS, SCORES, STEPS

# What ended so is a result: it is not run again and never gives way to what ended otherwise.
FINAL = (Status.OK, Status.OOM, Status.REFUSED, Status.DUPLICATE)
_RECORDS = {"requests": REQUESTS, "steps": STEPS}
Marks = dict[str, tuple[int, int]]  # by cell id; see Store.cell_marks
_Row = TypeVar("_Row", CellRow, LaunchRow)


class Store:
    """The results of one study in ``folder``. Reading takes no lock; what writes is for the holder of ``locked()``.

    An executor's workers write the parts, too, each for its own unit of the plan and as holder of ``unit_locked``.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._parts = folder / "parts"
        self._units = folder / "units"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for this process. Raises InputError that names the process which holds it already."""
        with ExitStack() as stack:
            with parts.disk_errors(self.folder):
                self.folder.mkdir(parents=True, exist_ok=True)
                lock = stack.enter_context((self.folder / ".lock").open("a+"))
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    lock.seek(0)
                    raise InputError(
                        f"{self.folder}: in use by process {lock.read().strip() or '?'}; "
                        "let it end, or choose another executor.results"
                    ) from None
                lock.truncate(0)
                lock.write(str(os.getpid()))
                lock.flush()
                self._sweep()
            yield

    def _sweep(self) -> None:
        """Remove what killed processes left half written, unless a worker of an earlier run still writes here."""
        with ExitStack() as stack:
            try:
                for name in self._units.glob("*.lock"):
                    fcntl.flock(stack.enter_context(name.open("a")), fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            for left_over in self.folder.rglob(".*.tmp"):
                left_over.unlink(missing_ok=True)

    @contextmanager
    def unit_locked(self, name: str) -> Iterator[None]:
        """Hold one unit of the plan, of which nobody else measures cells meanwhile; waits for who holds it."""
        with ExitStack() as stack:
            with parts.disk_errors(self.folder):
                self._units.mkdir(exist_ok=True)
                lock = stack.enter_context((self._units / f"{name}.lock").open("a"))
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def has_launch(self, launch_id: str) -> bool:
        """Return whether an engine start of that id has a row."""
        return (self._parts / "launches" / f"{launch_id}.json").exists()

    def log(self, launch_id: str) -> Path:
        """Return where an engine start prints to. Raises EnvironmentLacks where the folder for it cannot be made."""
        folder = self.folder / "logs"
        with parts.disk_errors(folder):
            folder.mkdir(exist_ok=True)
        return folder / f"{launch_id}.log"

    def write_launch(self, row: LaunchRow) -> None:
        """Keep one engine start. Raises EnvironmentLacks where the disk takes nothing."""
        self._write_json("launches", row.launch_id, row)

    def write_cell(self, row: CellRow, measurement: Measurement | None = None) -> None:
        """Keep one cell: its records first, its row last, so that a row is never without them."""
        if measurement is not None:
            frames = {"requests": measurement.requests, "steps": measurement.steps, "scores": measurement.scores}
            for kind, frame in frames.items():
                if frame is not None:
                    schema = SCORES if kind == "scores" else _RECORDS[kind]
                    table = parts.records_table(row.cell_id, frame, schema)
                    parts.write_tables(self._parts / kind / f"{row.cell_id}.parquet", schema, iter([table]))
        self._write_json("cells", row.cell_id, row)

    def _write_json(self, kind: str, name: str, row: CellRow | LaunchRow) -> None:
        text = row.model_dump_json()
        parts.write_atomically(self._parts / kind / f"{name}.json", lambda partial: partial.write_text(text))

    def cells(self) -> dict[str, CellRow]:
        """Return every cell that has a row, by id. Raises InputError for a file that is no row."""
        return {row.cell_id: row for row in self._rows("cells", CellRow)}

    def launches(self) -> dict[str, LaunchRow]:
        """Return every engine start, by id. Raises InputError for a file that is no row."""
        return {row.launch_id: row for row in self._rows("launches", LaunchRow)}

    def cell_marks(self) -> Marks:
        """Return, for every cell that has a row, a mark that is another once the row is."""
        with parts.disk_errors(self._parts):
            folder = self._parts / "cells"
            folder.mkdir(parents=True, exist_ok=True)
            with os.scandir(folder) as entries:
                files = [entry for entry in entries if entry.name.endswith(".json")]
            return {file.name.removesuffix(".json"): (file.inode(), file.stat().st_mtime_ns) for file in files}

    def cell(self, cell_id: str) -> CellRow:
        """Return the row of a cell that has one."""
        return CellRow.model_validate_json((self._parts / "cells" / f"{cell_id}.json").read_bytes())

    def launch(self, launch_id: str) -> LaunchRow | None:
        """Return the row of an engine start; None where there was none: a duplicate's."""
        file = self._parts / "launches" / f"{launch_id}.json"
        return LaunchRow.model_validate_json(file.read_bytes()) if file.exists() else None

    def _rows(self, kind: str, row: type[_Row]) -> Iterator[_Row]:
        for file in sorted((self._parts / kind).glob("[!.]*.json"), key=lambda path: path.stem):
            try:
                yield row.model_validate_json(file.read_bytes())
            except ValidationError as error:
                raise InputError(
                    f"{file}: no row of this version ({error.errors()[0]['msg']}); delete it to have it measured again"
                ) from None

    def write_tables(self) -> None:
        """Put cells.parquet and launches.parquet together: small, so after every launch."""
        for name, schema, rows in (("cells", CELLS, self.cells()), ("launches", LAUNCHES, self.launches())):
            values = [row.model_dump(mode="json") for row in rows.values()]
            table = pa.Table.from_pylist(values, schema=schema)
            parts.write_tables(self.folder / f"{name}.parquet", schema, iter([table]))

    def finish(self) -> None:
        """Put all files together; the records a cell at a time, and only if they are of other parts."""
        self.write_tables()
        cells = [cell_id for cell_id, row in self.cells().items() if row.status is Status.OK]
        for kind, schema in _RECORDS.items():
            self._put_together(kind, schema, [self._records(kind, cell_id) for cell_id in cells])
        scored = [file for file in map(self._scores, cells) if file.is_file()]
        if scored:
            self._put_together("scores", SCORES, scored)

    def _put_together(self, kind: str, schema: Any, files: list[Path]) -> None:
        whole = self.folder / f"{kind}.parquet"
        made_of = parts.fingerprint(files)
        if not whole.exists() or parts.made_of(whole) != made_of:
            marked = schema.with_metadata({parts.MADE_OF: made_of})
            parts.write_tables(whole, marked, (pq.read_table(file, schema=schema) for file in files))

    def _scores(self, cell_id: str) -> Path:
        return self._parts / "scores" / f"{cell_id}.parquet"

    def _records(self, kind: str, cell_id: str) -> Path:
        file = self._parts / kind / f"{cell_id}.parquet"
        if not file.is_file():
            raise InputError(
                f"{self.folder}: cell {cell_id} is without its {kind}; delete parts/cells/{cell_id}.json "
                "to have it measured again"
            )
        return file

    def merge(self, other: Path) -> dict[str, int]:
        """Take over the rows of ``other``, a results folder or a tar of one; return how many cells and launches.

        Takes the lock itself. A row that is final here stays; one that is not gives way to one that is. Raises
        InputError, before anything is written, where both hold an ok cell or launch of the same id and other content,
        and for what is no results folder.
        """
        with self.locked(), ExitStack() as stack:
            theirs = Store(opened(other, stack))
            if not theirs._parts.is_dir():
                raise InputError(f"{other}: no results folder of `run` (it has no parts/)")
            cells, launches = theirs._news_for(self)
            for launch in launches:
                self.write_launch(launch)
            for cell in cells:
                self.write_cell(cell, theirs._measurement(cell) if cell.status is Status.OK else None)
            self.finish()
        return {"cells": len(cells), "launches": len(launches)}

    def _news_for(self, ours: "Store") -> tuple[list[CellRow], list[LaunchRow]]:
        mine, known = ours.cells(), ours.launches()
        for kind, theirs, here in (("cell", self.cells(), mine), ("launch", self.launches(), known)):
            for name, row in theirs.items():
                other = here.get(name)
                if other is not None and other != row and other.status is row.status is Status.OK:
                    raise InputError(f"{self.folder}: {kind} {name} is in {ours.folder} with other numbers; keep one")
        cells = [
            row
            for name, row in self.cells().items()
            if name not in mine or (row.status in FINAL and mine[name].status not in FINAL)
        ]
        launches = [row for name, row in self.launches().items() if name not in known]
        return cells, launches

    def _measurement(self, cell: CellRow) -> Measurement:
        frames = [self._records(kind, cell.cell_id) for kind in _RECORDS]
        requests, steps = (parts.to_frame(pq.read_table(file)) for file in frames)
        scored = self._scores(cell.cell_id)
        scores = typed(parts.to_frame(pq.read_table(scored)), SCORE_COLUMNS) if scored.is_file() else None
        return Measurement(
            typed(requests, REQUEST_COLUMNS), typed(steps, STEP_COLUMNS), cell.seconds or 0.0, scores=scores
        )


def _read(folder: Path, name: str, schema: Any, cells: Collection[str] | None = None) -> pd.DataFrame:
    file = folder / f"{name}.parquet"
    wanted = None if cells is None else [("cell_id", "in", list(cells))]
    try:
        return parts.to_frame(pq.read_table(file, schema=schema, filters=wanted))
    except FileNotFoundError:
        raise InputError(f"{file}: does not exist; run the study first, or name a results folder") from None
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"{file}: cannot be read ({str(error).splitlines()[0]})") from None


def read_cells(folder: Path) -> pd.DataFrame:
    """Return cells.parquet of ``folder``, a row a cell (records.CellRow). Raises InputError where there is none."""
    return _read(folder, "cells", CELLS)


def read_launches(folder: Path) -> pd.DataFrame:
    """Return launches.parquet of ``folder``, a row an engine start (records.LaunchRow). Raises InputError."""
    return _read(folder, "launches", LAUNCHES)


def read_requests(folder: Path, cells: Collection[str] | None = None) -> pd.DataFrame:
    """Return ``cell_id`` and records.REQUEST_COLUMNS of ``cells`` (all of them if null). Raises InputError."""
    return _typed(_read(folder, "requests", REQUESTS, cells), REQUEST_COLUMNS)


def read_steps(folder: Path, cells: Collection[str] | None = None) -> pd.DataFrame:
    """Return ``cell_id`` and records.STEP_COLUMNS of ``cells`` (all of them if null). Raises InputError."""
    return _typed(_read(folder, "steps", STEPS, cells), STEP_COLUMNS)


def read_scores(folder: Path, cells: Collection[str] | None = None) -> pd.DataFrame:
    """Return ``cell_id`` and records.SCORE_COLUMNS of ``cells`` (all of them if null); no rows where none was scored.

    Raises InputError for a file that cannot be read.
    """
    if not (folder / "scores.parquet").exists():
        return typed(pd.DataFrame(), {"cell_id": "string", **SCORE_COLUMNS})
    return _typed(_read(folder, "scores", SCORES, cells), SCORE_COLUMNS)


def _typed(frame: pd.DataFrame, columns: dict[str, str]) -> pd.DataFrame:
    return typed(frame, {"cell_id": "string", **columns})

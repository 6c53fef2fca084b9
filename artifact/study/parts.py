"""Rows and frames in; files that are whole or absent, whatever happens, and their Parquet schemas, out."""

import hashlib
import os
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from artifact.errors import EnvironmentLacks
from artifact.records import REQUEST_COLUMNS, SCORE_COLUMNS, STEP_COLUMNS, CellRow, LaunchRow

_ARROW_OF_PYTHON = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
_ARROW_OF_PANDAS = {
    "int64": pa.int64(),
    "Int64": pa.int64(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "string": pa.string(),
}
_PANDAS_OF_ARROW = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype(), pa.string(): pd.StringDtype()}


def _arrow_type(annotation: Any) -> Any:
    """Return the column type of a row's field: ``X | None`` is X, enumerations and literals are text."""
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        [annotation] = [part for part in typing.get_args(annotation) if part is not type(None)]
    if typing.get_origin(annotation) is typing.Literal or issubclass(annotation, Enum):
        return pa.string()
    return _ARROW_OF_PYTHON[annotation]


def _of_row(row: type[CellRow] | type[LaunchRow]) -> Any:
    return pa.schema([(name, _arrow_type(field.annotation)) for name, field in row.model_fields.items()])


def _of_frame(columns: dict[str, str]) -> Any:
    return pa.schema([("cell_id", pa.string()), *((name, _ARROW_OF_PANDAS[dtype]) for name, dtype in columns.items())])


# The same whatever the rows hold: an empty file and a column of nulls keep their types.
CELLS = _of_row(CellRow)
LAUNCHES = _of_row(LaunchRow)
MADE_OF = b"made_of"
REQUESTS = _of_frame(REQUEST_COLUMNS)
STEPS = _of_frame(STEP_COLUMNS)
SCORES = _of_frame(SCORE_COLUMNS)


def records_table(cell_id: str, frame: pd.DataFrame, schema: Any) -> Any:
    """Return a cell's requests, steps or scores as a table with ``schema``."""
    return pa.Table.from_pandas(frame.assign(cell_id=cell_id), schema=schema, preserve_index=False)


def to_frame(table: Any) -> pd.DataFrame:
    """Return ``table`` with nullable dtypes for whole numbers, booleans and text; floats are float64 with NaN."""
    frame: pd.DataFrame = table.to_pandas(types_mapper=_PANDAS_OF_ARROW.get)
    return frame


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn a full or read-only disk into EnvironmentLacks, one line."""
    try:
        yield
    except OSError as error:
        raise EnvironmentLacks(
            f"{path}: cannot be written ({error.strerror or error}); free space, or choose another executor.results"
        ) from None


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a file beside ``path``, put it on the disk, and only then give it its name.

    Raises EnvironmentLacks where the folder cannot be written.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            write(partial)
            _sync(partial)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
        _sync(path.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fingerprint(files: Sequence[Path]) -> bytes:
    """Return what tells these files from other or changed ones; no comparison of times, since clocks can go back."""
    stats = [(file.name, file.stat()) for file in files]
    text = repr([(name, stat.st_size, stat.st_mtime_ns, stat.st_ino) for name, stat in stats])
    return hashlib.sha256(text.encode()).hexdigest().encode()


def made_of(path: Path) -> bytes | None:
    """Return the fingerprint that was written into the Parquet file at ``path``; None without or where it is broken."""
    try:
        metadata: dict[bytes, bytes] = pq.read_schema(path).metadata or {}
    except (pa.ArrowInvalid, OSError):
        return None
    return metadata.get(MADE_OF)


def write_tables(path: Path, schema: Any, tables: Iterator[Any]) -> None:
    """Write ``tables`` one after the other to one Parquet file, with no more than one in memory."""

    def write(partial: Path) -> None:
        with pq.ParquetWriter(partial, schema, compression="zstd") as writer:
            for table in tables:
                if table.num_rows:
                    writer.write_table(table.cast(schema))

    write_atomically(path, write)

"""Rows of the store in, MLflow runs out: a parent run for each study, a child run for each cell.

MLflow is a view: the Parquet files are the truth, and ``sync`` rebuilds any tracker from them. A tracker that fails
gives one warning line and is left alone for the rest of the run.
"""

import fcntl
import hashlib
import json
import logging
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from artifact.errors import ArtifactError, InputError
from artifact.records import CellRow, LaunchRow
from artifact.schema import TrackingConfig

# Of the plan, so that they never change: MLflow refuses a second value.
_PLACE = ("arm", "tile", "block", "replicate", "seed")
_PARAMS = ("requested_mode", "backend", "model", "workload", "load", "kv_policy", "server_hash", *_PLACE)
_OUTCOME = ("status", "reason", "flags", "resolved_mode", "realised_mode", "evidence")
_TAGS = ("cell_id", "study", "launch_id", "host_id", "gpu_uuid", *_OUTCOME)
_LAUNCH_TAGS = ("gpu_name", "attention_backend", "compile_cache")
_LIMIT = 500  # characters of a parameter or tag, the tightest of MLflow's limits; what is longer becomes an artifact
_DIGEST = "row_digest"

Row = Mapping[str, Any]


class TrackingFailed(ArtifactError):
    """The tracker could not be reached or did not take a run; nothing of the results is lost."""


def _say(line: str) -> None:
    print(line, file=sys.stderr)


def _client(uri: str) -> Any:
    """Return an MlflowClient for ``uri``: quiet, quick to give up, and sending usage data to nobody."""
    for key, value in (
        ("MLFLOW_DISABLE_TELEMETRY", "true"),
        ("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1"),  # its default waits minutes for a dead server
        ("MLFLOW_HTTP_REQUEST_TIMEOUT", "10"),
    ):
        os.environ.setdefault(key, value)
    from mlflow import MlflowClient

    for name in ("alembic", "mlflow"):
        logging.getLogger(name).setLevel(logging.ERROR)  # after the import, which sets levels of its own
    return MlflowClient(tracking_uri=uri)


@contextmanager
def _reported() -> Iterator[None]:
    """Turn what MLflow, its database and its HTTP client raise into TrackingFailed, one line."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError, OSError) as error:
        lines = str(error).splitlines() or [type(error).__name__]
        text = re.sub(r"//[^/@\s]+@", "//", lines[0])  # a server's address can carry a password
        raise TrackingFailed(f"tracking: {text[:300]}; the results are safe, `artifact sync` fills it in") from None


def database(results: Path) -> Path:
    """Return the SQLite file of ``results``, the folder that holds one folder a study."""
    return results.absolute() / "mlflow.db"


def tracking_uri(config: TrackingConfig, results: Path) -> str:
    """Return MLflow's tracking URI. Raises InputError for ``off`` and for a server without a URI."""
    if config.kind == "off":
        raise InputError("tracking=off: there is no tracker; choose tracking=sqlite or tracking=server")
    if config.uri is None and config.kind == "server":
        raise InputError("tracking.uri: tracking=server needs the server's address, e.g. http://127.0.0.1:5000")
    return config.uri or f"sqlite:///{database(results)}"


def _plain(row: CellRow | LaunchRow | Row) -> Row:
    return row if isinstance(row, Mapping) else row.model_dump(mode="json")


def _numbers(row: Row, skip: Iterable[str], prefix: str = "") -> dict[str, float]:
    """Return the numeric columns that have a finite value; MLflow draws NaN and infinity as numbers."""
    kept = {key: value for key, value in row.items() if isinstance(value, int | float) and key not in skip}
    return {prefix + key: float(value) for key, value in kept.items() if math.isfinite(value)}


def _digest(*rows: Row) -> str:
    """Return a hash of the rows' values, the same for a row from memory and from Parquet (3 and 3.0, null and NaN)."""

    def value(raw: Any) -> Any:
        if not isinstance(raw, int | float):
            return raw
        return float(raw) if math.isfinite(raw) else None

    plain = [{key: value(raw) for key, raw in row.items() if value(raw) is not None} for row in rows]
    return hashlib.sha256(json.dumps(plain, sort_keys=True, default=str).encode()).hexdigest()


def _texts(row: Row, names: Iterable[str]) -> dict[str, str]:
    return {name: str(row[name]) for name in names if row.get(name) not in (None, "")}


class Tracker:
    """Logs cells to MLflow as they end. With ``tracking=off`` every call does nothing.

    ``folder`` is the study's folder, ``results/<study>``. ``warn`` is told once if the tracker fails; after that
    the tracker is left alone, so that a dead server costs one timeout and not one a cell.
    """

    def __init__(self, config: TrackingConfig, folder: Path, warn: Callable[[str], None] = _say) -> None:
        self._writer: _Writer | None = None
        self._warn = warn
        if config.kind != "off":
            self._attempt(lambda: self._open(config, folder))

    def _open(self, config: TrackingConfig, folder: Path) -> None:
        self._writer = _Writer(config, folder)

    def _attempt(self, action: Callable[[], object]) -> None:
        try:
            action()
        except TrackingFailed as error:
            self._warn(str(error))
            self._writer = None

    def log(self, launch: LaunchRow | None, cells: Iterable[CellRow]) -> None:
        """Log ``cells``, which ``launch`` served (null where there was none); never raises for the tracker's sake."""
        writer = self._writer
        if writer is not None:
            self._attempt(lambda: [writer.cell(_plain(cell), _plain(launch) if launch else {}) for cell in cells])

    def close(self) -> None:
        """Add the study's figures, if there are any, and mark its run as finished."""
        writer = self._writer
        if writer is not None:
            self._attempt(writer.finish)


def sync(folder: Path, config: TrackingConfig) -> dict[str, int]:
    """Make the tracker agree with the store in ``folder`` and return ``{"new", "updated", "unchanged"}`` cells.

    May run any number of times: a cell whose row is there already is left alone, one whose row has changed is
    replaced. Raises InputError for a folder without cells, TrackingFailed if the tracker does not take them.
    """
    tracking_uri(config, folder.parent)
    if not (folder / "cells.parquet").is_file():
        raise InputError(f"{folder}: has no cells.parquet; run the study first, or name its folder")
    cells = pq.read_table(folder / "cells.parquet").to_pylist()
    launches: dict[str, Row] = {}
    if (folder / "launches.parquet").is_file():
        launches = {row["launch_id"]: row for row in pq.read_table(folder / "launches.parquet").to_pylist()}
    writer = _Writer(config, folder)
    count = {"new": 0, "updated": 0, "unchanged": 0}
    for cell in cells:
        count[writer.cell(cell, launches.get(cell["launch_id"], {}))] += 1
    writer.finish()
    return count


class _Writer:
    """The MLflow side: raises TrackingFailed for whatever goes wrong there."""

    def __init__(self, config: TrackingConfig, folder: Path) -> None:
        self._folder = folder
        self._study = folder.name
        self._known: dict[str, tuple[str, str]] = {}  # cell_id -> run id, digest
        self._launches: set[str] = set()
        uri = tracking_uri(config, folder.parent)
        with _reported(), _first_use(folder.parent if config.kind == "sqlite" else None):
            self._client = _client(uri)
            self._experiment = self._find_experiment(config, folder.parent)
            self._parent = self._find_parent()
            for run in self._search(f"tags.study = '{self._study}' and tags.role = 'cell'"):
                self._known[run.data.tags["cell_id"]] = (run.info.run_id, run.data.tags.get(_DIGEST, ""))

    def _find_experiment(self, config: TrackingConfig, results: Path) -> str:
        place = (results.absolute() / "mlflow-artifacts").as_uri() if config.kind == "sqlite" else None
        found = self._client.get_experiment_by_name(config.experiment)
        if found is None:
            return str(self._client.create_experiment(config.experiment, artifact_location=place))
        if place is not None and config.uri is None and found.artifact_location != place:
            where = database(results)
            raise OSError(f"{where} was made for {found.artifact_location}: remove it, it is rebuilt from the store")
        return str(found.experiment_id)

    def _search(self, filter_string: str) -> Iterator[Any]:
        token = None
        while True:
            page = self._client.search_runs(
                [self._experiment], filter_string=filter_string, max_results=1000, page_token=token
            )
            yield from page
            token = page.token
            if not token:
                return

    def _find_parent(self) -> str:
        for run in self._search(f"tags.study = '{self._study}' and tags.role = 'study'"):
            return str(run.info.run_id)
        tags = {"study": self._study, "role": "study"}
        return str(self._client.create_run(self._experiment, tags=tags, run_name=self._study).info.run_id)

    def cell(self, cell: Row, launch: Row) -> str:
        """Log one cell; return ``new``, ``updated`` or ``unchanged``."""
        digest = _digest(cell, launch)
        run_id, known = self._known.get(cell["cell_id"], (None, None))
        if known == digest:
            return "unchanged"
        with _reported():
            if run_id is not None:
                self._client.delete_run(run_id)
            self._known[cell["cell_id"]] = (self._create(cell, launch, digest), digest)
            self._provenance(launch)
        return "new" if run_id is None else "updated"

    def _create(self, cell: Row, launch: Row, digest: str) -> str:
        from mlflow.entities import Metric, Param, RunTag

        params = _texts(cell, _PARAMS)
        tags = {**_texts(cell, _TAGS), **_texts(launch, _LAUNCH_TAGS)}
        long = {name: text for name, text in {**params, **tags}.items() if len(text) > _LIMIT}
        tags |= {"role": "cell", "mlflow.parentRunId": self._parent}
        name = f"{cell['arm']} {cell['workload']} {cell['block']}"
        run = self._client.create_run(self._experiment, tags={"study": self._study}, run_name=name)
        metrics = _numbers(cell, _PARAMS) | _numbers(launch, ("position",), prefix="launch.")
        self._client.log_batch(
            run.info.run_id,
            metrics=[Metric(key, value, run.info.start_time, 0) for key, value in metrics.items()],
            params=[Param(key, value[:_LIMIT]) for key, value in params.items()],
            tags=[RunTag(key, value[:_LIMIT]) for key, value in tags.items()],
        )
        if long:
            self._client.log_dict(run.info.run_id, long, "long_values.json")
        self._client.set_terminated(run.info.run_id, "FINISHED" if cell["status"] in _ENDED_WELL else "FAILED")
        # Last, so that a run that was cut off halfway is replaced by the next sync.
        self._client.set_tag(run.info.run_id, _DIGEST, digest)
        return str(run.info.run_id)

    def _provenance(self, launch: Row) -> None:
        if launch and launch["launch_id"] not in self._launches:
            self._client.log_text(self._parent, launch["provenance"], f"provenance/{launch['launch_id']}.json")
            self._launches.add(launch["launch_id"])

    def finish(self) -> None:
        """Add the figures and mark the study's run as finished."""
        with _reported():
            if (self._folder / "figures").is_dir():
                self._client.log_artifacts(self._parent, str(self._folder / "figures"), "figures")
            self._client.set_terminated(self._parent, "FINISHED")


_ENDED_WELL = ("ok", "duplicate", "skipped")


@contextmanager
def _first_use(results: Path | None) -> Iterator[None]:
    """Let one process at a time make or open the database: two that create its tables at once both fail."""
    if results is None:
        yield
        return
    results.mkdir(parents=True, exist_ok=True)
    with (results / ".mlflow.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield

"""A tracker in; the command that serves its pages, and where on them the runs are, out."""

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from artifact.errors import InputError
from artifact.schema import Config
from artifact.study.tracking import database, tracking_uri

# Neither the server nor the browser sends usage data, and no job runner starts beside it: there are no jobs.
ENVIRONMENT = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
PORT = 5000


def ui_command(config: Config, port: int = PORT) -> list[str]:
    """Return the command that serves MLflow's pages for ``config`` on 127.0.0.1 alone.

    Raises InputError for ``tracking=off``, for a server, which has its own pages, and where nothing was tracked yet.
    """
    results = Path(config.executor.results)
    uri = tracking_uri(config.tracking, results)
    if config.tracking.kind == "sqlite" and config.tracking.uri is None and not database(results).is_file():
        raise InputError(f"{database(results)}: not there yet; `artifact run` makes it, `artifact sync` rebuilds it")
    if config.tracking.kind == "server":
        raise InputError(f"tracking=server has its own pages: open {uri}")
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)]
    return [*command, "--workers", "1", "--backend-store-uri", uri]


def runs_page(config: Config, port: int = PORT) -> str:
    """Return the address of the experiment's runs: MLflow's first page shows what it has for language models.

    Where the database does not tell the experiment's number, the address of the list of experiments.
    """
    base = f"http://127.0.0.1:{port}/#/experiments"
    file = database(Path(config.executor.results))
    try:
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as connection:
            query = "SELECT experiment_id FROM experiments WHERE name = ?"
            found = connection.execute(query, (config.tracking.experiment,)).fetchone()
    except sqlite3.Error:
        found = None
    return f"{base}/{found[0]}/runs" if found else base

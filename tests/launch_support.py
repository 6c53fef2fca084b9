"""Made-up engine starts and cells of round numbers, as the store would hold them: for tests of what is derived."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from artifact.config import load
from artifact.records import REQUEST_COLUMNS, CellRow, LaunchRow, typed
from artifact.study import parts

H200 = "NVIDIA H200"


def launch(number: int, mode: str, overrides: Sequence[str] = (), **changes: Any) -> LaunchRow:
    """Return start ``number`` (unique) of ``mode``, ready in 12 s, measured; started number minutes past the hour."""
    config = load([f"mode={mode.lower()}", *overrides])
    config_dump = config.model_dump(mode="json", exclude={"tracking", "executor"})
    provenance = {"config": config_dump, "started": f"2026-01-01T10:{number:02d}:00+00:00"}
    values: dict[str, Any] = {
        "launch_id": f"launch-{number}",
        "study": "made_up",
        "arm": mode,
        "tile": "tile",
        "block": "0",
        "position": 0,
        "evidence": "measured",
        "status": "ok",
        "requested_mode": mode,
        "resolved_mode": mode if mode != "EAGER" else "NONE",
        "realised_mode": mode,
        "hollow": False,
        "backend": config.backend.name,
        "attention_backend": "FLASH_ATTN (FA3)" if config.backend.name == "FLASH_ATTN" else config.backend.name,
        "model": config.model.name,
        "kv_policy": config.server.kv_policy,
        "server_hash": "00000000",
        "host_id": "host",
        "gpu_uuid": "GPU-1",
        "gpu_name": H200,
        "compile_cache": "warm",
        "start_s": 12.0,
        "load_s": 2.0,
        "compile_s": 4.0,
        "profile_s": 2.0,
        "capture_s": 3.0,
        "unexplained_s": 1.0,
        "first_answer_s": 0.1,
        "capture_sizes": 0 if mode in ("NONE", "EAGER") else 51,
        "graphs_piecewise": 0,
        "graphs_full": 0 if mode in ("NONE", "EAGER", "PIECEWISE") else 51,
        "memory_valid": True,
        "provenance": json.dumps(provenance),
    }
    return LaunchRow.model_validate(values | changes)


def cell(number: int, launch_row: LaunchRow, **changes: Any) -> CellRow:
    """Return cell ``number`` (unique) of ``launch_row``: churn at 40 requests/s, finished without a flag."""
    shared = ("study", "arm", "tile", "block", "launch_id", "host_id", "kv_policy", "server_hash", "evidence")
    shared += ("requested_mode", "resolved_mode", "realised_mode", "backend", "model", "gpu_uuid")
    values: dict[str, Any] = {
        **launch_row.model_dump(include=set(shared)),
        "cell_id": f"cell-{number}",
        "replicate": 0,
        "workload": "churn",
        "seed": int(launch_row.block),
        "status": "ok",
        "offered_rate": 40.0,
    }
    return CellRow.model_validate(values | changes)


def frame(rows: Iterable[LaunchRow] | Iterable[CellRow]) -> pd.DataFrame:
    """Return the rows as the store reads them."""
    return parts.to_frame(_table(list(rows)))


def _table(rows: Sequence[LaunchRow | CellRow]) -> Any:
    schema = parts.LAUNCHES if isinstance(rows[0], LaunchRow) else parts.CELLS
    return pa.Table.from_pylist([row.model_dump(mode="json") for row in rows], schema=schema)


def write(folder: Path, launches: Sequence[LaunchRow], cells: Sequence[CellRow], e2e_s: dict[str, float]) -> Path:
    """Write a results folder; every cell of ``e2e_s`` has 4 requests that end so long after they were due."""
    folder.mkdir(parents=True)
    for name, rows in (("launches", launches), ("cells", cells)):
        pq.write_table(_table(list(rows)), folder / f"{name}.parquet")
    tables = [parts.records_table(name, _requests(seconds), parts.REQUESTS) for name, seconds in e2e_s.items()]
    pq.write_table(pa.concat_tables(tables) if tables else parts.REQUESTS.empty_table(), folder / "requests.parquet")
    return folder


def _requests(e2e_s: float) -> pd.DataFrame:
    due = np.arange(4.0)
    values = {
        "request": range(4),
        "intended_s": due,
        "sent_s": due,
        "first_token_s": due + e2e_s / 2,
        "last_token_s": due + e2e_s,
        "prompt_tokens": 10,
        "planned_output_tokens": 10,
        "output_tokens": 10,
        "measured": [False, True, True, True],
        "failure": None,
    }
    values["last_token_s"] = np.where(due == 0, due + 99.0, values["last_token_s"])  # not measured: must not count
    return typed(pd.DataFrame(values), REQUEST_COLUMNS)

"""A folder of studies in; the cells and engine starts of all of them, with what the starts' provenance says, out."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from artifact.errors import InputError
from artifact.metrics.memory import believed
from artifact.schema import Evidence, ModelConfig
from artifact.study.store import read_cells, read_launches

# Of the server's configuration: what decides over memory, but for the capture sizes, in which arms may differ.
_MEMORY_KEYS = (
    "max_num_seqs",
    "max_num_batched_tokens",
    "max_model_len",
    "gpu_memory_utilization",
    "num_gpu_blocks_override",
    "block_size",
)


class Rows(NamedTuple):
    """Cells (records.CellRow) and engine starts (records.LaunchRow and the columns of ``described``).

    Whatever they ended in; all of one kind of evidence.
    """

    cells: pd.DataFrame
    launches: pd.DataFrame


def studies(root: Path) -> list[Path]:
    """Return the study folders below ``root`` that hold rows, by name."""
    return sorted(file.parent for file in root.glob("*/launches.parquet") if (file.parent / "cells.parquet").exists())


def read(folders: Iterable[Path]) -> Rows:
    """Return the rows of the study folders; one kind of evidence alone, measured where there is any.

    Raises InputError where no folder is given or none has an engine start.
    """
    found = list(folders)
    if not found:
        raise InputError("no study to read: run one first, or name a folder that holds some")
    cells = pd.concat([read_cells(folder) for folder in found], ignore_index=True)
    launches = pd.concat([read_launches(folder) for folder in found], ignore_index=True)
    if launches.empty:
        raise InputError(f"{found[0]}: no engine start")
    evidence = min(launches["evidence"])  # measured, before simulated
    launches = launches[launches["evidence"] == evidence].reset_index(drop=True)
    cells = cells[cells["evidence"] == evidence].reset_index(drop=True)
    return Rows(cells, described(launches))


def described(launches: pd.DataFrame) -> pd.DataFrame:
    """Return engine starts with impossible bytes as null, and with these columns besides.

    ``asked``: the backend, with FlashAttention's version where one was asked for; ``attention``: as the worker named
    it, else as it was asked for. ``max_num_seqs``, ``utilisation``, ``block_tokens``, ``kv_bytes_per_token`` and
    ``default_sizes`` (vLLM's own list of capture sizes; ``own_list``: that, or its first sizes): of the configuration.
    ``memory_key``: equal for starts whose KV caches can be compared, with what was asked of the server, the capture
    sizes left out, and the GPU. ``state``: ``cold`` and ``warm`` of the compile cache; ``first`` where that cache was
    warm (or is off) but no engine with that backend had got ready on the machine before, so that kernels outside that
    cache compile again; ``off`` without a compiler. ``started``: when.
    """
    notes = [json.loads(text) for text in launches["provenance"]]
    configs = [note.get("config") or {} for note in notes]
    servers = [config.get("server") or {} for config in configs]
    asked = pd.Series([_asked(config) for config in configs], index=launches.index, dtype="string")
    asked = asked.fillna(launches["backend"])
    frame = believed(launches).assign(
        started=[str(note.get("started") or "") for note in notes],
        asked=asked,
        # A simulated start has the calibration's worker, whatever backend was asked for.
        attention=launches["attention_backend"].where(launches["evidence"] == Evidence.MEASURED.value).fillna(asked),
    )
    lists = ("cudagraph_capture_sizes", "max_cudagraph_capture_size")
    columns: dict[str, list[Any]] = {
        "max_num_seqs": [server.get("max_num_seqs") for server in servers],
        "utilisation": [server.get("gpu_memory_utilization") for server in servers],
        "block_tokens": [server.get("block_size") for server in servers],
        "default_sizes": [all(server.get(key) is None for key in lists) for server in servers],
        "own_list": [server.get("cudagraph_capture_sizes") is None for server in servers],
        "kv_bytes_per_token": [_kv_bytes(config) for config in configs],
        "memory_key": [
            json.dumps([model, attention, gpu, *(server.get(key) for key in _MEMORY_KEYS)])
            for model, attention, gpu, server in zip(
                frame["model"], frame["attention"], frame["gpu_uuid"].fillna(""), servers, strict=True
            )
        ],
    }
    for name, values in columns.items():
        frame[name] = pd.Series(values, index=frame.index)
    frame["state"] = _state(frame)
    return frame


def _asked(config: dict[str, Any]) -> str | None:
    backend = config.get("backend") or {}
    version = backend.get("flash_attn_version")
    return f"{backend.get('name')} (FA{version})" if version is not None else backend.get("name")


def _kv_bytes(config: dict[str, Any]) -> int | None:
    """Return the KV-cache bytes of a token of the configuration's model; None where it does not say its shape."""
    model = config.get("model") or {}
    try:
        shape = {key: model[key] for key in ("name", "hf_id", "revision", "architecture")}
        return ModelConfig.model_validate(shape).kv_bytes_per_token
    except (KeyError, ValueError):
        return None


def _state(frame: pd.DataFrame) -> "pd.Series[str]":
    """Return each start's state; see ``described``."""
    began = pd.to_datetime(frame["started"], utc=True, errors="coerce")
    ready = began + pd.to_timedelta(frame["start_s"].astype("float64"), unit="s")
    earliest = ready.groupby([frame["host_id"], frame["attention"]]).transform("min")
    measured = frame["evidence"] == Evidence.MEASURED.value
    first = measured & frame["compile_cache"].isin(["warm", "off"]) & (began < earliest)
    return frame["compile_cache"].mask(first.astype(bool), "first")

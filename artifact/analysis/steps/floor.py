"""Engine starts in; what a decode step cannot be faster than for want of memory bandwidth, and whose bandwidth, out."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from artifact.analysis.every_study import studies
from artifact.schema import Evidence, HardwareConfig, ModelConfig
from artifact.study.store import read_launches

GRIDS = ("step_grid", "mpk_grid")  # workloads whose bursts keep each batch size for its own


class Floor(NamedTuple):
    """Milliseconds of any decode step and of each request in it, and the words for the bandwidth that they rest on."""

    step_ms: float
    request_ms: float
    bandwidth: str


def copies(launches: pd.DataFrame) -> dict[str, float]:
    """Return, by the GPU's name, the median over measured starts of what a copy within its memory reached, in bytes/s.

    Read and written bytes both count. A GPU on which no start timed a copy is left out.
    """
    measured = launches[launches["evidence"] == Evidence.MEASURED.value]
    medians = measured.groupby("gpu_name")["copy_bytes_per_s"].median().dropna()
    return {str(gpu): float(value) for gpu, value in medians.items()}


def copies_below(root: Path) -> dict[str, float]:
    """Return ``copies`` of the starts of every study below ``root``: a GPU's memory is no study's own."""
    found = [read_launches(folder) for folder in studies(root)]
    return copies(pd.concat(found, ignore_index=True)) if found else {}


def floor_ms(model: ModelConfig, weights_bytes: float, context_tokens: float, bandwidth_bytes_per_s: float) -> float:
    """Return the milliseconds in which memory can deliver what a decode step reads: (weights + KV) / bandwidth.

    Weights are what the launch reports, less the input embedding where it is a matrix of its own (a step reads a row of
    it a token); KV is ``context_tokens``, summed over the batch, times the model's bytes per token. Compute is left
    out: for large batches it is the higher bound. NaN for experts, of which a step reads those that it routes to.
    """
    if model.architecture.get("num_experts"):
        return np.nan
    if not model.architecture.get("tie_word_embeddings"):
        weights_bytes -= 2 * int(str(model.architecture["vocab_size"])) * int(str(model.architecture["hidden_size"]))
    return (weights_bytes + context_tokens * model.kv_bytes_per_token) / bandwidth_bytes_per_s * 1e3


def floors(launches: pd.DataFrame, known: Mapping[str, float]) -> dict[str, Floor]:
    """Return the floor by launch, of the model and workload that its provenance has.

    The bandwidth is the GPU's in ``known`` (see ``copies``), else the data sheet's in conf/hardware, which no step
    reaches. A step reads and hardly writes, so that it can come out a little under what copies allow. Without a floor
    are launches without their weights' bytes, whose first cell is no grid, or on a GPU of which neither is known.
    """
    found = {}
    for launch, text, weights, gpu in launches[["launch_id", "provenance", "weights_bytes", "gpu_name"]].to_numpy():
        config = json.loads(text)["config"]
        hardware, workload = HardwareConfig.model_validate(config["hardware"]), config["workload"]
        if pd.isna(weights) or pd.isna(gpu) or workload["name"] not in GRIDS:
            continue
        sheet = hardware.bandwidth_bytes_per_s if gpu == hardware.full_name else None
        bandwidth = known.get(gpu, sheet)
        if bandwidth is None:
            continue
        model = ModelConfig.model_validate(config["model"])
        # A request of p prompt and o output tokens decodes o - 1 times, with p + 1 to p + o - 1 tokens in its cache.
        context_tokens = workload["prompt"]["mean"] + workload["output"]["mean"] / 2
        step_ms = floor_ms(model, float(weights), 0, bandwidth)
        request_ms = floor_ms(model, float(weights), context_tokens, bandwidth) - step_ms
        found[str(launch)] = Floor(step_ms, request_ms, _said(gpu, known.get(gpu), sheet))
    return found


def _said(gpu: str, copy: float | None, sheet: float | None) -> str:
    if copy is None:
        return f"{gpu}'s data sheet bandwidth {_tb(sheet)} (no launch timed a copy)"
    return f"{gpu}'s measured copy bandwidth {_tb(copy)} (data sheet {_tb(sheet)})"


def _tb(bytes_per_s: float | None) -> str:
    return "not known" if bytes_per_s is None else f"{bytes_per_s / 1e12:.3g} TB/s"

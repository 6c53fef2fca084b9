"""Truth in, cells of a load sweep made up from it out: for tests of what is concluded from sweeps."""

import math
from typing import Any

import numpy as np
import pandas as pd

from artifact.analysis.contrasts import sweep
from artifact.analysis.contrasts.sweep import DEFAULT, MODES, Sweep

MODEL = "qwen3-0.6b"
# ratios to the default of 5 ms; FULL_DECODE_ONLY equals it, FULL is faster
TRUTH = {"NONE": 4.0, "PIECEWISE": 1.5, "FULL": 0.8, "FULL_DECODE_ONLY": 1.001, DEFAULT: 1.0}


def cell(arm: str, block: str, values: dict[str, float], **more: Any) -> dict[str, Any]:
    workload, load = more.pop("workload", "churn"), more.pop("load", 0.35)
    level = "own" if load is None else f"{load:g}"
    tile = more.pop("tile", f"{MODEL}-{workload}")
    return {
        "cell_id": f"{tile}-{block}-{arm}-{workload}-{level}-00000000",
        "study": "load_sweep",
        "arm": arm,
        "tile": tile,
        "block": block,
        "host_id": "host",
        "gpu_uuid": None,
        "evidence": "measured",
        "requested_mode": arm.split("@", maxsplit=1)[0],
        "realised_mode": arm.split("@", maxsplit=1)[0],
        "model": MODEL,
        "workload": workload,
        "load": load,
        "seed": 1,
        "status": "ok",
        "flags": "",
        "offered_rate": 30.0,
        "launch_id": f"{tile}-{block}-{arm}",
        "output_tokens_per_s": 1000.0,
        "steps_full": 80,
        "steps_piecewise": 20,
        "steps_none": 0,
        **values,
        **more,
    }


def launches(cells: pd.DataFrame) -> pd.DataFrame:
    rows = cells.drop_duplicates("launch_id")
    return pd.DataFrame(
        {
            "launch_id": rows["launch_id"],
            "evidence": rows["evidence"],
            "gpu_name": "NVIDIA H200",
            "model": rows["model"],
            "requested_mode": rows["requested_mode"],
            "status": "ok",
            "server_hash": "x",
            "graph_bytes": 2**20,
            "capture_s": 1.0,
            "compile_cache": "warm",
            "start_s": 10.0,
            "kv_tokens": 1000.0,
            "eager_launch_us": 8.0,
            "graph_launch_us": 3.0,
        }
    )


def made(blocks: int = 8, noise: float = 0.002, seed: int = 1, **more: Any) -> list[dict[str, Any]]:
    """Return the cells of every mode in ``blocks`` blocks: TRUTH, a pace of each block, and noise of each launch."""
    rng = np.random.default_rng(seed)
    rows = []
    for block in range(blocks):
        pace = float(rng.uniform(0.8, 1.3))
        for mode in MODES:
            value = 5 * TRUTH[mode] * pace * math.exp(noise * rng.normal())
            rows.append(cell(mode, str(block), dict.fromkeys(sweep.METRICS, value), **more))
    return rows


def swept(rows: list[dict[str, Any]]) -> Sweep:
    cells = pd.DataFrame(rows).astype({"flags": "string", "realised_mode": "string", "gpu_uuid": "string"})
    return sweep.of(cells, launches(cells))

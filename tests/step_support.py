"""A made-up step study, written through the store: every step's time is what the test says, so every table is known."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from artifact.config import load
from artifact.records import REQUEST_COLUMNS, STEP_COLUMNS, CellRow, LaunchRow, Measurement, typed
from artifact.study.store import Store, read_cells, read_launches, read_steps

PER_BATCH = 14  # steps of a batch, of which the first and the last are no steps between two alike
WEIGHTS = {"qwen3-0.6b": 1_200_000_000, "qwen3-8b": 16_400_000_000}


@cache
def provenance(model: str, workload: str) -> str:
    config = load([f"model={model}", f"workload={workload}"])
    return json.dumps({"config": config.model_dump(mode="json")})


def decode_steps(walls_ms: dict[int, float], mode: str | None, heavy: bool, gpu_ms: float = 1.0) -> pd.DataFrame:
    """For each batch a long prefill of equal steps, then PER_BATCH decode steps of ``walls_ms``; idle between."""
    rows: list[dict[str, Any]] = []
    t_s = 0.0
    for batch, wall_ms in walls_ms.items():
        for number in range(PER_BATCH + 12):
            prefill = number < 12
            t_s += 0.5 if prefill else wall_ms / 1e3
            tokens = 8192 if prefill else batch
            row = {"t_s": t_s, "num_tokens": tokens, "padded_tokens": tokens, "num_running": batch, "num_waiting": 0}
            row |= {"runtime_mode": "NONE" if prefill or mode is None else mode, "kv_usage": 0.1}
            if heavy:
                row |= {"num_reqs": batch, "num_decode": 0 if prefill else batch, "prefill_tokens": tokens * prefill}
                row |= {"wall_ms": wall_ms, "launch_ms": wall_ms / 2, "gpu_ms": gpu_ms, "context_tokens": 0}
            rows.append(row)
        t_s += 5
    return pd.DataFrame(rows).assign(step=lambda frame: np.arange(len(frame)))


def mixed_rows(walls_ms: dict[int, float], mode: str | None, padded: int = 0) -> pd.DataFrame:
    """For each number of tokens, four steps of 15 decodes and a prefill, and a decode step in between."""
    rows: list[dict[str, Any]] = []
    for tokens, wall_ms in walls_ms.items():
        for number in range(8):
            mixed = number % 2 == 0
            count = tokens if mixed else 15
            captured = mode if count <= 512 else None
            row = {"num_tokens": count, "padded_tokens": count + (padded if captured else 0), "num_running": 16}
            row |= {"runtime_mode": captured or "NONE", "num_reqs": 16, "num_decode": 15, "context_tokens": 0}
            row |= {"prefill_tokens": (tokens - 15) * mixed, "wall_ms": wall_ms if mixed else 1e4, "gpu_ms": 1.5}
            rows.append(row)
    frame = pd.DataFrame(rows)
    return frame.assign(step=np.arange(len(frame)), t_s=frame["wall_ms"].cumsum() / 1e3)


class StepStudy:
    """Launches by what their steps take; ``frames`` reads cells, steps and launches back from the store."""

    def __init__(self, folder: Path, evidence: str = "simulated", model: str = "qwen3-0.6b") -> None:
        self.folder, self.evidence, self.model = folder, evidence, model
        self.store = Store(folder)
        self.count = 0

    def launch(
        self,
        arm: str,
        block: str = "0",
        host: str = "h",
        light: dict[int, float] | None = None,
        heavy: dict[int, float] | None = None,
        mixed: dict[int, float] | None = None,
        *,
        mode: str | None = None,
        flags: str = "heavy_probe",
        tile: str | None = None,
        padded: int = 0,
        gpu_ms: float = 1.0,
        workload: str = "step_grid",
        **facts: Any,
    ) -> None:
        self.count += 1
        same = {
            "study": "step_latency", "arm": arm, "tile": tile or self.model, "block": block, "host_id": host,
            "kv_policy": "iso_kv", "server_hash": "00", "evidence": self.evidence, "status": "ok",
            "requested_mode": arm, "realised_mode": arm, "backend": "FLASH_ATTN", "model": self.model,
            "launch_id": f"l{self.count}",
        }  # fmt: skip
        known = {
            "gpu_name": "NVIDIA H200", "weights_bytes": WEIGHTS[self.model], "graph_bytes": 51 * 2**20, "captures": 51,
            "keys_full": 51, "keys_piecewise": 0, "memory_valid": True,
        }  # fmt: skip
        row = {**same, **known, "position": 0, "provenance": provenance(self.model, workload)} | facts
        self.store.write_launch(LaunchRow.model_validate(row))
        cells = (
            (workload, "", light and decode_steps(light, mode, False)),
            (workload, flags, heavy and decode_steps(heavy, mode, True, gpu_ms)),
            ("mixed_steps", "heavy_probe", mixed and mixed_rows(mixed, mode, padded)),
        )
        for number, (name, flagged, steps) in enumerate(cells):
            if not isinstance(steps, pd.DataFrame):
                continue
            own = {"cell_id": f"c{self.count}-{number}", "workload": name, "flags": flagged, "replicate": 0, "seed": 1}
            requests = typed(pd.DataFrame({"request": []}), REQUEST_COLUMNS)
            self.store.write_cell(
                CellRow.model_validate(same | own), Measurement(requests, typed(steps, STEP_COLUMNS), 1.0)
            )

    def frames(self) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
        self.store.finish()
        return read_cells(self.folder), read_steps(self.folder), read_launches(self.folder)

"""Cells, steps and launches of step studies in; what a decode step takes by model, arm and batch out.

The unit of replication is the launch: a launch has one median a batch, and n is how many launches there are. Cells with
the heavy probe give GPU times and what the probe costs, and never a wall time that counts.
"""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from artifact.analysis.intervals import geometric
from artifact.schema import HardwareConfig, ModelConfig

GRIDS = ("step_grid", "mpk_grid")  # workloads whose bursts keep each batch size for its own
MIN_STEPS = 10  # of a batch in a cell: fewer are of a size met in passing, while a burst starts or ends
KEYS = ["model", "tile", "arm", "batch"]
_OF_CELL = ["cell_id", "launch_id", "model", "tile", "arm", "pair", "heavy", "realised_mode"]


class Interval(NamedTuple):
    """A geometric mean, its 95 % t-interval on logarithms, and of how many values; NaN where there is none."""

    mean: float
    low: float
    high: float
    n: int


def interval(values: Iterable[float]) -> Interval:
    """Return the geometric mean of positive ``values`` with its interval; NaN is left out, one value has no ends."""
    found = geometric(values)
    if found is None:
        return Interval(np.nan, np.nan, np.nan, 0)
    mean, low, high, n = found
    return Interval(mean, np.nan if low is None else low, np.nan if high is None else high, n)


def finished(cells: pd.DataFrame, workloads: tuple[str, ...]) -> pd.DataFrame:
    """Return the ok cells of ``workloads`` with two columns more: ``heavy``, and ``pair``, their block and machine.

    A launch with two cells of one workload that both show no heavy columns is left out: one of them had the probe on,
    its records could not be joined, and which one cannot be told.
    """
    own = cells[(cells["status"] == "ok") & cells["workload"].isin(workloads)]
    heavy = own["flags"].fillna("").str.split(",").map(lambda flags: "heavy_probe" in flags).astype(bool)
    own = own.assign(heavy=heavy, pair=own["host_id"] + "/" + own["block"])
    unsure = own.duplicated(["launch_id", "workload", "heavy"], keep=False) & ~own["heavy"]
    return own[~unsure]


def grid_steps(cells: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Return the pure decode steps of the grids: those between two steps of as many tokens.

    Columns: those of KEYS, cell_id, launch_id, pair, heavy, realised_mode, runtime_mode, padded_tokens, gpu_ms, and
    ``wall_ms``: since the step before reached the front end, for heavy cells too, so that the two can be compared.
    """
    own = steps.merge(finished(cells, GRIDS)[_OF_CELL], on="cell_id").sort_values(["cell_id", "step"])
    own["num_tokens"] = own["num_tokens"].astype("float64")
    of_cell = own.groupby("cell_id", sort=False)
    before, after = of_cell["num_tokens"].shift(1), of_cell["num_tokens"].shift(-1)
    own["wall_ms"] = (own["t_s"] - of_cell["t_s"].shift(1)) * 1e3
    # A long prefill has as many tokens step after step, too: more than requests, whose number is one step ahead.
    decode = own["num_tokens"] <= of_cell["num_running"].shift(1).astype("float64")
    own = own[decode & (own["num_tokens"] == before) & (own["num_tokens"] == after)]
    own = own.rename(columns={"num_tokens": "batch"}).astype({"batch": "int64"})
    enough = own.groupby(["cell_id", "batch"])["step"].transform("size") >= MIN_STEPS
    return own.loc[enough, [*KEYS, *_OF_CELL[:2], *_OF_CELL[5:], "runtime_mode", "padded_tokens", "wall_ms", "gpu_ms"]]


def per_launch(steps: pd.DataFrame) -> pd.DataFrame:
    """Return a row per launch, batch and ``heavy`` of ``grid_steps``: n_steps, medians, and wall p10 and p90.

    ``gpu_ms`` is of steps that replay one whole graph (runtime mode FULL): around others the events span launch gaps.
    """
    steps = steps.assign(gpu_ms=steps["gpu_ms"].where((steps["runtime_mode"] == "FULL").fillna(value=False)))
    grouped = steps.groupby([*KEYS, "launch_id", "pair", "heavy"])
    rows = grouped.agg(
        n_steps=("wall_ms", "size"),
        gpu_ms=("gpu_ms", "median"),
        # The rules dispatch every decode batch of one size alike.
        padded_tokens=("padded_tokens", "first"),
        runtime_mode=("runtime_mode", "first"),
        realised_mode=("realised_mode", "first"),
    )
    walls = grouped["wall_ms"].quantile(np.array([0.1, 0.5, 0.9])).unstack().reindex(columns=[0.1, 0.5, 0.9])
    return rows.assign(wall_p10_ms=walls[0.1], wall_ms=walls[0.5], wall_p90_ms=walls[0.9]).reset_index()


def _commonest(column: "pd.Series[Any]") -> str | None:
    counts = column.dropna().mode()
    return None if counts.empty else str(counts.iloc[0])


def step_table(cells: pd.DataFrame, steps: pd.DataFrame, launches: pd.DataFrame) -> pd.DataFrame:
    """Return a row per model, tile, arm and batch.

    Columns, times in ms: ``n_launches``, ``n_steps``; ``wall_ms`` with ``wall_low_ms`` and ``wall_high_ms``, geometric
    mean over launches of their medians and its 95 % t-interval; ``wall_p10_ms`` and ``wall_p90_ms``, of the steps
    within a launch, mean over launches; ``gpu_ms``, ``gpu_low_ms``, ``gpu_high_ms``, ``n_gpu_launches``, of heavy cells
    where whole graphs replay; ``runtime_mode`` dispatched, ``realised_mode``; ``padding``, padded over unpadded tokens
    less one; ``floor_ms`` (see ``floor_ms``); ``reason``, why a wall time is null, else null.
    """
    rows = per_launch(grid_steps(cells, steps))
    floors = _floors(launches)
    table = []
    for keys, group in rows.groupby(KEYS):
        batch = int(group["batch"].iloc[0])
        light, heavy = group[~group["heavy"]], group[group["heavy"]]
        wall = interval(light["wall_ms"])
        gpu = interval(heavy["gpu_ms"])
        known = [np.dot(floors[launch], (1, batch)) for launch in group["launch_id"] if launch in floors]
        table.append(
            {
                **dict(zip(KEYS, keys, strict=True)),
                "n_launches": wall.n,
                "n_steps": int(light["n_steps"].sum()),
                "wall_ms": wall.mean,
                "wall_low_ms": wall.low,
                "wall_high_ms": wall.high,
                "wall_p10_ms": light["wall_p10_ms"].mean(),
                "wall_p90_ms": light["wall_p90_ms"].mean(),
                "gpu_ms": gpu.mean,
                "gpu_low_ms": gpu.low,
                "gpu_high_ms": gpu.high,
                "n_gpu_launches": gpu.n,
                "runtime_mode": _commonest(group["runtime_mode"]),
                "realised_mode": _commonest(group["realised_mode"]),
                "padding": float(group["padded_tokens"].astype(float).median()) / batch - 1,
                "floor_ms": float(np.median(known)) if known else np.nan,
                "reason": None if wall.n else "no cell without the heavy probe has enough steps of this batch",
            }
        )
    return pd.DataFrame(table, columns=COLUMNS)


COLUMNS = [
    *KEYS,
    *("n_launches", "n_steps", "wall_ms", "wall_low_ms", "wall_high_ms", "wall_p10_ms", "wall_p90_ms"),
    *("gpu_ms", "gpu_low_ms", "gpu_high_ms", "n_gpu_launches"),
    *("runtime_mode", "realised_mode", "padding", "floor_ms", "reason"),
]


def probe_cost(cells: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Return, per model, tile and arm, how much longer a decode step takes with the heavy probe on.

    ``ratio`` with ``low`` and ``high``: medians with the probe over those without, of one launch and batch, geometric
    mean over batches, then over launches with its 95 % t-interval; n_launches, n_batches. Both are differences of
    ``t_s``. Arms without both kinds of cell in one launch have no row.
    """
    rows = per_launch(grid_steps(cells, steps))
    of_arm = ["model", "tile", "arm"]
    medians = rows.pivot(index=[*of_arm, "launch_id", "batch"], columns="heavy", values="wall_ms")
    medians = medians.reindex(columns=[False, True]).dropna()
    ratios = (medians[True] / medians[False]).map(np.log).rename("log").reset_index()
    found = []
    for keys, group in ratios.groupby(of_arm):
        ratio = interval(np.exp(group.groupby("launch_id")["log"].mean()))
        found.append((*keys, *ratio, group["batch"].nunique()))
    return pd.DataFrame(found, columns=[*of_arm, "ratio", "low", "high", "n_launches", "n_batches"])


def floor_ms(model: ModelConfig, weights_bytes: float, context_tokens: float, bandwidth_bytes_per_s: float) -> float:
    """Return the milliseconds in which memory can deliver what a decode step reads: (weights + KV) / bandwidth.

    Weights are what the launch reports, less the input embedding where it is a matrix of its own (a step reads a row of
    it a token); KV is ``context_tokens``, summed over the batch, times the model's bytes per token. The bandwidth is
    that of conf/hardware, the GPU's data sheet: 4.8 TB/s for an H200, of which reads reach about 4.3, so the floor is
    some 10 % under what can be had. Compute is left out: for large batches it is the higher bound. NaN for experts,
    of which a step reads those that it routes to.
    """
    if model.architecture.get("num_experts"):
        return np.nan
    if not model.architecture.get("tie_word_embeddings"):
        weights_bytes -= 2 * int(str(model.architecture["vocab_size"])) * int(str(model.architecture["hidden_size"]))
    return (weights_bytes + context_tokens * model.kv_bytes_per_token) / bandwidth_bytes_per_s * 1e3


def _floors(launches: pd.DataFrame) -> dict[str, tuple[float, float]]:
    """Return, by launch, the floor in ms as two parts: of any decode step, and of each request in it.

    From the configuration in the launch's provenance. Without one are launches without their weights' bytes, on a GPU
    that the configuration does not describe, or whose first cell is no grid.
    """
    found = {}
    for launch, text, weights, gpu in launches[["launch_id", "provenance", "weights_bytes", "gpu_name"]].to_numpy():
        config = json.loads(text)["config"]
        hardware, workload = HardwareConfig.model_validate(config["hardware"]), config["workload"]
        if pd.isna(weights) or gpu != hardware.full_name or workload["name"] not in GRIDS:
            continue
        model, bandwidth = ModelConfig.model_validate(config["model"]), hardware.bandwidth_bytes_per_s
        # A request of p prompt and o output tokens decodes o - 1 times, with p + 1 to p + o - 1 tokens in its cache.
        context_tokens = workload["prompt"]["mean"] + workload["output"]["mean"] / 2
        fixed_ms = floor_ms(model, float(weights), 0, bandwidth)
        found[str(launch)] = (fixed_ms, floor_ms(model, float(weights), context_tokens, bandwidth) - fixed_ms)
    return found

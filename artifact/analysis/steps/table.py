"""Cells, steps and launches of step studies in; what a decode step takes by model, arm and batch out.

The unit of replication is the launch: a launch has one median a batch, and n is how many launches there are. Cells with
the heavy probe give GPU times and what the probe costs, and never a wall time that counts.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from artifact.analysis.intervals import geometric
from artifact.analysis.steps.floor import GRIDS, copies, floors

MIN_STEPS = 10  # of a batch in a cell: fewer are of a size met in passing, while a burst starts or ends
KEYS = ["model", "tile", "arm", "batch"]
_NO_STEPS = "no cell without the heavy probe has enough steps of this batch"
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


def no_interval(n: int, what: str) -> str | None:
    """Return why ``n`` launches or blocks (``what``) have no interval; None where they have one, or are none."""
    return f"one {what}: no interval" if n == 1 else None


def step_table(
    cells: pd.DataFrame, steps: pd.DataFrame, launches: pd.DataFrame, known: Mapping[str, float] | None = None
) -> pd.DataFrame:
    """Return a row per model, tile, arm and batch; ``known``: the GPUs' ``floor.copies``, null: those of ``launches``.

    Columns, times in ms: ``n_launches``, ``n_steps``; ``wall_ms`` with ``wall_low_ms`` and ``wall_high_ms``, geometric
    mean over launches of their medians and its 95 % t-interval; ``wall_p10_ms`` and ``wall_p90_ms``, of the steps
    within a launch, mean over launches; ``gpu_ms``, ``gpu_low_ms``, ``gpu_high_ms``, ``n_gpu_launches``, of heavy cells
    where whole graphs replay; ``runtime_mode`` dispatched, ``realised_mode``; ``padding``, padded over unpadded tokens
    less one; ``floor_ms`` (see ``floor.floors``) and ``floor_bandwidth``, the words for what it rests on; ``reason``,
    why a wall time or its interval is null, else null.
    """
    rows = per_launch(grid_steps(cells, steps))
    floor_of = floors(launches, copies(launches) if known is None else known)
    table = []
    for keys, group in rows.groupby(KEYS):
        batch = int(group["batch"].iloc[0])
        light, heavy = group[~group["heavy"]], group[group["heavy"]]
        wall = interval(light["wall_ms"])
        gpu = interval(heavy["gpu_ms"])
        found = [floor_of[launch] for launch in group["launch_id"] if launch in floor_of]
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
                "floor_ms": float(np.median([each.step_ms + batch * each.request_ms for each in found] or [np.nan])),
                "floor_bandwidth": "; ".join(sorted({each.bandwidth for each in found})) or None,
                "reason": no_interval(wall.n, "launch") if wall.n else _NO_STEPS,
            }
        )
    return pd.DataFrame(table, columns=COLUMNS)


COLUMNS = [
    *KEYS,
    *("n_launches", "n_steps", "wall_ms", "wall_low_ms", "wall_high_ms", "wall_p10_ms", "wall_p90_ms"),
    *("gpu_ms", "gpu_low_ms", "gpu_high_ms", "n_gpu_launches"),
    *("runtime_mode", "realised_mode", "padding", "floor_ms", "floor_bandwidth", "reason"),
]


def probe_cost(cells: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Return, per model, tile and arm, how much longer a decode step takes with the heavy probe on.

    ``ratio`` with ``low`` and ``high``: medians with the probe over those without, of one launch and batch, geometric
    mean over batches, then over launches with its 95 % t-interval; n_launches, n_batches. Both are differences of
    ``t_s``; ``reason``, why there is no interval, else null. Arms without both kinds of cell in one launch have no row.
    """
    rows = per_launch(grid_steps(cells, steps))
    of_arm = ["model", "tile", "arm"]
    medians = rows.pivot(index=[*of_arm, "launch_id", "batch"], columns="heavy", values="wall_ms")
    medians = medians.reindex(columns=[False, True]).dropna()
    ratios = (medians[True] / medians[False]).map(np.log).rename("log").reset_index()
    found = []
    for keys, group in ratios.groupby(of_arm):
        ratio = interval(np.exp(group.groupby("launch_id")["log"].mean()))
        found.append((*keys, *ratio, group["batch"].nunique(), no_interval(ratio.n, "launch")))
    return pd.DataFrame(found, columns=[*of_arm, "ratio", "low", "high", "n_launches", "n_batches", "reason"])

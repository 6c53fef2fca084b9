"""Columns of measured steps in, coefficients of the cost model out: the least squares behind ``calibrate``.

Every fit is non-negative, on relative errors, and reweighted so that host noise (steps that took 1.5 times as long as
their like) decides nothing.
"""

from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import least_squares, nnls

from artifact.simulator.cost import LoopCost, TableName

Array = np.ndarray[Any, np.dtype[np.float64]]

_GRID = np.array([1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 224, 256, 384, 512, 768, 1024, 1536, 2048, 3072,
                  4096, 6144, 8192, 12288, 16384])  # fmt: skip
MIN_ROWS = 8  # of a table
_MIN_PER_KNOT = 3
_GPU_BOUND = 1.2  # a span this much longer than its launch is GPU time, not the host's gaps
_COMPILED: tuple[TableName, ...] = ("NONE", "PIECEWISE")  # same kernels as in the full graphs, launched one by one


def robust_nnls(design: Array, target: Array) -> Array:
    """Return x >= 0, shape (k,), that minimises the relative errors of ``design`` (n, k) @ x against ``target`` (n,).

    Iteratively reweighted with Cauchy weights (scale: 1.4826 x the median absolute residual, at least 1 %).
    """
    relative = design / target[:, None]
    size = np.linalg.norm(relative, axis=0)
    size[size == 0] = 1.0
    relative = relative / size
    weights = np.ones(len(target))
    solution = np.zeros(design.shape[1])
    for _ in range(12):
        # The triangle of a QR keeps nnls small: (k, k) however many rows there are.
        weighted = np.column_stack([relative, np.ones(len(target))]) * weights[:, None]
        r: Array = np.linalg.qr(weighted).R
        solution = nnls(r[:, :-1], r[:, -1])[0]
        residual = relative @ solution - 1
        scale = max(1.4826 * float(np.median(np.abs(residual))), 0.01)
        weights = 1 / np.sqrt(1 + (residual / (2.4 * scale)) ** 2)
    fitted: Array = solution / size
    return fitted


def _knots(tokens: Array) -> Array:
    """Return the knots that have rows of their own: grid values within the data, and its two ends."""
    candidates = np.unique(np.clip(_GRID, tokens.min(), tokens.max())).astype(float)
    nearest = _nearest(candidates, tokens)
    kept = [i for i in range(len(candidates)) if (nearest == i).sum() >= _MIN_PER_KNOT]
    return candidates[kept] if kept else np.array([float(np.median(tokens))])


def _nearest(knots: Array, tokens: Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return for each of ``tokens`` (n,) the position of the knot nearest by ratio."""
    middles = np.sqrt(knots[:-1] * knots[1:])
    return np.searchsorted(middles, tokens)


def _hats(knots: Array, tokens: Array) -> Array:
    """Return the columns (n, k) whose non-negative combination is piecewise linear and never falls.

    The first is 1; column i rises from 0 at knot i-1 to 1 at knot i and stays there; the last goes on rising.
    """
    columns = [np.ones(len(tokens))]
    for i in range(1, len(knots)):
        share = (tokens - knots[i - 1]) / (knots[i] - knots[i - 1])
        columns.append(np.clip(share, 0, None if i == len(knots) - 1 else 1))
    return np.column_stack(columns)


def square(rows: pd.DataFrame) -> Array:
    """Return prefill tokens squared over the requests in prefill, shape (n,): attention's share, equal chunks taken."""
    prefills = (rows["num_reqs"] - rows["num_decode"]).to_numpy(float)
    return np.asarray(rows["prefill_tokens"].to_numpy(float) ** 2 / np.maximum(prefills, 1))


def launch_design(rows: pd.DataFrame) -> Array:
    """Return the columns (n, 3) of the launch: one, requests, requests in prefill."""
    requests = rows["num_reqs"].to_numpy(float)
    return np.column_stack([np.ones(len(rows)), requests, requests - rows["num_decode"].to_numpy(float)])


def fit_launch(rows: pd.DataFrame) -> Array:
    """Return (fixed, per request, per prefill) of the launch in ms.

    Large steps are left out where others exist: there the launch waits for room in the GPU's queue.
    """
    small = rows[rows["num_tokens"] <= 512]
    used = small if len(small) >= MIN_ROWS else rows
    return robust_nnls(launch_design(used), used["launch_ms"].to_numpy(float))


def gpu_rows(name: TableName, rows: pd.DataFrame, launch: Array, full: pd.DataFrame | None) -> tuple[pd.DataFrame, str]:
    """Return the rows whose column ``span_ms`` is GPU time, and where it was read.

    An event span is GPU time where a whole graph replays. Elsewhere it holds the host's gaps, unless it is clearly
    longer than the launch; for batches where it is not, the same kernels' time in a full graph stands in.
    """
    read = "gpu_ms" if rows["gpu_ms"].notna().mean() > 0.5 else "wall_ms"
    rows = rows.assign(span_ms=rows[read]).dropna(subset=["span_ms"])
    rows = rows[rows["span_ms"] > 0]
    if read == "gpu_ms" and name in ("FULL", "FULL_DECODE"):
        return rows, "gpu_ms of whole graphs"
    tokens = rows["padded_tokens"].to_numpy(float)
    grid = _GRID.astype(float)
    bins = pd.Series(_nearest(grid, tokens), index=rows.index)
    ratio = rows["span_ms"] / (launch_design(rows) @ launch)
    bound = ratio.groupby(bins).transform("median") > _GPU_BOUND
    trusted = rows[bound]
    if name in _COMPILED and full is not None:
        first = trusted["padded_tokens"].min() if len(trusted) else np.inf
        borrowed = full[full["padded_tokens"] < first]
        if len(borrowed):
            return pd.concat([trusted, borrowed]), f"{read} of GPU-bound steps, full graphs below them"
    if len(trusted) >= MIN_ROWS and bound.all():
        return trusted, f"{read} of GPU-bound steps"
    return rows, f"{read}, an upper bound: it holds launch gaps"


def fit_gpu(rows: pd.DataFrame) -> tuple[Array, Array, float, float]:
    """Return knots, base at the knots (ms), ms per context token, ms per squared prefill token."""
    tokens = rows["padded_tokens"].to_numpy(float)
    knots = _knots(tokens)
    design = np.column_stack([_hats(knots, tokens), rows["context_tokens"].to_numpy(float), square(rows)])
    fitted = robust_nnls(design, rows["span_ms"].to_numpy(float))
    return knots, np.cumsum(fitted[: len(knots)]), float(fitted[-2]), float(fitted[-1])


def fit_loop(host: Array, gpu: Array, requests: Array, wall: Array) -> LoopCost:
    """Fit the period max(launch + loop, gpu + tail) to ``wall``; all shape (n,), in ms.

    Host-bound rows decide the loop, GPU-bound ones the tail; what no row shows stays near the start of the search.
    """

    def residual(x: Array) -> Array:
        period = np.maximum(host + x[0] + x[1] * requests, gpu + x[2] + x[3] * requests)
        return np.asarray(np.log(period / wall))

    scale = float(np.median(wall))
    starts = [[0.1 * scale, 1e-3, share * scale, 1e-3] for share in (0.02, 0.1, 0.3)]
    fits = [least_squares(residual, start, bounds=(0, np.inf), loss="soft_l1", f_scale=0.05) for start in starts]
    best = min(fits, key=lambda each: float(each.cost)).x
    return LoopCost(
        loop_fixed_ms=float(best[0]),
        loop_per_request_ms=float(best[1]),
        tail_fixed_ms=float(best[2]),
        tail_per_request_ms=float(best[3]),
    )

"""Columns of measured steps in, coefficients of the cost model out: the least squares behind ``calibrate``.

Every fit is non-negative, on relative errors, and reweighted so that host noise (steps that took 1.5 times as long as
their like) decides nothing.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.linalg import block_diag
from scipy.optimize import least_squares, nnls

from artifact.schema import Mode
from artifact.simulator.cost import TableName, table_name

Array = np.ndarray[Any, np.dtype[np.float64]]

_GRID = np.array([1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 224, 256, 384, 512, 768, 1024, 1536, 2048, 3072,
                  4096, 6144, 8192, 12288, 16384])  # fmt: skip
MIN_ROWS = 8  # of a table
_MIN_PER_KNOT = 3
_OUTLASTS = 1.05  # a span this much longer than its launch is GPU time, not the host's gaps
_BOUND_SHARE = 0.25  # of the steps of like size that must outlast their launch for the size to be called GPU-bound
_QUIETEST = 0.25  # share of the rows of like size


_MODES = ("requested_mode", "resolved_mode", "realised_mode", "runtime_mode")


def with_tables(steps: pd.DataFrame) -> pd.DataFrame:
    """Return ``steps`` with the column table: the cost model's name of each; their launch's modes are columns."""
    return steps.assign(table=[_table(*modes) for modes in zip(*(steps[name] for name in _MODES), strict=True)])


def _table(requested: Any, resolved: Any, realised: Any, runtime: Any) -> TableName:
    mode = Mode.EAGER if requested == Mode.EAGER else Mode(str(resolved))
    return table_name(mode, str(runtime), hollow=str(realised).endswith(":hollow"))


def robust_nnls(design: Array, target: Array, known: Array | float = 0.0) -> Array:
    """Return x >= 0, shape (k,), that minimises the relative errors of ``design`` (n, k) @ x + ``known`` (n,).

    They are errors against ``target`` (n,). Iteratively reweighted with Cauchy weights (scale: 1.4826 x the median
    absolute residual, at least 1 %).
    """
    relative, wanted = design / target[:, None], 1 - known / target
    size = np.linalg.norm(relative, axis=0)
    size[size == 0] = 1.0
    relative = relative / size
    weights = np.ones(len(target))
    solution = np.zeros(design.shape[1])
    for _ in range(12):
        # The triangle of a QR keeps nnls small: (k, k) however many rows there are.
        weighted = np.column_stack([relative, wanted]) * weights[:, None]
        r = np.asarray(np.linalg.qr(weighted, mode="r"))
        solution = nnls(r[:, :-1], r[:, -1])[0]
        residual = relative @ solution - wanted
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


def gpu_design(rows: pd.DataFrame) -> Array:
    """Return the columns (n, 3) of the GPU time beside its base: requests, context tokens, squared prefill tokens.

    The last is the prefill tokens' square over the requests in prefill: attention's share, equal chunks taken.
    """
    requests, prefill = rows["num_reqs"].to_numpy(float), rows["prefill_tokens"].to_numpy(float)
    prefills = requests - rows["num_decode"].to_numpy(float)
    return np.column_stack([requests, rows["context_tokens"].to_numpy(float), prefill**2 / np.maximum(prefills, 1)])


def launch_design(rows: pd.DataFrame) -> Array:
    """Return the columns (n, 3) of the launch: one, requests, whether any is in prefill.

    How many are in prefill shows no cost of its own once the host's pace is taken out.
    """
    requests = rows["num_reqs"].to_numpy(float)
    return np.column_stack([np.ones(len(rows)), requests, requests > rows["num_decode"].to_numpy(float)])


def gpu_rows(name: TableName, rows: pd.DataFrame, full: pd.DataFrame | None) -> tuple[pd.DataFrame, str]:
    """Return the rows whose column ``span_ms`` is GPU time, and where it was read.

    An event span is GPU time where a whole graph replays. Elsewhere it holds the host's gaps, unless it outlasts the
    launch; for sizes where it does not, the time of a full graph stands in: the same kernels as in NONE and PIECEWISE,
    fused ones in EAGER. Without full graphs it is the span where the host was quietest.
    """
    read = "gpu_ms" if rows["gpu_ms"].notna().mean() > 0.5 else "wall_ms"
    rows = rows.assign(span_ms=rows[read]).dropna(subset=["span_ms"])
    rows = rows[rows["span_ms"] > 0]
    if read == "gpu_ms" and name in ("FULL", "FULL_DECODE"):
        return rows, "gpu_ms of whole graphs"
    grid = _GRID.astype(float)
    size = pd.Series(_nearest(grid, rows["padded_tokens"].to_numpy(float)), index=rows.index)
    bound = rows["span_ms"] > (_OUTLASTS if read == "gpu_ms" else 1.2) * rows["launch_ms"]
    of_size = bound.groupby(size)
    shown = (of_size.transform("mean") >= _BOUND_SHARE) & (of_size.transform("sum") >= _MIN_PER_KNOT)
    trusted = rows[bound & shown]
    if shown.all():
        return trusted, f"{read} of GPU-bound steps"
    if full is not None:
        first = trusted["padded_tokens"].min() if len(trusted) else np.inf
        bound_by = " (a lower bound: their kernels are compiled)" if name == "EAGER" else ""
        source = f"{read} of GPU-bound steps, full graphs below them" if len(trusted) else "gpu_ms of full graphs"
        return pd.concat([trusted, full[full["padded_tokens"] < first]]), source + bound_by
    quiet = rows["pace"] <= rows["pace"].groupby(size).transform(lambda pace: pace.quantile(_QUIETEST))
    return pd.concat([trusted, rows[quiet & ~shown]]), f"{read} of GPU-bound steps, an upper bound below them"


def fit_gpu(parts: Sequence[pd.DataFrame], least_context_ms: float) -> list[tuple[Array, Array, Array]]:
    """Return of each part knots, base at the knots (ms), and ms per request, context token and squared prefill token.

    The context's is common to the parts, as attention reads the same cache in all, and ``least_context_ms`` at least:
    where batches grew with their contexts, steps alone cannot tell the two.
    """
    tokens = [rows["padded_tokens"].to_numpy(float) for rows in parts]
    knots = [_knots(each) for each in tokens]
    columns = [gpu_design(rows) for rows in parts]
    own = [
        np.column_stack([_hats(at, each), column[:, [0, 2]]])
        for at, each, column in zip(knots, tokens, columns, strict=True)
    ]
    context = np.concatenate([column[:, 1] for column in columns])
    span = np.concatenate([rows["span_ms"].to_numpy(float) for rows in parts])
    fitted = robust_nnls(np.column_stack([block_diag(*own), context]), span, context * least_context_ms)
    context_ms = least_context_ms + fitted[-1]
    found = []
    for at in knots:
        base, (request, square), fitted = fitted[: len(at)], fitted[len(at) : len(at) + 2], fitted[len(at) + 2 :]
        found.append((at, np.cumsum(base), np.array([request, context_ms, square])))
    return found


def fit_tail(host: Array, gpu: Array, requests: Array, wall: Array) -> Array:
    """Return (fixed, per request) in ms that make max(host, gpu + tail) the period ``wall``; all shape (n,), in ms.

    GPU-bound rows decide; where there are none it stays near the start of the search.
    """

    def residual(x: Array) -> Array:
        return np.asarray(np.log(np.maximum(host, gpu + x[0] + x[1] * requests) / wall))

    scale = float(np.median(wall))
    starts = [[share * scale, 1e-3] for share in (0.02, 0.1, 0.3)]
    fits = [least_squares(residual, start, bounds=(0, np.inf), loss="soft_l1", f_scale=0.05) for start in starts]
    best: Array = min(fits, key=lambda each: float(each.cost)).x
    return best

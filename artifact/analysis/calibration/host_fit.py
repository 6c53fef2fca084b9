"""Measured steps in; what each costs a quiet host, and how the host's pace wandered meanwhile, out.

A shared host slows down by a factor of up to two and recovers, within seconds and whatever runs on it. An average over
that would charge each kind of step with the luck of the seconds in which it was measured, so pace and cost are fitted
in turn.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from artifact.analysis.calibration.step_fit import MIN_ROWS, Array, launch_design, robust_nnls
from artifact.simulator.cost import Calibration, HostPace, LoopCost, StepTable, TableName

WINDOW_S = 0.25  # in which the pace is taken as constant
_MIN_IN_WINDOW = 3
_QUIET = 0.1  # the share of a table's windows that is quiet at least: their pace is called 1
_SLOW = 0.9  # the quantile of a table's paces that is called slow
_LARGEST_TOKENS = 512  # above, copying the inputs shows in the launch
_GPU_SHARE = 0.85  # of a launch: where the GPU is busy with the step before for longer, the launch may wait for it
_CHAIN = 8  # steps back that a busy GPU is followed
_LAG_WINDOWS = 4  # at which the pace's memory is read: shorter lags show the windows' own noise
_VALUES = 10


def loop_design(requests: Array) -> Array:
    """Return the columns (n, 2) of the loop: one, requests."""
    return np.column_stack([np.ones(len(requests)), requests])


class HostFit(NamedTuple):
    """Costs in ms at pace 1, and the paces they were found at."""

    pace: pd.Series  # of each row
    launch: dict[TableName, Array]  # (3,) of each table: see ``launch_design``
    loop: Array  # (2,): fixed, per request
    windows: pd.DataFrame  # a row per window: launch_id, cell_id, table, pace; the index is CELL#NUMBER


def left_ms(rows: pd.DataFrame, gpu_ms: Array) -> Array:
    """Return the GPU time left, when the host had issued it, of the step before each, shape (n,); 0 without one.

    ``rows`` has the heavy probe's columns, cell_id and step, in their order; ``gpu_ms`` (n,) is what each takes. The
    host waits for the step before last, so a whole graph is all left when that is done; of other steps the GPU has
    done what it could since the host began to issue them.
    """
    launch, whole = rows["launch_ms"].to_numpy(float), (rows["runtime_mode"] == "FULL").to_numpy()
    follows = _follows(rows)
    after = rows["wall_ms"].to_numpy(float) - launch
    gpu, left, busy = np.nan_to_num(gpu_ms), np.zeros(len(rows)), np.zeros(len(rows))
    for _ in range(_CHAIN):
        own = np.where(whole, gpu, np.maximum(busy + gpu - np.maximum(launch, busy), 0))
        left[1:] = np.where(follows[1:], own[:-1], 0)
        busy[1:] = np.where(follows[1:], np.maximum(left[1:] - after[:-1], 0), 0)
    return left


def _follows(rows: pd.DataFrame) -> "np.ndarray[Any, np.dtype[np.bool_]]":
    """Return whether the row before is the step before, and the engine was busy in between."""
    before = rows[["cell_id", "step", "wall_ms"]].shift(1)
    own = (rows["cell_id"] == before["cell_id"]) & (rows["step"] == before["step"] + 1) & (before["wall_ms"] > 0)
    return own.to_numpy()


def fit_host(rows: pd.DataFrame) -> HostFit:
    """Fit the host's costs and its pace to each other. Pace 1 is that of the quietest tenth of each table's windows.

    ``rows`` has the heavy probe's columns, table, cell_id, step and launch_id, in order of cell and step. Rows where
    the launch may have waited for the GPU are left out where others exist; their pace is that of their neighbours.
    """
    rest = (rows["wall_ms"] - rows["launch_ms"]).shift(1).to_numpy(float)
    busy = left_ms(rows, rows["gpu_ms"].to_numpy(float)) - rest
    has_period = (rows["wall_ms"] > 0).to_numpy()
    shown, busy = rows[has_period], np.nan_to_num(busy[has_period])
    window = _window(shown)
    launch_ms, design = shown["launch_ms"].to_numpy(float), launch_design(shown)
    tables = {name: (shown["table"] == name).to_numpy() for name in shown["table"].unique()}
    pace, cost, issue = np.ones(len(shown)), np.zeros(len(shown)), launch_ms
    costs: dict[TableName, Array] = {}
    for _ in range(12):
        bound = _host_bound(shown, busy <= _GPU_SHARE * issue)
        for name, own in tables.items():
            used = own & bound
            costs[name] = robust_nnls(design[used] * pace[used, None], launch_ms[used])
            cost[own] = design[own] @ costs[name]
        windows = shown[["launch_id", "cell_id", "table"]].assign(
            window=window, ratio=launch_ms / np.maximum(cost, 1e-6)
        )
        paces = _windows(windows[bound])
        quiet = paces.groupby("table")["ratio"].quantile(_QUIET)
        paces = paces.assign(pace=paces["ratio"] / paces["table"].map(quiet))
        pace = _of_rows(window, shown["cell_id"], paces)
        issue = cost * pace
    requests = shown["num_reqs"].to_numpy(float)
    loop_ms = np.maximum(shown["wall_ms"].to_numpy(float) - launch_ms, 1e-6)
    loop = robust_nnls((loop_design(requests) * pace[:, None])[bound], loop_ms[bound])
    every_pace = pd.Series(_of_rows(_window(rows), rows["cell_id"], paces), index=rows.index)
    return HostFit(every_pace, costs, loop, paces)


def unprobed_windows(steps: pd.DataFrame, tables: Mapping[TableName, StepTable], loop: LoopCost) -> pd.DataFrame:
    """Return windows as ``HostFit.windows`` has them, of cells without the heavy probe: empty where there is none.

    ``steps`` has the light columns, table, cell_id and launch_id. With asynchronous scheduling the host issues step n+1
    between the outputs of steps n-1 and n, so that interval is set against what n+1 costs, unless the GPU takes longer
    for n; the requests running after a step stand for those in it, and no context is taken.
    """
    steps = steps[steps["table"].isin(tables)].sort_values(["cell_id", "step"])
    columns = ["table", "num_running", "num_tokens", "padded_tokens"]
    cells = steps.groupby("cell_id")
    before, issued = cells[["t_s", "num_running"]].shift(1), cells[columns].shift(-1)
    used = (before["num_running"] > 0) & (steps["num_running"] > 0) & (issued["num_running"] > 0)
    used &= issued["num_tokens"] <= _LARGEST_TOKENS
    rows, issued, period_ms = steps[used], issued[used], (steps["t_s"] - before["t_s"])[used].to_numpy(float) * 1e3
    host_ms, gpu_ms = np.zeros(len(rows)), np.zeros(len(rows))
    for name, table in tables.items():
        own = (issued["table"] == name).to_numpy()
        requests = issued["num_running"].to_numpy(float)[own]
        prefills = issued["num_tokens"].to_numpy(float)[own] > requests
        launch = table.launch_fixed_ms + table.launch_per_request_ms * requests + table.launch_prefill_ms * prefills
        host_ms[own] = launch + loop.loop_fixed_ms + loop.loop_per_request_ms * requests
        own = (rows["table"] == name).to_numpy()
        requests = rows["num_running"].to_numpy(float)[own]
        gpu_ms[own] = table.base(rows["padded_tokens"].to_numpy(float)[own]) + table.gpu_per_request_ms * requests
        gpu_ms[own] += loop.tail_fixed_ms + loop.tail_per_request_ms * requests
    named = issued[["table"]].join(rows[["launch_id", "cell_id"]])
    ratio = period_ms / np.maximum(host_ms, 1e-6)
    windows = _windows(named.assign(window=_window(rows), ratio=ratio)[host_ms >= gpu_ms])
    return windows.rename(columns={"ratio": "pace"})


def _window(rows: pd.DataFrame) -> "pd.Series[str]":
    return rows["cell_id"].astype(str) + "#" + (rows["t_s"].astype(float) // WINDOW_S).astype(int).astype(str)


def _host_bound(
    rows: pd.DataFrame, unhindered: "np.ndarray[Any, np.dtype[np.bool_]]"
) -> "np.ndarray[Any, np.dtype[np.bool_]]":
    """Return which launches show the host alone; of a table without MIN_ROWS of them, all."""
    bound = unhindered & (rows["num_tokens"] <= _LARGEST_TOKENS).to_numpy()
    enough = pd.Series(bound).groupby(rows["table"].to_numpy()).transform("sum") >= MIN_ROWS
    return np.asarray(bound | ~enough.to_numpy())


def _windows(rows: pd.DataFrame) -> pd.DataFrame:
    """Return launch_id, cell_id, the commonest table and the median ratio of each window with enough rows.

    Where no window has enough, all are returned.
    """
    grouped = rows.groupby("window")
    windows = grouped.agg(launch_id=("launch_id", "first"), cell_id=("cell_id", "first"), ratio=("ratio", "median"))
    counts = rows.groupby(["window", "table"]).size().unstack(fill_value=0)
    windows["table"] = counts.idxmax(axis=1) if len(counts) else None
    enough = grouped.size() >= _MIN_IN_WINDOW
    return windows[enough] if enough.any() else windows


def _of_rows(window: "pd.Series[str]", cell: "pd.Series[Any]", paces: pd.DataFrame) -> Array:
    """Return the pace of each row's window; of its cell where the window has too few rows; else the median."""
    of_window, of_cell = (
        names.map(pace).to_numpy(float, na_value=np.nan)
        for names, pace in ((window, paces["pace"]), (cell, paces.groupby("cell_id")["pace"].median()))
    )
    known = np.where(np.isnan(of_window), of_cell, of_window)
    return np.where(np.isnan(known), paces["pace"].median(), known)


def typical_pace(paces: pd.DataFrame) -> tuple[HostPace, dict[TableName, float]]:
    """Return how slow the host of a typical launch is over time, and the pace of each table at slowness 1.

    Slowness 1 is the 90th percentile of the windows of each table: kernel by kernel, a step suffers more than as a
    graph. The rest are medians over launches: of the quantiles of the slowness over time, and of its memory.
    """
    slowest = paces.groupby("table")["pace"].quantile(_SLOW).clip(lower=1.0)
    span = paces["table"].map(slowest) - 1
    slowness = ((paces["pace"] - 1) / span.where(span > 0)).fillna(0.0)
    paces = paces.assign(slowness=slowness)
    shares = (np.arange(_VALUES) + 0.5) / _VALUES
    quantiles = [np.quantile(own["slowness"], shares) for _, own in paces.groupby("launch_id")]
    numbered = paces.assign(number=paces.index.str.rsplit("#", n=1).str[1].astype(int))
    later = numbered.assign(number=numbered["number"] - _LAG_WINDOWS)[["cell_id", "number", "slowness"]]
    pairs = numbered.merge(later, on=["cell_id", "number"], suffixes=("", "_later"))
    lag_s = _LAG_WINDOWS * WINDOW_S
    memories = [_correlation(own["slowness"], own["slowness_later"]) for _, own in pairs.groupby("launch_id")]
    memory = float(np.median(memories)) if memories else 0.0
    # A value redrawn after an exponential time of mean d has correlation exp(-lag / d).
    dwell_s = -lag_s / np.log(np.clip(memory, np.exp(-lag_s / WINDOW_S), 0.99))
    states = tuple(float(value) for value in np.median(quantiles, axis=0))
    return HostPace(slowness=states, dwell_s=float(dwell_s)), {name: float(slowest[name]) for name in slowest.index}


def recorded_pace(steps: pd.DataFrame, calibration: Calibration) -> HostPace | None:
    """Return the pace that the host had in one cell by ``unprobed_windows``; None where no window shows it.

    A window that shows none has the pace of the one before.
    """
    tables = calibration.tables
    windows = unprobed_windows(steps, tables, calibration.loop)
    span = windows["table"].map({name: table.slow_pace - 1 for name, table in tables.items()})
    slowness = ((windows["pace"] - 1) / span.where(span > 0)).fillna(0.0)
    if slowness.empty:
        return None
    numbered = pd.Series(slowness.to_numpy(float), index=slowness.index.str.rsplit("#", n=1).str[1].astype(int))
    every = numbered.sort_index().reindex(range(numbered.index.max() + 1)).ffill().bfill()
    return HostPace(slowness=tuple(every), dwell_s=WINDOW_S, recorded=True)


def _correlation(one: "pd.Series[float]", other: "pd.Series[float]") -> float:
    """Return the correlation of two columns; 0 where either is constant."""
    spread = float(one.std(ddof=0) * other.std(ddof=0)) if len(one) > 2 else 0.0
    return float(((one - one.mean()) * (other - other.mean())).mean()) / spread if spread > 0 else 0.0

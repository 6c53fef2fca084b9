"""Measured steps in; what each costs a quiet host, and how the host's pace wandered meanwhile, out.

A shared host slows down by a factor of up to two and recovers, within seconds and whatever runs on it. An average over
that would charge each kind of step with the luck of the seconds in which it was measured, so pace and cost are fitted
in turn.
"""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from artifact.analysis.calibration.step_fit import MIN_ROWS, Array, launch_design, robust_nnls
from artifact.simulator.cost import HostPace, TableName

WINDOW_S = 0.25  # in which the pace is taken as constant
_MIN_IN_WINDOW = 3
_QUIET = 0.1  # the share of a launch's windows that is quiet at least: its pace is called 1
_SLOW = 0.9  # the quantile of a table's paces that is called slow
_LARGEST_TOKENS = 512  # above, the launch waits for room in the GPU's queue
_GPU_SHARE = 0.85  # of a period: above, the host waits for the whole graph of the step before
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


def fit_host(rows: pd.DataFrame) -> HostFit:
    """Fit the host's costs and its pace to each other. Pace 1 is that of the quietest tenth of each launch.

    ``rows`` has the heavy probe's columns, table, cell_id and launch_id. Rows where the host waits for the GPU are
    left out where others exist; their pace is that of their neighbours.
    """
    shown = _host_bound(rows)
    window = _window(shown)
    launch_ms, requests = shown["launch_ms"].to_numpy(float), shown["num_reqs"].to_numpy(float)
    loop_ms = np.maximum(shown["wall_ms"].to_numpy(float) - launch_ms, 1e-6)
    design = launch_design(shown)
    tables = {name: (shown["table"] == name).to_numpy() for name in shown["table"].unique()}
    pace = np.ones(len(shown))
    costs: dict[TableName, Array] = {}
    for _ in range(12):
        cost = np.zeros(len(shown))
        for name, own in tables.items():
            costs[name] = robust_nnls(design[own] * pace[own, None], launch_ms[own])
            cost[own] = design[own] @ costs[name]
        windows = shown[["launch_id", "cell_id", "table"]].assign(
            window=window, ratio=launch_ms / np.maximum(cost, 1e-6)
        )
        paces = _windows(windows)
        quiet = paces.groupby("launch_id")["ratio"].quantile(_QUIET)
        paces = paces.assign(pace=paces["ratio"] / paces["launch_id"].map(quiet))
        pace = _of_rows(windows["window"], windows["cell_id"], paces)
    loop = robust_nnls(loop_design(requests) * pace[:, None], loop_ms)
    every_pace = pd.Series(_of_rows(_window(rows), rows["cell_id"], paces), index=rows.index)
    return HostFit(every_pace, costs, loop, paces)


def unprobed_windows(steps: pd.DataFrame, fitted: HostFit) -> pd.DataFrame:
    """Return windows as ``HostFit.windows`` has them, of cells without the heavy probe: empty where there is none.

    ``steps`` has the light columns, table, cell_id and launch_id. With asynchronous scheduling the host issues step n+1
    between the outputs of steps n-1 and n, so that interval is set against what n+1 costs by ``fitted``; the requests
    running after a step stand for those in it.
    """
    steps = steps.sort_values(["cell_id", "step"])
    cells = steps.groupby("cell_id")
    before, issued = cells[["t_s", "num_running"]].shift(1), cells[["table", "num_running", "num_tokens"]].shift(-1)
    busy = (before["num_running"] > 0) & (steps["num_running"] > 0) & (issued["num_running"] > 0)
    used = busy & (issued["num_tokens"] <= _LARGEST_TOKENS) & issued["table"].isin(fitted.launch)
    rows, issued = steps[used], issued[used]
    once = loop_design(issued["num_running"].to_numpy(float))
    costs = np.array([fitted.launch[name] for name in issued["table"]]).reshape(-1, 3)
    cost = (np.column_stack([once, issued["num_tokens"] > issued["num_running"]]) * costs).sum(axis=1)
    period_ms = (rows["t_s"] - before["t_s"][used]).to_numpy(float) * 1e3
    ratio = period_ms / np.maximum(cost + once @ fitted.loop, 1e-6)
    windows = _windows(issued[["table"]].join(rows[["launch_id", "cell_id"]]).assign(window=_window(rows), ratio=ratio))
    return windows.rename(columns={"ratio": "pace"})


def _window(rows: pd.DataFrame) -> "pd.Series[str]":
    return rows["cell_id"].astype(str) + "#" + (rows["t_s"].astype(float) // WINDOW_S).astype(int).astype(str)


def _host_bound(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows whose period is the host's; of a table without MIN_ROWS of them, all rows with a period."""
    rows = rows[rows["wall_ms"] > 0]
    waits = (rows["runtime_mode"] == "FULL") & (rows["gpu_ms"] > _GPU_SHARE * rows["wall_ms"])
    bound = (rows["num_tokens"] <= _LARGEST_TOKENS) & ~waits
    enough = bound.groupby(rows["table"]).transform("sum") >= MIN_ROWS
    return rows[bound | ~enough]


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
    of_cell = cell.map(paces.groupby("cell_id")["pace"].median())
    return window.map(paces["pace"]).fillna(of_cell).fillna(paces["pace"].median()).to_numpy(float)


def typical_pace(paces: pd.DataFrame) -> tuple[HostPace, dict[TableName, float]]:
    """Return how slow the host of a typical launch is over time, and the pace of each table at slowness 1.

    Slowness 1 is the 90th percentile of the windows of each table: kernel by kernel, a step suffers more than as a
    graph. The rest are medians over launches: of the quantiles of the slowness over time, and of its memory.
    """
    slowest = paces.groupby("table")["pace"].quantile(_SLOW).clip(lower=1.0)
    span = paces["table"].map(slowest) - 1
    slowness = ((paces["pace"] - 1) / span.where(span > 0)).fillna(0.0).clip(lower=0.0)
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


def _correlation(one: "pd.Series[float]", other: "pd.Series[float]") -> float:
    """Return the correlation of two columns; 0 where either is constant."""
    spread = float(one.std(ddof=0) * other.std(ddof=0)) if len(one) > 2 else 0.0
    return float(((one - one.mean()) * (other - other.mean())).mean()) / spread if spread > 0 else 0.0

"""The steps of a cell in, how they were dispatched and how stable the batch was out."""

import numpy as np
import pandas as pd

Value = float | int | None


def inside(steps: pd.DataFrame, window: tuple[float, float] | None) -> pd.DataFrame:
    """Return the steps with ``t_s`` in [from, to), in order of time; all of them without a window."""
    rows = steps.sort_values("t_s", kind="stable")
    return rows if window is None else rows[(rows["t_s"] >= window[0]) & (rows["t_s"] < window[1])]


def summarise(steps: pd.DataFrame, window: tuple[float, float] | None = None) -> dict[str, Value]:
    """Return the stability columns of records.CellRow from steps (records.STEP_COLUMNS) in ``window``."""
    rows = inside(steps, window)
    return {
        **mode_counts(rows),
        "padding_ratio": padding_ratio(rows),
        "running_cv": running_cv(rows),
        "uniform_decode_share": uniform_decode_share(rows),
    }


def mode_counts(steps: pd.DataFrame) -> dict[str, Value]:
    """Return ``steps_full, steps_piecewise, steps_none``; None where no step has a runtime mode: unknown is not 0."""
    modes = steps["runtime_mode"].dropna()
    return {
        f"steps_{mode.lower()}": int((modes == mode).sum()) if len(modes) else None
        for mode in ("FULL", "PIECEWISE", "NONE")
    }


def padding_ratio(steps: pd.DataFrame) -> float | None:
    """Return sum of padded tokens / sum of tokens - 1 over the steps that have both; None where there are none."""
    known = steps[["num_tokens", "padded_tokens"]].dropna()
    tokens = int(known["num_tokens"].sum())
    return float(known["padded_tokens"].sum() / tokens - 1) if tokens else None


def running_cv(steps: pd.DataFrame) -> float | None:
    """Return the coefficient of variation of the running requests over time; ``steps`` in order of ``t_s``.

    A step's number holds until the next step. None for fewer than two steps at different times or a mean of 0.
    """
    known = steps[["t_s", "num_running"]].dropna()
    hold_s = np.diff(known["t_s"].to_numpy(dtype=np.float64))
    if not hold_s.sum() > 0:
        return None
    running = known["num_running"].to_numpy(dtype=np.float64)[:-1]
    mean = np.average(running, weights=hold_s)
    if not mean > 0:
        return None
    return float(np.sqrt(np.average((running - mean) ** 2, weights=hold_s)) / mean)


def uniform_decode_share(steps: pd.DataFrame) -> float | None:
    """Return the share of steps in which every request decodes one token: what a FULL decode graph can replay.

    Needs the heavy probe's columns: the number of tokens alone does not tell a prompt of two tokens from two decoding
    requests. None without them. Speculative steps (1 + k tokens a request) do not count as uniform here.
    """
    known = steps[["num_reqs", "num_decode"]].dropna()
    known = known[known["num_reqs"] > 0]
    return float((known["num_decode"] == known["num_reqs"]).mean()) if len(known) else None


def graph_changes_per_s(steps: pd.DataFrame) -> float | None:
    """Return how often per second a step replays another graph than the step before; ``steps`` in order of ``t_s``.

    A graph is told by runtime mode and padded tokens; without a graph (NONE), by the mode alone. None where the modes
    are unknown or the steps span no time.
    """
    known = steps[["t_s", "runtime_mode", "padded_tokens"]].dropna(subset=["t_s", "runtime_mode"])
    span_s = float(known["t_s"].iloc[-1] - known["t_s"].iloc[0]) if len(known) else 0.0
    if not span_s > 0:
        return None
    modes = known["runtime_mode"].to_numpy(dtype=object)
    size = known["padded_tokens"].astype("Int64").fillna(-1).to_numpy(dtype=np.int64)
    size = np.where(modes == "NONE", 0, size)
    changed = (modes[1:] != modes[:-1]) | (size[1:] != size[:-1])
    return float(changed.sum() / span_s)

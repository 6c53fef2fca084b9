"""The requests of a cell in, its latency columns and flags out.

Times count from the *intended* arrival: a client that falls behind makes its requests late, and that is latency.

| metric | formula | none where |
|---|---|---|
| TTFT | first token - intended arrival | the request failed |
| TPOT | (last token - first token) / (output tokens - 1) | one output token |
| E2E | last token - intended arrival | the request failed |
| normalised latency | E2E / output tokens | the request failed |
| dispatch delay | sent - intended arrival | it was never sent |
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from artifact.schema import WorkloadConfig

# Values that a percentile needs: with fewer it is an extreme of the sample and is not reported.
NEEDS = {50: 1, 90: 10, 99: 100}
_CLIENT_DELAY_MS = 10.0
_RATE_TOLERANCE = 0.02
_OVERLOAD_TTFT_S = 1.0
_OVERLOAD_GROWTH = 1.5
_OVERLOAD_NEEDS = 20

Value = float | int | None


def percentile(values: npt.ArrayLike, q: float) -> float:
    """Return the ``q``-th percentile (0 to 100) by linear interpolation between order statistics (Hyndman-Fan 7).

    One value is its own percentile. Raises ValueError for no values, or where one is not finite.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0:
        raise ValueError("no values have no percentile")
    if not np.isfinite(array).all():
        raise ValueError("a value that is not finite has no place among percentiles")
    return float(np.percentile(array, q))


def finished(requests: pd.DataFrame) -> "pd.Series[bool]":
    """Return which rows finished: no failure, at least one output token, and times of the first and the last."""
    return (
        requests["failure"].isna()
        & (requests["output_tokens"] >= 1)
        & requests["first_token_s"].notna()
        & requests["last_token_s"].notna()
    )


def per_request(requests: pd.DataFrame) -> pd.DataFrame:
    """Return ``ttft_s, tpot_s, e2e_s, normalised_s, dispatch_delay_s`` of the measured requests that finished.

    ``requests`` has records.REQUEST_COLUMNS; the index is kept. TPOT is NaN for one-token outputs.
    """
    rows = requests[requests["measured"] & finished(requests)]
    tokens = rows["output_tokens"]
    e2e_s = rows["last_token_s"] - rows["intended_s"]
    return pd.DataFrame(
        {
            "ttft_s": rows["first_token_s"] - rows["intended_s"],
            "tpot_s": (rows["last_token_s"] - rows["first_token_s"]) / (tokens - 1).where(tokens > 1),
            "e2e_s": e2e_s,
            "normalised_s": e2e_s / tokens,
            "dispatch_delay_s": rows["sent_s"] - rows["intended_s"],
        }
    )


def measured_window(requests: pd.DataFrame, workload: WorkloadConfig) -> tuple[float, float] | None:
    """Return [from, to) in seconds on the cell's clock, for what is counted by time.

    [warmup_s, duration_s - cooldown_s) where the workload has a duration; else from the first measured request's
    intended arrival to the last measured token. None where no measured request finished.
    """
    if workload.duration_s is not None:
        return workload.warmup_s, workload.duration_s - workload.cooldown_s
    rows = requests[requests["measured"] & finished(requests)]
    if rows.empty:
        return None
    return float(rows["intended_s"].min()), float(rows["last_token_s"].max())


def output_rate(requests: pd.DataFrame, window: tuple[float, float] | None) -> float | None:
    """Return output tokens per second that reached the client in ``window``, of all requests that finished.

    A request's tokens after the first are taken as evenly spaced up to the last. So a cell that drains for long after
    its last arrival is not charged for the drain, and one that falls behind does not gain from it.
    """
    if window is None or window[1] <= window[0]:
        return None
    rows = requests[finished(requests)]
    first, last = rows["first_token_s"].to_numpy(), rows["last_token_s"].to_numpy()
    start, end = window
    overlap = np.clip(np.minimum(last, end) - np.maximum(first, start), 0, None)
    first_inside = (first >= start) & (first <= end)
    share = np.where(last > first, overlap / np.where(last > first, last - first, 1), first_inside)
    tokens = first_inside + (rows["output_tokens"].to_numpy() - 1) * share
    return float(tokens.sum() / (end - start))


def achieved_rate(requests: pd.DataFrame, offered_rate: float | None) -> float | None:
    """Return the rate in requests per second at which the client sent the measured requests: its ability, no more.

    offered x (share that was sent) x (span of the intended arrivals) / (span of the sends). Counting sends in a window
    would be off by the one or two that fall across its edges. None where nothing was offered (closed loop, bursts).
    """
    rows = requests[requests["measured"]]
    if offered_rate is None or rows.empty:
        return None
    sent = rows[rows["sent_s"].notna()]
    share = len(sent) / len(rows)
    intended_span, sent_span = (float(np.ptp(sent[name])) if len(sent) else 0.0 for name in ("intended_s", "sent_s"))
    return offered_rate * share * (intended_span / sent_span if intended_span > 0 and sent_span > 0 else 1.0)


def goodput(requests: pd.DataFrame, ttft_ms: float, tpot_ms: float) -> float | None:
    """Return the share of measured requests that finished within both targets, TTFT alone for one-token outputs.

    A failed request met none. None where nothing was measured.
    """
    measured = int(requests["measured"].sum())
    if not measured:
        return None
    times = per_request(requests)
    met = (times["ttft_s"] * 1e3 <= ttft_ms) & ((times["tpot_s"] * 1e3 <= tpot_ms) | times["tpot_s"].isna())
    return float(met.sum() / measured)


def _percentiles(name: str, seconds: "pd.Series[float]", ranks: tuple[int, ...]) -> dict[str, Value]:
    values = seconds.dropna().to_numpy() * 1e3
    enough = {rank: len(values) >= NEEDS[rank] for rank in ranks}
    return {f"{name}_p{rank}_ms": percentile(values, rank) if enough[rank] else None for rank in ranks}


def summarise(
    requests: pd.DataFrame, workload: WorkloadConfig, offered_rate: float | None
) -> tuple[dict[str, Value], list[str]]:
    """Return the latency columns of records.CellRow, None where there is no value, and the cell's flags.

    ``n_requests`` counts the measured requests that finished, which is n of every percentile but TPOT's; that is
    ``n_tpot``, without the one-token outputs. ``n_failed`` counts all requests of the cell that did not finish. A
    percentile needs NEEDS values.
    """
    times = per_request(requests)
    columns: dict[str, Value] = {
        "n_requests": len(times),
        "n_tpot": int(times["tpot_s"].notna().sum()),
        "n_failed": int((~finished(requests)).sum()),
        "offered_rate": offered_rate,
        "achieved_rate": achieved_rate(requests, offered_rate),
        **_percentiles("dispatch_delay", times["dispatch_delay_s"], (50, 99)),
        **_percentiles("ttft", times["ttft_s"], (50, 90, 99)),
        **_percentiles("tpot", times["tpot_s"], (50, 90, 99)),
        **_percentiles("e2e", times["e2e_s"], (50, 90, 99)),
        "output_tokens_per_s": output_rate(requests, measured_window(requests, workload)),
        "goodput": goodput(requests, workload.slo_ttft_ms, workload.slo_tpot_ms),
    }
    return columns, _flags(requests, times, workload, columns)


def _flags(
    requests: pd.DataFrame, times: pd.DataFrame, workload: WorkloadConfig, columns: dict[str, Value]
) -> list[str]:
    """Return what speaks against ranking the cell.

    ``client_bound``: median dispatch delay over 10 ms, or achieved and offered rate over 2 % apart; not for bursts,
    which a client sends one by one. ``overload``: see ``_overloaded``. ``failures``; ``outputs_differ``: a finished
    request with another number of tokens than planned; ``under_sampled``: too few values for a 99th percentile, of
    TPOT only where more than one token was planned.
    """
    done = requests[finished(requests)]
    delay_ms, offered, achieved = (columns[name] for name in ("dispatch_delay_p50_ms", "offered_rate", "achieved_rate"))
    slow = delay_ms is not None and delay_ms > _CLIENT_DELAY_MS
    off = bool(offered) and achieved is not None and abs(achieved / float(offered or 1) - 1) > _RATE_TOLERANCE
    process = workload.arrival.process
    has_tpot = bool((requests.loc[requests["measured"], "planned_output_tokens"] > 1).any())
    found = {
        "client_bound": process != "bursts" and (slow or off),
        "outputs_differ": bool((done["output_tokens"] != done["planned_output_tokens"]).any()),
        "failures": bool(columns["n_failed"]),
        "under_sampled": columns["ttft_p99_ms"] is None or (has_tpot and columns["tpot_p99_ms"] is None),
        "overload": process not in ("bursts", "closed") and _overloaded(requests, times),
    }
    return [name for name, holds in found.items() if holds]


def _overloaded(requests: pd.DataFrame, times: pd.DataFrame) -> bool:
    """Return whether the queue grows: the later half's median TTFT is over 1 s and over 1.5 times the earlier's.

    Under a steady overload TTFT grows in proportion to time, which gives a ratio of 1.5 or more as long as the warm-up
    is at most as long as the measured window. Fewer than twenty requests tell nothing.
    """
    if len(times) < _OVERLOAD_NEEDS:
        return False
    order: Any = requests.loc[times.index, "intended_s"].sort_values(kind="stable").index
    ttft_s = times.loc[order, "ttft_s"].to_numpy()
    earlier, later = np.median(ttft_s[: len(ttft_s) // 2]), np.median(ttft_s[len(ttft_s) // 2 :])
    return bool(later > _OVERLOAD_TTFT_S and later > _OVERLOAD_GROWTH * earlier)

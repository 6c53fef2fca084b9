"""A trace file and how to read it (conf/config.yaml, ``trace``) in, arrivals and lengths of its requests out."""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from artifact.errors import InputError
from artifact.schema import TraceConfig
from artifact.workloads import trace_formats
from artifact.workloads.recordings import LeftOut

_MOST_LISTED = 100_000
_SHORTEST_S, _LONGEST_S = 1e-9, 1e12


@dataclass(frozen=True, eq=False)
class Trace:
    """The requests of a trace, shape (n,) with n >= 1, in order of arrival; what was left out is counted."""

    format: str
    arrival_s: npt.NDArray[np.float64]  # ascending from 0
    prompt_tokens: npt.NDArray[np.int64]
    output_tokens: npt.NDArray[np.int64]
    dropped: tuple[tuple[int, str], ...] = ()  # line and reason of the first rows that were skipped
    dropped_count: int = 0  # of all bad rows
    reordered: int = 0  # rows with an earlier time than one before them, sorted in (lenient)
    too_long: int = 0  # requests over trace.max_tokens in the window, left out
    ties: int = 0  # requests whose time stamp is that of the one before them
    tie_rule: str = "burst"

    def __len__(self) -> int:
        return len(self.arrival_s)

    def until(self, end_s: float) -> "Trace":
        """Return the requests that arrive before ``end_s`` > 0: at least the first."""
        keep = self.arrival_s < end_s
        return replace(
            self,
            arrival_s=self.arrival_s[keep],
            prompt_tokens=self.prompt_tokens[keep],
            output_tokens=self.output_tokens[keep],
        )


def read(trace: TraceConfig) -> Trace:
    """Read ``trace.path`` and return the requests asked for; the file streams, 24 bytes a request are kept.

    In this order: ``window`` on the trace's own clock (seconds since its earliest request), ``max_tokens``,
    ``ties``, ``speedup``, ``gap_cap`` on the gaps that are then left, the first ``requests``. Arrivals count from
    the first request that is returned. Equal time stamps stay simultaneous (``burst``), or every request is moved
    on by a seeded random share of the smallest step between two stamps of the file (``spread``), in the file's
    order. A format without times gets seeded Poisson arrivals at ``rate_per_s``.

    Strict, the first bad row ends it; ``lenient`` skips bad rows, sorts by time, and keeps account. What a recording
    has no end of is counted either way. Raises
    InputError, ``FILE:LINE: reason`` for a row, and as ``trace_formats.rows`` does; also where nothing is left or
    more requests are asked for than there are.
    """
    if trace.path is None:
        raise InputError("trace.path: name the trace's file, trace.path=FILE")
    path = Path(trace.path)
    kind, parsed = trace_formats.rows(path, trace)
    rows = _collect(path, parsed, trace.lenient)
    order = np.argsort(rows.time_ns, kind="stable")
    time_ns = rows.time_ns[order] - rows.time_ns.min()
    clock_s = time_ns / 1e9 if trace.rate_per_s is None else _poisson(len(order), trace.rate_per_s, trace.seed)
    in_window = np.arange(len(order))[_window(path, clock_s, trace)]
    chosen = _short_enough(in_window, (rows.prompt + rows.output)[order], path, trace)
    if trace.requests is not None and trace.requests > len(chosen):
        where = "" if trace.window is None else f" in trace.window={list(trace.window)}"
        where += "" if trace.max_tokens is None else f" of at most trace.max_tokens={trace.max_tokens}"
        raise InputError(f"trace.requests={trace.requests}: {path} has {len(chosen)} requests{where}")
    moved_s = _spread_ties(time_ns, trace.seed) if trace.ties == "spread" and trace.rate_per_s is None else clock_s
    arrival_s = _replayed(moved_s[chosen], trace)[: trace.requests]
    taken = chosen[: trace.requests]
    return Trace(
        kind,
        arrival_s,
        rows.prompt[order[taken]],
        rows.output[order[taken]],
        tuple(rows.dropped),
        rows.dropped_count,
        reordered=int((rows.time_ns < np.maximum.accumulate(rows.time_ns)).sum()),
        too_long=len(in_window) - len(chosen),
        ties=int((np.diff(clock_s[taken]) == 0).sum()),
        tie_rule=trace.ties,
    )


@dataclass(frozen=True, eq=False)
class _Rows:
    """The file's usable rows in its order, and the others."""

    time_ns: npt.NDArray[np.int64]
    prompt: npt.NDArray[np.int64]
    output: npt.NDArray[np.int64]
    dropped: list[tuple[int, str]]
    dropped_count: int


def _collect(path: Path, parsed: Iterable[trace_formats.Parsed], lenient: bool) -> _Rows:
    columns = array("q"), array("q"), array("q")
    dropped: list[tuple[int, str]] = []
    dropped_count = 0
    for line, row in parsed:
        reason = row if isinstance(row, str) else None
        if not isinstance(row, str):
            if columns[0] and row[0] < columns[0][-1] and not lenient:
                reason = "out of time order: earlier than the row before it"
            else:
                for column, value in zip(columns, row, strict=True):
                    column.append(value)
        if reason is None:
            continue
        if not (lenient or isinstance(reason, LeftOut)):
            raise InputError(f"{path}:{line}: {reason} (trace.lenient=true skips bad rows and sorts)")
        dropped_count += 1
        if dropped_count <= _MOST_LISTED:
            dropped.append((line, reason))
        elif dropped_count > len(columns[0]):
            first = f"the first at line {dropped[0][0]}: {dropped[0][1]}"
            raise InputError(f"{path}: over {_MOST_LISTED:,} bad rows, more than good ones, {first}")
    if not columns[0]:
        first = f"; line {dropped[0][0]}: {dropped[0][1]}" if dropped else ""
        raise InputError(f"{path}: no usable request{first}")
    time_ns, prompt, output = (np.array(column, dtype=np.int64) for column in columns)
    return _Rows(time_ns, prompt, output, dropped, dropped_count)


def _poisson(n: int, rate_per_s: float, seed: int) -> npt.NDArray[np.float64]:
    gaps = np.random.default_rng(seed).exponential(1 / rate_per_s, n)
    arrival_s: npt.NDArray[np.float64] = np.cumsum(gaps) - gaps[0]
    return arrival_s


def _spread_ties(time_ns: npt.NDArray[np.int64], seed: int) -> npt.NDArray[np.float64]:
    """Return ascending times in seconds: each stamp and a uniform share of the smallest step to another stamp.

    The unit of the stamps would not do: Mooncake counts in ms and stamps every three seconds.
    """
    steps_ns = np.diff(time_ns)
    smallest_ns = int(steps_ns[steps_ns > 0].min()) if steps_ns.any() else 0
    share = np.random.default_rng(seed).random(len(time_ns)) * smallest_ns
    # Nobody leaves its stamp's step, so sorting orders each tie alone.
    moved: npt.NDArray[np.float64] = np.sort(time_ns + share) / 1e9
    return moved


def _short_enough(
    in_window: npt.NDArray[np.int64], tokens: npt.NDArray[np.int64], path: Path, trace: TraceConfig
) -> npt.NDArray[np.int64]:
    if trace.max_tokens is None:
        return in_window
    chosen = in_window[tokens[in_window] <= trace.max_tokens]
    if not len(chosen):
        raise InputError(f"trace.max_tokens={trace.max_tokens}: all {len(in_window)} requests of {path} are longer")
    return chosen


def _window(path: Path, clock_s: npt.NDArray[np.float64], trace: TraceConfig) -> slice:
    if trace.window is None:
        return slice(0, len(clock_s))
    start_s, end_s = trace.window
    if start_s >= end_s:
        raise InputError(f"trace.window={list(trace.window)}: must be [from, to) in seconds with from < to")
    first, end = np.searchsorted(clock_s, [start_s, end_s])
    if first == end:
        raise InputError(f"trace.window={list(trace.window)}: no request there; {path} lasts {clock_s[-1]:.3f} s")
    return slice(int(first), int(end))


def _replayed(clock_s: npt.NDArray[np.float64], trace: TraceConfig) -> npt.NDArray[np.float64]:
    """Return arrivals from 0 on after the speed-up and then the gap cap."""
    span_s = clock_s[-1] - clock_s[0]
    if span_s and not _SHORTEST_S <= float(span_s) / trace.speedup <= _LONGEST_S:
        raise InputError(f"trace.speedup={trace.speedup}: {span_s:g} s would become under 1 ns or over 1e12 s")
    arrival_s = (clock_s - clock_s[0]) / trace.speedup
    gaps = np.diff(arrival_s)
    if trace.gap_cap is not None and (gaps > trace.gap_cap).any():
        return np.concatenate([[0.0], np.cumsum(np.minimum(gaps, trace.gap_cap))])
    return np.asarray(arrival_s, dtype=np.float64)


def describe(trace: Trace) -> dict[str, Any]:
    """Return what the ``trace`` command prints; what is undefined is None.

    ``duration_s`` is from the first to the last arrival, ``rate_per_s`` is 1 / mean gap, ``arrival_cv`` the gaps'
    standard deviation over their mean (from two gaps on), ``rate_profile`` the requests in each tenth of the
    duration. Percentiles interpolate linearly.
    """
    gaps = np.diff(trace.arrival_s)
    duration_s = float(trace.arrival_s[-1])
    mean_s = duration_s / len(gaps) if len(gaps) else 0.0
    return {
        "format": trace.format,
        "requests": len(trace),
        "duration_s": duration_s,
        "rate_per_s": 1 / mean_s if mean_s > 0 else None,
        "arrival_cv": float(gaps.std() / mean_s) if mean_s > 0 and len(gaps) > 1 else None,
        "prompt_tokens": _spread(trace.prompt_tokens),
        "output_tokens": _spread(trace.output_tokens),
        "ties": trace.ties,
        "tie_rule": trace.tie_rule,
        "too_long": trace.too_long,
        "reordered": trace.reordered,
        "rate_profile": _profile(trace.arrival_s),
        "dropped_count": trace.dropped_count,
        "dropped": [{"line": line, "reason": reason} for line, reason in trace.dropped],
    }


def _profile(arrival_s: npt.NDArray[np.float64]) -> list[int] | None:
    if not arrival_s[-1] > 0:
        return None
    tenth = np.minimum((arrival_s / arrival_s[-1] * 10).astype(np.int64), 9)
    return [int(count) for count in np.bincount(tenth, minlength=10)]


def _spread(tokens: npt.NDArray[np.int64]) -> dict[str, float]:
    p50, p90, p99 = (float(value) for value in np.percentile(tokens, [50, 90, 99]))
    return {"p50": p50, "p90": p90, "p99": p99, "max": int(tokens.max())}

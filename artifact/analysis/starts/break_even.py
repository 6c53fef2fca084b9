"""Loads and engine starts of every study in; how long an engine must serve until its graphs have paid, out.

Capturing costs seconds at the start, and every request afterwards ends sooner: requests = extra start-up seconds /
seconds saved per request, minutes = requests / rate / 60. That sets what all requests save in sum against how much
longer the engine was away; requests served side by side each count. A request saves the difference of its end-to-end
time (from the intended arrival to the last token) between two arms that served the same requests: TPOT saved x output
tokens, and what the first token came sooner.

Interval: the extra seconds are a difference of two means over launches (Welch), the saving a mean over blocks, and
their quotient has Fieller's interval. Assumed: means are normal, launches and blocks independent of each other.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from artifact.analysis.intervals import Estimate, quotient
from artifact.analysis.starts.start_up import ready
from artifact.study.store import read_requests

_FULL = ("FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")
# The mode, and what it is set against: graphs against none, full graphs against piecewise ones, the compiler alone and
# the default against neither.
CONTRASTS = (
    *((mode, "NONE") for mode in ("PIECEWISE", *_FULL)),
    *((mode, "PIECEWISE") for mode in _FULL),
    ("NONE", "EAGER"),
    ("FULL_AND_PIECEWISE", "EAGER"),
)
# What is to be earned back: the column of a start, and in which state of the compile cache (null: in any).
COSTS = {"capture": ("capture_s", None), "warm start": ("start_s", "warm"), "cold start": ("start_s", "cold")}
_ALIKE = ["model", "attention", "requested_mode", "graphs_piecewise", "graphs_full", "capture_sizes"]
_LOAD = ["study", "tile", "model", "attention", "workload", "load"]


def request_seconds(folders: Sequence[Path], cells: pd.DataFrame) -> pd.DataFrame:
    """Return, by cell id, ``e2e_s`` and ``decode_s`` (first to last token): means over its measured requests.

    Of the finished open loops in ``cells``; requests that did not finish are left out. Raises InputError where a study
    lacks its requests.
    """
    frames = []
    for folder in folders:
        wanted = usable(cells[cells["study"] == folder.name])["cell_id"]
        if wanted.empty:
            continue
        requests = read_requests(folder, list(wanted))
        done = requests[requests["measured"] & requests["failure"].isna() & requests["last_token_s"].notna()]
        frames.append(
            pd.DataFrame(
                {
                    "e2e_s": (done["last_token_s"] - done["intended_s"]).groupby(done["cell_id"]).mean(),
                    "decode_s": (done["last_token_s"] - done["first_token_s"]).groupby(done["cell_id"]).mean(),
                }
            )
        )
    nothing = pd.DataFrame(columns=["e2e_s", "decode_s"], index=pd.Index([], dtype="string"), dtype="float64")
    return pd.concat(frames) if frames else nothing


def usable(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the open-loop cells that finished without a flag, of arms that are a mode and no variant of one."""
    finished = (cells["status"] == "ok") & (cells["flags"] == "") & cells["offered_rate"].notna()
    return cells[finished & (cells["arm"] == cells["requested_mode"])]


def break_even(cells: pd.DataFrame, launches: pd.DataFrame, seconds: pd.DataFrame) -> pd.DataFrame:
    """Return a row per load, mode, reference and cost, of the open loops that both arms serve without a flag.

    ``launches`` as ``every_study.described``, ``seconds`` from ``request_seconds``. Modes with vLLM's own
    capture sizes alone, and no mode that vLLM changed. Columns: study, tile, model, attention, workload, load,
    rate_per_s, mode, against, cost; ``extra_s`` (with low and high) and how many launches of either side;
    ``saved_s`` per request (with low and high), ``saved_decode_s`` of it, blocks; ``requests`` and ``minutes`` with
    low and high; ``reason`` where there is no answer or no interval. An answer of 0: the start takes no longer. A
    low end below 0 is cut to 0. ``requests`` is null where nothing is saved: it never pays.
    """
    found = ready(launches)
    found = found[found["default_sizes"] & (found["requested_mode"] == found["realised_mode"])]
    costs, rows = _costs(found), []
    for load, rate, arms in _loads(cells, found, seconds):
        for mode, against in CONTRASTS:
            if mode not in arms or against not in arms:
                continue
            saved, decode = _saving(arms[mode], arms[against])
            if saved is None or decode is None:
                continue
            for cost in COSTS:
                if cost == "capture" and mode == "NONE":
                    continue
                extra, counts = _extra(costs, arms[mode], arms[against], cost)
                rows.append(
                    {**load, "rate_per_s": rate, "mode": mode, "against": against, "cost": cost, **counts}
                    | _answer(extra, saved, rate)
                    | {"saved_decode_s": decode.mean}
                )
    ends = ["extra_s", "extra_low", "extra_high", "launches", "launches_against"]
    answers = [f"{name}{end}" for name in ("requests", "minutes") for end in ("", "_low", "_high")]
    saving = ["saved_s", "saved_low", "saved_high", "saved_decode_s", "blocks"]
    columns = [*_LOAD, "rate_per_s", "mode", "against", "cost", *ends, *saving, *answers, "reason"]
    return pd.DataFrame(rows, columns=columns)


def _loads(
    cells: pd.DataFrame, launches: pd.DataFrame, seconds: pd.DataFrame
) -> Iterator[tuple[dict[str, Any], float, dict[str, pd.DataFrame]]]:
    """Yield each open-loop load, its rate, and its usable cells by mode, with the launch's own columns beside."""
    started = launches[["launch_id", "study", "attention", "graphs_piecewise", "graphs_full", "capture_sizes"]]
    joined = usable(cells).merge(started, on=["launch_id", "study"])
    joined = joined.merge(seconds, left_on="cell_id", right_index=True)
    for values, group in joined.groupby(_LOAD, dropna=False, observed=True):
        load: dict[str, Any] = dict(zip(_LOAD, values, strict=True))
        load = {name: None if pd.isna(value) else value for name, value in load.items()}
        yield (
            load,
            float(group["offered_rate"].mean()),
            {str(mode): arm for mode, arm in group.groupby("requested_mode")},
        )


def _saving(mine: pd.DataFrame, other: pd.DataFrame) -> tuple[Estimate | None, Estimate | None]:
    """Return what a request saves against ``other``, end to end and after its first token: means over blocks."""
    key = ["host_id", "block", "seed"]
    sides = [side.drop_duplicates(key).set_index(key)[["e2e_s", "decode_s"]] for side in (mine, other)]
    difference = (sides[1] - sides[0]).dropna()
    return Estimate.of(difference["e2e_s"]), Estimate.of(difference["decode_s"])


def _costs(launches: pd.DataFrame) -> dict[tuple[Any, ...], Estimate]:
    """Return what starts of one kind took, over launches of every study, by cost and the columns of _ALIKE."""
    found: dict[tuple[Any, ...], Estimate] = {}
    for cost, (column, state) in COSTS.items():
        # Eager compiles nothing, so no cache has a state.
        own = launches if state is None else launches[launches["state"].isin([state, "off"])]
        for values, group in own.groupby(_ALIKE, observed=True):
            if (mean := Estimate.of(group[column])) is not None:
                found[(cost, *values)] = mean
    return found


def _extra(
    costs: dict[tuple[Any, ...], Estimate], mine: pd.DataFrame, other: pd.DataFrame, cost: str
) -> tuple[Estimate | None, dict[str, int]]:
    """Return how much longer such starts take than the others, and how many there are of each."""
    one, two = (costs.get((cost, *side[_ALIKE].iloc[0])) for side in (mine, other))
    counts = {"launches": one.n if one else 0, "launches_against": two.n if two else 0}
    return (one.less(two) if one and two else None), counts


def _answer(extra: Estimate | None, saved: Estimate, rate_per_s: float) -> dict[str, Any]:
    """Return the numbers of one row, and the reason for those that are null."""
    row: dict[str, Any] = {"saved_s": saved.mean, "saved_low": saved.low, "saved_high": saved.high, "blocks": saved.n}
    if extra is None:
        return row | {"reason": "no such start was measured on both sides"}
    row |= {"extra_s": extra.mean, "extra_low": extra.low, "extra_high": extra.high}
    if saved.mean <= 0:
        return row | {"reason": "saves nothing at this load: never pays"}
    requests = max(extra.mean, 0.0) / saved.mean
    low, high = quotient(extra, saved)
    reasons = [] if extra.mean > 0 else ["starts no later: paid at once"]
    if low is None:
        unsure = saved.error is not None and extra.error is not None
        reasons.append("the saving may be none: no interval" if unsure else "one block or launch: no interval")
    numbers = {"requests": requests, "requests_low": _cut(low), "requests_high": _cut(high)}
    of_time = {
        name.replace("requests", "minutes"): None if value is None else value / rate_per_s / 60
        for name, value in numbers.items()
    }
    return row | numbers | of_time | {"reason": "; ".join(reasons) or None}


def _cut(end: float | None) -> float | None:
    return None if end is None else max(end, 0.0)

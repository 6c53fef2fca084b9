"""Engine starts of every study in; what starting and capturing cost, in seconds, bytes and KV tokens, out.

Input is ``every_study.Rows.launches``. Means are over launches, with their 95 % t-interval (null ends for one launch);
launches that share a machine are counted as independent.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from artifact.analysis.intervals import Estimate, line
from artifact.metrics.memory import estimate_error

PHASES = ("load_s", "compile_s", "profile_s", "capture_s", "unexplained_s", "start_s", "first_answer_s")
STATES = ("cold", "first", "warm", "off")
# What was started: launches that are equal in these are repetitions of one another.
KIND = ["model", "attention", "requested_mode", "realised_mode", "capture_sizes", "graphs_piecewise", "graphs_full"]
_GRAPHS = {"PIECEWISE": "piecewise", "FULL": "full, mixed", "FULL_DECODE_ONLY": "full, decode"}


def ready(launches: pd.DataFrame) -> pd.DataFrame:
    """Return the launches whose engine got ready, with the number of graphs and of what kind they are."""
    found = launches[(launches["status"] == "ok") & launches["start_s"].notna() & launches["state"].notna()]
    kinds = [
        "piecewise and full, decode" if mode == "FULL_AND_PIECEWISE" else _GRAPHS.get(mode, "none")
        for mode in found["realised_mode"].fillna("").str.removesuffix(":hollow")
    ]
    hollow = found["hollow"].fillna(value=False).astype(bool)
    full_alone = pd.Series(kinds, index=found.index).mask(hollow, "full, decode")
    return found.assign(graphs=found["graphs_piecewise"] + found["graphs_full"], graph_kind=full_alone)


def phases(launches: pd.DataFrame) -> pd.DataFrame:
    """Return a row per kind of start, state and phase: KIND, state, phase, mean, low, high, n, machines.

    Seconds; ``unexplained_share`` is what remains of ``start_s`` beside load, compile, profile and capture, as a share
    of it. ``start_s`` leaves out importing vLLM, which a run pays once.
    """
    found = ready(launches)
    found = found.assign(unexplained_share=found["unexplained_s"] / found["start_s"])
    rows = []
    for kind, group in _groups(found, [*KIND, "state"]):
        for phase in (*PHASES, "unexplained_share"):
            mean = Estimate.of(group[phase])
            if mean is not None:
                ends = {"mean": mean.mean, "low": mean.low, "high": mean.high, "n": mean.n}
                rows.append({**kind, "phase": phase, **ends, "machines": group["host_id"].nunique()})
    columns = [*KIND, "state", "phase", "mean", "low", "high", "n", "machines"]
    return pd.DataFrame(rows, columns=columns)


def memory(launches: pd.DataFrame) -> pd.DataFrame:
    """Return a row per kind of start that captured something: what its graphs take and what vLLM expected.

    ``graph_bytes`` and ``estimate_bytes`` are means over launches, ``graph_low`` and ``graph_high`` the least and the
    most. ``error_bytes``: estimate less measured; ``error_share``: that over measured. ``bytes_per_graph``: over the
    captured graphs of all kinds. ``invalid``: launches whose bytes are impossible and were left out (metrics.memory).
    """
    found = ready(launches)
    rows = []
    for kind, group in _groups(found[found["graphs"] > 0], [*KIND, "graph_kind", "graphs"]):
        valid = group[group["graph_bytes"].notna()]
        invalid = int(group["memory_valid"].eq(other=False).fillna(value=False).sum())
        measured, estimate = Estimate.of(valid["graph_bytes"]), Estimate.of(valid["graph_estimate_bytes"])
        if measured is None:
            rows.append({**kind, "n": 0, "invalid": invalid})
            continue
        errors = [
            estimate_error(_whole(one), _whole(other))
            for one, other in zip(valid["graph_estimate_bytes"], valid["graph_bytes"], strict=True)
        ]
        share = Estimate.of(error for error in errors if error is not None)
        rows.append(
            {
                **kind,
                "graph_bytes": measured.mean,
                "graph_low": float(valid["graph_bytes"].min()),
                "graph_high": float(valid["graph_bytes"].max()),
                "estimate_bytes": estimate and estimate.mean,
                "error_bytes": estimate and estimate.mean - measured.mean,
                "error_share": share and share.mean,
                "bytes_per_graph": measured.mean / kind["graphs"],
                "n": measured.n,
                "invalid": invalid,
            }
        )
    numbers = ["graph_bytes", "graph_low", "graph_high", "estimate_bytes", "error_bytes", "error_share"]
    columns = [*KIND, "graph_kind", "graphs", *numbers, "bytes_per_graph", "n", "invalid"]
    return pd.DataFrame(rows, columns=columns)


def _whole(value: Any) -> int | None:
    return None if pd.isna(value) else int(value)


def with_tokens(launches: pd.DataFrame) -> pd.DataFrame:
    """Return engine starts with the KV cache's ``tokens``, null where unknown, and ``how`` they are known.

    ``measured`` where vLLM sized the cache itself (no ``num_gpu_blocks_override``): ``kv_tokens`` as it came out. Under
    an override the size is the same for every mode, so there it is ``derived``: what profiling left for the cache
    before the override was applied (``kv_available_bytes``), over the bytes of one block, rounded down to whole blocks
    as vLLM does.
    """
    blocks = launches["kv_available_bytes"] // (launches["kv_bytes_per_token"] * launches["block_tokens"])
    derived = launches["kv_policy"] == "iso_kv"
    return launches.assign(
        how=np.where(derived, "derived", "measured"),
        tokens=launches["kv_tokens"].mask(derived, blocks * launches["block_tokens"]).astype("Float64"),
    )


def kv_tokens(launches: pd.DataFrame) -> pd.DataFrame:
    """Return what each kind of start has for the KV cache, and what it lacks against mode NONE, in tokens.

    ``how`` and ``tokens`` are those of ``with_tokens``. vLLM takes its *estimate* of the graphs off the cache, not what
    they take in the end; the rest comes out of the share of the GPU that ``gpu_memory_utilization`` leaves free.
    ``lost`` is against the mean of NONE on the same GPU with the same server settings but for the capture sizes, and on
    a cold compile cache too where this start was on one, since compiling leaves less for the cache; ``reason`` says why
    there is none.
    Columns: KIND, utilisation, how, tokens, lost, low, high, share (of NONE's), n, reason.
    """
    found = with_tokens(ready(launches))
    found = found[found["tokens"].notna()]
    found["alike"] = found["memory_key"] + (found["state"] == "cold").astype(str)
    none = found[found["realised_mode"] == "NONE"].groupby("alike")["tokens"].mean()
    found["of_none"] = found["alike"].map(none).astype("Float64")
    rows = []
    for kind, group in _groups(found, [*KIND, "utilisation", "how"]):
        against = group[group["of_none"].notna()]
        lost = Estimate.of(against["of_none"] - against["tokens"])
        rows.append(
            {
                **kind,
                "tokens": float(group["tokens"].mean()),
                "lost": lost and lost.mean,
                "low": lost and lost.low,
                "high": lost and lost.high,
                "share": lost and lost.mean / float(against["of_none"].mean()),
                "n": lost.n if lost else len(group),
                "reason": None if lost else "no start of NONE on the same GPU with the same settings and cache",
            }
        )
    columns = [*KIND, "utilisation", "how", "tokens", "lost", "low", "high", "share", "n", "reason"]
    return pd.DataFrame(rows, columns=columns)


def by_sizes(launches: pd.DataFrame) -> pd.DataFrame:
    """Return how graph memory and capture time grow with the number of capture sizes, and of graphs.

    A least-squares line over launches, per model, backend, realised mode and max_num_seqs (which bounds the decode
    graphs); three different numbers are needed, else the slope is null and ``reason`` says so. Lists are vLLM's own,
    cut, so a longer one holds larger sizes too: the slope is a mean over such lists, not the price of any one size.
    Lists that were given size by size are left out.
    Columns: model, attention, realised_mode, max_num_seqs, of (``graph_bytes`` or ``capture_s``), per
    (``capture_sizes`` or ``graphs``), slope, low, high, intercept, n, numbers (how many different ones), reason.
    """
    found = ready(launches[launches["own_list"]])
    rows = []
    same = ["model", "attention", "realised_mode", "max_num_seqs"]
    for kind, group in _groups(found[found["graphs"] > 0], same):
        for of in ("graph_bytes", "capture_s"):
            for per in ("capture_sizes", "graphs"):
                valid = group[group[of].notna()]
                numbers = int(valid[per].nunique())
                fit = line(valid[per], valid[of])
                row = {**kind, "of": of, "per": per, "n": len(valid), "numbers": numbers}
                if fit is None:
                    rows.append(row | {"reason": f"{numbers} different numbers of sizes; a line needs 3"})
                else:
                    rows.append(row | fit._asdict())
    columns = [*same, "of", "per", "slope", "low", "high", "intercept", "n", "numbers", "reason"]
    return pd.DataFrame(rows, columns=columns)


def _groups(frame: pd.DataFrame, keys: list[str]) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Yield the values of ``keys`` and the rows that have them, in order."""
    for values, group in frame.groupby(keys, dropna=False, observed=True):
        yield dict(zip(keys, values, strict=True)), group

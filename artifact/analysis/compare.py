"""Rows of a study in, a table for people out; rows of two studies in, the same cells side by side out."""

import pandas as pd

from artifact.metrics.memory import believed

# Of cells.parquet and launches.parquet: what a reader of the smoke study looks at.
METRICS = ("tpot_p50_ms", "tpot_p99_ms", "ttft_p50_ms", "ttft_p99_ms")
_SAME = ["arm", "model", "workload", "load", "requested_mode", "backend"]
_SERVED = ["seed", "offered_rate", "server_hash"]  # with these, too, two cells served the same requests


def overview(cells: pd.DataFrame, launches: pd.DataFrame) -> pd.DataFrame:
    """Return one row per cell, by arm and workload, with its launch's graph memory (MiB) and capture time (s)."""
    of_launch = believed(launches)[["launch_id", "graph_bytes", "capture_s"]]
    joined = cells.merge(of_launch, on="launch_id", how="left", suffixes=("", "_launch"))
    joined["graph_mib"] = joined["graph_bytes"].astype("float64") / 2**20
    columns = ["block", "arm", "workload", "load", "realised_mode", "status", "n_requests", *METRICS]
    return joined.sort_values(["tile", "block", "workload", "load", "arm"])[
        [*columns, "graph_mib", "capture_s", "flags"]
    ]


def side_by_side(cells: pd.DataFrame, reference: pd.DataFrame) -> pd.DataFrame:
    """Return a row per arm, workload and load of which both frames (CellRow columns) finished the same cells.

    The same cells: with equal requests on an equal server; a trace's seed alone would not tell another window of it.
    Columns: arm, workload, load (NaN for none), and for each of METRICS its median over those cells in ``cells``, in
    ``reference`` (suffix ``_reference``) and the relative difference (suffix ``_difference``; 0.1 is 10 % above the
    reference). A value that either lacks is NaN. Realised modes are not compared: the simulator takes its own from the
    rules.
    """
    numbers = dict.fromkeys(("load", "offered_rate", *METRICS), "float64")
    one, other = (
        frame[frame["status"] == "ok"][[*_SAME, *_SERVED, *METRICS]].astype(numbers).round({"offered_rate": 6})
        for frame in (cells, reference)
    )
    alike = one[[*_SAME, *_SERVED]].merge(other[[*_SAME, *_SERVED]]).drop_duplicates()
    medians = [
        frame.merge(alike).groupby(_SAME, observed=True, dropna=False, as_index=False)[list(METRICS)].median()
        for frame in (one, other)
    ]
    joined = medians[0].merge(medians[1], on=_SAME, suffixes=("", "_reference"))
    for metric in METRICS:
        joined[f"{metric}_difference"] = joined[metric] / joined[f"{metric}_reference"] - 1
    return joined.drop(columns=["model", "requested_mode", "backend"])

"""Rows of a study in, a table for people out; rows of two studies in, the same cells side by side out."""

import pandas as pd

from artifact.metrics.memory import believed

# Of cells.parquet and launches.parquet: what a reader of the smoke study looks at.
METRICS = ("tpot_p50_ms", "tpot_p99_ms", "ttft_p50_ms", "ttft_p99_ms")
_SAME = ["arm", "model", "workload", "requested_mode", "backend"]


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
    """Return a row per arm and workload that both frames (CellRow columns) have finished cells of.

    Columns: arm, workload, and for each of METRICS its median over the cells in ``cells``, in ``reference`` (suffix
    ``_reference``) and the relative difference (suffix ``_difference``; 0.1 is 10 % above the reference). A value
    that either lacks is NaN. Realised modes are not compared: the simulator takes its own from the rules.
    """
    pick = [*_SAME, *METRICS]
    both = []
    for frame in (cells, reference):
        finished = frame[frame["status"] == "ok"][pick]
        both.append(finished.groupby(_SAME, observed=True)[list(METRICS)].median().astype("float64"))
    joined = both[0].join(both[1].add_suffix("_reference"), how="inner").reset_index()
    for metric in METRICS:
        joined[f"{metric}_difference"] = joined[metric] / joined[f"{metric}_reference"] - 1
    return joined.drop(columns=["model", "requested_mode", "backend"])

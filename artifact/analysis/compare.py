"""Rows of two studies in, one table of the same cells side by side out."""

import pandas as pd

# Of cells.parquet and launches.parquet: what a reader of the smoke study looks at.
METRICS = ("tpot_p50_ms", "tpot_p99_ms", "ttft_p50_ms", "ttft_p99_ms")
_SAME = ["arm", "model", "workload", "requested_mode", "backend"]


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

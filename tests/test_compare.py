"""Two studies side by side."""

import numpy as np
import pandas as pd
import pytest

from artifact.analysis.compare import METRICS, side_by_side


def cells(**changes) -> pd.DataFrame:
    base = {
        "arm": ["FULL", "FULL", "NONE"],
        "model": "m",
        "workload": ["churn", "steady", "churn"],
        "requested_mode": ["FULL", "FULL", "NONE"],
        "backend": "FLASH_ATTN",
        "status": "ok",
        **{metric: [2.0, 4.0, 8.0] for metric in METRICS},
    }
    return pd.DataFrame(base | changes)


def test_differences_are_relative_to_the_reference() -> None:
    table = side_by_side(cells(tpot_p50_ms=[3.0, 4.0, 6.0]), cells())
    assert table[["arm", "workload"]].to_numpy().tolist() == [["FULL", "churn"], ["FULL", "steady"], ["NONE", "churn"]]
    assert table["tpot_p50_ms_difference"].tolist() == pytest.approx([0.5, 0.0, -0.25])


def test_only_what_both_finished_is_compared() -> None:
    table = side_by_side(cells(), cells(status=["ok", "oom", "ok"]))
    assert table["workload"].tolist() == ["churn", "churn"]


def test_what_one_lacks_is_no_number() -> None:
    table = side_by_side(cells(ttft_p99_ms=[np.nan, 4.0, 8.0]), cells())
    assert table["ttft_p99_ms_difference"].isna().tolist() == [True, False, False]


def test_other_backends_are_other_arms() -> None:
    assert side_by_side(cells(backend="FLASHINFER"), cells()).empty

"""Two studies side by side."""

from io import StringIO

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from artifact.analysis.compare import METRICS, side_by_side
from artifact.tables import commands


def cells(**changes) -> pd.DataFrame:
    base = {
        "arm": ["FULL", "FULL", "NONE"],
        "model": "m",
        "workload": ["churn", "steady", "churn"],
        "requested_mode": ["FULL", "FULL", "NONE"],
        "backend": "FLASH_ATTN",
        "status": "ok",
        "load": np.nan,
        "seed": [1, 2, 1],
        "offered_rate": [40.0, 40.0, 40.0],
        "server_hash": "s",
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


def test_other_requests_are_other_cells() -> None:
    for change in ({"offered_rate": 41.0}, {"seed": 3}, {"server_hash": "t"}, {"load": 0.6}):
        assert side_by_side(cells(**change), cells()).empty


def test_loads_have_rows_of_their_own_and_blocks_that_one_lacks_do_not_count() -> None:
    both = pd.concat([cells(load=0.35), cells(load=0.85, tpot_p50_ms=20.0)])
    more = pd.concat([both, cells(load=0.85, tpot_p50_ms=99.0, seed=7)])
    table = side_by_side(more, both)
    assert table["load"].tolist() == [0.35, 0.85] * 3
    assert table["tpot_p50_ms_difference"].tolist() == [0.0] * 6


def test_a_run_shows_them_with_their_load() -> None:
    answer = {"study": "s", "source": "simulated", "rows": [], "results": "r", "cells": "ok 1"}
    answer |= {"evidence": "simulated", "seconds": 1.0}
    both = side_by_side(pd.concat([cells(), cells(load=0.6)]), pd.concat([cells(), cells(load=0.6)]))
    beside = both.astype(object).where(both.notna(), None).to_dict("records")  # as an answer has it
    shown = Console(width=120, file=StringIO())
    commands.run({**answer, "beside_measured": beside}, shown)
    text = shown.file.getvalue()
    assert "medians of the same cells" in text
    assert text.count("churn, load 0.6") == 2
    assert "2.00 |   2.00 (+0%)" in text.replace("|    ", "|   ")

"""What study=confirm found on a trace: the shipped rows, as a table and in the guide, and traces in words."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from artifact.analysis import fidelity
from artifact.analysis.confirm_table import confirm_table
from artifact.analysis.contrasts import confirmed
from artifact.analysis.guide.text import _confirmed as in_the_guide
from artifact.analysis.tables_markdown import render
from artifact.errors import InputError
from artifact.study.store import read_cells

DATA = Path(__file__).parents[1] / "paper_figures" / "data"


def test_the_shipped_rows_are_paired_by_block() -> None:
    found = confirmed.read(DATA)
    assert found is not None
    tpot = {each.metric: each for each in found.findings}["tpot_p50_ms"]
    cells = read_cells(DATA / "confirm").pivot(index="block", columns="arm", values="tpot_p50_ms")
    assert sorted(tpot.ratios) == pytest.approx(sorted(cells["FULL"] / cells["FULL_AND_PIECEWISE"]))
    assert found.trace == (
        "AzureLLMInferenceTrace_conv.csv, seconds 1200 to 1380, 8.9 times its speed, requests of up to 8,192 tokens"
    )


def test_the_table_and_the_guide_give_the_same_contrasts() -> None:
    found = confirmed.read(DATA)
    assert found is not None
    table = render("confirm", DATA)
    guide = "\n".join(in_the_guide({"trace": found.trace, "contrasts": [each.row() for each in found.findings]}))
    assert found.trace in table
    assert found.trace in guide
    ratios = [line.rsplit("| ", 1)[1].removesuffix(" |") for line in table.splitlines() if line.startswith("| FULL |")]
    assert len(ratios) == 4
    assert all(ratio in guide for ratio in ratios)
    assert "Exploratory, 4 of 8 blocks" in guide


def test_without_the_study_there_is_nothing(tmp_path: Path) -> None:
    assert confirmed.read(tmp_path) is None
    assert in_the_guide(None) == []
    with pytest.raises(InputError, match="artifact run study=confirm"):
        confirm_table(tmp_path)


@pytest.mark.parametrize(
    ("traces", "words"),
    [
        ([{"path": "a.csv", "window": None, "speedup": 1.0, "max_tokens": None}], "a.csv"),
        (
            [{"path": "a.csv", "window": [0, 30], "speedup": 2.0, "max_tokens": None}],
            "a.csv, seconds 0 to 30, 2 times its speed",
        ),
        ([{"path": "a.csv"}, {"path": "b.csv"}], "a trace"),
        ([{}], "a trace"),
    ],
)
def test_a_trace_is_named_where_all_starts_served_it(traces: list[dict[str, Any]], words: str) -> None:
    launches = pd.DataFrame({"provenance": [json.dumps({"config": {"trace": trace}}) for trace in traces]})
    assert confirmed._trace(launches) == words


def test_the_simulator_is_asked_for_the_trace_that_was_served() -> None:
    asked = fidelity._asked(DATA / "confirm")
    assert "trace.path=traces/AzureLLMInferenceTrace_conv.csv" in asked
    assert "trace.window=[1200.0, 1380.0]" in asked
    assert 'study.arms.FULL=["mode=full"]' in asked
    assert fidelity._asked(DATA / "load_sweep") == []

"""What study=confirm found on a trace: the shipped rows, as a table and in the guide, and traces in words."""

from pathlib import Path

import pytest

from artifact.analysis import fidelity
from artifact.analysis.confirm_table import confirm_table
from artifact.analysis.contrasts import confirmed
from artifact.analysis.guide.text import _confirmed as in_the_guide
from artifact.analysis.tables_markdown import render
from artifact.errors import InputError
from artifact.study.store import read_cells
from tests.launch_support import cell, launch, write

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


def test_of_two_traces_in_one_folder_the_last_counts(tmp_path: Path) -> None:
    launches, cells = [], []
    for number, (window, tpot) in enumerate([([0, 9], 4.0), ([0, 9], 2.0), ([5, 9], 3.0), ([5, 9], 2.0)]):
        mode = ("FULL", "FULL_AND_PIECEWISE")[number % 2]
        given = [f"trace.path={tmp_path}/a.csv", f"trace.window={window}", "trace.speedup=2", "workload=trace"]
        launches.append(launch(number, mode, given, study="confirm", tile="trace"))
        own = {"cell_id": f"trace-own-{number}", "workload": "trace", "n_requests": 400, "tpot_p50_ms": tpot}
        cells.append(cell(number, launches[-1], **own))
    write(tmp_path / "confirm", launches, cells, {})
    found = confirmed.read(tmp_path)
    assert found is not None
    assert [each.ratios for each in found.findings if each.metric == "tpot_p50_ms"] == [(1.5,)]
    assert found.trace == f"{tmp_path}/a.csv, seconds 5 to 9, 2 times its speed"


def test_the_simulator_is_asked_for_the_trace_that_was_served() -> None:
    asked = fidelity._asked(DATA / "confirm")
    assert "trace.path=traces/AzureLLMInferenceTrace_conv.csv" in asked
    assert "trace.window=[1200.0, 1380.0]" in asked
    assert 'study.arms.FULL=["mode=full"]' in asked
    assert fidelity._asked(DATA / "load_sweep") == []

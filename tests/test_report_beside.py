"""Simulated rows of measured cells: the page has them beside the measurements, and the command writes it there."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from artifact.cli import main
from artifact.engines.sim_engine import SimEngine
from artifact.report import gather
from artifact.schema import Evidence
from artifact.study.plan import plan
from artifact.study.run import run
from artifact.study.store import Store

DATA = Path(__file__).parents[1] / "paper_figures" / "data"


@pytest.fixture(scope="module")
def of_the_same_cells(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first two launches of the smoke study as it was measured."""
    results = tmp_path_factory.mktemp("like")
    planned = plan(["study=smoke", "engine=sim", f"executor.results={results}", "tracking=off"], Evidence.SIMULATED)
    run(replace(planned, launches=planned.launches[:2]), Store(results / "smoke"), lambda log: SimEngine())
    return results


def test_simulated_rows_stand_beside_those_measured_of_the_same_cells(of_the_same_cells: Path) -> None:
    (beside,) = gather(of_the_same_cells / "smoke", DATA / "smoke").beside
    assert len(beside.rows) == 4
    assert "TPOT p50 measured" in beside.heads


def test_the_command_writes_beside_the_rows(of_the_same_cells: Path, tmp_path: Path, capsys: Any) -> None:
    assert main(["report", f"executor.results={of_the_same_cells}", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["report"] == str(of_the_same_cells / "smoke" / "report.html")
    assert "Beside the measurements" in Path(answer["report"]).read_text(encoding="utf-8")
    # shipped folders stay as they are
    assert main(["report", f"report.folder={DATA / 'saturation'}", f"figures.out={tmp_path}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["report"] == str(tmp_path / "report_saturation.html")
    assert not (DATA / "saturation" / "report.html").exists()

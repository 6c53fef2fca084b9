"""The whole path on the simulator: compose, plan, run, store, track, draw, compare with the measurements."""

import json
from pathlib import Path

import pandas as pd
import pytest

from artifact.cli import main

ARMS = {"EAGER", "NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE", "FULL@FLASHINFER"}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    assert main(["run", "study=smoke", "engine=sim", f"executor.results={folder}", "--json"]) == 0
    return folder


def test_every_planned_cell_has_a_row(results: Path) -> None:
    cells = pd.read_parquet(results / "smoke" / "cells.parquet")
    assert set(cells["arm"]) == ARMS
    assert set(cells["status"]) == {"ok"}
    assert set(cells["evidence"]) == {"simulated"}
    assert len(cells) == 14
    # all arms of a workload served the same requests
    assert cells.groupby("workload")["seed"].nunique().eq(1).all()
    assert cells.groupby("workload")["n_requests"].nunique().eq(1).all()


def test_the_hollow_fallback_is_three_columns(results: Path) -> None:
    row = pd.read_parquet(results / "smoke" / "launches.parquet").set_index("arm").loc["FULL@FLASHINFER"]
    assert (row["requested_mode"], row["resolved_mode"]) == ("FULL", "FULL_AND_PIECEWISE")
    assert row["realised_mode"] == "FULL_AND_PIECEWISE:hollow"
    assert bool(row["hollow"]) is True


def test_a_second_run_does_nothing_and_shows_simulated_beside_measured(results: Path, capsys) -> None:
    before = (results / "smoke" / "cells.parquet").read_bytes()
    assert main(["run", "study=smoke", "engine=sim", f"executor.results={results}", "--json"]) == 0
    out, err = capsys.readouterr()
    assert "nothing to do" in err
    assert "simulated, calibrated on NVIDIA H200" in err
    answer = json.loads(out)
    assert answer["cells"]["ok"] == 14
    assert {"study", "results", "evidence", "seconds"} <= answer.keys()
    beside = pd.DataFrame(answer["beside_measured"])
    assert len(beside) == 14
    assert beside["tpot_p50_ms_reference"].notna().all()
    assert (results / "smoke" / "cells.parquet").read_bytes() == before


def test_the_measured_smoke_study_says_what_the_guide_leans_on() -> None:
    """On the H200: FULL stayed FULL on FA3, FLASHINFER's FULL was hollow, and graphs were counted."""
    data = Path(__file__).parents[2] / "paper_figures" / "data" / "smoke"
    launches = pd.read_parquet(data / "launches.parquet").set_index("arm")
    assert set(launches["evidence"]) == {"measured"}
    assert launches.loc["FULL", "realised_mode"] == "FULL"
    assert launches.loc["FULL", "attention_backend"] == "FLASH_ATTN (FA3)"
    hollow = launches.loc["FULL@FLASHINFER"]
    assert hollow["realised_mode"] == "FULL_AND_PIECEWISE:hollow"
    assert (hollow["keys_piecewise"], hollow["wrappers_piecewise"], hollow["graphs_piecewise"]) == (51, 0, 0)
    both = launches.loc["FULL_AND_PIECEWISE"]
    assert (both["graphs_piecewise"], both["graphs_full"], both["captures"]) == (1479, 35, 1514)


def test_runs_are_in_mlflow(results: Path) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{results / 'mlflow.db'}")
    [experiment] = [found for found in client.search_experiments() if found.name == "cudagraph-modes"]
    runs = client.search_runs([experiment.experiment_id], max_results=100)
    cells = [run for run in runs if run.data.tags.get("role") == "cell"]
    assert len(cells) == 14
    assert {run.data.tags["evidence"] for run in cells} == {"simulated"}
    assert all("tpot_p50_ms" in run.data.metrics for run in cells)


def test_figures_of_the_results(results: Path, tmp_path: Path, capsys) -> None:
    assert main(["figures", "figures.source=results", f"executor.results={results}", f"figures.out={tmp_path}"]) == 0
    drawn = {"fig02_tpot_memory", "fig03_startup", "fig08_graph_memory", "fig10_break_even"}
    assert {file.stem for file in tmp_path.iterdir()} == drawn

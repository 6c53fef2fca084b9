"""Verdicts on made-up scores: rounding is within, a wrong arm is not, and what is missing is never a verdict."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from artifact.analysis.contrasts import sweep
from artifact.analysis.correctness import LEAST_TOLERANCE, correctness, disqualified, flagged, noise, screened
from artifact.records import (
    REQUEST_COLUMNS,
    SCORE_COLUMNS,
    STEP_COLUMNS,
    CellRow,
    LaunchRow,
    Measurement,
    typed,
)
from artifact.study.store import Store, read_cells

SHAPES, SEQUENCES, POSITIONS = (1, 2, 4), 4, 6


def scores(shift: float = 0.0, by_shape: float = 0.002, shapes: tuple[int, ...] = SHAPES) -> pd.DataFrame:
    """Log-probabilities of made-up tokens: ``shift`` off, and by up to ``by_shape`` another one at each batch shape."""
    rng = np.random.default_rng(1)
    logprob = rng.uniform(-12, -8, (SEQUENCES, POSITIONS))
    rows = [
        {
            "sequence": sequence,
            "batch_shape": shape,
            "position": position,
            "token": 100 + sequence * POSITIONS + position,
            "logprob": logprob[sequence, position] + shift + by_shape * number / max(len(shapes) - 1, 1),
            "top_token": 7,
            "top_logprob": -5.0 + shift,
        }
        for number, shape in enumerate(shapes)
        for sequence in range(SEQUENCES)
        for position in range(POSITIONS)
    ]
    return typed(pd.DataFrame(rows), SCORE_COLUMNS)


class Results:
    """A results folder with a scoring cell for each ``add``."""

    def __init__(self, folder: Path) -> None:
        self.store = Store(folder)

    def add(
        self,
        arm: str,
        found: pd.DataFrame | None,
        tile: str = "fa3",
        backend: str = "FLASH_ATTN",
        version: int | None = None,
        block: str = "0",
        **values: object,
    ) -> None:
        name = f"{tile}-{block}-{arm}"
        same = {
            "study": "fallback", "arm": arm, "tile": tile, "block": block, "launch_id": name, "host_id": "h",
            "kv_policy": "iso_kv", "server_hash": "s", "evidence": "measured", "backend": backend, "model": "m",
            "requested_mode": arm, "realised_mode": arm, "status": "ok",
        }  # fmt: skip
        provenance = json.dumps({"config": {"backend": {"flash_attn_version": version}}})
        self.store.write_launch(LaunchRow.model_validate({**same, "position": 0, "provenance": provenance}))
        of_cell = {"cell_id": name, "replicate": 0, "workload": "teacher_forced", "seed": 1, "steps_full": 30,
                   "steps_piecewise": 5, "steps_none": 1}  # fmt: skip
        requests, steps = typed(pd.DataFrame(), REQUEST_COLUMNS), typed(pd.DataFrame(), STEP_COLUMNS)
        row = CellRow.model_validate({**same, **of_cell, **values})
        measured = Measurement(requests, steps, 1.0, scores=found) if row.status == "ok" else None
        self.store.write_cell(row, measured)

    def table(self) -> pd.DataFrame:
        self.store.finish()
        return correctness(self.store.folder).set_index(["tile", "arm"])


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return Results(tmp_path / "fallback")


def test_rounding_is_within_and_a_wrong_arm_is_not(results: Results) -> None:
    results.add("NONE", scores())
    results.add("FULL", scores(shift=0.004))
    results.add("PIECEWISE", scores(shift=0.3))
    table = results.table()
    assert table["verdict"].to_dict() == {
        ("fa3", "FULL"): "within",
        ("fa3", "NONE"): "within",
        ("fa3", "PIECEWISE"): "disqualified",
    }
    full = table.loc[("fa3", "FULL")]
    assert full["positions"] == len(SHAPES) * SEQUENCES * POSITIONS
    assert full["max_abs_diff"] == pytest.approx(0.004)
    assert (full["top_agreement"], full["tolerance"]) == (1.0, LEAST_TOLERANCE)
    assert np.isnan(full["top_gap"])
    assert "at most 0.004 (tolerance 0.03125)" in full["evidence"]
    assert "30 FULL, 5 PIECEWISE, 1 NONE" in full["evidence"]
    assert table.loc[("fa3", "NONE"), "max_abs_diff"] == 0


def test_the_tolerance_is_twice_what_none_differs_from_itself(results: Results) -> None:
    results.add("NONE", scores(by_shape=0.1))
    results.add("FULL", scores(by_shape=0.1, shift=0.19))
    results.add("PIECEWISE", scores(by_shape=0.1, shift=0.21))
    table = results.table()
    assert table["tolerance"].to_numpy() == pytest.approx(0.2)
    assert table["verdict"].to_dict() == {
        ("fa3", "FULL"): "within",
        ("fa3", "NONE"): "within",
        ("fa3", "PIECEWISE"): "disqualified",
    }


def test_one_wrong_position_is_enough(results: Results) -> None:
    results.add("NONE", scores())
    wrong = scores()
    wrong.loc[17, "logprob"] += 0.5
    results.add("FULL", wrong)
    full = results.table().loc[("fa3", "FULL")]
    assert full["verdict"] == "disqualified"
    assert (full["max_abs_diff"], full["top_agreement"]) == (pytest.approx(0.5), 1.0)
    assert full["p99_abs_diff"] < 0.5


def test_another_top_token_is_a_tie_or_an_error(results: Results) -> None:
    results.add("NONE", scores())
    tie, error = scores(), scores()
    tie.loc[3, "top_token"] = error.loc[3, "top_token"] = 8
    tie.loc[3, "top_logprob"] += 0.01
    error.loc[3, "top_logprob"] += 1.0
    results.add("FULL", tie)
    results.add("PIECEWISE", error)
    table = results.table()
    assert table.loc[("fa3", "FULL"), "verdict"] == "within"
    assert table.loc[("fa3", "FULL"), "top_gap"] == pytest.approx(0.01)
    assert table.loc[("fa3", "FULL"), "top_agreement"] == pytest.approx(1 - 1 / (12 * POSITIONS))
    assert table.loc[("fa3", "PIECEWISE"), "verdict"] == "disqualified"


def test_nan_is_wrong(results: Results) -> None:
    broken = scores()
    broken.loc[5, "logprob"] = np.nan
    results.add("NONE", scores())
    results.add("FULL", broken)
    assert results.table().loc[("fa3", "FULL"), "verdict"] == "disqualified"
    assert noise(broken.set_index(["batch_shape", "sequence", "position", "token"])) == float("inf")


def test_each_backend_has_a_none_of_its_own(results: Results) -> None:
    results.add("NONE", scores(), tile="fa3")
    results.add("NONE", scores(shift=0.5), tile="fa2", version=2)
    results.add("NONE", scores(shift=0.2), tile="triton", backend="TRITON_ATTN")
    results.add("FULL", scores(shift=0.2), tile="triton", backend="TRITON_ATTN")
    table = results.table()
    assert set(table["verdict"]) == {"within"}
    assert table["flash_attn_diff"].to_dict() == {
        ("fa2", "NONE"): pytest.approx(0.5),
        ("fa3", "NONE"): 0,
        ("triton", "FULL"): pytest.approx(0.2),
        ("triton", "NONE"): pytest.approx(0.2),
    }


def test_what_is_missing_is_not_measured_and_says_why(results: Results) -> None:
    results.add("NONE", scores())
    results.add("FULL", None, status="engine_error", reason="it died")
    results.add("PIECEWISE", scores().iloc[:-3])
    results.add("FULL_DECODE_ONLY", None)
    results.add("FULL", scores(), tile="flex", backend="FLEX_ATTENTION")
    results.add("FULL_AND_PIECEWISE", scores(), block="1")
    table = results.table()
    assert table.loc[("fa3", "NONE"), "verdict"] == "within"
    others = table.drop(("fa3", "NONE"))
    assert set(others["verdict"]) == {"not measured"}
    assert others["positions"].isna().all()
    evidence = others["evidence"].to_dict()
    assert evidence[("fa3", "FULL")] == "engine_error: it died"
    assert evidence[("fa3", "PIECEWISE")] == "3 positions were scored by one of the two alone"
    assert evidence[("fa3", "FULL_DECODE_ONLY")] == "its cell has no scores"
    assert evidence[("flex", "FULL")] == "mode NONE was not scored on this backend in the same block"
    assert evidence[("fa3", "FULL_AND_PIECEWISE")] == evidence[("flex", "FULL")]


def test_one_batch_shape_gives_no_tolerance_and_no_scores_no_table_of_verdicts(results: Results) -> None:
    results.add("NONE", scores(shapes=(4,)))
    assert "one batch shape alone" in results.table()["evidence"].iloc[0]


def test_simulated_cells_are_not_measured(results: Results) -> None:
    results.add("NONE", scores())
    results.add("FULL", None, tile="sim", evidence="simulated")
    assert "simulator computes no" in results.table().loc[("sim", "FULL"), "evidence"]


def test_a_study_without_scores_has_no_verdict(results: Results) -> None:
    results.add("NONE", None)
    row = results.table().iloc[0]
    assert (row["verdict"], row["evidence"]) == ("not measured", "no cell of this arm was to be scored")


def test_a_disqualified_arm_is_flagged_wherever_its_cells_are(results: Results) -> None:
    results.add("NONE", scores())
    results.add("FULL", scores(shift=1.0), flags="under_sampled")
    verdicts = results.table().reset_index()
    assert list(disqualified(verdicts)) == [("fa3", "FULL")]
    cells = flagged(read_cells(results.store.folder), verdicts).set_index("arm")
    assert cells["flags"].to_dict() == {"NONE": "", "FULL": "under_sampled,wrong_outputs"}
    elsewhere = read_cells(results.store.folder).assign(study="load_sweep", tile="churn")
    assert flagged(elsewhere, verdicts).set_index("arm")["flags"].to_dict() == cells["flags"].to_dict()
    other = elsewhere.assign(backend="TRITON_ATTN")  # on which nothing was found
    assert flagged(other, verdicts)["flags"].tolist() == other["flags"].tolist()
    pinned = verdicts.assign(flash_attn_version=2)  # what others run is another version
    assert flagged(elsewhere, pinned)["flags"].tolist() == elsewhere["flags"].tolist()


def test_a_disqualified_mode_is_not_ranked_in_the_sweep(results: Results, tmp_path: Path) -> None:
    results.add("NONE", scores())
    results.add("FULL", scores(shift=1.0))
    results.table()
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "fallback").symlink_to(results.store.folder)
    cells = read_cells(results.store.folder)
    assert screened(cells, tmp_path / "root").set_index("arm")["flags"].to_dict() == {
        "NONE": "",
        "FULL": "wrong_outputs",
    }
    assert screened(cells, tmp_path / "elsewhere")["flags"].tolist() == ["", ""]
    (tmp_path / "root" / "load_sweep").symlink_to(results.store.folder)
    read = sweep.read(tmp_path / "root", ("load_sweep",))
    assert read is not None
    assert read.cells.set_index("arm")["unranked"].dropna().to_dict() == {"FULL": "wrong_outputs"}

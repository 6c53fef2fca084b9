"""How far the simulator is from measured cells: numbers by hand, and shipped rows against the simulator of today."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

from artifact.analysis import fidelity
from artifact.errors import InputError

DATA = Path(__file__).resolve().parents[1] / "paper_figures" / "data"


def row(arm: str, block: str, measured: float, simulated: float) -> dict[str, object]:
    place = {"study": "s", "tile": "t", "block": block, "workload": "churn", "load": 0.6, "arm": arm}
    both = {f"{metric}{end}": float("nan") for metric in fidelity.METRICS for end in ("", "_simulated")}
    return place | both | {"tpot_p50_ms": measured, "tpot_p50_ms_simulated": simulated}


ROWS = pd.DataFrame(
    [
        row("FULL_AND_PIECEWISE", "0", 2.0, 2.2),
        row("FULL_AND_PIECEWISE", "1", 4.0, 2.0),
        row("FULL", "0", 1.6, 2.4),
        row("FULL", "1", 3.0, 1.5),
    ]
)


def test_errors_are_relative_to_the_measurement() -> None:
    [every, *arms] = fidelity.errors(ROWS)
    assert (every.what, every.metric, every.n) == ("all", "tpot_p50_ms", 4)
    assert every.median == pytest.approx(0.5)  # 0.1, 0.5, 0.5, 0.5
    assert every.bias == pytest.approx((-0.5 + 0.1) / 2)
    assert {each.what: each.n for each in arms} == {"FULL": 2, "FULL_AND_PIECEWISE": 2}


def test_the_floor_is_how_far_repeats_lie_apart() -> None:
    apart, pairs = fidelity.floor(ROWS, "tpot_p50_ms")
    # 2 against 4 and 4 against 2: 0.5 and 1; 1.6 against 3 and back: 0.467 and 0.875
    assert apart == pytest.approx((0.5 + 0.875) / 2)
    assert pairs == 2
    assert fidelity.floor(ROWS[ROWS["block"] == "0"], "tpot_p50_ms") == (None, 0)


def test_regret_is_what_the_simulator_s_choice_costs_in_measurements() -> None:
    chosen = fidelity.choices(ROWS).set_index("block")
    assert list(chosen["best"]) == ["FULL", "FULL"]
    assert list(chosen["chosen"]) == ["FULL_AND_PIECEWISE", "FULL"]
    assert chosen["regret"]["0"] == pytest.approx(2.0 / 1.6 - 1)
    assert chosen["regret"]["1"] == 0
    assert list(chosen["default_regret"]) == [pytest.approx(0.25), pytest.approx(1 / 3)]


def test_the_shipped_rows_are_of_shipped_cells_alone() -> None:
    rows = fidelity.read(DATA)
    assert len(rows) == len(pd.read_parquet(DATA / fidelity.FILE))
    assert not set(rows["study"]) & {"calibrate", "step_latency", "saturation"}
    assert rows["tpot_p50_ms_simulated"].notna().all()


def test_what_is_left_at_the_pace_of_the_very_host_is_within_the_aims() -> None:
    found = {
        each.metric: each for each in fidelity.errors(fidelity.read(DATA), end=fidelity.GIVEN) if each.what == "all"
    }
    assert found["tpot_p50_ms"].median < 0.05
    assert found["tpot_p99_ms"].median < 0.15


def test_the_pace_of_the_host_explains_what_lies_between_the_cross_check_and_ours() -> None:
    rows = fidelity.read(DATA)
    rows = rows[rows["study"] == "crosscheck"].groupby("arm")
    theirs = json.loads((DATA / "crosscheck" / "crosscheck.json").read_text())["modes"]
    assert set(rows.groups) == set(theirs)
    for arm, own in rows:
        bench = pd.DataFrame(theirs[arm]["vllm_bench"])["tpot_p50_ms"].median()
        assert own["tpot_p50_ms"].median() > 1.1 * bench
        assert (own["tpot_p50_ms_given"] / own["tpot_p50_ms"]).to_list() == pytest.approx([1, 1], rel=0.05)
        assert own["tpot_p50_ms_quiet"].median() == pytest.approx(bench, rel=0.05)


def test_the_shipped_rows_are_what_the_simulator_says(tmp_path: Path) -> None:
    (tmp_path / "hollow").mkdir()
    for name in ("launches", "steps"):
        shutil.copy(DATA / "hollow" / f"{name}.parquet", tmp_path / "hollow")
    cells = pq.read_table(DATA / "hollow" / "cells.parquet")
    mine = [
        arm == "REAL" and block == "0"
        for arm, block in zip(cells["arm"].to_pylist(), cells["block"].to_pylist(), strict=True)
    ]
    pq.write_table(cells.filter(mine), tmp_path / "hollow" / "cells.parquet")
    [again] = fidelity.simulate(tmp_path).to_dict("records")
    shipped = pd.read_parquet(DATA / fidelity.FILE).set_index("cell_id").loc[again.pop("cell_id")]
    assert again == pytest.approx(shipped.to_dict())


def test_without_the_file_one_line_says_how_to_make_it(tmp_path: Path) -> None:
    shutil.copytree(DATA / "smoke", tmp_path / "smoke")
    with pytest.raises(InputError, match=r"fidelity\.parquet: no such file; python paper_figures/fidelity\.py"):
        fidelity.read(tmp_path)

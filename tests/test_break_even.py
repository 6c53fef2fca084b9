"""How soon graphs have paid: made-up starts and requests with known answers, and the shipped ones."""

from pathlib import Path

import pandas as pd
import pytest

from artifact.analysis import every_study
from artifact.analysis.starts.break_even import break_even, request_seconds
from artifact.records import CellRow, LaunchRow
from tests.launch_support import cell, launch, write

DATA = Path(__file__).parents[1] / "paper_figures" / "data"


def table(folders: list[Path]) -> pd.DataFrame:
    rows = every_study.read(folders)
    return break_even(*rows, request_seconds(folders, rows.cells))


def study(folder: Path, e2e_s: dict[str, list[float]], start_s: dict[str, list[float]], **flags: str) -> pd.DataFrame:
    """Return the table of one load: per mode, a block for each number of ``e2e_s`` and a start of ``start_s`` each."""
    launches: list[LaunchRow] = [launch(0, "PIECEWISE", arm="warms the machine up")]
    cells: list[CellRow] = []
    seconds = {}
    for mode, blocks in e2e_s.items():
        for block, (value, start) in enumerate(zip(blocks, start_s[mode], strict=True)):
            number = len(launches)
            row = launch(number, mode, block=str(block), start_s=start, capture_s=0.0 if mode == "NONE" else start / 4)
            launches.append(row)
            cells.append(cell(number, row, flags=flags.get(mode, "")))
            seconds[f"cell-{number}"] = value
    return table([write(folder / "made_up", launches, cells, seconds)])


def test_requests_and_minutes_until_paid(tmp_path: Path) -> None:
    found = study(
        tmp_path,
        {"NONE": [2.5, 2.7, 2.6], "FULL": [0.5, 0.5, 0.8]},
        {"NONE": [8.0, 8.0, 8.0], "FULL": [16.0, 15.0, 17.0]},
    )
    assert set(found["cost"]) == {"capture", "warm start", "cold start"}
    warm = found[found["cost"] == "warm start"].iloc[0]
    assert (warm["mode"], warm["against"], warm["launches"], warm["blocks"]) == ("FULL", "NONE", 3, 3)
    assert warm["extra_s"] == pytest.approx(8.0)
    assert warm["saved_s"] == pytest.approx(2.0)
    assert warm["saved_decode_s"] == pytest.approx(1.0)
    assert warm["requests"] == pytest.approx(4.0)
    assert warm["minutes"] == pytest.approx(4.0 / 40 / 60)
    assert warm["requests_low"] < 4.0 < warm["requests_high"]
    assert pd.isna(warm["reason"])
    capture = found[found["cost"] == "capture"].iloc[0]
    assert capture["extra_s"] == pytest.approx(4.0)
    cold = found[found["cost"] == "cold start"].iloc[0]
    assert pd.isna(cold["requests"])
    assert cold["reason"] == "no such start was measured on both sides"


def test_what_saves_nothing_never_pays(tmp_path: Path) -> None:
    found = study(tmp_path, {"NONE": [1.0, 1.0], "FULL": [1.5, 1.5]}, {"NONE": [8.0, 8.1], "FULL": [16.0, 16.1]})
    assert found["requests"].isna().all()
    warm = found[found["cost"] == "warm start"].iloc[0]
    assert warm["saved_s"] == pytest.approx(-0.5)
    assert "never pays" in warm["reason"]


def test_what_starts_no_later_has_paid_at_once(tmp_path: Path) -> None:
    found = study(tmp_path, {"NONE": [1.0, 1.1], "FULL": [0.5, 0.6]}, {"NONE": [18.0, 18.2], "FULL": [16.0, 16.1]})
    warm = found[found["cost"] == "warm start"].iloc[0]
    assert (warm["requests"], warm["minutes"]) == (0.0, 0.0)
    assert "paid at once" in warm["reason"]


def test_a_saving_that_may_be_none_has_no_interval(tmp_path: Path) -> None:
    found = study(tmp_path, {"NONE": [1.0, 3.0], "FULL": [0.9, 0.5]}, {"NONE": [8.0, 8.1], "FULL": [16.0, 16.1]})
    warm = found[found["cost"] == "warm start"].iloc[0]
    assert warm["requests"] > 0
    assert pd.isna(warm["requests_high"])
    assert warm["reason"] == "the saving may be none: no interval"


def test_one_block_has_no_interval(tmp_path: Path) -> None:
    found = study(tmp_path, {"NONE": [1.0], "FULL": [0.5]}, {"NONE": [8.0], "FULL": [16.0]})
    assert found["requests_high"].isna().all()
    assert found[found["cost"] == "warm start"].iloc[0]["reason"] == "one block or launch: no interval"


def test_a_flagged_load_counts_for_nothing(tmp_path: Path) -> None:
    found = study(tmp_path, {"NONE": [1.0], "FULL": [0.5]}, {"NONE": [8.0], "FULL": [16.0]}, NONE="unsteady")
    assert found.empty


def test_other_capture_sizes_and_changed_modes_are_left_out(tmp_path: Path) -> None:
    none = launch(1, "NONE")
    few = launch(2, "FULL", ["server.max_cudagraph_capture_size=8"])
    changed = launch(3, "FULL", realised_mode="FULL_AND_PIECEWISE:hollow")
    cells = [cell(number, row) for number, row in enumerate((none, few, changed))]
    folder = write(tmp_path / "made_up", [none, few, changed], cells, {f"cell-{n}": 1.0 for n in range(3)})
    assert table([folder]).empty


def test_starts_of_another_study_count(tmp_path: Path) -> None:
    before = launch(0, "FULL", study="other", launch_id="before")
    more = launch(5, "FULL", study="other", launch_id="more", start_s=20.0)
    none, full = launch(6, "NONE", start_s=8.0), launch(7, "FULL", start_s=16.0)
    folders = [
        write(tmp_path / "made_up", [none, full], [cell(0, none), cell(1, full)], {"cell-0": 2.0, "cell-1": 1.0}),
        write(tmp_path / "other", [before, more], [cell(2, more, offered_rate=None)], {}),
    ]
    warm = table(folders).query("cost == 'warm start'").iloc[0]
    assert (warm["launches"], warm["launches_against"]) == (2, 1)
    assert warm["extra_s"] == pytest.approx(10.0)


def test_shipped_rows_say_that_graphs_pay_soon() -> None:
    found = table(every_study.studies(DATA))
    against_none = found[(found["against"] == "NONE") & (found["cost"] == "capture") & (found["model"] == "qwen3-0.6b")]
    assert {"PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"} <= set(against_none["mode"])
    assert against_none["requests"].max() < 100
    assert (found["requests"].notna() | found["reason"].notna()).all()

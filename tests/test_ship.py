"""paper_figures/ship.py: rows join those that are shipped, none is overwritten, and raw rows may stay at home."""

import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from artifact.study.store import read_cells, read_launches, read_requests, read_steps

ROOT = Path(__file__).parents[1]
MEASURED = ROOT / "paper_figures" / "data" / "startup"


@pytest.fixture
def ship(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    script = tmp_path / "ship.py"  # it ships into the folder beside it
    script.write_text((ROOT / "paper_figures" / "ship.py").read_text())

    def ship(results: Path, *options: str) -> Path:
        monkeypatch.setattr(sys, "argv", ["ship.py", str(results), *options])
        runpy.run_path(str(script), run_name="__main__")
        return tmp_path / "data" / "startup"

    return ship


def changed(folder: Path, change: Callable[[str, pd.DataFrame], pd.DataFrame]) -> Path:
    """Write the measured study with ``change`` made to each table of it."""
    folder.mkdir()
    for file in MEASURED.glob("*.parquet"):
        table = pq.read_table(file)
        pq.write_table(pa.Table.from_pandas(change(file.stem, table.to_pandas()), table.schema), folder / file.name)
    return folder


def test_raw_rows_that_stay_at_home_leave_a_file_without_rows(ship: Callable[..., Path]) -> None:
    shipped = ship(MEASURED, "--without", "steps")
    assert len(read_steps(shipped)) == 0
    assert len(read_requests(shipped)) == len(read_requests(MEASURED)) > 0
    assert len(read_cells(shipped)) == len(read_cells(MEASURED))
    assert json.loads((shipped / "provenance.json").read_text())[0]["without"] == ["steps"]


def test_rows_join_those_there_and_again_changes_nothing(ship: Callable[..., Path], tmp_path: Path) -> None:
    cells = sorted(read_cells(MEASURED)["cell_id"])
    launches = dict(zip(read_cells(MEASURED)["cell_id"], read_cells(MEASURED)["launch_id"], strict=True))
    first = {cells[0], launches[cells[0]]}

    def half(name: str, rows: pd.DataFrame) -> pd.DataFrame:
        return rows[rows["launch_id" if name == "launches" else "cell_id"].isin(first)]

    ship(changed(tmp_path / "half", half))
    shipped = ship(MEASURED)
    assert sorted(read_cells(shipped)["cell_id"]) == cells
    assert sorted(read_launches(shipped)["launch_id"]) == sorted(launches.values())
    assert len(read_steps(shipped)) == len(read_steps(MEASURED))
    before = {file.name: file.read_bytes() for file in shipped.iterdir()}
    assert {file.name: file.read_bytes() for file in ship(MEASURED).iterdir()} == before
    assert len(json.loads((shipped / "provenance.json").read_text())) == 2


def test_one_id_of_two_machines_is_refused(ship: Callable[..., Path], tmp_path: Path) -> None:
    ship(MEASURED)
    other = changed(
        tmp_path / "other", lambda name, rows: rows.assign(host_id="other") if name in ("cells", "launches") else rows
    )
    with pytest.raises(SystemExit, match="measured on another machine; give the block a number of its own"):
        ship(other)


def test_simulated_rows_are_refused(ship: Callable[..., Path], tmp_path: Path) -> None:
    simulated = changed(
        tmp_path / "sim", lambda name, rows: rows.assign(evidence="simulated") if name == "cells" else rows
    )
    with pytest.raises(SystemExit, match="only measured ones are shipped"):
        ship(simulated)


def test_a_column_that_came_later_is_null_in_the_rows_before_it(ship: Callable[..., Path], tmp_path: Path) -> None:
    ship(MEASURED)
    later = tmp_path / "later"
    later.mkdir()
    for file in MEASURED.glob("*.parquet"):
        table = pq.read_table(file)
        if file.stem == "cells":
            rows = table.to_pandas().assign(launch_us_before=7.5)
            rows["cell_id"] += "0"
            table = pa.Table.from_pandas(rows, preserve_index=False)
        pq.write_table(table, later / file.name)
    cells = read_cells(ship(later))
    taken = cells["launch_us_before"].notna()
    assert cells.loc[taken, "launch_us_before"].eq(7.5).all()
    assert sorted(cells.loc[~taken, "cell_id"]) == sorted(read_cells(MEASURED)["cell_id"])

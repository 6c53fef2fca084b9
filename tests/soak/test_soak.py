"""A study with faults, killed again and again, ends as one that was left alone: same rows, same records, flat memory.

Small here; ``make soak`` sets SOAK_CELLS=2000 and SOAK_KILLS=20.
"""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from artifact.study.store import Store, read_cells, read_launches, read_requests, read_steps

from .study import planned

ROOT = Path(__file__).resolve().parents[2]
CELLS, KILLS = int(os.environ.get("SOAK_CELLS", "28")), int(os.environ.get("SOAK_KILLS", "3"))
FLAT_KIB = 32 * 1024  # for allocators and tables of rows; what is kept for each cell would show above it
RANDOM = random.Random(20260101)


def start(folder: Path) -> "subprocess.Popen[bytes]":
    folder.mkdir(parents=True, exist_ok=True)
    code = f"from pathlib import Path; from tests.soak.study import main; main(Path({str(folder)!r}), {CELLS})"
    command = [sys.executable, "-c", code]
    with (folder.parent / "stderr").open("a") as log:
        return subprocess.Popen(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, stderr=log)


def launches_done(folder: Path) -> int:
    file = folder.parent / "progress"
    return len(file.read_text().splitlines()) if file.exists() else 0


def finish(folder: Path) -> None:
    assert start(folder).wait() == 0


def killed(folder: Path, launches: int) -> bool:
    """Run for a random share of the study and a moment more, then SIGKILL; return whether it was still running."""
    run = start(folder)
    goal = launches_done(folder) + RANDOM.randint(0, max(1, 2 * launches // (KILLS + 1)))
    while launches_done(folder) < goal and run.poll() is None:
        time.sleep(0.01)
    time.sleep(RANDOM.uniform(0, 0.3))
    ran = run.poll() is None
    run.kill()
    run.wait()
    return ran


def comparable(folder: Path) -> pd.DataFrame:
    """The cells' rows without the number of the engine start, which differs where a launch was begun again."""
    cells = read_cells(folder)
    for column in ("launch_id", "reason"):
        cells[column] = cells[column].str.replace(r"\.\d+(?=$|\.log)", "", regex=True)
    return cells


def memory_kib(folder: Path) -> list[int]:
    return [int(line.split()[1]) for line in (folder.parent / "progress").read_text().splitlines()]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed") / "soak"
    finish(folder)
    return folder


def test_every_planned_cell_has_a_row_whatever_failed(undisturbed: Path) -> None:
    plan = planned(CELLS)
    cells = read_cells(undisturbed)
    assert sorted(cells["cell_id"]) == sorted(cell.cell_id for launch in plan.launches for cell in launch.cells)
    assert plan.cells >= CELLS
    assert set(cells["status"]) <= {"ok", "oom", "refused", "engine_error", "timeout"}
    assert cells["status"].nunique() >= 3
    assert (cells["tpot_p50_ms"].notna() == (cells["status"] == "ok")).all()
    assert set(cells["launch_id"]) <= set(read_launches(undisturbed)["launch_id"])
    ok = set(cells.loc[cells["status"] == "ok", "cell_id"])
    assert set(read_requests(undisturbed)["cell_id"]) == ok == set(read_steps(undisturbed)["cell_id"])


def test_memory_stays_flat(undisturbed: Path) -> None:
    used = memory_kib(undisturbed)
    quarter = len(used) // 4
    early, late = used[quarter : 2 * quarter], used[-quarter:]
    assert sorted(late)[quarter // 2] - sorted(early)[quarter // 2] < FLAT_KIB


def test_killed_again_and_again_it_ends_the_same(undisturbed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "soak"
    launches = len(planned(CELLS).launches)
    stopped = [killed(folder, launches) for _ in range(KILLS)]
    assert sum(stopped) >= KILLS // 2  # a study that is done already cannot be stopped
    finish(folder)
    pd.testing.assert_frame_equal(comparable(folder), comparable(undisturbed))
    for read in (read_requests, read_steps):
        pd.testing.assert_frame_equal(read(folder), read(undisturbed))
    assert not list(folder.rglob("*.tmp"))
    assert len(Store(folder).launches()) >= launches

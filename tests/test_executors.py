"""Every executor gives the rows that a local run gives, whatever is killed on the way: whole runs in processes."""

import json
import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from executor_support import CHOICE, SLURM, assert_same, planned, rows, run_locally

from artifact.engines.sim_engine import SimEngine
from artifact.errors import EnvironmentLacks
from artifact.records import CellRow, LaunchRow
from artifact.study.executors import dispatch, execute
from artifact.study.executors.unit import split
from artifact.study.plan import Plan
from artifact.study.run import run
from artifact.study.store import Store, read_launches

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_locally(tmp_path_factory.mktemp("local") / "smoke")


@pytest.fixture(autouse=True)
def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "_LOOK_S", 0.05)


def test_worker_that_is_killed_loses_the_cell_in_flight_alone(
    tmp_path: Path, local: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[CellRow] = []

    def kill_one(launch: LaunchRow | None, cells: Sequence[CellRow]) -> None:
        if not told:
            os.kill(multiprocessing.active_children()[0].pid or 0, signal.SIGKILL)
        told.extend(cells)

    affinity = os.sched_getaffinity(0)
    two = planned("executor=gpus", "executor.gpus=2")
    summary = execute(two, Store(tmp_path), CHOICE, kill_one)
    assert (summary["ran"], summary["failed"], summary["cells"]["ok"]) == (4, 0, 4)
    assert "ended by signal 9, see" in capsys.readouterr().err
    assert_same(tmp_path, local)
    assert sorted(row.cell_id for row in told) == sorted(rows(local)["cell_id"])
    provenance = [json.loads(text) for text in read_launches(tmp_path)["provenance"]]
    assert {(each["executor"], each["workers"]) for each in provenance} == {("gpus", 2)}
    assert os.sched_getaffinity(0) == affinity
    assert execute(two, Store(tmp_path), CHOICE)["ran"] == 0
    assert "nothing to do: all 4 cells" in capsys.readouterr().err


def test_parent_that_is_killed_takes_its_workers_along_and_loses_nothing(tmp_path: Path, local: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import pickle, sys
        from pathlib import Path
        from artifact.study.executors import execute
        from artifact.study.store import Store
        if __name__ == "__main__":
            plan, choice = pickle.loads(Path(sys.argv[1]).read_bytes())
            execute(plan, Store(Path(sys.argv[2])), choice)
        """)
    )
    work = tmp_path / "work"
    work.write_bytes(pickle.dumps((planned("executor=gpus", "executor.gpus=1"), CHOICE)))
    cells = tmp_path / "smoke/parts/cells"
    command = [sys.executable, str(script), str(work), str(tmp_path / "smoke")]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as parent:
        end = time.monotonic() + 300
        while not list(cells.glob("*.json")) and time.monotonic() < end and parent.poll() is None:
            time.sleep(0.01)
        parent.kill()
    store = Store(tmp_path / "smoke")
    for part in split(planned(), store, CHOICE, 1, None):
        with store.unit_locked(part.name):  # waits until the worker is dead
            pass
    done = {file.name: file.read_bytes() for file in cells.glob("*.json")}
    assert 0 < len(done) < 4
    summary = run(planned(), store, lambda log: SimEngine())
    assert summary["ran"] == 4 - len(done)
    assert {name: (cells / name).read_bytes() for name in done} == done
    assert_same(store.folder, local)


def assert_same_of_one_block(two: Plan, folder: Path, local: Path) -> None:
    """Run the second block beside a copy of the first: half the work tells as much."""
    shutil.copytree(local / "parts", folder / "parts")
    for cell in two.launches[-1].cells + two.launches[-2].cells:
        (folder / f"parts/cells/{cell.cell_id}.json").unlink()
    for launch in two.launches[-2:]:
        (folder / f"parts/launches/{launch.launch_id}.json").unlink()
    summary = execute(two, Store(folder), CHOICE)
    assert (summary["ran"], summary["failed"]) == (2, 0)
    assert_same(folder, local)


def test_slurm_jobs_give_the_same_rows(tmp_path: Path, local: Path) -> None:
    pytest.importorskip("submitit")
    assert_same_of_one_block(planned(*SLURM), tmp_path, local)


def test_ray_tasks_give_the_same_rows(tmp_path: Path, local: Path) -> None:
    pytest.importorskip("ray")
    try:
        assert_same_of_one_block(planned("executor=ray"), tmp_path, local)
    except EnvironmentLacks as lacks:
        if "timed out during startup" in str(lacks):
            pytest.skip(f"this machine is too busy for Ray: {lacks}")
        raise

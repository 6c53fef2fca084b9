"""Each fault of the table in ARTIFACT.md: what the user sees, the exit code, and that one cell at most is lost.

Whole runs through the command line on the simulator. Other faults of the table have tests elsewhere: the parent killed
(test_killed_run.py), a tracker that refuses or dies halfway (test_tracking.py), native crashes (test_isolate.py).
"""

import errno
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from artifact.cli import main
from artifact.engines import choose, isolate
from artifact.study import parts
from artifact.study.store import Store, read_cells, read_launches, read_requests

ROOT = Path(__file__).resolve().parents[2]
CELLS = 14  # of study=smoke: seven arms, two workloads
ONE_EACH = "study.tiles=[{name: t, overrides: [], workloads: [['workload=churn']]}]"  # one workload, so seven cells
ARM = "FULL"


def arguments(results: Path, *more: str) -> list[str]:
    return ["run", "engine=sim", "workload.duration_s=4", "tracking=off", f"executor.results={results}", *more]


def fault(kind: str, where: str) -> list[str]:
    return [f"engine.fault.kind={kind}", f"engine.fault.where={where}", f"engine.fault.arm={ARM}"]


def by_status(results: Path) -> Counter[str]:
    return Counter(read_cells(results / "smoke")["status"])


def assert_completes(results: Path, capsys: pytest.CaptureFixture[str], *more: str) -> None:
    """The same command, without the fault, goes on: every cell has its row and no finished one is run again."""
    before = {file.name: file.read_bytes() for file in (results / "smoke/parts/cells").glob("*.json")}
    done = {name: data for name, data in before.items() if b'"status":"ok"' in data or b'"status":"oom"' in data}
    assert main(arguments(results, *more)) == 0
    capsys.readouterr()
    cells = read_cells(results / "smoke")
    assert len(cells) == (len(cells["arm"].unique()) if more else CELLS)
    assert set(cells["status"]) <= {"ok", "oom"}
    assert {name: (results / "smoke/parts/cells" / name).read_bytes() for name in done} == done
    ok = cells[cells["status"] == "ok"]["cell_id"]
    assert set(read_requests(results / "smoke")["cell_id"]) == set(ok)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolate.Isolated.__init__, "__defaults__", (0.3, 5.0))


@pytest.mark.parametrize(
    ("kind", "where", "status", "code", "says"),
    [
        ("oom", "load", "oom", 0, r"torch.OutOfMemoryError \(in .*FULL.*\.log\)"),
        ("oom", "capture", "oom", 0, "oom at capture"),
        ("oom", "measure", "oom", 0, "oom at measure"),
        ("engine_error", "load", "engine_error", 1, "engine_error at load"),
        ("engine_error", "measure", "engine_error", 1, "engine_error at measure"),
        ("crash", "load", "engine_error", 1, "engine process ended by signal 9 during start; see its log"),
        ("crash", "measure", "engine_error", 1, "engine process ended by signal 9 during measure; see its log"),
        ("hang", "load", "timeout", 1, r"start did not end within 10\.3 s: the engine was killed"),
        ("hang", "measure", "timeout", 1, r"measure did not end within 10\.3 s: the engine was killed"),
    ],
)
def test_engine_that_fails_costs_its_cells_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], impatient: None,
    kind: str, where: str, status: str, code: int, says: str,
) -> None:  # fmt: skip
    # two cells a launch where it matters that the second gets an engine of its own
    tiles = [] if where == "measure" and kind != "hang" else [ONE_EACH]
    cells = CELLS // 2 if tiles else CELLS
    limits = ["engine.start_limit_s=10", "engine.cell_limit_s=10"] if kind == "hang" else []
    assert main(arguments(tmp_path, *tiles, *fault(kind, where), *limits)) == code
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert by_status(tmp_path) == {"ok": cells - cells // 7, status: cells // 7}
    failed = read_cells(tmp_path / "smoke").query(f"arm == '{ARM}'")
    assert failed["reason"].str.contains(says).all()
    assert failed["tpot_p50_ms"].isna().all()
    starts = read_launches(tmp_path / "smoke").query(f"arm == '{ARM}'")
    assert len(starts) == len(failed)
    assert_completes(tmp_path, capsys, *tiles)


def test_start_that_fails_is_the_end_of_all_its_cells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments(tmp_path, *fault("oom", "load"))) == 0
    assert by_status(tmp_path) == {"ok": CELLS - 2, "oom": 2}
    assert len(starts_of_arm(tmp_path)) == 1
    assert main(arguments(tmp_path)) == 0  # a result: nothing to do
    assert f"nothing to do: all {CELLS} cells" in capsys.readouterr().err


def engine_of(mark: str, parent: int) -> list[int]:
    """The engine processes of a run: those with its mark in their environment that lead a session of their own."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark.encode() in (entry / "environ").read_bytes():
                pid = int(entry.name)
                state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
                if pid != parent and state != "Z" and os.getsid(pid) == pid:
                    found.append(pid)
        except (OSError, ProcessLookupError):
            continue
    return found


def until(holds: Callable[[], Any], limit_s: float = 60.0) -> Any:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if answer := holds():
            return answer
        time.sleep(0.02)
    raise AssertionError("waited in vain")


@contextmanager
def hanging_run(results: Path) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """A run in a process of its own, stuck in the first cell of ARM."""
    mark = f"mark-{uuid.uuid4()}"
    environment = os.environ | {"RUN_MARK": mark, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "artifact", *arguments(results, *fault("hang", "measure"))]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        try:
            until(lambda: len(starts_of_arm(results)) == 1 or run.poll() is not None)
            yield run, mark
        finally:
            run.kill()
            for pid in engine_of(mark, run.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def starts_of_arm(results: Path) -> list[Path]:
    return list((results / "smoke/parts/launches").glob(f"*-{ARM}-*.json"))


def test_killed_engine_is_one_row_and_the_run_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with hanging_run(tmp_path) as (run, mark):
        for starts in (1, 2):  # one for each of its cells
            until(lambda starts=starts: len(starts_of_arm(tmp_path)) == starts)
            [engine] = until(lambda: engine_of(mark, run.pid))
            os.kill(engine, signal.SIGKILL)
        _, errors = run.communicate(timeout=120)
    assert run.returncode == 1
    assert errors.count("engine process ended by signal 9 during measure; see its log") == 2
    assert by_status(tmp_path) == {"ok": CELLS - 2, "engine_error": 2}
    assert_completes(tmp_path, capsys)


@pytest.mark.parametrize("both", [False, True])
def test_killed_run_leaves_no_engine_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], both: bool
) -> None:
    with hanging_run(tmp_path) as (run, mark):
        [engine] = engine_of(mark, run.pid)
        rows = len(list((tmp_path / "smoke/parts/cells").glob("*.json")))
        os.kill(run.pid, signal.SIGKILL)
        if both:
            os.kill(engine, signal.SIGKILL)
        run.communicate(timeout=60)
        until(lambda: not engine_of(mark, run.pid))
    assert rows == len(Store(tmp_path / "smoke").cells()) > 0
    assert_completes(tmp_path, capsys)


def test_full_disk_is_one_line_and_keeps_what_is_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, left = parts._sync, [40]

    def fills_up(path: Path) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(path)

    monkeypatch.setattr(parts, "_sync", fills_up)
    assert main(arguments(tmp_path)) == 3
    [line] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("artifact:")]
    assert "No space left on device" in line
    assert "executor.results" in line
    monkeypatch.undo()
    assert 0 < len(Store(tmp_path / "smoke").cells()) < CELLS
    assert not list(tmp_path.rglob("*.tmp"))
    assert_completes(tmp_path, capsys)


def test_results_that_cannot_be_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments(Path("/proc/results"))) == 3
    [line] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("artifact:")]
    assert line.startswith("artifact: /proc/results/smoke: cannot be written (")


def test_dead_tracker_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    server = ["tracking=server", f"tracking.uri=http://someone:s3cret-word@127.0.0.1:{port}"]
    assert main([*(word for word in arguments(tmp_path) if word != "tracking=off"), *server]) == 0
    said = capsys.readouterr()
    assert len([line for line in said.err.splitlines() if line.startswith("tracking:")]) == 1
    assert "s3cret-word" not in said.err + said.out
    assert by_status(tmp_path) == {"ok": CELLS}


def test_locked_tracker_is_one_line_and_is_filled_in_later(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = f"sqlite:///{tmp_path / 'mlflow.db'}"
    tracked = ["tracking=sqlite" if word == "tracking=off" else word for word in arguments(tmp_path)]
    impatient = [*tracked, f"tracking.uri='{database}?timeout=0.1'"]  # SQLite itself waits for five seconds
    assert main([*tracked, "study.name=first"]) == 0  # makes the database
    holder = sqlite3.connect(tmp_path / "mlflow.db", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    capsys.readouterr()
    assert main(impatient) == 0
    holder.close()
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("tracking:")]
    assert len(said) == 1
    assert "database is locked" in said[0]
    assert by_status(tmp_path) == {"ok": CELLS}
    assert main(["sync", "--json", f"executor.results={tmp_path}"]) == 0
    assert f'"new": {CELLS}' in capsys.readouterr().out


def test_wrong_vllm_starts_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choose, "gpu_present", lambda: True)
    words = [word for word in arguments(tmp_path / "none") if word != "engine=sim"]
    monkeypatch.setattr(choose.util, "find_spec", lambda name: None)
    assert main(words) == 3
    assert "NVML sees a GPU but vllm is not installed" in capsys.readouterr().err
    monkeypatch.setattr(choose.util, "find_spec", lambda name: name)
    monkeypatch.setattr(choose.metadata, "version", lambda name: "0.20.1")
    assert main(words) == 3
    assert "vllm 0.20.1 is installed and 0.21.0 is what this study is about" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_second_run_on_a_folder_is_refused_by_the_holders_pid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store(tmp_path / "smoke").locked():
        assert main(arguments(tmp_path)) == 2
    assert f"in use by process {os.getpid()}; let it end" in capsys.readouterr().err
    assert_completes(tmp_path, capsys)


def test_clock_that_goes_back_loses_no_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments(tmp_path, *fault("engine_error", "measure"))) == 1
    ahead = time.time() + 86_400  # what the files of the first run say once the clock has been set back a day
    for file in (tmp_path / "smoke").rglob("*"):
        os.utime(file, (ahead, ahead))
    assert_completes(tmp_path, capsys)  # the records of the cells that were missing are in requests.parquet
    cells, requests = read_cells(tmp_path / "smoke"), read_requests(tmp_path / "smoke")
    counted = requests[requests["measured"]].groupby("cell_id").size().astype("Int64")
    pd.testing.assert_series_equal(
        counted, cells.set_index("cell_id")["n_requests"].sort_index(), check_names=False, check_index_type=False
    )

"""A run that is killed in the middle of a cell, by a signal, as another process: only that cell is measured again."""

import os
import subprocess
import sys
import textwrap
import time
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from artifact.records import Launch, LaunchFacts, Measurement, Schedule
from artifact.schema import Evidence
from artifact.study.plan import plan
from artifact.study.run import run
from artifact.study.store import Store, read_cells, read_requests, read_steps
from tests.served_support import OVERRIDES, served

ROOT = Path(__file__).resolve().parents[2]


class SlowEngine:
    """Takes a while for each cell and notes in a file that it began one."""

    evidence = Evidence.SIMULATED

    def start(self, launch: Launch) -> LaunchFacts:
        self.arm = launch.arm
        return LaunchFacts(resolved_mode=launch.config.mode.name, realised_mode=launch.config.mode.name.value)

    def measure(self, schedule: Schedule, limit_s: float, heavy_probe: bool = False) -> Measurement:
        with Path(os.environ["SIDE_FILE"]).open("a") as file:
            file.write(f"{self.arm} {schedule.seed}\n")
        time.sleep(float(os.environ["CELL_S"]))
        return served(schedule)

    def close(self) -> None: ...


def start_run(results: Path, side: Path, cell_s: float) -> "subprocess.Popen[str]":
    script = results.parent / "script.py"
    script.write_text(
        textwrap.dedent(f"""
        import sys
        sys.path[:0] = [{str(Path(__file__).parent)!r}, {str(ROOT)!r}]
        from pathlib import Path
        from test_killed_run import OVERRIDES, Evidence, SlowEngine, Store, plan, run
        from artifact.engines.isolate import Isolated
        if __name__ == "__main__":
            factory = lambda log: Isolated(SlowEngine, ("test_killed_run",), log)
            planned = plan(OVERRIDES, Evidence.SIMULATED)
            run(planned, Store(Path({str(results)!r})), factory)
        """)
    )
    environment = os.environ | {"SIDE_FILE": str(side), "CELL_S": str(cell_s)}
    environment["PYTHONPATH"] = f"{Path(__file__).parent}:{ROOT}"  # the fork server imports from there too
    return subprocess.Popen(
        [sys.executable, str(script)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def lines(side: Path) -> list[str]:
    return side.read_text().splitlines() if side.exists() else []


def cells_of(results: Path) -> pd.DataFrame:
    """The rows without the number of the engine start, which a repeated launch has another of."""
    cells = read_cells(results)
    return cells.assign(launch_id=cells["launch_id"].str.replace(r"\.\d+$", "", regex=True))


def test_killed_run_repeats_only_the_cell_in_flight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results, side = tmp_path / "killed", tmp_path / "side"
    first = start_run(results, side, cell_s=0.3)
    deadline = time.monotonic() + 60
    while len(lines(side)) < 4 and time.monotonic() < deadline:
        time.sleep(0.02)
    first.kill()
    first.communicate()
    begun = lines(side)
    assert 4 <= len(begun) < 14

    planned = plan(OVERRIDES, Evidence.SIMULATED)
    monkeypatch.setenv("SIDE_FILE", str(side))
    monkeypatch.setenv("CELL_S", "0")
    summary = run(planned, Store(results), lambda log: SlowEngine())
    errors = capsys.readouterr().err
    assert summary["cells"] == {"ok": 14, "remaining": 0} | dict.fromkeys(
        ("oom", "timeout", "engine_error", "refused", "duplicate", "skipped"), 0
    )
    again = Counter(lines(side))
    assert len(again) == 14
    assert [cell for cell, times in again.items() if times > 1] in ([], [begun[-1]])
    assert summary["ran"] == 14 - len(begun) + (again[begun[-1]] - 1)
    assert errors.splitlines()[0].endswith(" left")

    assert run(planned, Store(results), lambda log: SlowEngine())["ran"] == 0
    assert f"nothing to do: all 14 cells of study resume are in {results}" in capsys.readouterr().err
    assert Counter(lines(side)) == again

    undisturbed = tmp_path / "undisturbed"
    monkeypatch.setenv("SIDE_FILE", str(tmp_path / "other"))
    run(planned, Store(undisturbed), lambda log: SlowEngine())
    pd.testing.assert_frame_equal(cells_of(results), cells_of(undisturbed))
    pd.testing.assert_frame_equal(read_requests(results), read_requests(undisturbed))
    pd.testing.assert_frame_equal(read_steps(results), read_steps(undisturbed))
    assert not list(results.rglob("*.tmp"))

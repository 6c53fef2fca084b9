"""An engine in its own process: what it returns, what it raises, and that nothing of it is left."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from artifact.config import load
from artifact.engines.isolate import Isolated
from artifact.errors import CellFailed, EnvironmentLacks
from artifact.records import REQUEST_COLUMNS, STEP_COLUMNS, Launch, LaunchFacts, Measurement, Schedule, typed
from artifact.schema import Evidence

TESTS = Path(__file__).resolve().parent


class FakeEngine:
    """Does what the launch's arm or the schedule's seed says."""

    evidence = Evidence.SIMULATED

    def start(self, launch: Launch) -> LaunchFacts:
        print(f"starting {launch.arm}")
        if launch.arm == "refuse":
            raise CellFailed("refused", "not this one")
        if launch.arm == "value":
            raise ValueError("1 validation error for CompilationConfig\nsecond line")
        if launch.arm == "no_memory":
            raise RuntimeError("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB")
        if launch.arm == "core_no_memory":
            print("EngineCore ValueError: No available memory for the cache blocks. Try")
            raise RuntimeError("Engine core initialization failed. See root cause above.")
        if launch.arm == "core_refuses":
            print("ValueError: CUDAGraphMode.FULL is not supported with TritonMLABackend backend (support: NEVER)")
            raise RuntimeError("Engine core initialization failed. See root cause above.")
        if launch.arm == "lacks":
            raise EnvironmentLacks("no calibration for this GPU")
        if launch.arm == "hang":
            time.sleep(600)
        if launch.arm == "child":
            self.child = subprocess.Popen(["sleep", "600"])
            return LaunchFacts(captures=self.child.pid)
        return LaunchFacts(captures=os.getpid())

    def measure(self, schedule: Schedule, limit_s: float, heavy_probe: bool = False) -> Measurement:
        action = {2: "fail", 3: "raise", 4: "hang", 5: "crash", 6: "fork_and_crash", 7: "wait"}.get(schedule.seed)
        if action == "fail":
            raise CellFailed("timeout", "gave up in order")
        if action == "raise":
            raise KeyError("lost")
        if action == "hang":
            time.sleep(600)
        if action == "wait":
            time.sleep(1)
        if action == "fork_and_crash" and os.fork() == 0:
            time.sleep(600)
        if action in ("crash", "fork_and_crash"):
            os.kill(os.getpid(), signal.SIGKILL)
        requests = typed(
            pd.DataFrame({"request": [0], "prompt_tokens": [7]}).assign(
                planned_output_tokens=1, output_tokens=1, measured=True
            ),
            REQUEST_COLUMNS,
        )
        return Measurement(requests, typed(pd.DataFrame(), STEP_COLUMNS), limit_s)

    def close(self) -> None:
        print("closed")


def schedule(seed: int) -> Schedule:
    one = np.ones(1, dtype="int64")
    return Schedule(np.zeros(1), one, one, one - 1, one.astype(bool), seed)


def launch(arm: str, limit_s: float = 30.0, *overrides: str) -> Launch:
    config = load([f"engine.start_limit_s={limit_s}", *overrides])
    return Launch("id", "study", arm, "tile", "b0", 0, config, ())


def gone(pid: int) -> bool:
    """Whether the process ends within ten seconds; a zombie that nobody reaps has ended."""
    for _ in range(200):
        status = Path(f"/proc/{pid}/stat")
        try:
            if status.read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.05)
    return False


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Isolated]:
    with Isolated(FakeEngine, ("artifact.records",), tmp_path / "log", grace_s=0.2, close_limit_s=5.0) as isolated:
        yield isolated


def test_serves_from_another_process_and_closes_in_order(engine: Isolated, tmp_path: Path) -> None:
    facts = engine.start(launch("ok"))
    assert facts.captures == engine.pid != os.getpid()
    assert engine.evidence is Evidence.SIMULATED
    measured = engine.measure(schedule(1), 12.5)
    assert measured.seconds == 12.5
    assert measured.requests["prompt_tokens"].tolist() == [7]
    assert dict(measured.requests.dtypes.astype(str))["failure"] == "string"
    engine.close()
    engine.close()
    assert (tmp_path / "log").read_text().splitlines() == ["starting ok", "closed"]
    assert gone(facts.captures)


def test_a_wait_for_a_quiet_host_does_not_count_against_the_cell(engine: Isolated) -> None:
    engine.start(launch("ok", 30.0, "engine.quiet_launch_us=8.0", "engine.quiet_wait_s=20.0"))
    assert engine.measure(schedule(7), 0.1).seconds == 0.1
    engine.close()
    engine.start(launch("ok", 30.0, "engine.quiet_wait_s=20.0"))  # without the bound nothing waits
    with pytest.raises(CellFailed, match=r"did not end within 0\.3 s"):
        engine.measure(schedule(7), 0.1)


@pytest.mark.parametrize(
    ("arm", "status", "reason"),
    [
        ("refuse", "refused", "not this one"),
        ("value", "refused", "ValueError: 1 validation error for CompilationConfig"),
        ("no_memory", "oom", "RuntimeError: torch.OutOfMemoryError: CUDA out of memory"),
        ("core_no_memory", "oom", "No available memory for the cache blocks"),
        ("core_refuses", "refused", "ValueError: CUDAGraphMode.FULL is not supported with TritonMLABackend"),
    ],
)
def test_failed_start_has_a_status(engine: Isolated, arm: str, status: str, reason: str) -> None:
    with pytest.raises(CellFailed) as caught:
        engine.start(launch(arm))
    assert caught.value.status == status
    assert caught.value.reason.startswith(reason)
    assert "\n" not in caught.value.reason
    assert engine.pid is None


def test_what_concerns_every_cell_is_raised_as_it_is(engine: Isolated) -> None:
    with pytest.raises(EnvironmentLacks, match="no calibration for this GPU"):
        engine.start(launch("lacks"))
    assert engine.pid is None


def test_start_that_hangs_is_killed(engine: Isolated) -> None:
    with pytest.raises(CellFailed, match="start did not end within") as caught:
        engine.start(launch("hang", limit_s=0.5))
    assert caught.value.status == "timeout"
    assert engine.pid is None


def test_failure_in_order_leaves_the_engine_up(engine: Isolated) -> None:
    engine.start(launch("ok"))
    with pytest.raises(CellFailed, match="gave up in order") as caught:
        engine.measure(schedule(2), 1.0)
    assert caught.value.status == "timeout"
    assert engine.measure(schedule(1), 1.0).seconds == 1.0


@pytest.mark.parametrize(
    ("seed", "status", "reason"),
    [
        (3, "engine_error", "KeyError: 'lost'"),
        (4, "timeout", "measure did not end within 0.3 s: the engine was killed"),
        (5, "engine_error", "engine process ended by signal 9 during measure; see its log"),
        (6, "engine_error", "engine process ended by signal 9 during measure; see its log"),
    ],
)
def test_broken_cell_ends_the_engine(engine: Isolated, tmp_path: Path, seed: int, status: str, reason: str) -> None:
    pid = engine.start(launch("ok")).captures
    with pytest.raises(CellFailed) as caught:
        engine.measure(schedule(seed), 0.1)
    assert (caught.value.status, caught.value.reason) == (status, reason)
    assert pid is not None
    assert gone(pid)
    assert (seed == 3) == ("Traceback" in (tmp_path / "log").read_text())
    with pytest.raises(CellFailed) as later:
        engine.measure(schedule(1), 1.0)
    assert later.value.status == "skipped"


def test_grandchildren_end_with_the_engine(engine: Isolated) -> None:
    grandchild = engine.start(launch("child")).captures
    assert grandchild is not None
    engine.close()
    assert gone(grandchild)


@pytest.mark.parametrize("busy", [True, False])
def test_nothing_is_left_when_the_parent_is_killed(tmp_path: Path, busy: bool) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        textwrap.dedent(f"""
        import sys, time
        sys.path[:0] = [{str(TESTS)!r}, {str(TESTS.parent)!r}]
        from pathlib import Path
        from test_isolate import FakeEngine, Isolated, launch, schedule
        if __name__ == "__main__":
            engine = Isolated(FakeEngine, (), Path({str(tmp_path / "log")!r}))
            print(engine.start(launch("child")).captures, engine.pid, flush=True)
            engine.measure(schedule(4), 600.0) if {busy} else time.sleep(600)
        """)
    )
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        grandchild, child = map(int, parent.stdout.readline().split())
        parent.kill()
    assert gone(child)
    assert gone(grandchild)

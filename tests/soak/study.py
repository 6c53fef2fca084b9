"""A folder and a number of cells in; one run of a simulated study whose engines fail at random, in that folder, out.

What fails depends on the cell alone, so that runs can be compared. One
line a launch goes to FOLDER/progress: the cells done so far and the resident memory of this process in KiB.
"""

import os
import signal
import time
from itertools import accumulate
from pathlib import Path

from artifact.engines.isolate import Isolated
from artifact.engines.sim_engine import SimEngine
from artifact.errors import CellFailed
from artifact.records import CellRow, Launch, LaunchFacts, LaunchRow, Measurement, Schedule
from artifact.schema import Evidence
from artifact.study.identity import seed_of
from artifact.study.plan import Plan, plan
from artifact.study.run import run
from artifact.study.store import Store

CELLS_A_BLOCK = 14  # of study=smoke
# Of a thousand starts and of a thousand cells, one after the other.
FAULTS = {"oom": 30, "engine_error": 15, "refused": 10, "crash": 15, "segfault": 10, "exit": 10, "hang": 2}


def fail(*what: object) -> None:
    """Fail as the hash of ``what`` says, if it does."""
    draw = seed_of("soak", *what) % 1000
    kind = next((kind for kind, below in zip(FAULTS, accumulate(FAULTS.values()), strict=True) if draw < below), None)
    if kind is None:
        return
    if kind in ("crash", "segfault"):
        os.kill(os.getpid(), signal.SIGKILL if kind == "crash" else signal.SIGSEGV)
    if kind == "exit":
        os._exit(3)
    if kind == "hang":
        time.sleep(3600)
    if kind == "refused":
        raise CellFailed("refused", "soak: vLLM does not take it")
    raise RuntimeError("CUDA out of memory" if kind == "oom" else "soak: something broke")


class FaultyEngine(SimEngine):
    """The simulator, failing now and then."""

    def start(self, launch: Launch) -> LaunchFacts:
        """See ``Engine.start``."""
        self.name = launch.launch_id
        fail(self.name)
        return super().start(launch)

    def measure(self, schedule: Schedule, limit_s: float, heavy_probe: bool = False) -> Measurement:
        """See ``Engine.measure``."""
        measured = super().measure(schedule, limit_s, heavy_probe)
        fail(self.name, schedule.seed)
        return measured


def planned(cells: int) -> Plan:
    """Return a plan of at least ``cells`` cells."""
    blocks = -(-cells // CELLS_A_BLOCK)
    limits = ["engine.start_limit_s=15", "engine.cell_limit_s=15"]
    small = ["workload.duration_s=4", "tracking=off", "study.name=soak", f"study.blocks={blocks}"]
    return plan([*small, *limits], Evidence.SIMULATED)


def main(folder: Path, cells: int) -> None:
    """Run what is left of the study."""
    progress, page_kib = folder.parent / "progress", os.sysconf("SC_PAGE_SIZE") // 1024

    def note(launch: LaunchRow | None, rows: list[CellRow]) -> None:
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * page_kib
        with progress.open("a") as file:
            file.write(f"{len(rows)} {resident}\n")

    run(planned(cells), Store(folder), lambda log: Isolated(FaultyEngine, ("tests.soak.study",), log, 0.5), note)

"""A simulated study in; wall seconds with local and with 1, 2 and 4 workers of executor=gpus, and their ratios, out.

    python benchmarks/executors.py [BLOCKS]

Each runs the same BLOCKS (4) blocks of study=smoke into a folder of its own, start-up of the workers included. Workers
beyond the machine's cores cannot help the simulator, which keeps a core busy; on GPUs a worker mostly waits.
"""

import contextlib
import io
import os
import sys
import tempfile
import time
from pathlib import Path

from artifact.config import load
from artifact.engines.choose import choose
from artifact.schema import Evidence
from artifact.study.executors import execute
from artifact.study.plan import plan
from artifact.study.store import Store


def seconds(blocks: int, *executor: str) -> float:
    overrides = ["engine=sim", f"study.blocks={blocks}", *executor]
    planned, choice = plan(overrides, Evidence.SIMULATED), choose(load(overrides).engine)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        begin = time.monotonic()
        summary = execute(planned, Store(Path(folder)), choice)
        took_s = time.monotonic() - begin
    if summary["cells"]["ok"] != planned.cells:
        raise RuntimeError(f"{planned.cells} cells planned, {summary['cells']}")
    return took_s


def main(blocks: int) -> None:
    print(f"study=smoke, {blocks} blocks, simulated, {os.cpu_count()} cores")
    local_s = seconds(blocks)
    print(f"local                 {local_s:7.1f} s")
    for workers in (1, 2, 4):
        took_s = seconds(blocks, "executor=gpus", f"executor.gpus={workers}")
        print(f"gpus, {workers} workers       {took_s:7.1f} s   {local_s / took_s:.2f} times as fast as local")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4)

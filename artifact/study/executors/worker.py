"""A GPU and a share of the cores in; a process that carries out one unit after the other there, out.

It keeps its fork server, so vLLM is imported once a GPU, and it ends when its parent does.
"""

import multiprocessing
import os
import threading
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from artifact.errors import ArtifactError
from artifact.study.executors.cores import settle
from artifact.study.executors.unit import Unit, carry_out

_END_S = 10.0


class Worker:
    """One GPU's worker as its parent sees it; the process begins with the first unit, and again if it died."""

    def __init__(self, number: int, workers: int, gpu: str | None, gpu_uuid: str | None, logs: Path) -> None:
        self.gpu_uuid = gpu_uuid
        self.unit: Unit | None = None
        self.pipe: Connection | None = None
        self._place = (number, workers, gpu, logs / f"worker-{number}.log")
        self._process: Any = None

    def begin(self, unit: Unit, cores: set[int]) -> None:
        """Have ``unit`` carried out."""
        if self.pipe is None:
            # The worker's engines come from a fork server of its own, begun with its environment and cores.
            context = multiprocessing.get_context("forkserver")
            self.pipe, theirs = context.Pipe()
            self._process = context.Process(target=_serve, args=(theirs, cores, *self._place))
            self._process.start()
            theirs.close()
        self.unit = unit
        with suppress(OSError):  # it died: `answer` says so
            self.pipe.send(unit)

    def answer(self) -> tuple[Unit, ArtifactError | str | None]:
        """Return the unit that ended and what its worker said, or how it died."""
        unit, self.unit = self.unit, None
        if unit is None or self.pipe is None:
            raise RuntimeError("the worker has nothing to answer")
        try:
            return unit, self.pipe.recv()
        except (EOFError, OSError):
            self._process.join(_END_S)
            code = self._process.exitcode
            self.end()
            ending = f"signal {-code}" if code is not None and code < 0 else f"code {code}"
            return unit, f"worker {self._place[0]} ended by {ending}, see {self._place[3]}"

    def end(self) -> None:
        """End the process: one without work by itself, else at once; its engine sees that and ends, too."""
        process, pipe, busy = self._process, self.pipe, self.unit is not None
        self._process = self.pipe = self.unit = None
        if process is None or pipe is None:
            return
        pipe.close()
        if busy:
            process.terminate()
        process.join(_END_S)
        process.kill()
        process.join()
        process.close()


def _serve(pipe: Connection, cores: set[int], number: int, workers: int, gpu: str | None, log: Path) -> None:
    """Carry out units as worker ``number`` until the parent closes its end or is gone."""
    log.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.sched_setaffinity(0, cores)
    settle(number, workers)
    if gpu is not None:
        os.environ |= {"CUDA_VISIBLE_DEVICES": gpu, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}  # NVML's order
    with suppress(EOFError, KeyboardInterrupt):
        while True:
            pipe.send(carry_out(pipe.recv()))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)  # no time for more: the engine sees it and ends, and so does its fork server

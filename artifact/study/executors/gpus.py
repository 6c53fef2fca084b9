"""Units in; carried out by one worker process for each GPU of this machine, with its own share of the cores, out."""

import multiprocessing
import os
from collections.abc import Iterator
from multiprocessing import forkserver
from multiprocessing.connection import wait
from pathlib import Path

from artifact.engines import nvml
from artifact.errors import ArtifactError, EnvironmentLacks
from artifact.schema import Evidence, ExecutorConfig
from artifact.study.executors import worker
from artifact.study.executors.cores import shares
from artifact.study.executors.unit import Unit
from artifact.study.executors.worker import Worker


class GpusExecutor:
    """See the package. A unit that was begun goes on on the GPU where it began, if that is here."""

    def __init__(self, config: ExecutorConfig, evidence: Evidence, logs: Path) -> None:
        gpus: list[tuple[str | None, str | None]] = list(nvml.visible().items())
        if evidence is Evidence.SIMULATED:
            gpus = [(None, None)] * (config.gpus or len(gpus))
        if not gpus:
            raise EnvironmentLacks("executor=gpus: NVML sees no GPU; on the simulator say how many, executor.gpus=2")
        if config.gpus is not None and config.gpus > len(gpus):
            raise EnvironmentLacks(f"executor.gpus={config.gpus}: NVML sees {len(gpus)}; ask for as many, or for null")
        chosen = gpus[: config.gpus]
        self.workers = len(chosen)
        self._all = [Worker(number, self.workers, *gpu, logs) for number, gpu in enumerate(chosen)]
        self._waiting: list[Unit] = []
        # Workers are forked from a process that has imported this once and, unlike this one, has no threads.
        multiprocessing.get_context("forkserver").set_forkserver_preload([worker.__name__])
        forkserver.ensure_running()  # while it still inherits all cores
        # This process works little, but not on a core where a step is being timed.
        self._cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, shares(self._cores, self.workers)[-1])

    def add(self, unit: Unit) -> None:
        """Take ``unit``, to be carried out when a worker is free."""
        self._waiting.append(unit)

    def ended(self, timeout_s: float) -> Iterator[tuple[Unit, ArtifactError | str | None]]:
        """Wait ``timeout_s`` at most and give the units that ended."""
        for each in self._all:
            if each.unit is None and (unit := self._next_for(each)) is not None:
                each.begin(unit, self._cores)
        busy = {each.pipe: each for each in self._all if each.unit is not None and each.pipe is not None}
        answered = wait(list(busy), timeout_s)
        for pipe, each in busy.items():
            if pipe in answered:
                yield each.answer()

    def _next_for(self, free: Worker) -> Unit | None:
        here = {other.gpu_uuid for other in self._all} - {free.gpu_uuid, None}
        unit = next((unit for unit in self._waiting if unit.gpu_uuid not in here), None)
        if unit is not None:
            self._waiting.remove(unit)
        return unit

    def close(self) -> None:
        """End the workers, and with them the engines."""
        for each in self._all:
            each.end()
        os.sched_setaffinity(0, self._cores)

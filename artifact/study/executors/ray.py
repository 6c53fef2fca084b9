"""Units in; each carried out as one Ray task with one GPU, out."""

import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from artifact.engines import nvml
from artifact.errors import ArtifactError, EnvironmentLacks, InputError
from artifact.schema import Evidence, ExecutorConfig
from artifact.study.executors.cores import settle
from artifact.study.executors.unit import Unit, carry_out


class RayExecutor:
    """See the package."""

    def __init__(self, config: ExecutorConfig, evidence: Evidence) -> None:
        if config.ray is None:
            raise InputError("executor.ray: needs its keys")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it reports to nobody
        try:
            import ray
        except ImportError:
            raise EnvironmentLacks("executor=ray needs ray: install the extra, pip install '.[ray]'") from None
        self._ray = ray
        where = config.ray.address or "a cluster on this machine"
        try:
            ray.init(
                address=config.ray.address or "local",
                include_dashboard=False if config.ray.address is None else None,
                logging_level=logging.ERROR,
                log_to_driver=False,
            )
        except Exception as error:  # Ray raises plain ones, too
            raise EnvironmentLacks(f"executor.ray.address={where}: {str(error).splitlines()[0]}") from None
        needs = {"CPU": config.ray.num_cpus, "GPU": int(evidence is Evidence.MEASURED)}
        has = ray.cluster_resources()
        self.workers = min(int(has.get(name, 0) // count) for name, count in needs.items() if count)
        if not self.workers:
            ray.shutdown()
            raise EnvironmentLacks(
                f"executor=ray: {where} has {has.get('CPU', 0):g} CPUs and {has.get('GPU', 0):g} GPUs; "
                f"a task needs {needs['CPU']} and {needs['GPU']} (executor.ray.num_cpus)"
            )
        # A process of its own for each unit, so that nothing of one is left for the next.
        own = ray.remote(num_cpus=needs["CPU"], num_gpus=needs["GPU"], max_calls=1, max_retries=0)
        self._task = own(_task)
        self._refs: dict[Any, Unit] = {}

    def add(self, unit: Unit) -> None:
        """Hand ``unit`` to the cluster."""
        self._refs[self._task.remote(unit)] = unit

    def ended(self, timeout_s: float) -> Iterator[tuple[Unit, ArtifactError | str | None]]:
        """Wait ``timeout_s`` at most and give the units whose tasks ended."""
        for ref in self._ray.wait(list(self._refs), timeout=timeout_s)[0]:
            unit = self._refs.pop(ref)
            try:
                yield unit, self._ray.get(ref)
            except self._ray.exceptions.RayError as error:
                yield unit, f"its Ray task failed: {str(error).strip().splitlines()[-1]}"

    def close(self) -> None:
        """End the tasks that have not ended, and leave the cluster; one that was started here ends."""
        for ref in self._refs:
            with suppress(self._ray.exceptions.RayError):
                self._ray.cancel(ref, force=True)
        self._refs.clear()
        self._ray.shutdown()


def _task(unit: Unit) -> ArtifactError | None:
    """Carry ``unit`` out where Ray has put it: on the GPU that it was given, with that GPU's share of the cores."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if unit.choice.evidence is Evidence.MEASURED and given.isdigit():
        hidden = os.environ.pop("CUDA_VISIBLE_DEVICES")
        gpus = len(nvml.visible())
        os.environ["CUDA_VISIBLE_DEVICES"] = hidden
        if int(given) < gpus:
            settle(int(given), gpus)
    return carry_out(unit)

"""Units in; each carried out as one Slurm job with one GPU, through submitit, out.

Slurm may requeue a job; a job that is preempted or runs out of time asks for that itself. It goes on where it was.
"""

import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from artifact.errors import ArtifactError, EnvironmentLacks, InputError
from artifact.schema import Evidence, ExecutorConfig
from artifact.study.executors.unit import Unit, carry_out

_IMPORT_MIN = 5  # before the first launch: the node's file system is cold


class SlurmExecutor:
    """See the package. ``parent`` killed, its jobs go on; the units of the next run wait for them."""

    workers = sys.maxsize  # as many as Slurm lets

    def __init__(self, config: ExecutorConfig, evidence: Evidence, logs: Path, study: str) -> None:
        if config.slurm is None:
            raise InputError("executor.slurm: needs its keys")
        self._config = config.slurm
        self._jobs: dict[Any, Unit] = {}
        try:
            import submitit
        except ImportError:
            raise EnvironmentLacks("executor=slurm needs submitit: install the extra, pip install '.[slurm]'") from None
        try:
            self._executor = submitit.AutoExecutor(folder=logs / "jobs" / "%j", cluster=self._config.cluster)
            self._executor.update_parameters(
                **{"name": study, "nodes": 1, "tasks_per_node": 1, "slurm_partition": self._config.partition},
                **({"gpus_per_node": 1} if evidence is Evidence.MEASURED else {}),
            )
            self._executor.update_parameters(**self._config.parameters)
        except RuntimeError as error:
            raise EnvironmentLacks(f"executor=slurm: {error}; executor.slurm.cluster=local tries it out") from None
        except (NameError, ValueError, TypeError, AssertionError) as error:
            raise InputError(f"executor.slurm.parameters: {str(error).splitlines()[0]}") from None

    def add(self, unit: Unit) -> None:
        """Submit ``unit``. Raises EnvironmentLacks where Slurm does not take it."""
        from submitit.core.utils import FailedJobError, FailedSubmissionError

        minutes = math.ceil(unit.seconds / 60 * self._config.time_factor) + _IMPORT_MIN
        try:
            self._executor.update_parameters(timeout_min=minutes)
            self._jobs[self._executor.submit(_Resumable(), unit)] = unit
        except (FailedJobError, FailedSubmissionError) as error:
            line = next((line for line in str(error).splitlines() if line.strip()), "refused")
            raise EnvironmentLacks(f"executor=slurm: the job was not taken: {line.strip()}") from None

    def ended(self, timeout_s: float) -> Iterator[tuple[Unit, ArtifactError | str | None]]:
        """Wait ``timeout_s`` and give the units whose jobs ended."""
        time.sleep(timeout_s)
        for job in [job for job in self._jobs if job.done()]:
            unit = self._jobs.pop(job)
            error = job.exception()
            if error is None:
                yield unit, job.result()
            else:
                yield unit, f"job {job.job_id} failed, see {job.paths.stderr}"

    def close(self) -> None:
        """Cancel the jobs that have not ended."""
        for job in self._jobs:
            job.cancel(check=False)
        self._jobs.clear()


class _Resumable:
    """What a job does; preempted, it does the rest when it is started again."""

    def __call__(self, unit: Unit) -> ArtifactError | None:
        return carry_out(unit)

    def checkpoint(self, unit: Unit) -> Any:
        """Called by submitit before the job is stopped."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, unit)

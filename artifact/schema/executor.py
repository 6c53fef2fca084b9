"""The executor group in, where and how a plan's launches run out."""

from typing import Literal, Self

from pydantic import model_validator

from artifact.schema.terms import Count, Frozen, Positive


class SlurmConfig(Frozen):
    """How a unit of the plan becomes a Slurm job."""

    cluster: Literal["slurm", "local"]  # local: submitit's processes on this machine, to try it out
    partition: str | None
    time_factor: Positive  # a job's time limit over what the plan expects it to take
    parameters: dict[str, object]  # any others, by submitit's names: cpus_per_task, mem_gb, slurm_account, slurm_gres


class RayConfig(Frozen):
    """How a unit of the plan becomes a Ray task."""

    address: str | None  # of a cluster that runs: auto, or host:port; null starts one on this machine
    num_cpus: Count  # that a task takes beside its GPU


class ExecutorConfig(Frozen):
    """conf/executor: where launches run, and how much of the plan one invocation may take."""

    kind: Literal["local", "gpus", "slurm", "ray"]
    limit_minutes: Positive | None
    results: str
    gpus: Count | None = None  # executor=gpus: how many workers; null is all GPUs that CUDA may use
    slurm: SlurmConfig | None = None
    ray: RayConfig | None = None

    @model_validator(mode="after")
    def _of_its_kind(self) -> Self:
        for name in ("gpus", "slurm", "ray"):
            if name != self.kind and getattr(self, name) is not None:
                raise ValueError(f"executor.{name} belongs to executor={name}; this is executor={self.kind}")
            if name == self.kind != "gpus" and getattr(self, name) is None:
                raise ValueError(f"executor.{name}=null: executor={name} needs its keys; leave it out")
        return self

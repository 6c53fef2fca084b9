"""A plan of two small units for any executor, and the comparison of what two executors stored: for their tests."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pandas as pd

from artifact.config import load
from artifact.engines.choose import choose
from artifact.engines.sim_engine import SimEngine
from artifact.schema import Evidence
from artifact.study.plan import Plan, plan
from artifact.study.run import run
from artifact.study.store import Store, read_cells, read_requests, read_steps

ARMS = ("NONE", "FULL")
TILE = "study.tiles=[{name: t, overrides: [], workloads: [['workload=churn']]}]"
SLURM = ("executor=slurm", "executor.slurm.cluster=local", "executor.slurm.parameters.cpus_per_task=1")
CHOICE = choose(load(["engine=sim"]).engine)


@cache
def of_study() -> Plan:
    whole = plan(["engine=sim", "workload.duration_s=4", "study.blocks=2", TILE], Evidence.SIMULATED)
    return replace(whole, launches=tuple(launch for launch in whole.launches if launch.arm in ARMS))


def planned(*overrides: str) -> Plan:
    """Two blocks of two launches of one cell each, which are two units, for the executor in ``overrides``."""
    return replace(of_study(), config=load(["engine=sim", *overrides]))


def rows(folder: Path) -> pd.DataFrame:
    """The cells without the number of the engine start, which a repeated launch has another of."""
    cells = read_cells(folder)
    return cells.assign(launch_id=cells["launch_id"].str.replace(r"\.\d+$", "", regex=True))


def assert_same(folder: Path, local: Path) -> None:
    pd.testing.assert_frame_equal(rows(folder), rows(local))
    pd.testing.assert_frame_equal(read_requests(folder), read_requests(local))
    pd.testing.assert_frame_equal(read_steps(folder), read_steps(local))
    assert not list(folder.rglob("*.tmp"))


def run_locally(folder: Path) -> Path:
    """Run the plan in this process and return the folder of its results."""
    run(planned(), Store(folder), lambda log: SimEngine())
    return folder

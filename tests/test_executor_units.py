"""The plan's units, who takes which, and what ends a run or is told: all of it in one process."""

import fcntl
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from executor_support import CHOICE, SLURM, planned, rows, run_locally
from hypothesis import given
from hypothesis import strategies as st
from test_nvml import FakeNvml

from artifact.cli import main
from artifact.config import load
from artifact.engines import nvml
from artifact.engines.choose import Choice, choose
from artifact.engines.sim_engine import SimEngine
from artifact.errors import ArtifactError, CellFailed, EnvironmentLacks, InputError
from artifact.schema import Evidence
from artifact.study.executors import cores, dispatch, execute, gpus, unit
from artifact.study.executors.unit import Unit, carry_out, split
from artifact.study.store import Store, read_cells


class InProcess:
    """An executor that carries units out here; a unit named in ``dies`` dies with its worker that often, first."""

    workers = 2

    def __init__(self, dies: dict[str, int]) -> None:
        self._dies = dies
        self._units: list[Unit] = []
        self.closed = False
        self.carry_out = carry_out

    def add(self, unit: Unit) -> None:
        self._units.append(unit)

    def ended(self, timeout_s: float) -> Iterable[tuple[Unit, ArtifactError | str | None]]:
        one = self._units.pop(0)
        if self._dies.get(one.name, 0):
            self._dies[one.name] -= 1
            return [(one, "worker 0 ended by signal 9")]
        return [(one, self.carry_out(one))]

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> InProcess:
    """Units and engines in this process."""

    class Bare(SimEngine):
        def __init__(self, engine_class: type, *_: Any) -> None:
            super().__init__()

    executor = InProcess({})
    monkeypatch.setattr(dispatch, "_executor", lambda *_: executor)
    monkeypatch.setattr(unit, "Isolated", Bare)
    return executor


def test_unit_whose_worker_dies_twice_is_given_up_and_the_others_are_not(
    tmp_path: Path, here: InProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    two = planned("executor=gpus", "executor.gpus=2")
    units = split(two, Store(tmp_path), CHOICE, 2, None)
    here._dies |= {units[0].name: 2, units[1].name: 1}
    summary = execute(two, Store(tmp_path), CHOICE)
    assert (summary["ran"], summary["failed"], summary["cells"]["remaining"]) == (2, 2, 2)
    said = capsys.readouterr().err
    assert said.count("it goes on") == 2
    assert said.count("given up") == 1
    assert set(read_cells(tmp_path)["block"]) == {"1"}
    assert execute(two, Store(tmp_path), CHOICE)["cells"]["ok"] == 4


def test_rows_that_do_not_arrive_are_lost_and_said_so(
    tmp_path: Path, here: InProcess, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = tmp_path / "elsewhere"
    with Store(elsewhere).locked():
        pass
    monkeypatch.setattr(dispatch, "_ARRIVE_S", 0.1)
    here.carry_out = lambda one: carry_out(replace(one, folder=elsewhere))
    summary = execute(planned("executor=gpus", "executor.gpus=2"), Store(tmp_path / "here"), CHOICE)
    assert (summary["ran"], summary["failed"]) == (0, 4)
    assert capsys.readouterr().err.count("all nodes must share executor.results") == 2


def test_what_concerns_every_cell_ends_the_run(
    tmp_path: Path, here: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacks(*_: object) -> None:
        raise EnvironmentLacks("no calibration")

    monkeypatch.setattr(SimEngine, "start", lacks)
    with pytest.raises(EnvironmentLacks, match="no calibration"):
        execute(planned("executor=gpus", "executor.gpus=2"), Store(tmp_path), CHOICE)
    assert here.closed


def test_limit_holds_for_all_workers_and_every_call_gets_on(
    tmp_path: Path, here: InProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    limited = planned("executor=gpus", "executor.gpus=2", "executor.limit_minutes=0.03")
    limited = replace(limited, seconds=dict.fromkeys(limited.seconds, 100.0))
    assert execute(limited, Store(tmp_path), CHOICE)["cells"]["remaining"] == 3
    assert "stopped at executor.limit_minutes=0.03: the same command goes on" in capsys.readouterr().err
    assert execute(limited, Store(tmp_path), CHOICE)["cells"]["remaining"] == 2


def test_failed_cells_are_told_and_an_engine_that_died_is_replaced(
    tmp_path: Path, here: InProcess, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def too_slow(*_: object) -> None:
        raise CellFailed("timeout", "measure did not end")

    monkeypatch.setattr(SimEngine, "measure", too_slow)
    summary = execute(planned("executor=gpus", "executor.gpus=2"), Store(tmp_path), CHOICE)
    assert (summary["ran"], summary["failed"]) == (4, 4)
    said = capsys.readouterr().err
    assert all(f"{name}: timeout: measure did not end" in said for name in rows(tmp_path)["cell_id"])


def test_units_are_whole_blocks_in_the_plans_order(tmp_path: Path) -> None:
    two = planned()
    units = split(two, Store(tmp_path), CHOICE, 8, None)
    assert [launch for unit in units for launch in unit.plan.launches] == list(two.launches)
    assert [unit.first_always for unit in units] == [True, False]
    assert {unit.workers for unit in units} == {2}
    assert sum(unit.seconds for unit in units) == pytest.approx(sum(two.seconds[n.launch_id] for n in two.launches))
    assert split(two, Store(run_locally(tmp_path / "local")), CHOICE, 8, None) == []


def test_block_that_was_begun_goes_on_on_its_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "visible", lambda: {"0": "GPU-a", "1": "GPU-b", "2": "GPU-c"})
    config = load(["executor=gpus", "executor.gpus=2"]).executor
    executor = gpus.GpusExecutor(config, Evidence.MEASURED, tmp_path)
    assert executor.workers == 2
    [first, second] = split(planned(), Store(tmp_path), CHOICE, 2, None)
    for one in (replace(first, gpu_uuid="GPU-b"), replace(second, gpu_uuid="GPU-gone")):
        executor.add(one)
    a, b = executor._all
    assert executor._next_for(a) == replace(second, gpu_uuid="GPU-gone")
    assert executor._next_for(a) is None
    assert executor._next_for(b) == replace(first, gpu_uuid="GPU-b")
    executor.close()
    with pytest.raises(EnvironmentLacks, match=r"executor\.gpus=4: NVML sees 3"):
        gpus.GpusExecutor(config.model_copy(update={"gpus": 4}), Evidence.MEASURED, tmp_path)


class FourGpus(FakeNvml):
    def nvmlDeviceGetCount(self) -> int:
        return 4

    def nvmlDeviceGetHandleByIndex(self, index: int) -> object:
        if index >= 4:
            raise self.NVMLError("no such device")
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> object:
        return uuid

    def nvmlDeviceGetUUID(self, handle: object) -> str:
        return f"uuid of {handle}"


@pytest.mark.parametrize(
    ("hidden", "found"),
    [
        (None, ["0", "1", "2", "3"]),
        ("2,0", ["2", "0"]),
        ("1, GPU-abc", ["1", "GPU-abc"]),
        ("3,7,1", ["3"]),  # as CUDA does: what follows a wrong one is not seen
        ("", []),
        ("-1", []),
    ],
)
def test_gpus_are_those_that_cuda_would_see(
    monkeypatch: pytest.MonkeyPatch, hidden: str | None, found: list[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FourGpus())
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if hidden is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    assert nvml.visible() == {name: f"uuid of {name}" for name in found}


def test_results_that_the_worker_does_not_see_are_one_line(tmp_path: Path) -> None:
    [first, _] = split(planned(), Store(tmp_path), CHOICE, 2, None)
    lost = carry_out(replace(first, folder=tmp_path / "elsewhere"))
    assert isinstance(lost, EnvironmentLacks)
    assert "put executor.results where all nodes see it" in str(lost)


@given(st.integers(1, 6), st.integers(1, 9), st.integers(1, 2), st.booleans())
def test_shares_are_whole_cores_equal_and_apart(workers: int, cores_: int, threads: int, numbered_apart: bool) -> None:
    def core(cpu: int) -> tuple[int, int]:
        return 0, cpu % cores_ if numbered_apart else cpu // threads

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cores, "_core", core)
        *parts, rest = cores.shares(range(cores_ * threads), workers)
    assert len(parts) == workers
    assert len({len(part) for part in parts}) == 1
    for part in parts:
        assert len(part) == threads * len({core(cpu) for cpu in part})
    if workers <= cores_:
        assert sum(map(len, parts)) == len(set().union(*parts))
    if cores_ > 4 * workers:
        assert rest
        assert not rest & set().union(*parts)


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["executor.gpus=2"], 2, "executor.gpus belongs to executor=gpus; this is executor=local"),
        (["executor=gpus", "executor.ray.address=auto"], 2, "executor.ray"),
        (["executor=gpus", "executor.gpus=0"], 2, "executor.gpus=0"),
        (["executor=slurm", "executor.slurm=null"], 2, "executor=slurm needs its keys"),
        (["executor=ray", "engine=auto"], 2, "engine=auto: this executor works on other machines"),
    ],
)
def test_bad_choice_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, says: str
) -> None:
    assert main(["run", "engine=sim", "tracking=off", f"executor.results={tmp_path}", *words]) == code
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("artifact:")]
    assert len(lines) == 1
    assert says in lines[0]


@pytest.mark.parametrize(
    ("words", "error", "says"),
    [
        ([*SLURM, "executor.slurm.parameters={slurm_acount: me}"], InputError, "Unknown argument 'acount'"),
        ([*SLURM, "executor.slurm.parameters={cpus_per_task: many}"], InputError, '"cpus_per_task" expected type'),
        (["executor=slurm"], EnvironmentLacks, "executor.slurm.cluster=local tries it out"),
        (["executor=gpus"], EnvironmentLacks, "NVML sees no GPU; on the simulator say how many, executor.gpus=2"),
    ],
)
def test_what_an_executor_lacks_is_one_line(
    tmp_path: Path, words: list[str], error: type[ArtifactError], says: str
) -> None:
    with pytest.raises(error) as caught:
        execute(planned(*words), Store(tmp_path), CHOICE)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("kind", "package"), [("slurm", "submitit"), ("ray", "ray")])
def test_missing_package_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(EnvironmentLacks, match=rf"executor={kind} needs {package}: .* pip install '\.\[{kind}\]'"):
        execute(planned(f"executor={kind}"), Store(tmp_path), CHOICE)


def test_engine_that_runs_elsewhere_needs_nothing_here() -> None:
    choice: Choice = choose(load(["engine=vllm"]).engine, here=False)
    assert (choice.kind, choice.evidence) == ("vllm", Evidence.MEASURED)
    with pytest.raises(InputError, match="say engine=vllm or engine=sim"):
        choose(load(["engine=auto"]).engine, here=False)


def test_first_cold_start_of_a_configuration_is_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_CACHE_ROOT", str(tmp_path))
    monkeypatch.setattr(unit, "_started", set())
    config = load(["mode=full"])

    def held(name: str) -> bool:
        with (tmp_path / "artifact_locks" / name).open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    name = "qwen3-0.6b-FULL-FLASH_ATTN.lock"
    with suppress(CellFailed), unit._first_alone(config):
        assert held(name)
        raise CellFailed("timeout", "start did not end")
    assert not held(name)
    with unit._first_alone(config):  # it failed: the next is a first one again
        assert held(name)
    with unit._first_alone(config):
        assert not held(name)
    with unit._first_alone(load(["mode=eager"])):
        assert [file.name for file in (tmp_path / "artifact_locks").iterdir()] == [name]

"""Kind: a GPU that says nothing, or less than usual. Null and a reason, and the run goes on.

No driver, no permission, MIG, missing fields, hidden GPUs: tests/test_nvml.py. Per-process figures and foreign PIDs are
never asked for: the device's own total is what is recorded.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from test_nvml import FakeNvml, NVMLError

from artifact.engines import nvml
from artifact.engines.sim_engine import SimEngine
from artifact.schema import Evidence
from artifact.study.plan import plan
from artifact.study.run import run
from artifact.study.store import Store, read_cells, read_launches


class Vanishing(FakeNvml):
    """A driver that answers a while and then loses the GPU, as after an Xid error or a hot unplug."""

    def __init__(self, answers: int) -> None:
        super().__init__()
        self.left = answers

    def _answer(self, call: str, value: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise NVMLError("GPU is lost")
        return super()._answer(call, value)


@pytest.mark.parametrize("answers", [0, 1, 3, 9, 40])
def test_a_gpu_that_nvml_loses_in_mid_run_costs_its_columns_alone(
    answers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    planned = plan(["workload.duration_s=4", "tracking=off"], Evidence.MEASURED)
    monkeypatch.setitem(sys.modules, "pynvml", Vanishing(answers))
    summary = run(planned, Store(tmp_path), lambda log: SimEngine())
    assert summary["cells"]["ok"] == 14
    seen = [json.loads(text)["gpu"] for text in read_launches(tmp_path)["provenance"]]
    lost = [gpu for gpu in seen if gpu["name"] is None]
    assert lost
    assert all("GPU is lost" in json.dumps(gpu["reasons"]) for gpu in lost)
    assert read_cells(tmp_path)["power_w"].isna().all()


def test_samples_before_the_loss_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    whole, nothing = 350.5, "power_w: GPU is lost"
    known = {name: nvml.Reading(whole) for name in ("used_bytes", "sm_clock_mhz", "power_w", "temperature_c")}
    lost = {name: nvml.Reading(None, nothing) for name in known}
    assert nvml.summarise([known, lost, lost]).power_w == whole
    gone = nvml.summarise([lost])
    assert (gone.power_w, gone.reasons["power_w"]) == (None, nothing)


def test_a_missing_call_of_an_old_driver_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    old = FakeNvml()
    monkeypatch.setattr(FakeNvml, "nvmlDeviceGetMigMode", property(lambda self: self.no_such_call))
    monkeypatch.setitem(sys.modules, "pynvml", old)
    gpu = nvml.describe()
    assert gpu.mig is None
    assert "mig" in gpu.reasons["mig"]

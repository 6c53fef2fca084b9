"""The doctor: what each machine lacks, what to do about it, and what is no reason to stop."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_nvml import FakeNvml, NVMLError

from artifact.cli import main
from artifact.config import load
from artifact.engines import nvml
from artifact.study import doctor as doctor_module
from artifact.study.doctor import Check, doctor

NO_GPU = nvml.Gpu(reasons={"gpu": "NVML does not start: NVML Shared Library Not Found"})
H200 = nvml.Gpu(
    name="NVIDIA H200", uuid="GPU-1", driver="580.95", total_bytes=141 * 2**30, used_bytes=0, mig=False, reasons={}
)
VERSIONS = {"vllm": "0.21.0", "torch": "2.11.0+cu130", "mlflow": "3.13.0"}


@pytest.fixture
def examine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A machine with that GPU and those packages, and room on its disk."""

    def checks(gpu: nvml.Gpu, versions: dict[str, str], *overrides: str) -> dict[str, Check]:
        monkeypatch.setattr(nvml, "describe", lambda: gpu)
        monkeypatch.setattr(doctor_module, "version_of", versions.get)
        return {check.check: check for check in doctor(load(list(overrides)))}

    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=2**40))
    return checks


def test_without_a_gpu_only_what_was_asked_for_is_missing(examine: Any) -> None:
    checks = examine(NO_GPU, {"mlflow": "3.13.0"})
    assert [name for name, check in checks.items() if check.ok is False] == []
    assert checks["gpu"].ok is None
    assert "compile cache" not in checks
    wanted = examine(NO_GPU, {}, "engine=vllm", "tracking=off")
    assert wanted["gpu"].ok is wanted["vllm"].ok is wanted["torch"].ok is False
    assert "make setup GPU=1" in wanted["vllm"].remedy
    assert wanted["mlflow"].ok is None
    assert examine(NO_GPU, {})["mlflow"].ok is False


def test_with_all_of_it_nothing_is_left_to_do(examine: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VLLM_CACHE_ROOT", str(tmp_path))
    (tmp_path / "torch_compile_cache" / "one").mkdir(parents=True)
    checks = examine(H200, VERSIONS)
    assert [check for check in checks.values() if check.ok is False or check.remedy] == []
    assert "warm" in checks["compile cache"].found


def test_a_cold_compile_cache_says_what_it_costs_and_where_it_is(
    examine: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("VLLM_CACHE_ROOT", str(tmp_path))
    check = examine(H200, VERSIONS)["compile cache"]
    assert check.ok is None
    assert str(tmp_path) in check.found
    assert "153 s" in check.remedy
    assert "VLLM_CACHE_ROOT" in check.remedy


@pytest.mark.parametrize(
    ("gpu", "versions", "name", "ok", "said"),
    [
        ({"driver": "570.86"}, {}, "driver", False, "580 or newer: install"),
        ({"driver": None, "reasons": {"driver": "driver: Unknown Error"}}, {}, "driver", None, "580"),
        ({"mig": True}, {}, "mig", None, "whole GPU"),
        (
            {"used_bytes": None, "reasons": {"used_bytes": "used_bytes: Insufficient Permissions"}},
            {},
            "nvml memory",
            None,
            "the right to read it",
        ),
        (
            {"used_bytes": None, "reasons": {"used_bytes": "used_bytes: Not Supported"}},
            {},
            "nvml memory",
            None,
            "MIG slice or WSL2",
        ),
        ({}, {"vllm": "0.20.0"}, "vllm", False, "vllm==0.21.0"),
        ({}, {"torch": "2.11.0+cpu"}, "torch", False, "CUDA"),
    ],
)
def test_each_lack_has_a_remedy(
    examine: Any, gpu: dict[str, Any], versions: dict[str, str], name: str, ok: bool | None, said: str
) -> None:
    check = examine(nvml.Gpu(**{**vars(H200), **gpu}), VERSIONS | versions)[name]
    assert check.ok is ok
    assert said in check.remedy


@pytest.mark.parametrize(
    ("broken", "said", "refused"),
    [
        ({"init": NVMLError("Insufficient Permissions")}, "/dev/nvidia*", True),
        ({"handle": NVMLError("Insufficient Permissions")}, "--gpus all", True),
        ({"init": NVMLError("Driver/library version mismatch")}, "reboot", False),
        ({"init": NVMLError("Driver Not Loaded")}, "modprobe nvidia", False),
        ({"handle": NVMLError("Not Found")}, "nvidia-smi -L", False),
        ({"init": NVMLError("Unknown Error")}, "engine=sim", False),
    ],
)
def test_a_gpu_that_nvml_does_not_give(
    broken: dict[str, Any], said: str, refused: bool, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """One that is there and may not be used fails: engine=auto would simulate where nobody wants that."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(**broken))
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=2**40))
    assert main(["doctor", "--json"]) == (3 if refused else 0)
    (check,) = [each for each in json.loads(capsys.readouterr().out)["checks"] if each["check"] == "gpu"]
    assert said in check["remedy"]
    assert check["ok"] is (False if refused else None)
    assert main(["doctor", "engine=sim", "--json"]) == 0


def test_hidden_gpus_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    (check,) = [each for each in doctor(load()) if each.check == "gpu"]
    assert "unset CUDA_VISIBLE_DEVICES" in check.remedy


def test_another_version_if_told_to(examine: Any) -> None:
    check = examine(H200, VERSIONS | {"vllm": "0.20.0"}, "engine.allow_other_version=true")["vllm"]
    assert check.ok is True
    assert check.remedy


def test_little_disk_and_no_right_to_write(examine: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=2**30))
    checks = examine(H200, VERSIONS, "executor.results=/no/such/folder")
    assert checks["disk for results"].ok is False
    assert "executor.results=FOLDER" in checks["disk for results"].remedy
    assert "VLLM_CACHE_ROOT=FOLDER" in checks["disk for caches"].remedy
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert "is not writable" in examine(NO_GPU, VERSIONS, f"executor.results={tmp_path}")["disk for results"].found


def test_wsl2(examine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.release", lambda: "5.15.153.1-microsoft-standard-WSL2")
    check = examine(H200, VERSIONS)["wsl2"]
    assert check.ok is None
    assert "Windows" in check.remedy

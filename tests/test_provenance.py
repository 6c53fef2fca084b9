"""Provenance and the doctor: complete, JSON-able, and free of secrets."""

import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from artifact.config import load
from artifact.engines import nvml
from artifact.study import doctor as doctor_module
from artifact.study import provenance
from artifact.study.doctor import doctor

NO_GPU = nvml.Gpu(reasons={"gpu": "NVML does not start: Driver Not Loaded"})
H200 = nvml.Gpu(
    name="NVIDIA H200", uuid="GPU-1", driver="580.95", total_bytes=141 * 2**30, used_bytes=0, mig=False, reasons={}
)


def test_complete_and_json_able() -> None:
    config = load(["mode=full", "server.max_num_seqs=64"])
    record = provenance.collect(config, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    again = json.loads(json.dumps(record, allow_nan=False))
    assert again == record
    assert record["started"] == "2026-01-02T03:04:05+00:00"
    assert record["config"]["mode"]["name"] == "FULL"
    assert record["config"]["server"]["max_num_seqs"] == 64
    assert record["packages"]["numpy"]
    assert record["cores"] >= 1
    assert set(record) >= {"artifact", "python", "git", "gpu", "cpu", "kernel", "image_digest", "host_id"}


def test_no_secret_and_no_path_gets_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "planted-token-1")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "planted-token-2")
    config = load(
        [
            "tracking=server",
            "tracking.uri='http://me:planted-token-3@host:5000'",
            "executor.results=/home/planted-name/results",
            "trace.path=/home/planted-name/day.csv",
            "engine.calibration=/home/planted-name/fit.json",
        ]
    )
    text = json.dumps(provenance.collect(config))
    assert "planted" not in text
    assert "day.csv" in text
    assert "fit.json" in text


def test_absent_is_null(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ARTIFACT_IMAGE_DIGEST", raising=False)
    monkeypatch.setattr(nvml, "describe", lambda: NO_GPU)
    record = provenance.collect(load())
    assert record["image_digest"] is None
    assert record["gpu"]["name"] is None
    assert "Driver" in record["gpu"]["reasons"]["gpu"]
    assert provenance.version_of("no-such-package") is None
    monkeypatch.setenv("ARTIFACT_IMAGE_DIGEST", "sha256:abc")
    assert provenance.collect(load())["image_digest"] == "sha256:abc"


def test_host_id_is_stable_and_tells_nothing() -> None:
    name = provenance.host_id()
    assert name == provenance.host_id()
    assert len(name) == 12
    machine = Path("/etc/machine-id")
    assert not machine.exists() or name not in machine.read_text(encoding="utf-8")


def _git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(
        ["git", "-C", str(folder), *identity, *arguments], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_source_of_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ARTIFACT_COMMIT", raising=False)
    _git(tmp_path, "init", "-q")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "file").write_text("1", encoding="utf-8")
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "-q", "--no-verify", "-m", "one")
    head = _git(tmp_path, "rev-parse", "HEAD")
    assert provenance.source(tmp_path) == {"commit": head, "dirty": False}
    (tmp_path / "inner" / "file").write_text("2", encoding="utf-8")
    assert provenance.source(tmp_path) == {"commit": head, "dirty": True}
    # A package installed inside somebody else's repository has no commit of its own.
    assert provenance.source(tmp_path / "inner") == {"commit": None, "dirty": None}
    monkeypatch.setenv("ARTIFACT_COMMIT", "c0ffee")
    assert provenance.source(tmp_path / "inner") == {"commit": "c0ffee", "dirty": False}
    monkeypatch.setenv("ARTIFACT_COMMIT", "c0ffee-dirty")
    assert provenance.source(tmp_path / "inner") == {"commit": "c0ffee", "dirty": True}


def _doctor(monkeypatch: pytest.MonkeyPatch, gpu: nvml.Gpu, versions: dict[str, str], *overrides: str) -> Any:
    monkeypatch.setattr(nvml, "describe", lambda: gpu)
    monkeypatch.setattr(doctor_module, "version_of", versions.get)
    return {check.check: check for check in doctor(load(list(overrides)))}


def test_doctor_without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = _doctor(monkeypatch, NO_GPU, {"mlflow": "3.13.0"})
    assert checks["python"].ok is True
    assert checks["gpu"].ok is None
    assert checks["vllm"].ok is None
    assert checks["mlflow"].ok is True
    assert "compile cache" not in checks
    wanted = _doctor(monkeypatch, NO_GPU, {}, "engine=vllm", "tracking=off")
    assert wanted["gpu"].ok is False
    assert wanted["vllm"].ok is False
    assert "GPU=1" in wanted["vllm"].remedy
    assert wanted["mlflow"].ok is None


def test_doctor_with_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VLLM_CACHE_ROOT", str(tmp_path))
    versions = {"vllm": "0.21.0", "torch": "2.11.0+cu130", "mlflow": "3.13.0"}
    checks = _doctor(monkeypatch, H200, versions)
    assert [name for name, check in checks.items() if check.ok is False and not name.startswith("disk")] == []
    assert "cold" in checks["compile cache"].found
    (tmp_path / "torch_compile_cache" / "one").mkdir(parents=True)
    assert "warm" in _doctor(monkeypatch, H200, versions)["compile cache"].found


@pytest.mark.parametrize(
    ("gpu", "versions", "name", "said"),
    [
        ({"driver": "570.86"}, {}, "driver", "580"),
        ({"mig": True}, {}, "mig", "whole GPU"),
        ({"used_bytes": None, "reasons": {"used_bytes": "Insufficient Permissions"}}, {}, "nvml memory", "null"),
        ({}, {"vllm": "0.20.0"}, "vllm", "vllm==0.21.0"),
        ({}, {"torch": "2.11.0+cpu"}, "torch", "CUDA"),
    ],
)
def test_doctor_finds(
    monkeypatch: pytest.MonkeyPatch, gpu: dict[str, Any], versions: dict[str, str], name: str, said: str
) -> None:
    device = nvml.Gpu(**{**vars(H200), **gpu})
    found = {"vllm": "0.21.0", "torch": "2.11.0", "mlflow": "3.13.0"} | versions
    check = _doctor(monkeypatch, device, found)[name]
    assert check.ok is False
    assert said in check.remedy


def test_doctor_takes_another_version_if_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = _doctor(monkeypatch, H200, {"vllm": "0.20.0"}, "engine.allow_other_version=true")
    assert checks["vllm"].ok is True
    assert checks["vllm"].remedy


def test_doctor_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=2**20))
    check = _doctor(monkeypatch, NO_GPU, {}, "executor.results=/no/such/folder")["disk for results"]
    assert check.ok is False
    assert check.remedy


def test_source_of_a_copy_without_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ARTIFACT_COMMIT", raising=False)
    _git(tmp_path, "init", "-q")
    assert provenance.source(tmp_path) == {"commit": None, "dirty": None}
    monkeypatch.setenv("ARTIFACT_COMMIT", "c0ffee")
    assert provenance.source(tmp_path) == {"commit": "c0ffee", "dirty": False}

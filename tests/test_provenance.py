"""Provenance: complete, JSON-able, and free of secrets."""

import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from artifact.config import load
from artifact.engines import nvml
from artifact.study import provenance

NO_GPU = nvml.Gpu(reasons={"gpu": "NVML does not start: Driver Not Loaded"})


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
            "report.folder=/home/planted-name/results/smoke",
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


def test_source_of_a_copy_without_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ARTIFACT_COMMIT", raising=False)
    _git(tmp_path, "init", "-q")
    assert provenance.source(tmp_path) == {"commit": None, "dirty": None}
    monkeypatch.setenv("ARTIFACT_COMMIT", "c0ffee")
    assert provenance.source(tmp_path) == {"commit": "c0ffee", "dirty": False}

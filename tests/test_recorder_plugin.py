"""The plugin as vLLM loads it: with a folder, without one, and with settings that are none."""

import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from artifact.workloads import recordings
from tests.fake_support import fake_vllm
from tests.record_support import settings, step, vllm_config

ENTRY_GROUP = "vllm.stat_logger_plugins"


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type]:
    monkeypatch.delenv("ARTIFACT_RECORD", raising=False)
    monkeypatch.delenv("ARTIFACT_RECORD_MIB", raising=False)
    with fake_vllm(tmp_path / "cache"):
        module, _, name = entry_point().partition(":")
        yield getattr(import_module(module), name)


def entry_point() -> str:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["entry-points"][ENTRY_GROUP]["artifact_recorder"])


def test_the_entry_point_is_a_stat_logger(stand_in: type) -> None:
    loggers = import_module("vllm.v1.metrics.loggers")
    assert issubclass(stand_in, loggers.StatLoggerBase)  # vLLM refuses to start with another


def test_without_a_folder_nothing_is_recorded(stand_in: type, tmp_path: Path) -> None:
    recorder = stand_in(vllm_config())
    recorder.log_engine_initialized()
    recorder.record(*step(0, 1, "FULL"))
    recorder.close()
    assert recorder._writer is None
    assert not list(tmp_path.rglob("*.rec"))


def test_the_plugin_records_the_servers_settings(
    stand_in: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARTIFACT_RECORD", str(tmp_path / "new" / "rec"))
    recorders = [stand_in(vllm_config(), engine) for engine in (0, 1)]
    for recorder in recorders:
        recorder.record(*step(0, 4, "FULL"), mm_cache_stats=None, engine_idx=0)
        recorder.close()
    found = recordings.read(tmp_path / "new" / "rec")
    (server,) = found.servers
    assert (server["cudagraph_mode"], server["backend"], server["max_num_seqs"]) == ("FULL", "FLASHINFER", 8)
    assert (server["max_loras"], server["num_speculative_tokens"]) == (0, 0)
    assert set(server) == set(settings())
    assert [each["engine"] for each in found.writers] == [0, 1]


@pytest.mark.parametrize("limit", ["0", "-1", "1.5", "many"])
def test_a_limit_that_is_none_records_nothing(
    stand_in: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, limit: str
) -> None:
    monkeypatch.setenv("ARTIFACT_RECORD", str(tmp_path / "rec"))
    monkeypatch.setenv("ARTIFACT_RECORD_MIB", limit)
    recorder = stand_in(vllm_config())
    recorder.record(*step(0, 4, "FULL"))
    recorder.close()
    assert f"ARTIFACT_RECORD_MIB={limit}" in caplog.text
    assert not (tmp_path / "rec").exists()

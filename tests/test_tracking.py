"""The tracker is a view of the store: complete, rebuilt without duplicates, and never in the way."""

import math
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from artifact.config import load
from artifact.errors import InputError
from artifact.records import CellRow, LaunchRow
from artifact.schema import TrackingConfig
from artifact.study import tracking
from artifact.study.pages import runs_page, ui_command
from artifact.study.tracking import Tracker, TrackingFailed, sync

SQLITE = load(["tracking=sqlite"]).tracking
LONG = "because " * 200


def cell(number: int, **changed: Any) -> CellRow:
    row: dict[str, Any] = {
        "cell_id": f"c{number}", "study": "demo", "arm": "FULL", "tile": "t", "block": "b0", "replicate": 0,
        "launch_id": "L0", "kv_policy": "iso_kv", "server_hash": "5e", "host_id": "f00d", "evidence": "simulated",
        "requested_mode": "FULL", "backend": "FLASH_ATTN", "model": "m", "workload": "steady", "load": 0.35,
        "seed": 7, "status": "ok", "n_requests": 100, "tpot_p50_ms": 3.5, "ttft_p50_ms": 20.25,
    }  # fmt: skip
    return CellRow(**(row | changed))


def launch(**changed: Any) -> LaunchRow:
    row: dict[str, Any] = {
        "launch_id": "L0", "study": "demo", "arm": "FULL", "tile": "t", "block": "b0", "position": 2,
        "evidence": "simulated", "status": "ok", "requested_mode": "FULL", "backend": "FLASH_ATTN", "model": "m",
        "kv_policy": "iso_kv", "server_hash": "5e", "host_id": "f00d", "provenance": '{"python": "3.11"}',
        "graph_bytes": 123, "capture_s": 1.5, "gpu_name": "NVIDIA H200",
    }  # fmt: skip
    return LaunchRow(**(row | changed))


def write(folder: Path, cells: list[CellRow], launches: list[LaunchRow]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pd.DataFrame([row.model_dump(mode="json") for row in cells]).to_parquet(folder / "cells.parquet")
    pd.DataFrame([row.model_dump(mode="json") for row in launches]).to_parquet(folder / "launches.parquet")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """An empty MLflow database: making its tables takes seconds, so it is done once for all tests."""
    results = tmp_path_factory.mktemp("template")
    client = tracking._client(f"sqlite:///{tracking.database(results)}")
    client.search_experiments()
    return tracking.database(results).read_bytes()


@pytest.fixture
def folder(tmp_path: Path, template: bytes) -> Path:
    tracking.database(tmp_path).write_bytes(template)
    write(tmp_path / "demo", [cell(0), cell(1)], [launch()])
    return tmp_path / "demo"


def runs(folder: Path, role: str = "cell") -> list[Any]:
    client = tracking._client(f"sqlite:///{tracking.database(folder.parent)}")
    experiment = client.get_experiment_by_name(SQLITE.experiment)
    return list(client.search_runs([experiment.experiment_id], f"tags.role = '{role}'"))


def test_sync_is_complete_and_idempotent(folder: Path) -> None:
    assert sync(folder, SQLITE) == {"new": 2, "updated": 0, "unchanged": 0}
    assert sync(folder, SQLITE) == {"new": 0, "updated": 0, "unchanged": 2}
    (parent,) = runs(folder, "study")
    first, second = sorted(runs(folder), key=lambda run: run.data.tags["cell_id"])
    assert (parent.info.status, first.info.status) == ("FINISHED", "FINISHED")
    assert first.data.tags["mlflow.parentRunId"] == second.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert first.data.params == {
        "requested_mode": "FULL", "backend": "FLASH_ATTN", "model": "m", "workload": "steady", "load": "0.35",
        "kv_policy": "iso_kv", "server_hash": "5e", "arm": "FULL", "tile": "t", "block": "b0", "replicate": "0",
        "seed": "7",
    }  # fmt: skip
    assert first.data.metrics == {
        "n_requests": 100.0, "tpot_p50_ms": 3.5, "ttft_p50_ms": 20.25, "launch.graph_bytes": 123.0,
        "launch.capture_s": 1.5,
    }  # fmt: skip
    tags = first.data.tags
    assert (tags["evidence"], tags["status"], tags["gpu_name"]) == ("simulated", "ok", "NVIDIA H200")


def test_rows_that_are_new_or_changed_come_in(folder: Path) -> None:
    sync(folder, SQLITE)
    failed = cell(1, status="oom", reason="CUDA out of memory", tpot_p50_ms=None, launch_id="L1")
    write(folder, [cell(0), failed, cell(2)], [launch()])
    assert sync(folder, SQLITE) == {"new": 1, "updated": 1, "unchanged": 1}
    by_id = {run.data.tags["cell_id"]: run for run in runs(folder)}
    assert sorted(by_id) == ["c0", "c1", "c2"]
    assert by_id["c1"].info.status == "FAILED"
    assert by_id["c1"].data.tags["reason"] == "CUDA out of memory"
    assert "tpot_p50_ms" not in by_id["c1"].data.metrics


def test_a_run_that_was_cut_off_is_replaced(folder: Path) -> None:
    sync(folder, SQLITE)
    client = tracking._client(f"sqlite:///{tracking.database(folder.parent)}")
    client.delete_tag(runs(folder)[0].info.run_id, "row_digest")
    assert sync(folder, SQLITE) == {"new": 0, "updated": 1, "unchanged": 1}
    assert len(runs(folder)) == 2


def test_logging_live_and_syncing_later_agree(folder: Path) -> None:
    said: list[str] = []
    tracker = Tracker(SQLITE, folder, said.append)
    tracker.log(launch(), [cell(0), cell(1)])
    tracker.close()
    assert said == []
    assert sync(folder, SQLITE) == {"new": 0, "updated": 0, "unchanged": 2}


def test_never_nan_nor_infinity(folder: Path) -> None:
    write(folder, [cell(0, running_cv=math.nan, padding_ratio=math.inf)], [launch(capture_s=math.nan)])
    sync(folder, SQLITE)
    (run,) = runs(folder)
    assert all(math.isfinite(value) for value in run.data.metrics.values())
    assert "running_cv" not in run.data.metrics
    assert "launch.capture_s" not in run.data.metrics


def test_artifacts(folder: Path) -> None:
    (folder / "figures").mkdir()
    (folder / "figures" / "fig01.png").write_bytes(b"png")
    write(folder, [cell(0, status="engine_error", reason=LONG, tpot_p50_ms=None)], [launch()])
    sync(folder, SQLITE)
    client = tracking._client(f"sqlite:///{tracking.database(folder.parent)}")
    (run,), (parent,) = runs(folder), runs(folder, "study")
    assert run.data.tags["reason"] == LONG[:500]
    assert Path(client.download_artifacts(run.info.run_id, "long_values.json")).read_text().count("because") == 200
    assert [file.path for file in client.list_artifacts(parent.info.run_id, "figures")] == ["figures/fig01.png"]
    assert [file.path for file in client.list_artifacts(parent.info.run_id, "provenance")] == ["provenance/L0.json"]
    assert (folder.parent / "mlflow-artifacts" / parent.info.run_id).is_dir()


@pytest.mark.parametrize(
    "config",
    [
        TrackingConfig(kind="server", uri="http://127.0.0.1:9", experiment="e"),  # nobody listens there
        TrackingConfig(kind="sqlite", uri="sqlite:////proc/nowhere/mlflow.db", experiment="e"),
        TrackingConfig(kind="sqlite", uri="nonsense://x", experiment="e"),
    ],
)
def test_a_dead_tracker_is_one_line_and_the_run_goes_on(
    tmp_path: Path, config: TrackingConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    write(tmp_path / "demo", [cell(0)], [launch()])
    said: list[str] = []
    tracker = Tracker(config, tmp_path / "demo", said.append)
    tracker.log(launch(), [cell(0)])
    tracker.log(launch(), [cell(1)])
    tracker.close()
    assert len(said) == 1
    assert said[0].startswith("tracking: ")
    assert "\n" not in said[0]
    with pytest.raises(TrackingFailed):
        sync(tmp_path / "demo", config)


def test_a_tracker_that_dies_halfway_is_left_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    tracker = Tracker(SQLITE, folder, said.append)
    tracker.log(launch(), [cell(0)])
    assert tracker._writer is not None
    calls: list[object] = []

    def broken(*arguments: object, **named: object) -> None:
        calls.append(arguments)
        raise OSError("disk full")

    monkeypatch.setattr(tracker._writer._client, "log_batch", broken)
    tracker.log(launch(), [cell(1)])
    tracker.log(launch(), [cell(2)])
    assert len(calls) == 1
    assert len(said) == 1
    assert "disk full" in said[0]
    assert sync(folder, SQLITE) == {"new": 1, "updated": 0, "unchanged": 1}


def test_results_that_were_moved(folder: Path) -> None:
    sync(folder, SQLITE)
    moved = folder.parent.with_name(folder.parent.name + "-moved")
    folder.parent.rename(moved)
    with pytest.raises(TrackingFailed, match="rebuilt from the store"):
        sync(moved / "demo", SQLITE)


def test_off_does_nothing(tmp_path: Path) -> None:
    config = load(["tracking=off"])
    tracker = Tracker(config.tracking, tmp_path / "demo")
    tracker.log(launch(), [cell(0)])
    tracker.close()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match="tracking=off"):
        sync(tmp_path / "demo", config.tracking)
    with pytest.raises(InputError, match="tracking=off"):
        ui_command(config)


def test_nothing_to_sync(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cells\.parquet"):
        sync(tmp_path / "demo", SQLITE)


def test_ui_command(folder: Path) -> None:
    command = ui_command(load([f"executor.results={folder.parent}"]), port=5005)
    assert command[1:4] == ["-m", "mlflow", "server"]
    assert command[command.index("--host") + 1] == "127.0.0.1"
    assert command[command.index("--port") + 1] == "5005"
    assert command[-1] == f"sqlite:///{folder.parent}/mlflow.db"
    with pytest.raises(InputError, match="own pages"):
        ui_command(load(["tracking=server"]))
    with pytest.raises(InputError, match="not there yet"):
        ui_command(load(["executor.results=/no/such/results"]))


def test_the_page_with_the_runs(folder: Path) -> None:
    config = load([f"executor.results={folder.parent}"])
    assert runs_page(config) == "http://127.0.0.1:5000/#/experiments"  # nothing is tracked yet
    sync(folder, SQLITE)
    client = tracking._client(f"sqlite:///{tracking.database(folder.parent)}")
    number = client.get_experiment_by_name(SQLITE.experiment).experiment_id
    assert runs_page(config, 5005) == f"http://127.0.0.1:5005/#/experiments/{number}/runs"
    assert runs_page(load(["executor.results=/no/such/results"])) == "http://127.0.0.1:5000/#/experiments"


def _first(folder: Path) -> dict[str, int]:
    return sync(folder, SQLITE)


def test_first_use_by_two_processes_at_once(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for place in folders:
        write(place, [cell(0)], [launch()])
    with ProcessPoolExecutor(2) as pool:
        assert list(pool.map(_first, folders)) == [{"new": 1, "updated": 0, "unchanged": 0}] * 2
    assert {run.data.tags["mlflow.runName"] for run in runs(folders[0], "study")} == {"one", "two"}


def test_no_usage_data_is_sent() -> None:
    tracking._client("sqlite://")
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"

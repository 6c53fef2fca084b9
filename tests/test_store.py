"""The results folder: typed when empty, whole after a crash, locked, merged without loss."""

import errno
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from artifact.errors import EnvironmentLacks, InputError
from artifact.records import REQUEST_COLUMNS, SCORE_COLUMNS, STEP_COLUMNS, CellRow, LaunchRow, Measurement, typed
from artifact.study import parts
from artifact.study.store import Store, read_cells, read_launches, read_requests, read_scores, read_steps

ROOT = Path(__file__).resolve().parents[1]


def cell(cell_id: str = "c1", **changes: Any) -> CellRow:
    values: dict[str, Any] = {
        "cell_id": cell_id, "study": "s", "arm": "FULL", "tile": "t", "block": "b0", "replicate": 0, "launch_id": "l1",
        "host_id": "h", "kv_policy": "iso_kv", "server_hash": "00", "evidence": "simulated", "requested_mode": "FULL",
        "backend": "FLASH_ATTN", "model": "m", "workload": "churn", "seed": 2**32 - 1, "status": "ok",
        "tpot_p50_ms": 0.1 + 0.2, "n_requests": 3, "seconds": 2.5,
    }  # fmt: skip
    if changes.get("status", "ok") != "ok":
        values |= {"tpot_p50_ms": None, "reason": "because"}
    return CellRow.model_validate(values | changes)


def launch(launch_id: str = "l1", **changes: Any) -> LaunchRow:
    values: dict[str, Any] = {
        "launch_id": launch_id, "study": "s", "arm": "FULL", "tile": "t", "block": "b0", "position": 0,
        "evidence": "simulated", "status": "ok", "requested_mode": "FULL", "backend": "FLASH_ATTN", "model": "m",
        "kv_policy": "iso_kv", "server_hash": "00", "host_id": "h", "provenance": "{}", "hollow": False,
    }  # fmt: skip
    return LaunchRow.model_validate(values | changes)


def measurement(n: int = 3, scores: pd.DataFrame | None = None) -> Measurement:
    requests = pd.DataFrame({"request": range(n), "intended_s": np.linspace(0, 1, n), "prompt_tokens": 5,
                             "planned_output_tokens": 2, "output_tokens": 2, "measured": True})  # fmt: skip
    steps = pd.DataFrame({"step": range(2 * n), "t_s": np.arange(2 * n) / 7, "runtime_mode": "FULL", "num_tokens": 3})
    return Measurement(typed(requests, REQUEST_COLUMNS), typed(steps, STEP_COLUMNS), 2.5, scores=scores)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "s")


def files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_rows_and_records_come_back_as_they_were(store: Store) -> None:
    measured = measurement()
    store.write_launch(launch())
    store.write_cell(cell(), measured)
    store.write_cell(cell("c2", status="oom"))
    store.finish()
    assert store.cells() == {"c1": cell(), "c2": cell("c2", status="oom")}
    assert store.launches() == {"l1": launch()}
    cells = read_cells(store.folder).set_index("cell_id")
    assert cells.loc["c1", "tpot_p50_ms"] == 0.1 + 0.2
    assert np.isnan(cells.loc["c2", "tpot_p50_ms"])
    assert cells["n_requests"].dtype == "Int64"
    assert cells["seed"].tolist() == [2**32 - 1] * 2
    assert read_launches(store.folder)["hollow"].tolist() == [False]
    requests, steps = read_requests(store.folder), read_steps(store.folder, ["c1"])
    pd.testing.assert_frame_equal(requests.drop(columns="cell_id"), measured.requests)
    pd.testing.assert_frame_equal(steps.drop(columns="cell_id"), measured.steps)
    assert set(requests["cell_id"]) == {"c1"}
    assert read_steps(store.folder, ["c2"]).empty


def test_scores_are_kept_where_there_are_any(store: Store, tmp_path: Path) -> None:
    found = typed(pd.DataFrame({name: [1, 2] for name in SCORE_COLUMNS} | {"logprob": [-0.1, -1 / 3]}), SCORE_COLUMNS)
    store.write_cell(cell(), measurement())
    store.finish()
    assert not (store.folder / "scores.parquet").exists()
    assert read_scores(store.folder).empty
    assert read_scores(store.folder).dtypes.astype(str).to_dict() == {"cell_id": "string", **SCORE_COLUMNS}
    store.write_cell(cell("c2"), measurement(scores=found))
    store.write_cell(cell("c3", status="oom"))
    store.finish()
    pd.testing.assert_frame_equal(read_scores(store.folder, ["c2"]).drop(columns="cell_id"), found)
    assert set(read_scores(store.folder)["cell_id"]) == {"c2"}
    other = Store(tmp_path / "other")
    assert other.merge(store.folder) == {"cells": 3, "launches": 0}
    pd.testing.assert_frame_equal(read_scores(other.folder), read_scores(store.folder))


def test_empty_files_and_null_columns_keep_their_types(store: Store) -> None:
    store.finish()
    empty = {name: pq.read_schema(store.folder / f"{name}.parquet") for name in ("cells", "launches", "steps")}
    store.write_cell(cell(), measurement())
    store.finish()
    assert pq.read_schema(store.folder / "cells.parquet").equals(empty["cells"])
    assert empty["cells"].field("goodput").type == pa.float64()
    assert empty["cells"].field("realised_mode").type == pa.string()
    assert empty["launches"].field("hollow").type == pa.bool_()
    assert empty["launches"].field("compile_cache").type == pa.string()
    assert empty["steps"].field("gpu_ms").type == pa.float64()
    assert list(read_steps(store.folder).columns) == ["cell_id", *STEP_COLUMNS]
    assert read_requests(store.folder).dtypes.astype(str).to_dict() == {"cell_id": "string", **REQUEST_COLUMNS}


def test_left_overs_of_a_killed_writer_are_ignored_and_removed(store: Store) -> None:
    store.write_cell(cell(), measurement())
    left = store.folder / "parts" / "cells" / ".c9.json.1.tmp"
    left.write_text('{"half')
    (store.folder / "parts" / "requests" / "c9.parquet").write_bytes(b"records whose row was not written")
    store.finish()
    assert list(store.cells()) == ["c1"]
    assert set(read_requests(store.folder)["cell_id"]) == {"c1"}
    with store.locked():
        assert not left.exists()


def test_a_broken_row_is_named(store: Store) -> None:
    store.write_cell(cell())
    (store.folder / "parts" / "cells" / "c1.json").write_text('{"cell_id": "c1"}')
    with pytest.raises(InputError, match=r"c1\.json: no row of this version .* delete it"):
        store.cells()


def test_retried_cell_replaces_its_failure(store: Store) -> None:
    store.write_cell(cell(status="timeout"))
    store.finish()
    assert read_requests(store.folder).empty
    store.write_cell(cell(), measurement())
    store.finish()
    assert read_cells(store.folder)["status"].tolist() == ["ok"]
    assert len(read_requests(store.folder)) == 3


def test_records_are_put_together_only_when_a_part_is_newer(store: Store) -> None:
    store.write_cell(cell(), measurement())
    store.finish()
    before = (store.folder / "steps.parquet").stat().st_ino
    store.finish()
    assert (store.folder / "steps.parquet").stat().st_ino == before
    store.write_cell(cell("c2"), measurement(5))
    store.finish()
    assert read_steps(store.folder).groupby("cell_id").size().to_dict() == {"c1": 6, "c2": 10}


def test_folder_is_for_one_run_at_a_time(store: Store) -> None:
    code = (
        "import sys; from pathlib import Path; from artifact.study.store import Store\n"
        f"with Store(Path({str(store.folder)!r})).locked():\n print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(InputError, match=f"in use by process {holder.pid};"), store.locked():
            pass
        holder.kill()
    with store.locked():  # a lock does not outlive its holder
        assert (store.folder / ".lock").read_text() == str(os.getpid())


@pytest.mark.parametrize(("code", "says"), [(errno.ENOSPC, "No space left"), (errno.EROFS, "Read-only file system")])
def test_disk_that_takes_nothing_is_one_line(
    store: Store, monkeypatch: pytest.MonkeyPatch, code: int, says: str
) -> None:
    store.write_cell(cell())
    before = files(store.folder)

    def full(path: Path) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(parts, "_sync", full)
    with pytest.raises(EnvironmentLacks, match=f"c1.json: cannot be written \\({says}.*executor.results") as caught:
        store.write_cell(cell(status="oom"))
    assert "\n" not in str(caught.value)
    assert files(store.folder) == before


def test_merge_brings_pieces_together(store: Store, tmp_path: Path) -> None:
    other = Store(tmp_path / "other")
    store.write_launch(launch())
    store.write_cell(cell(), measurement())
    store.write_cell(cell("c2", status="timeout"))
    store.write_cell(cell("c3", status="ok"), measurement())
    other.write_launch(launch())
    other.write_launch(launch("l2"))
    other.write_cell(cell(), measurement())  # the same
    other.write_cell(cell("c2", launch_id="l2"), measurement(4))  # here it worked
    other.write_cell(cell("c3", status="engine_error"))  # here it did not
    other.write_cell(cell("c4", status="oom"))
    assert store.merge(other.folder) == {"cells": 2, "launches": 1}
    assert {name: row.status.value for name, row in store.cells().items()} == {
        "c1": "ok", "c2": "ok", "c3": "ok", "c4": "oom",
    }  # fmt: skip
    assert read_requests(store.folder).groupby("cell_id").size().to_dict() == {"c1": 3, "c2": 4, "c3": 3}
    assert list(read_launches(store.folder)["launch_id"]) == ["l1", "l2"]
    assert store.merge(other.folder) == {"cells": 0, "launches": 0}


def test_merge_takes_a_tar(store: Store, tmp_path: Path) -> None:
    other = Store(tmp_path / "elsewhere" / "s")
    other.write_cell(cell(), measurement())
    with tarfile.open(tmp_path / "piece.tar.gz", "w:gz") as archive:
        archive.add(other.folder, "results/s")
    assert store.merge(tmp_path / "piece.tar.gz") == {"cells": 1, "launches": 0}
    assert len(read_steps(store.folder)) == 6


def test_merge_refuses_other_numbers_for_the_same_cell_and_writes_nothing(store: Store, tmp_path: Path) -> None:
    other = Store(tmp_path / "other")
    store.write_cell(cell(), measurement())
    other.write_cell(cell("a0"), measurement())
    other.write_cell(cell(tpot_p50_ms=9.0), measurement())
    before = files(store.folder)
    with pytest.raises(InputError, match=r"cell c1 is in .* with other numbers"):
        store.merge(other.folder)
    assert {name: data for name, data in files(store.folder).items() if name != ".lock"} == before


def test_merge_refuses_what_is_no_results_folder(store: Store, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("hello")
    with tarfile.open(tmp_path / "evil.tar", "w") as archive:
        archive.add(tmp_path / "text", "../../escaped")
    (tmp_path / "link").symlink_to("/etc")
    with tarfile.open(tmp_path / "link.tar", "w") as archive:
        archive.add(tmp_path / "link", "parts")
    for name, says in (("empty", "no parts/"), ("text", "neither a folder nor a tar"), ("evil.tar", "nor a tar"),
                       ("link.tar", "parts is a link"), ("absent", "neither a folder nor a tar")):  # fmt: skip
        with pytest.raises(InputError, match=says):
            store.merge(tmp_path / name)
    other = Store(tmp_path / "torn")
    other.write_cell(cell())
    with pytest.raises(InputError, match="cell c1 is without its requests"):
        store.merge(other.folder)


def test_folder_without_results_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cells\.parquet: does not exist"):
        read_cells(tmp_path)
    (tmp_path / "cells.parquet").write_text("not a table")
    with pytest.raises(InputError, match=r"cells\.parquet: cannot be read"):
        read_cells(tmp_path)

"""No secret gets out, no server listens to others, no input is executed, no name leaves the results folder."""

import ast
import json
import re
from pathlib import Path

import pytest

from artifact.cli import main
from artifact.config import load
from artifact.errors import InputError
from artifact.schema import Evidence
from artifact.study import plan as planning
from artifact.study.identity import id_of
from artifact.study.pages import ui_command
from artifact.study.store import Store

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted((ROOT / "artifact").rglob("*.py"))
TOKEN = "hf_planted0a1b2c3d4e5f6g7h8i9j"  # noqa: S105  (what must not be found anywhere)
NAMES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "WANDB_API_KEY", "MLFLOW_TRACKING_PASSWORD")


@pytest.mark.parametrize("fault", [[], ["engine.fault.kind=engine_error", "engine.fault.where=measure"]])
def test_secrets_of_the_environment_are_in_no_result_log_or_tracker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], fault: list[str]
) -> None:
    for name in NAMES:
        monkeypatch.setenv(name, TOKEN)
    words = ["engine=sim", "workload.duration_s=4", "tracking=sqlite", f"executor.results={tmp_path}"]
    main(["run", *words, *fault])
    main(["sync", *words])
    main(["doctor", *words])
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert {"mlflow.db", "cells.parquet", "launches.parquet"} <= {file.name for file in files}
    assert any(file.parent.name == "provenance" for file in files)  # MLflow's artifacts
    assert any(file.suffix == ".log" for file in files)
    found = [str(file) for file in files if TOKEN.encode() in file.read_bytes()]
    assert found == []
    # Parquet compresses: the text in it is looked at as rows
    assert all(TOKEN not in row.model_dump_json() for row in Store(tmp_path / "smoke").launches().values())
    said = capfd.readouterr()
    assert TOKEN not in said.out + said.err


def test_every_server_listens_on_this_machine_alone(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").touch()
    command = ui_command(load([f"executor.results={tmp_path}"]))
    assert command[command.index("--host") + 1] == "127.0.0.1"
    text = "".join(file.read_text(encoding="utf-8") for file in SOURCES)
    assert "0.0.0.0" not in text  # noqa: S104
    assert not re.search(r"(import|from) (http\.server|socketserver|uvicorn|flask|fastapi|aiohttp)", text)
    assert not re.search(r"\.(bind|listen|create_server|start_server)\(", text)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert not re.search(r"--publish|\s-p\s+\d|--network[ =]host|--privileged", makefile)


def test_the_container_runs_as_a_user() -> None:
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    users = [line for line in lines if line.startswith("USER ")]
    assert users[-1] == "USER ${UID}"
    assert "ARG UID=1000" in lines
    assert "IMAGE_UID := $(or $(filter-out 0," in (ROOT / "Makefile").read_text(encoding="utf-8")


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: file.stem)
def test_input_is_never_executed(file: Path) -> None:
    """No eval, exec or compile, no pickle, no shell; JSON, CSV, Parquet and Hydra's own YAML alone are read."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not imported & {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml"}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        assert name not in {
            "eval",
            "exec",
            "compile",
            "os.system",
            "os.popen",
            "torch.load",
            "np.load",
            "pd.read_pickle",
        }
        assert all(word.arg not in {"shell", "allow_pickle"} for word in node.keywords)


BAD_NAMES = ["../../x", "/etc/x", "..", ".", "a/b", "a\\b", "x\n", "x\0y", "~root", "", "ü" * 300, "-rf", ".hidden"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_ids_are_plain_file_names_whatever_the_names_are(name: str) -> None:
    made = id_of([name, "0", name], {})
    assert re.fullmatch(r"[A-Za-z0-9_@-][A-Za-z0-9_.@-]*", made)
    assert len(made) < 200


def test_names_of_arms_and_tiles_cannot_leave_the_results_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A study file with hostile names still writes below its own folder, every cell of it."""
    base = load(["study=smoke", "workload.duration_s=4"]).study
    tile = base.tiles[0].model_copy(update={"name": "../../../tile"})
    arms = {"../../../arm": ("mode=full",), "/abs": ("mode=none",), "..": ("mode=piecewise",)}
    hostile = base.model_copy(update={"arms": arms, "tiles": (tile,)})
    real = planning.load

    def with_study(overrides: list[str]) -> object:
        return real(overrides).model_copy(update={"study": hostile})

    monkeypatch.setattr(planning, "load", with_study)
    planned = planning.plan(["workload.duration_s=4", "tracking=off"], Evidence.SIMULATED)
    from artifact.engines.sim_engine import SimEngine
    from artifact.study.run import run

    results = tmp_path / "a" / "b" / "results"
    run(planned, Store(results), lambda log: SimEngine())
    outside = [file for file in tmp_path.rglob("*") if file.is_file() and not file.is_relative_to(results)]
    assert outside == []
    assert set(Store(results).cells()) == {cell.cell_id for launch in planned.launches for cell in launch.cells}
    assert not list((results / "parts").rglob("*tile"))


@pytest.mark.parametrize("name", ["../x", "/x", "X", ".x", "a/b", "", "x" * 65])
def test_a_study_name_is_a_folder_name(name: str) -> None:
    with pytest.raises(InputError, match=r"study\.name"):
        load([f"study.name='{name}'"])


def test_a_row_from_elsewhere_whose_id_is_a_path_is_refused(tmp_path: Path) -> None:
    """Rows of another results folder are read by `merge`: an id there names a file here."""
    ours, theirs = Store(tmp_path / "ours"), tmp_path / "theirs"
    (theirs / "parts" / "cells").mkdir(parents=True)
    row = {
        "cell_id": "../../../evil", "study": "s", "arm": "A", "tile": "t", "block": "0", "replicate": 0,
        "launch_id": "l", "host_id": "h", "kv_policy": "iso_kv", "server_hash": "0", "evidence": "simulated",
        "requested_mode": "FULL", "backend": "FLASH_ATTN", "model": "m", "workload": "w", "seed": 1, "status": "oom",
        "reason": "r",
    }  # fmt: skip
    (theirs / "parts" / "cells" / "evil.json").write_text(json.dumps(row))
    with pytest.raises(InputError, match=r"evil\.json: no row of this version"):
        ours.merge(theirs)
    assert not list(tmp_path.rglob("evil.json.*"))
    assert [file.name for file in tmp_path.rglob("evil*")] == ["evil.json"]

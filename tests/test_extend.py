"""What CONTRIBUTING says can be added is added, in under twenty lines each, to a copy of the sources, and runs there.

A new file in conf/ is enough for most; a backend needs to say what graphs it holds, an executor its four methods.
"""

import difflib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from sim_support import synthetic_calibration

ROOT = Path(__file__).parents[1]
MOST_LINES = 19


class Edit(NamedTuple):
    """A place in a file that is there: ``old`` becomes ``new``."""

    old: str
    new: str


# what -> the files of its diff: a new file's text, or what changes in one
ADDITIONS: dict[str, dict[str, str | list[Edit]]] = {
    "model": {
        "conf/model/qwen3-wide.yaml": """\
# A shape of which only what differs is written.
defaults: [qwen3-0.6b, _self_]
name: qwen3-wide
hf_id: Qwen/Qwen3-Wide
architecture:
  hidden_size: 2048
  intermediate_size: 6144
  num_hidden_layers: 30
""",
    },
    "workload": {
        "conf/workload/nightly.yaml": """\
# Short answers that come evenly.
name: nightly
arrival: {process: constant, rate_per_s: 50.0}
prompt: {kind: fixed, mean: 100}
output: {kind: uniform, mean: 16, low: 8, high: 24}
duration_s: 4.0
""",
    },
    "server": {
        "conf/server/narrow.yaml": """\
defaults: [study, _self_]
name: narrow
max_num_seqs: 48
cudagraph_capture_sizes: [1, 2, 4, 8, 16, 32, 48]
""",
    },
    "hardware": {
        "conf/hardware/h20.yaml": """\
gpu: h20
full_name: NVIDIA H20
compute_capability: [9, 0]
memory_bytes: 102005473280
bandwidth_bytes_per_s: 4.0e12
""",
    },
    "study": {
        "conf/study/pair.yaml": """\
# Two arms on one tile that takes model, server and workload from the command line.
name: pair
seed: 3
blocks: 2
first_block: 0
block_prefix: ''
arms:
  NONE: [mode=none]
  FULL: [mode=full]
tiles:
  - name: one
    overrides: []
    workloads: [[]]
""",
    },
    "backend": {
        "conf/backend/turboquant.yaml": "name: TURBOQUANT\nflash_attn_version: null\n",
        "artifact/schema/config.py": [
            Edit('"TRITON_ATTN", "FLEX_ATTENTION"]', '"TRITON_ATTN", "FLEX_ATTENTION", "TURBOQUANT"]')
        ],
        "artifact/graphs/modes.py": [
            Edit(
                '    if backend.name == "FLASHINFER":\n',
                '    if backend.name == "TURBOQUANT":\n        return GraphSupport.UNIFORM_BATCH\n'
                '    if backend.name == "FLASHINFER":\n',
            )
        ],
    },
    "executor": {
        "conf/executor/inline.yaml": "defaults: [local, _self_]\nkind: inline\n",
        "artifact/schema/executor.py": [Edit('"slurm", "ray"]', '"slurm", "ray", "inline"]')],
        "artifact/study/executors/dispatch.py": [
            Edit(
                '    if kind == "gpus":\n',
                '    if kind == "inline":\n        from artifact.study.executors.inline import Inline\n\n'
                '        return Inline()\n    if kind == "gpus":\n',
            )
        ],
        "artifact/study/executors/inline.py": '''\
"""Units in; carried out one after the other, in this process, out."""

from collections.abc import Iterator

from artifact.errors import ArtifactError
from artifact.study.executors.unit import Unit, carry_out


class Inline(list[Unit]):
    """See the package."""

    workers, add, close = 1, list.append, list.clear

    def ended(self, timeout_s: float) -> Iterator[tuple[Unit, ArtifactError | None]]:
        """Carry out the next unit."""
        if self:
            yield (unit := self.pop(0)), carry_out(unit)
''',
    },
}

# what -> the command line that uses it; the study is the new one, so that everything below comes from the line
USES = {
    "model": ["model=qwen3-wide"],
    "workload": ["workload=nightly"],
    "server": ["server=narrow"],
    "hardware": ["hardware=h20"],
    "study": [],
    "backend": ["backend=turboquant"],
    "executor": ["executor=inline"],
}

# Plans and runs each command line that it is given, in one process: importing takes longer than all the rest.
DRIVER = """\
import json, sys
from pathlib import Path
from artifact.engines.choose import choose
from artifact.engines.sim_engine import SimEngine
from artifact.schema import Evidence
from artifact.study.executors import execute
from artifact.study.plan import describe, plan
from artifact.study.run import run
from artifact.study.store import Store, read_cells, read_launches

def main():
    found = {}
    for what, overrides in json.loads(sys.argv[1]).items():
        planned = plan(overrides, Evidence.SIMULATED)
        folder = Path(planned.config.executor.results)
        if what == "executor":
            summary = execute(planned, Store(folder), choose(planned.config.engine))
        else:
            summary = run(planned, Store(folder), lambda log: SimEngine())
        cells = read_cells(folder)[["arm", "model", "workload", "backend", "status", "realised_mode", "server_hash"]]
        found[what] = {"plan": describe(planned)["cells"], "ok": summary["cells"]["ok"], "cells": cells.to_dict("list")}
        found[what]["sizes"] = [int(size) for size in read_launches(folder)["capture_sizes"]]
    print(json.dumps(found))

if __name__ == "__main__":
    main()
"""


def lines(what: str) -> int:
    """Return how many lines the diff of an addition adds and takes away, blank ones not counted."""
    count = 0
    for name, change in ADDITIONS[what].items():
        old = "" if isinstance(change, str) else (ROOT / name).read_text(encoding="utf-8")
        diff = difflib.unified_diff(old.splitlines(), changed(old, change).splitlines(), n=0, lineterm="")
        count += sum(line[:1] in "+-" and line[:3] not in ("+++", "---") and len(line.strip()) > 1 for line in diff)
    return count


def changed(old: str, change: str | list[Edit]) -> str:
    if isinstance(change, str):
        return change
    for edit in change:
        assert old.count(edit.old) == 1, f"{edit.old!r} is there {old.count(edit.old)} times"
        old = old.replace(edit.old, edit.new)
    return old


def calibrations(folder: Path) -> dict[str, str]:
    """Write synthetic calibrations of what is simulated: a GPU and a model each has its own."""
    files = {}
    for name, of in {"usual": {}, "model": {"model": "qwen3-wide"}, "hardware": {"gpu": "h20"}}.items():
        files[name] = folder / f"{name}.json"
        files[name].write_text(synthetic_calibration().model_copy(update=of).model_dump_json(), encoding="utf-8")
    return {name: str(file) for name, file in files.items()}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """What came of each addition, in a copy of the sources that has them all."""
    copy = tmp_path_factory.mktemp("copy")
    for folder in ("artifact", "conf"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for addition in ADDITIONS.values():
        for name, change in addition.items():
            old = "" if isinstance(change, str) else (copy / name).read_text(encoding="utf-8")
            (copy / name).write_text(changed(old, change), encoding="utf-8")
    files = calibrations(copy)
    usual = ["study=pair", "engine=sim", "tracking=off", "workload=nightly"]
    given = {
        what: [
            *dict.fromkeys([*usual, *overrides]),
            f"engine.calibration='{files.get(what, files['usual'])}'",
            f"executor.results={copy / 'results' / what}",
        ]
        for what, overrides in USES.items()
    }
    (copy / "drive.py").write_text(DRIVER, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(copy)}
    done = subprocess.run(
        [sys.executable, "drive.py", json.dumps(given)],
        cwd=copy, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("what", ADDITIONS)
def test_it_takes_few_lines(what: str) -> None:
    assert lines(what) <= MOST_LINES


@pytest.mark.parametrize("what", ADDITIONS)
def test_it_plans_and_runs(what: str, ran: Mapping[str, Any]) -> None:
    assert ran[what]["plan"] == ran[what]["ok"] == 4  # two arms in two blocks
    assert set(ran[what]["cells"]["status"]) == {"ok"}


def test_what_was_added_is_what_ran(ran: Mapping[str, Any]) -> None:
    cells = {what: each["cells"] for what, each in ran.items()}
    assert set(cells["model"]["model"]) == {"qwen3-wide"}
    assert set(cells["workload"]["workload"]) == {"nightly"}
    assert set(cells["study"]["arm"]) == {"NONE", "FULL"}
    assert set(cells["server"]["server_hash"]).isdisjoint(cells["study"]["server_hash"])
    assert 7 in ran["server"]["sizes"]
    assert set(cells["backend"]["backend"]) == {"TURBOQUANT"}
    assert "FULL_AND_PIECEWISE:hollow" in cells["backend"]["realised_mode"]  # its FULL holds uniform batches alone


def test_an_executor_gives_the_rows_that_local_gives(ran: Mapping[str, Any]) -> None:
    assert ran["executor"]["cells"] == ran["study"]["cells"]

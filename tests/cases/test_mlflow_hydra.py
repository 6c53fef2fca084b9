"""Kind: a tracker or a command line that loses, bends or hides what it was given.

File store, parallel first use, dead tracker, NaN, long values: tests/test_tracking.py. Sweeps, quoted JSON, kinds of
values: tests/test_config.py.
"""

from pathlib import Path

import pytest

from artifact.cli import main
from artifact.config import load
from artifact.errors import InputError
from artifact.records import CellRow, LaunchRow
from artifact.schema import Mode


def test_every_column_is_a_legal_metric_name() -> None:
    allowed = set("abcdefghijklmnopqrstuvwxyz0123456789_")
    assert all(set(name) <= allowed for name in [*CellRow.model_fields, *LaunchRow.model_fields])


@pytest.mark.parametrize(
    "text", ['cc={"cudagraph_mode":"FULL"}', 'server.x={"a":1}', "server.cudagraph_capture_sizes=[1"]
)
def test_what_does_not_parse_is_one_line_that_says_how_to_quote(text: str) -> None:
    with pytest.raises(InputError, match="quote it") as caught:
        load([text])
    assert "\n" not in str(caught.value)


def test_none_null_and_the_mode_none_are_three_things() -> None:
    assert load(["server.num_gpu_blocks_override=null"]).server.num_gpu_blocks_override is None
    assert load(["mode=NONE"]).mode.name is Mode.NONE is load(["mode=none"]).mode.name
    with pytest.raises(InputError, match=r"server\.num_gpu_blocks_override='None': must be a whole number"):
        load(["server.num_gpu_blocks_override=None"])
    with pytest.raises(InputError, match=r"mode=null: null is no mode; known: eager, "):
        load(["mode=null"])


def test_a_failed_cell_is_told_before_the_next_one_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fault = ["engine.fault.kind=engine_error", "engine.fault.arm=NONE"]
    words = ["run", "engine=sim", "workload.duration_s=4", "tracking=off", f"executor.results={tmp_path}"]
    assert main([*words, *fault]) == 1
    lines = capsys.readouterr().err.splitlines()
    failed = next(n for n, line in enumerate(lines) if "engine_error" in line)
    assert "NONE: 2 cells" in lines[failed - 1]
    assert failed < len(lines) - 5


def test_relative_paths_are_of_where_the_command_was_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "".join(f"{n / 40},64,4\n" for n in range(60))
    (tmp_path / "trace.csv").write_text("timestamp,prompt_tokens,output_tokens\n" + rows)
    monkeypatch.chdir(tmp_path)
    trace = ["trace.path=trace.csv", "trace.format=csv", "trace.time_unit=s"]
    tile = "{name: t, overrides: [], workloads: [['workload=trace']]}"
    words = ["engine=sim", "tracking=off", "executor.results=out", f"study.tiles=[{tile}]", *trace]
    assert main(["run", *words]) == 0
    assert Path.cwd() == tmp_path
    assert (tmp_path / "out" / "smoke" / "cells.parquet").exists()
    capsys.readouterr()

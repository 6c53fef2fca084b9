"""The table of MPK's protocol grid, from made-up rows."""

from pathlib import Path

import pytest

from artifact.analysis.tables_markdown import render
from tests.step_support import StepStudy

HEADER = "| model, tile | mode | n | batch 1 | batch 16 |"
PUBLISHED = "| qwen3-8b, A100 | MPK's paper | - | 14.5 without MPK; 12.5 with MPK; bound, about 10 | - |"


def test_each_mode_stands_beside_the_floor_and_what_was_published(tmp_path: Path) -> None:
    study = StepStudy(tmp_path / "step_latency", "measured", "qwen3-8b")
    grid = {"tile": "mpk", "workload": "mpk_grid"}
    study.launch("NONE", light={1: 8.0, 16: 8.0}, **grid)
    for block, wall in enumerate((4.0, 4.0)):
        study.launch("FULL", str(block), light={1: wall, 16: 2 * wall}, copy_bytes_per_s=4e12, **grid)
    study.launch("FULL", light={1: 1.0, 2: 1.0}, mode="FULL")  # of tile qwen3-8b
    study.frames()
    lines = render("mpk", tmp_path).splitlines()
    read_bytes = 16_400_000_000 - 2 * 151_936 * 4096
    kv_bytes = 2 * 36 * 8 * 128 * 2 * (64 + 1024 / 2)
    floors = [f"{(read_bytes + batch * kv_bytes) / 4e9:.2f}" for batch in (1, 16)]
    assert lines[:1] + lines[2:6] == [
        HEADER,
        "| qwen3-8b, mpk | FULL | 2 | 4.00 (4.00 to 4.00) | 8.00 (8.00 to 8.00) |",
        "| qwen3-8b, mpk | NONE | 1 | 8.00 | 8.00 |",
        f"| qwen3-8b, mpk | memory's floor | - | {floors[0]} | {floors[1]} |",
        PUBLISHED,
    ]
    words = lines[-1]
    assert words.startswith("Measured on NVIDIA H200, vLLM 0.21.0; 3 engine starts.")
    assert "NVIDIA H200's measured copy bandwidth 4 TB/s (data sheet 4.8 TB/s)" in words
    assert "another GPU, so that no ratio to it is taken" in words


def test_simulated_rows_say_so_and_a_floor_that_is_not_known_is_a_dash(tmp_path: Path) -> None:
    study = StepStudy(tmp_path / "step_latency", model="qwen3-8b")
    study.launch("NONE", light={1: 8.0}, tile="mpk", workload="mpk_grid", weights_bytes=None)
    study.frames()
    table = render("mpk", tmp_path)
    assert "| qwen3-8b, mpk | memory's floor | - | - |" in table
    assert "Simulated on NVIDIA H200, vLLM 0.21.0; 1 engine starts." in table


@pytest.mark.parametrize("study_is_there", [True, False])
def test_without_its_rows_it_says_what_makes_them(study_is_there: bool, tmp_path: Path) -> None:
    if study_is_there:
        study = StepStudy(tmp_path / "step_latency", "measured", "qwen3-8b")
        study.launch("FULL", light={1: 1.0}, mode="FULL")
        study.frames()
    assert render("mpk", tmp_path).startswith("Not measured yet: `artifact run study=step_latency")

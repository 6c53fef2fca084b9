"""The tables of ARTIFACT.md are those of the shipped rows, and come out of made-up rows as they should."""

import re
from pathlib import Path

import pytest

from artifact.analysis.markdown import between, markdown, shown, span
from artifact.analysis.tables_markdown import TABLES, render, rewrite
from artifact.errors import InputError
from tests.launch_support import cell, launch, write
from tests.step_support import StepStudy

ROOT = Path(__file__).parents[1]
DATA = ROOT / "paper_figures" / "data"
TEXT = (ROOT / "ARTIFACT.md").read_text(encoding="utf-8")


def test_every_table_has_a_block_in_artifact_md() -> None:
    assert sorted(re.findall(r"<!-- table: ([\w-]+) -->", TEXT)) == sorted(TABLES)
    assert TEXT.count("<!-- end -->") == len(TABLES)


@pytest.mark.parametrize("name", TABLES)
def test_artifact_md_has_the_shipped_numbers(name: str) -> None:
    [block] = re.findall(rf"<!-- table: {name} -->\n(.*?)<!-- end -->", TEXT, re.S)
    assert block.strip() == render(name, DATA), "make tables writes ARTIFACT.md's tables again"


def test_rewrite_touches_blocks_alone(tmp_path: Path) -> None:
    text = "before\n<!-- table: hollow-cost -->\nold\n<!-- end -->\nafter\n"
    again = rewrite(text, tmp_path)
    assert again == rewrite(again, tmp_path)
    assert again.startswith("before\n<!-- table: hollow-cost -->\n")
    assert again.endswith("<!-- end -->\nafter\n")
    assert "old" not in again
    assert "Not measured yet: `artifact run study=hollow`" in again


def test_an_unknown_block_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="table no-such: no such table; known: start-up"):
        rewrite("<!-- table: no-such -->\n<!-- end -->", tmp_path)


def test_start_up_and_memory_of_made_up_rows(tmp_path: Path) -> None:
    mib = 2**20
    rows = [launch(0, "NONE", kv_available_bytes=1000 * 16 * 114_688, graph_bytes=0, graph_estimate_bytes=0)]
    for number, start_s in ((1, 11.0), (2, 12.0), (3, 13.0)):
        graphs = {"graph_bytes": 100 * mib, "graph_estimate_bytes": 80 * mib}
        kv = {"kv_available_bytes": 990 * 16 * 114_688}
        rows.append(launch(number, "FULL", start_s=start_s, **graphs, **kv))
    write(tmp_path / "made_up", rows, [cell(number, row) for number, row in enumerate(rows)], {})
    start = render("start-up", tmp_path)
    assert (
        "| qwen3-0.6b, FLASH_ATTN (FA3) | FULL | warm | 3 | 2.0 | 4.0 | 2.0 | 3.0 | 1.0 | 12.0 | 9.5 to 14.5 |" in start
    )
    assert "| NONE | first | 1 |" in start
    assert "Measured on NVIDIA H200, vLLM 0.21.0; 4 engine starts." in start
    memory = render("graph-memory", tmp_path)
    assert "| FULL | 0 + 51 | 3 | 100 | 80 | -20.0% | 160 = 1.00% at 0.9, derived (n = 3) |" in memory


def test_fallback_of_made_up_rows(tmp_path: Path) -> None:
    hollow = {"resolved_mode": "FULL_AND_PIECEWISE", "realised_mode": "FULL_AND_PIECEWISE:hollow", "hollow": True}
    row = launch(0, "FULL", ["backend=flashinfer"], study="fallback", **hollow)
    bad = launch(1, "NONE", study="fallback", status="oom", reason="out | of memory", realised_mode=None)
    cells = [
        cell(0, row, steps_full=1, steps_piecewise=1, steps_none=2),
        cell(1, bad, status="oom", reason="out | of memory"),
    ]
    write(tmp_path / "fallback", [row, bad], cells, {})
    table = render("fallback", tmp_path)
    assert "| FLASHINFER | FULL | FULL_AND_PIECEWISE, hollow | 0 + 51 | 25% | 25% | 50% | yes | - |" in table
    assert r"| NONE | oom | 0 + 0 | - | - | - | no prediction | out \| of memory |" in table


def test_what_the_probe_costs_in_one_launch_has_no_interval(tmp_path: Path) -> None:
    study = StepStudy(tmp_path / "step_latency", "measured")
    for arm, blocks in (("FULL", "0"), ("NONE", "01")):
        for block in blocks:
            study.launch(arm, block, light={1: 2.0}, heavy={1: 3.0})
    study.frames()
    table = render("probe-cost", tmp_path)
    assert "| FULL | 1.500 | one launch: no interval | 1 |" in table
    assert "| NONE | 1.500 | 1.500 to 1.500 | 2 |" in table


def test_numbers_that_are_not_there_are_dashes() -> None:
    import pandas as pd

    assert (shown(None, ".1f"), shown(float("nan"), ".1f"), shown(1.25, ".1f")) == ("-", "-", "1.2")
    assert (between(1.0, None, ".1f"), between(1.0, 2.0, ".1f")) == ("-", "1.0 to 2.0")
    assert (span(pd.Series([1.0, 3.0]), ".0f"), span(pd.Series([1.0, 1.01]), ".0f")) == ("1 to 3", "1")
    assert span(pd.Series([], dtype="float64"), ".0f") == "-"
    assert markdown(["a"], [["b|c"]]) == "| a |\n| --- |\n| b\\|c |"

"""Figures of engine starts, fallbacks and break-even: what they say, and what where there is nothing to draw."""

from pathlib import Path

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from artifact.plots import FIGURES
from artifact.plots.data import NothingToDraw, load
from tests.launch_support import cell, launch, write

DATA = Path(__file__).parents[1] / "paper_figures" / "data"
NAMES = ("fig03_startup", "fig08_graph_memory", "fig09_fallback", "fig10_break_even")
MIB = 2**20


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three starts of NONE, PIECEWISE and FULL of a load, one hollow start on FLASHINFER and one that failed."""
    folder = tmp_path_factory.mktemp("made_up") / "load_sweep"
    launches, cells, seconds = [], [], {}
    for number in range(9):
        mode, block = ("NONE", "PIECEWISE", "FULL")[number % 3], str(number // 3)
        graphs = {"graph_bytes": (number % 3) * 100 * MIB, "graph_estimate_bytes": (number % 3) * 90 * MIB}
        kv = {"kv_available_bytes": (1000 - 10 * (number % 3)) * 114_688 * 16}
        start = {"start_s": 10.0 + number, "graphs_piecewise": 1479 if mode == "PIECEWISE" else 0}
        launches.append(launch(number, mode, study="load_sweep", block=block, **start, **graphs, **kv))
        cells.append(cell(number, launches[-1], steps_full=5, steps_piecewise=3, steps_none=2))
        seconds[f"cell-{number}"] = 3.0 - number % 3 + 0.1 * (number // 3)
    hollow = {"resolved_mode": "FULL_AND_PIECEWISE", "realised_mode": "FULL_AND_PIECEWISE:hollow", "hollow": True}
    for number in (20, 22):  # the first of a backend on a machine is not shown
        launches.append(launch(number, "FULL", ["backend=flashinfer"], study="load_sweep", arm="HOLLOW", **hollow))
        cells.append(cell(number, launches[-1], steps_full=5, steps_piecewise=3, steps_none=2))
    failed = {"status": "engine_error", "reason": "RuntimeError: no", "start_s": None, "compile_cache": None}
    lost = {"realised_mode": None, "resolved_mode": None, "graphs_full": None, "graphs_piecewise": None}
    launches.append(launch(21, "FULL_DECODE_ONLY", study="load_sweep", **failed, **lost))
    cells.append(cell(21, launches[-1], status="engine_error", reason="RuntimeError: no"))
    return write(folder, launches, cells, seconds).parent


def figure(root: Path, name: str) -> Figure:
    return FIGURES[name][1](load(root / "load_sweep"))


def words(drawn: Figure) -> str:
    return "\n".join(text.get_text() for text in drawn.findobj(Text))


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_says_what_its_rows_are(name: str, root: Path) -> None:
    text = words(figure(root, name))
    assert "measured, NVIDIA H200, qwen3-0.6b, vLLM 0.21.0" in text
    assert "n = " in text
    assert "simulated" not in text


def test_startup_shows_means_and_other_backends(root: Path) -> None:
    drawn = figure(root, "fig03_startup")
    titles = [axes.get_title() for axes in drawn.axes]
    assert titles == ["qwen3-0.6b, FLASH_ATTN (FA3)", "qwen3-0.6b, other backends"]
    labels = [[label.get_text() for label in axes.get_yticklabels()] for axes in drawn.axes]
    assert labels == [["NONE, warm", "PIECEWISE, warm", "FULL, warm"], ["FLASHINFER, FULL asked, warm"]]
    assert "15.0 (n = 3)" in words(drawn)  # FULL: 12, 15 and 18 s


def test_memory_shows_the_estimates_error_and_lost_tokens(root: Path) -> None:
    text = words(figure(root, "fig08_graph_memory"))
    assert "200, estimate -10% (n = 3)" in text
    assert "320 = 2.00% (n = 3)" in text  # 20 blocks of 16 tokens of 16,000


def test_fallback_grid_has_hollow_failed_and_not_run(root: Path) -> None:
    text = words(figure(root, "fig09_fallback"))
    assert "FULL_AND_PIECEWISE, hollow\n0 piecewise, 51 full" in text
    assert "engine_error\nRuntimeError" in text
    assert text.count("not run") == 5  # of 2 x 5
    assert "our rules foretold 4 of 4 outcomes" in text
    assert "30%" in text


def test_break_even_shows_both_references(root: Path) -> None:
    drawn = figure(root, "fig10_break_even")
    assert [axes.get_title() for axes in drawn.axes] == ["capture, against NONE", "capture, against PIECEWISE"]
    assert "load_sweep: churn, 40.0/s" in words(drawn)
    assert "3 to 3 blocks" in words(drawn)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_to_draw_is_said(name: str, tmp_path: Path) -> None:
    row = launch(0, "EAGER", start_s=None, compile_cache=None)
    write(tmp_path / "load_sweep", [row], [cell(0, row, offered_rate=None)], {})
    with pytest.raises(NothingToDraw):
        figure(tmp_path, name)


@pytest.mark.parametrize("name", ["fig03_startup", "fig08_graph_memory", "fig10_break_even"])
def test_the_shipped_rows_are_drawn(name: str) -> None:
    drawn = FIGURES[name][1](load(*(DATA / study for study in FIGURES[name][0])))
    assert "measured, NVIDIA H200" in words(drawn)


@pytest.mark.parametrize("name", NAMES)
def test_a_thin_file_draws_each(name: str) -> None:
    text = (Path(__file__).parents[1] / "paper_figures" / f"{name}.py").read_text(encoding="utf-8")
    assert f'draw("{name}"' in text

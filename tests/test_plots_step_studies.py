"""Figures of step studies: what they say, and what happens where there is nothing to draw."""

import json
from functools import cache
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from artifact.cli import main
from artifact.errors import InputError
from artifact.plots import FIGURES, draw
from artifact.plots.data import NothingToDraw, load
from tests.step_support import StepStudy

STEP_FIGURES = ("fig04_step_latency", "fig05_mixed_steps", "fig06_compile_vs_graph", "fig07_graph_benefit")
WALLS = {"EAGER": 20.0, "NONE": 10.0, "PIECEWISE": 5.0, "FULL": 2.0}


def made_up(root: Path, evidence: str = "simulated", model: str = "qwen3-0.6b", *, mixed: bool = True) -> Path:
    study = StepStudy(root / "step_latency", evidence, model)
    for block, pace in enumerate((1.0, 1.2)):
        for arm, wall in WALLS.items():
            mode = arm if arm in ("FULL", "PIECEWISE") else None
            walls = dict.fromkeys((1, 64, 512), wall * pace)
            steps = {100: wall * pace, 400: wall, 700: 10.0} if mixed else None
            study.launch(arm, str(block), light=walls, heavy={1: wall}, mixed=steps, mode=mode)
    study.launch("NONE", "0", light={512: 30.0, 513: 33.0}, tile=f"{model}-serve")
    study.frames()
    return root


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_up(tmp_path_factory.mktemp("made_up"))


@cache
def figure(root: Path, name: str) -> Figure:
    return FIGURES[name][1](load(root / "step_latency"))


def words(drawn: Figure) -> str:
    return "\n".join(text.get_text() for text in drawn.findobj(Text))


@pytest.mark.parametrize("name", STEP_FIGURES)
def test_a_figure_says_what_its_rows_are(name: str, root: Path) -> None:
    text = words(figure(root, name))
    for said in ("simulated, NVIDIA H200, qwen3-0.6b", " launches in 2 blocks", " steps", "95 %", "t-interval"):
        assert said in text
    assert "measured" not in text.replace("not measured", "")


def test_measured_rows_are_called_so(tmp_path: Path) -> None:
    text = words(figure(made_up(tmp_path, "measured", "qwen3-8b"), "fig04_step_latency"))
    assert "measured, NVIDIA H200, qwen3-8b" in text
    assert "MPK: published for one A100 (OSDI 2026), not measured here" in text
    assert "14.5 without MPK" in text
    assert "simulated" not in text


def test_published_figures_stand_beside_their_model_alone(root: Path) -> None:
    assert "MPK" not in words(figure(root, "fig04_step_latency"))


def test_step_latency_draws_each_arm_at_its_time(root: Path) -> None:
    own, serve = figure(root, "fig04_step_latency").axes
    drawn = {line.get_label(): line.get_ydata().tolist() for line in own.get_lines()}
    assert drawn["GPU time of the graph"][0] == pytest.approx(1.0)
    assert len(drawn["floor: weights + KV"]) == 3
    heights = [mark.lines[0].get_ydata().tolist() for mark in own.containers]
    assert heights == [pytest.approx([wall * 1.2**0.5] * 3) for wall in WALLS.values()]
    assert "3 launches" not in own.get_title()
    assert own.get_title().endswith("2 launches an arm")
    assert "nothing captured" in [text.get_text() for text in serve.texts]
    assert [text.get_text() for text in serve.get_xticklabels()] == ["512", "513"]


def test_each_unit_is_on_its_axis(root: Path) -> None:
    labels = {name: figure(root, name).axes[0].get_ylabel() for name in STEP_FIGURES}
    assert labels == {
        "fig04_step_latency": "decode step (ms)",
        "fig05_mixed_steps": "mixed step (ms)",
        "fig06_compile_vs_graph": "decode step: times as fast",
        "fig07_graph_benefit": "saved of NONE's step (%)",
    }


def test_benefit_counts_verdicts_and_graphs(root: Path) -> None:
    drawn = figure(root, "fig07_graph_benefit")
    text = words(drawn).replace("\n", " ")
    assert "of 10 sizes and modes: helps 10, hurts 0, unclear 0" in text
    assert "FULL 51, 51 MiB" in text
    assert [axes.get_title() for axes in drawn.axes] == [
        "qwen3-0.6b: decode steps, 2 blocks",
        "qwen3-0.6b: mixed steps, 2 blocks",
    ]


def test_the_same_rows_give_the_same_bytes(root: Path, tmp_path: Path) -> None:
    name = "fig05_mixed_steps"
    first, second = (draw(name, root, tmp_path / each) for each in "ab")
    assert [file.name for file in first] == [f"{name}.pdf", f"{name}.png"]
    for one, other in zip(first, second, strict=True):
        assert one.stat().st_size > 5000
        assert one.read_bytes() == other.read_bytes()


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One block of tile qwen3-8b, two of tile mpk: the same model, a grid with other lengths."""
    root = tmp_path_factory.mktemp("once")
    study = StepStudy(root / "step_latency", "measured", "qwen3-8b")
    for arm, wall in WALLS.items():
        mode = arm if arm in ("FULL", "PIECEWISE") else None
        study.launch(arm, light={1: wall, 16: wall}, heavy={1: wall}, mixed={100: wall}, mode=mode)
        for block in "01":
            study.launch(arm, block, light={1: 2 * wall}, mode=mode, tile="mpk", workload="mpk_grid")
    study.frames()
    return root


@pytest.mark.parametrize(
    ("name", "titles"),
    [
        ("fig04_step_latency", ["qwen3-8b, mpk, 2 launches an arm", "qwen3-8b, n = 1 launch an arm, no interval"]),
        ("fig05_mixed_steps", ["qwen3-8b, n = 1 launch an arm, no interval"]),
        ("fig06_compile_vs_graph", ["qwen3-8b, mpk, 2 blocks", "qwen3-8b, n = 1 block, no interval"]),
        (
            "fig07_graph_benefit",
            [f"qwen3-8b: {steps} steps, n = 1 block, no interval" for steps in ("decode", "mixed")],
        ),
    ],
)
def test_one_launch_says_so_and_a_tile_has_a_panel_of_its_own(name: str, titles: list[str], once: Path) -> None:
    assert [axes.get_title() for axes in figure(once, name).axes] == titles


def test_the_figure_says_whose_bandwidth_its_floor_rests_on(once: Path, tmp_path: Path) -> None:
    said = "floor: bytes of weights and KV cache over NVIDIA H200's"
    assert f"{said} data sheet bandwidth 4.8 TB/s (no launch timed a copy)" in words(figure(once, "fig04_step_latency"))
    another = StepStudy(tmp_path / "another", "measured", "qwen3-8b")  # study, of the same GPU
    another.launch("NONE", light={1: 2.0}, copy_bytes_per_s=4.2e12)
    another.frames()
    made_up(tmp_path, "measured", "qwen3-8b")
    text = words(figure(tmp_path, "fig04_step_latency"))
    assert f"{said} measured copy bandwidth 4.2 TB/s (data sheet 4.8 TB/s)" in text


@pytest.mark.parametrize("name", STEP_FIGURES)
def test_a_study_that_is_not_there_is_nothing_to_draw(name: str, tmp_path: Path) -> None:
    with pytest.raises(NothingToDraw, match="artifact run study=step_latency"):
        draw(name, tmp_path, tmp_path / "out")


def test_figures_leaves_out_what_the_rows_lack(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made_up(tmp_path, mixed=False)
    some = ("fig05_mixed_steps", "fig06_compile_vs_graph", "fig01_step_time")
    monkeypatch.setattr("artifact.plots.FIGURES", {name: FIGURES[name] for name in some})
    out = tmp_path / "out"
    where = ["figures.source=results", f"executor.results={tmp_path}", f"figures.out={out}"]
    assert main(["figures", *where, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert {Path(file).stem for file in answer["files"]} == {"fig06_compile_vs_graph"}
    assert list(answer["skipped"]) == ["fig05_mixed_steps"]
    assert "heavy_probe" in answer["skipped"]["fig05_mixed_steps"]


def test_no_cell_that_ended_well_is_nothing_to_draw(tmp_path: Path) -> None:
    study = StepStudy(tmp_path / "step_latency")
    study.launch("FULL")
    study.frames()
    with pytest.raises(InputError, match="no finished cell to draw"):
        figure(tmp_path, "fig04_step_latency")


@pytest.mark.parametrize("name", STEP_FIGURES)
def test_each_figure_has_its_thin_file(name: str) -> None:
    text = (Path(__file__).parents[1] / "paper_figures" / f"{name}.py").read_text()
    assert f'draw("{name}"' in text

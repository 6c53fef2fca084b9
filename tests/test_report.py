"""The page stands alone, says what is measured and what simulated, escapes what it shows and can be repeated."""

import json
import shlex
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from artifact.analysis.compare import METRICS
from artifact.cli import main
from artifact.engines.sim_engine import SimEngine
from artifact.errors import InputError
from artifact.records import CellRow, LaunchRow
from artifact.report import Contents, gather, render
from artifact.report.table import table, text
from artifact.schema import Evidence
from artifact.study.plan import plan
from artifact.study.run import run
from artifact.study.store import Store, read_cells

DATA = Path(__file__).parents[1] / "paper_figures" / "data"
HOSTILE = """<script>alert(1)</script>"'&{{ 7 * 7 }}</td></style>"""
SETTINGS = ["study=smoke", "engine=sim", "workload.duration_s=4", "server.max_num_seqs=64", "study.seed=5"]


class Page(HTMLParser):
    """The elements of a page with their attributes, its texts, and the texts of its tables' captions."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.captions: list[str] = []
        self._stack: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self._stack and self._stack.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self._stack and self._stack[-1] in ("h3", "summary"):
            self.captions.append(data)
        if "style" not in self._stack:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return "\n".join(self.texts)


def cell(number: int, **changed: Any) -> CellRow:
    row: dict[str, Any] = {
        "cell_id": f"t-b0-FULL-churn-0.6-{number:08x}", "study": "demo", "arm": "FULL", "tile": "t", "block": "b0",
        "replicate": 0, "launch_id": "L0", "kv_policy": "iso_kv", "server_hash": "5e", "host_id": "f00d",
        "evidence": "measured", "requested_mode": "FULL", "realised_mode": "FULL", "backend": "FLASH_ATTN",
        "model": "qwen3-0.6b", "workload": "churn", "load": 0.6, "seed": 7, "status": "ok", "n_requests": 100,
        "tpot_p50_ms": 3.5, "tpot_p99_ms": 4.5, "ttft_p50_ms": 20.25, "ttft_p99_ms": 30.0,
    }  # fmt: skip
    return CellRow(**(row | changed))


def launch(**changed: Any) -> LaunchRow:
    row: dict[str, Any] = {
        "launch_id": "L0", "study": "demo", "arm": "FULL", "tile": "t", "block": "b0", "position": 0,
        "evidence": "measured", "status": "ok", "requested_mode": "FULL", "backend": "FLASH_ATTN",
        "model": "qwen3-0.6b", "kv_policy": "iso_kv", "server_hash": "5e", "host_id": "f00d",
        "provenance": json.dumps({"python": "3.11", "gpu": {"name": "NVIDIA H200"}}), "gpu_name": "NVIDIA H200",
    }  # fmt: skip
    return LaunchRow(**(row | changed))


def written(folder: Path, cells: list[CellRow], launches: list[LaunchRow]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    pd.DataFrame([row.model_dump(mode="json") for row in cells]).to_parquet(folder / "cells.parquet")
    pd.DataFrame([row.model_dump(mode="json") for row in launches]).to_parquet(folder / "launches.parquet")
    return folder


def blocks(arms: dict[str, list[float]]) -> tuple[list[CellRow], list[LaunchRow]]:
    """Cells of one place, a block for each of an arm's TPOT p50."""
    cells, launches = [], []
    for arm, values in arms.items():
        for block, value in enumerate(values):
            place = {"arm": arm, "block": f"b{block}", "launch_id": f"L-{arm}-{block}", "requested_mode": arm}
            metrics = dict.fromkeys(METRICS, value)
            cells.append(cell(len(cells), **place, realised_mode=arm, seed=block, **metrics))
            launches.append(launch(**place, realised_mode=arm, graph_bytes=2**28, memory_valid=True))
    return cells, launches


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = tmp_path_factory.mktemp("results")
    planned = plan([*SETTINGS, f"executor.results={results}", "tracking=off"], Evidence.SIMULATED)
    run(planned, Store(results / "smoke"), lambda log: SimEngine())
    return results


@pytest.fixture(scope="module")
def simulated_contents(simulated: Path) -> Contents:
    return gather(simulated / "smoke", DATA / "smoke")


@pytest.fixture(scope="module")
def measured_contents() -> Contents:
    return gather(DATA / "smoke", DATA / "smoke")


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than all the rest; for tests that do not look at figures."""
    monkeypatch.setattr("artifact.report.contents.pictures", lambda folder, study: [])


def test_the_page_stands_alone(measured_contents: Contents) -> None:
    text_ = render(measured_contents)
    page = Page(text_)
    assert text_.lstrip().startswith("<!doctype html>")
    assert not {"script", "iframe", "object", "embed", "base", "form"} & {tag for tag, _ in page.elements}
    for tag, attributes in page.elements:
        for name in ("src", "href", "srcset", "data", "action"):
            value = attributes.get(name)
            assert value is None or value.startswith(("data:", "#")), (tag, value)
        assert not [name for name in attributes if name.startswith("on")]
    style = text_[text_.index("<style>") : text_.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    policy = next(each["content"] for tag, each in page.elements if each.get("http-equiv"))
    assert policy == "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    images = [each for tag, each in page.elements if tag == "img"]
    assert images
    assert all(each["alt"] for each in images)
    assert len(text_) < 2_000_000


def test_the_same_rows_give_the_same_page(simulated: Path, simulated_contents: Contents) -> None:
    again = gather(simulated / "smoke", DATA / "smoke")
    assert again == simulated_contents
    assert render(again) == render(simulated_contents)
    assert len([picture for picture in again.pictures if picture.svg]) >= 2
    assert all(picture.reason for picture in again.pictures if not picture.svg)


def test_no_path_of_this_machine_is_on_the_page(simulated: Path, simulated_contents: Contents) -> None:
    page = render(simulated_contents)
    assert str(simulated) not in page
    assert str(DATA.parents[1]) not in page


def test_what_is_absent_is_a_dash(simulated_contents: Contents, measured_contents: Contents) -> None:
    for contents in (simulated_contents, measured_contents):
        shown = Page(render(contents)).text
        assert not {"nan", "NaN", "None", "<NA>", "null", "inf"} & set(shown.replace(",", " ").split())
    absent = (None, float("nan"), pd.NA, "", [], {})
    assert [text(value) for value in absent] == ["-"] * len(absent)
    assert [text(value) for value in (0, 0.0, False)] == ["0", "0", "no"]


def test_every_table_of_rows_says_which_evidence(simulated_contents: Contents, measured_contents: Contents) -> None:
    for contents, evidence in ((simulated_contents, "simulated"), (measured_contents, "measured")):
        for shown in (*contents.cells, *contents.launches, *contents.answer.contrasts):
            assert evidence in shown.caption
        assert {line.evidence for line in contents.answer.lines} == {evidence}
        assert all(evidence in picture.label for picture in contents.pictures if picture.svg)
        assert Page(render(contents)).text.lower().count(evidence) > 5


@pytest.mark.usefixtures("no_figures")
def test_measured_and_simulated_rows_never_share_a_table(tmp_path: Path) -> None:
    cells = [cell(0), cell(1, evidence="simulated", launch_id="L1")]
    folder = written(tmp_path / "demo", cells, [launch(), launch(launch_id="L1", evidence="simulated")])
    contents = gather(folder)
    assert contents.evidence == ("measured", "simulated")
    assert [shown.caption.split()[1].strip(",") for shown in contents.cells] == ["measured", "simulated"]
    assert [len(shown.rows) for shown in (*contents.cells, *contents.launches)] == [1, 1, 1, 1]
    assert len(contents.sources) == 2


def test_only_the_same_cells_stand_beside_each_other(simulated_contents: Contents, measured_contents: Contents) -> None:
    assert measured_contents.beside == ()
    assert simulated_contents.beside == ()  # other seats, other seconds


def test_hostile_names_are_shown_and_do_nothing(tmp_path: Path) -> None:
    provenance = json.dumps({"cpu": HOSTILE, "git": {"commit": HOSTILE}, "packages": {HOSTILE: HOSTILE}})
    named = {"arm": HOSTILE, "tile": HOSTILE, "workload": HOSTILE, "study": HOSTILE}
    failed = {"status": "engine_error", "reason": HOSTILE, "tpot_p50_ms": None}
    cells = [cell(0, **named), cell(1, **named, flags=HOSTILE), cell(2, **named, **failed)]
    place = {"arm": HOSTILE, "tile": HOSTILE, "study": HOSTILE, "provenance": provenance, "attention_backend": HOSTILE}
    folder = written(tmp_path / "demo", cells, [launch(**place, gpu_name=HOSTILE, reason=HOSTILE)])
    plain = Page(render(gather(written(tmp_path / "plain", [cell(0)], [launch()]))))
    page = Page(render(gather(folder)))
    assert {tag for tag, _ in page.elements} <= {tag for tag, _ in plain.elements} | {"li", "strong"}
    assert page.text.count(HOSTILE) >= 10
    assert "49" not in page.text.split("7 * 7")[0]


@pytest.mark.usefixtures("no_figures")
def test_verdicts_come_first_and_one_block_gives_none(tmp_path: Path) -> None:
    values = [3.0 + 0.01 * block for block in range(8)]
    arms = {"FULL_AND_PIECEWISE": values, "NONE": [9 * value for value in values], "FULL": [0.8 * v for v in values]}
    (line,) = gather(written(tmp_path / "eight", *blocks(arms))).answer.lines
    assert line.says == "better than the default: FULL (0.80x); worse: NONE (9.00x)."
    assert line.where == "t, churn, load 0.6"
    assert "256 MiB" in line.numbers
    arms = {name: each[:3] for name, each in arms.items()}
    (line,) = gather(written(tmp_path / "three", *blocks(arms))).answer.lines
    assert line.says.startswith("exploratory, ")
    arms = {name: each[:1] for name, each in arms.items()}
    answer = gather(written(tmp_path / "one", *blocks(arms))).answer
    assert answer.lines[0].says == "no verdict from 1 of 8 blocks: NONE 9.00x, FULL 0.80x."
    assert any("1 block where 8 are needed" in note for note in answer.notes)


@pytest.mark.usefixtures("no_figures")
def test_what_is_not_ranked_says_why(tmp_path: Path) -> None:
    cells, launches = blocks({"FULL_AND_PIECEWISE": [3.0], "FULL": [2.0], "NONE": [9.0]})
    cells = [row.model_copy(update={"flags": "" if row.arm == "FULL" else "host_jitter"}) for row in cells]
    contents = gather(written(tmp_path / "demo", cells, launches))
    assert contents.answer.lines[0].says == "not ranked (host_jitter): NONE, FULL."
    assert contents.headline.startswith("3 of 3 cells finished, 2 of them flagged")
    (flags, _) = contents.validity
    assert flags.rows[0][:2] == ("host_jitter", "2")


@pytest.mark.usefixtures("no_figures")
def test_a_model_that_conf_does_not_know_still_gives_a_page(tmp_path: Path) -> None:
    folder = written(tmp_path / "demo", [cell(0, model="gone")], [launch(model="gone")])
    contents = gather(folder)
    assert contents.answer.lines == ()
    assert any("no such model" in note for note in contents.answer.notes)
    assert contents.commands == ("# conf/study of this version has no demo: take the version that wrote the rows",)
    assert render(contents)


def test_the_commands_give_the_same_cells_again(simulated: Path, simulated_contents: Contents) -> None:
    commands = simulated_contents.commands
    (line,) = [each for each in commands if each.startswith("artifact run ")]
    planned = plan(shlex.split(line)[2:], Evidence.SIMULATED)
    assert {each.cell_id for launch_ in planned.launches for each in launch_.cells} == set(
        read_cells(simulated / "smoke")["cell_id"]
    )
    assert {"server.max_num_seqs=64", "study.seed=5"} <= set(shlex.split(line))


@pytest.mark.usefixtures("no_figures")
def test_a_shipped_study_names_its_commit_and_its_corrections(tmp_path: Path) -> None:
    entry = {"commits": ["abc123"], "corrections": [{"column": "realised_mode", "was": ["X"], "is": "Y", "why": "Z"}]}
    folder = written(tmp_path / "demo", [cell(0, study="smoke")], [launch(study="smoke")])
    (folder / "provenance.json").write_text(json.dumps([entry]), encoding="utf-8")
    contents = gather(folder)
    assert contents.commands[0] == "git checkout abc123"
    assert contents.environment[0].rows == (("realised_mode", "X", "Y", "Z"),)
    (folder / "provenance.json").write_text("[1]", encoding="utf-8")
    with pytest.raises(InputError, match=r"provenance\.json: is no list"):
        gather(folder)


def test_columns_that_no_row_has_are_left_out() -> None:
    shown = table("c", {"a": "A", "b": "B", "c": "C"}, [{"a": None, "b": None, "c": 1}, {"a": None, "c": 2.5}])
    assert (shown.heads, shown.rows, shown.numeric) == (("A", "C"), (("-", "1"), ("-", "2.5")), frozenset({1}))


def test_mistakes_are_one_line(tmp_path: Path, capsys: Any) -> None:
    assert main(["report", f"report.folder={tmp_path}/nothing"]) == 2
    assert "nothing/cells.parquet: does not exist" in capsys.readouterr().err
    folder = written(tmp_path / "two", [cell(0), cell(1, study="other")], [launch()])
    assert main(["report", f"report.folder={folder}"]) == 2
    assert capsys.readouterr().err == (
        f"artifact: {folder}: holds cells of 2 studies (demo, other); report.folder names the results of one study\n"
    )

"""GUIDE.md is what the shipped measurements say, and its sentences say neither more nor less than the contrasts."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from artifact.analysis.contrasts import outcomes, stability_effects, verdicts
from artifact.analysis.contrasts.sweep import DEFAULT, Sweep
from artifact.analysis.guide import answers as guide_answers
from artifact.analysis.guide import page as guide
from artifact.analysis.guide.text import render
from artifact.cli import main
from artifact.errors import InputError
from tests.sweep_support import MODEL, made, swept

ROOT = Path(__file__).parents[1]
DATA = ROOT / "paper_figures" / "data"
TPOT = "tpot_p50_ms"


def headline(of: Sweep) -> str:
    primary = verdicts.findings(of, (TPOT,))
    return " ".join(guide_answers.headline(primary, outcomes.regrets(of, TPOT), outcomes.costs(of)))


def written(of: Sweep, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], str]:
    monkeypatch.setattr(guide.sweep, "read", lambda root, *studies: None if studies else of)
    contents = guide.gather(Path("nowhere"), simulate=False)
    json.dumps(contents, allow_nan=False)
    return contents, render(contents)


def test_the_repository_holds_the_guide_that_its_data_make() -> None:
    assert (ROOT / "GUIDE.md").read_text(encoding="utf-8") == render(guide.gather(DATA)), "run: make guide"


def test_every_block_there_is_a_clear_answer(monkeypatch) -> None:
    contents, text = written(swept(made(noise=0.0002)), monkeypatch)
    [answer] = contents["answer"].values()
    assert "FULL is faster at 1 of 1 load (TPOT p50 20 % lower)." in answer
    assert "FULL_DECODE_ONLY equals it within 2 % at 1 of 1 load." in answer
    assert "NONE is slower at 1 of 1 load: 4.00 times its TPOT p50." in answer
    assert "Exploratory" not in " ".join(answer)
    assert [each["advice"] for each in contents["workloads"]] == ["take FULL"]
    assert "Tiles that lack blocks" not in text
    assert re.search(r"\| 0\.80 \[0\.\d\d, 0\.\d\d\] better \(n = 8\) \|", text)


def test_few_blocks_say_so_and_rank_nothing(monkeypatch) -> None:
    contents, text = written(swept(made(2)), monkeypatch)
    assert contents["answer"][MODEL][0] == f"The data cannot tell yet: 2 of 8 blocks, so keep the default, {DEFAULT}."
    assert contents["workloads"][0]["advice"] == "the data cannot tell yet: 2 of 8 blocks"
    assert f"{MODEL}-churn 2 of 8" in text
    assert not re.search(r"(better|worse|equivalent) \(n", text)


def test_some_blocks_are_exploratory() -> None:
    found = headline(swept(made(4)))
    assert found.startswith(f"Exploratory, in part on 4 of 8 blocks; keep the default, {DEFAULT}, till then.")
    assert "FULL is faster" in found


def test_a_default_that_nothing_beats_is_good_enough() -> None:
    slower = [row | ({TPOT: 2 * row[TPOT]} if row["arm"] != DEFAULT else {}) for row in made()]
    found = headline(swept(slower))
    assert "Of 1 load with an interval the default is within 2 % of the best mode's TPOT p50 at 1" in found
    assert "No mode is known to be faster than it anywhere." in found


def test_a_gain_in_tpot_that_costs_ttft_is_a_trade() -> None:
    rows = [row | ({"ttft_p99_ms": 2 * row["ttft_p99_ms"]} if row["arm"] == "FULL" else {}) for row in made()]
    found = verdicts.findings(swept(rows))
    assert guide_answers.advice(found) == "take FULL, for a TTFT p99 1.6 times"


def test_the_questions_have_an_answer_each_or_say_what_lacks(monkeypatch) -> None:
    contents, _ = written(swept(made(noise=0.0002, load=0.6)), monkeypatch)
    answers = {each["question"]: each["answer"] for each in contents["questions"]}
    assert len(answers) == 5
    full = next(answer for question, answer in answers.items() if "FULL beat" in question)
    assert "TPOT p50: better at churn, load 0.6 (0.80)." in full
    assert "of the default's steps 20 % hold prompts and replay pieces" in full
    assert answers["When is PIECEWISE enough?"] == "Nowhere measured: its TPOT p50 is 1.50 times the default's."
    assert (
        "By load, its TPOT p50 over the default's: 0.6: 4.00."
        in answers["Is there a load or batch beyond which NONE is as good?"]
    )
    assert "no two of steady, churn and bursty" in answers["Does stability matter beyond what load explains?"]
    assert answers["How does the ranking change when KV is scarce?"] == "The data cannot tell yet: not measured."


def test_scarce_kv_is_held_against_the_same_loads() -> None:
    turned = {"FULL": 3.0}
    scarce = made(8, seed=5, tile=f"{MODEL}-small-kv")
    scarce = [row | ({TPOT: turned[row["arm"]] * row[TPOT]} if row["arm"] in turned else {}) for row in scarce]
    of = swept(made(8) + scarce)
    found = verdicts.findings(of, (TPOT,))
    few = [each for each in found if "small-kv" in each.place.tile]
    text = guide_answers.scarce_kv(few, [each for each in found if each not in few], of.launches)
    assert "worse at churn, small-kv, load 0.35" in text
    assert "instead of FULL < " in text
    assert "NONE 1,000" in text


def test_stability_is_answered_by_margins_and_by_the_default_itself() -> None:
    bursty = made(8, seed=3, workload="bursty")
    bursty = [row | ({TPOT: 1.5 * row[TPOT]} if row["arm"] == "FULL" else {}) for row in bursty]
    moved = stability_effects.stability_effects(swept(made(8, seed=2, workload="steady") + bursty), TPOT)
    text = guide_answers.stability(moved)
    assert "1 of 4 contrasts at equal load differ" in text
    assert "FULL, load 0.35: its ratio under steady 33 % lower than under bursty" in text


@pytest.mark.parametrize(("ratio", "words"), [(7.02, "7.0 times"), (1.12, "12 % higher"), (0.8, "20 % lower")])
def test_ratios_in_words(ratio: float, words: str) -> None:
    assert guide_answers.than_default(ratio) == words


def test_a_folder_without_a_sweep_is_one_line(tmp_path, capsys) -> None:
    with pytest.raises(InputError, match="no load sweep to write a guide from"):
        guide.gather(tmp_path)
    assert main(["guide", "figures.source=results", f"executor.results={tmp_path}"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1

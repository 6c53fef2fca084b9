"""Whatever README, ARTIFACT and CONTRIBUTING tell a reader to type or to open is there."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from artifact.cli import COMMANDS
from artifact.config import groups, load

ROOT = Path(__file__).parents[1]
DOCS = ["README.md", "ARTIFACT.md", "CONTRIBUTING.md"]
TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
MADE = ("results/", "traces/", ".venv", "mlflow.db", "paper_figures/out")  # what commands make, not what is shipped
FENCE = re.compile(r"^```[^\n]*\n(.*?)^```", re.M | re.S)


def snippets(text: str) -> list[str]:
    """Return the lines of the fenced blocks and the inline code spans."""
    lines = [line for block in FENCE.findall(text) for line in block.splitlines()]
    return lines + re.findall(r"`([^`\n]+)`", FENCE.sub("", text))


def command_lines(text: str, program: str) -> list[list[str]]:
    """Return the arguments of every call of ``program``, environment assignments and comments taken off."""
    calls = []
    for line in snippets(text):
        words = shlex.split(line, comments=True) if program in line else []
        while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
            words.pop(0)
        if words[:1] == [program]:
            calls.append(words[1:])
    return calls


def problems(text: str) -> list[str]:
    """Return one line for each target, command, override and path in ``text`` that does not exist."""
    found = []
    for words in command_lines(text, "make"):
        found += [f"make {word}: no such target" for word in words if "=" not in word and word not in TARGETS]
    for words in command_lines(text, "artifact"):
        if words and words[0] not in COMMANDS and words[0] != "COMMAND":
            found.append(f"artifact {words[0]}: no such command")
        overrides = [word for word in words[1:] if "=" in word and "FILE" not in word and "choice" not in word]
        try:
            load([word for word in overrides if word != "key=value"])
        except Exception as error:
            found.append(f"{' '.join(words)}: {error}")
    presets = groups()
    for snippet in snippets(text):
        if (match := re.fullmatch(r"([a-z]+)=([a-z0-9_.-]+)", snippet)) and match[1] in presets:
            found += [] if match[2] in presets[match[1]] else [f"{snippet}: no such preset"]
        # A path: has a slash or a known ending, nothing to fill in.
        if re.fullmatch(r"[\w.-]+(/[\w.@-]+)*/?", snippet) and re.search(r"/|\.(py|md|toml|yaml|txt|cff)$", snippet):
            there = (ROOT / snippet).exists() or snippet.startswith(MADE)
            found += [] if there else [f"{snippet}: no such path"]
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)[^)]*\)", text):
        found += [] if (ROOT / target).exists() else [f"link to {target}: no such path"]
    return found


@pytest.mark.parametrize("name", DOCS)
def test_everything_named_exists(name: str) -> None:
    assert problems((ROOT / name).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("`make smoke`", 0),
        ("`make smokes`", 1),
        ("```\nRUNTIME=docker make all STUDY=smoke  # all\n```", 0),
        ("```\nartifact explain mode=full server.max_num_seqs=64\n```", 0),
        ("```\nartifact explane\n```", 1),
        ("`artifact explain mode=fulll`", 1),
        ("`artifact explain server.max_seqs=1`", 1),
        ("`workload=churn` `workload=chrun`", 1),
        ("`artifact/study/tracking.py` `artifact/study/trakking.py`", 1),
        ("`results/smoke/cells.parquet`", 0),
        ("[a](ARTIFACT.md) [b](MISSING.md) [c](https://example.org)", 1),
    ],
)
def test_the_check_itself_finds_mistakes(text: str, count: int) -> None:
    assert len(problems(text)) == count


def test_the_readme_gives_the_two_commands() -> None:
    calls = command_lines((ROOT / "README.md").read_text(encoding="utf-8"), "make")
    assert ["smoke"] in calls
    assert ["test"] in calls


def test_every_make_target_has_a_line_of_help() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    (phony,) = re.findall(r"^\.PHONY: (.*)$", text, re.M)
    assert set(phony.split()) == TARGETS == set(re.findall(r"^([a-z]+):.* ## \S", text, re.M))


def test_make_all_runs_every_study_there_is_but_those_that_need_more_than_a_gpu() -> None:
    command = ["make", "--dry-run", "all", "GPU=1", "READY=", "ARGS=study.blocks=1"]
    text = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    studies = {path.stem for path in (ROOT / "conf/study").glob("*.yaml")} - {"confirm", "crosscheck"}
    measured, reported = (names.split() for names in re.findall(r"for study in ([^;]*);", text))
    assert set(measured) == set(reported) == studies
    assert "run study=$study study.blocks=1 " in text
    assert "artifact.workloads.fetch traces" in text


def test_the_readme_is_one_screen() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 60

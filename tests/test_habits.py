"""What people are used to: JSON from every command, no colours in a pipe, time left, and the nearest right name."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from artifact.cli import COMMANDS, main
from artifact.config import _plain, load
from artifact.engines.sim_engine import SimEngine
from artifact.errors import InputError
from artifact.schema import Evidence
from artifact.study.plan import plan
from artifact.study.run import run
from artifact.study.store import Store

ROOT = Path(__file__).parents[1]
COLOUR = re.compile(r"\x1b\[[\d;]*\b(3\d|4\d|9\d)m")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    planned = plan(["engine=sim", "workload.duration_s=4", f"executor.results={folder}"], Evidence.SIMULATED)
    run(planned, Store(folder / "smoke"), lambda log: SimEngine())
    return folder


TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "2023-11-16 18:15:46.6805900,374,44\n" * 2
ANSWERED = {
    "doctor": [],
    "explain": ["mode=full"],
    "plan": ["engine=sim"],
    "trace": ["trace.path=trace.csv"],
    "sync": [],
    "ui": [],
}
# These take long or need rows of their own: their own tests ask them.
ELSEWHERE = {"run", "calibrate", "figures", "report", "claims", "guide", "recommend", "sizes", "inspect"}


def test_every_command_answers_in_json(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert set(COMMANDS) == ANSWERED.keys() | ELSEWHERE  # a new command belongs in one of them
    (tmp_path / "trace.csv").write_text(TRACE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    called: list[list[str]] = []

    def served(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        called.append(command)
        return subprocess.CompletedProcess(command, 0)

    # Making MLflow's tables takes seconds; test_tracking.py has them.
    monkeypatch.setattr("artifact.study.tracking.sync", lambda folder, config: {"new": 0})
    (results / "mlflow.db").touch()
    for name, overrides in ANSWERED.items():
        with monkeypatch.context() as patch:
            if name == "ui":
                patch.setattr("artifact.commands.environment.subprocess.run", served)
            assert main([name, *overrides, f"executor.results={results}", "--json"]) == 0, name
        out, _ = capfd.readouterr()
        assert isinstance(json.loads(out), dict), name
    assert called[0][1:4] == ["-m", "mlflow", "server"]


def in_a_terminal(code: list[str], **environment: str) -> str:
    """Run Python with stdout and stderr on a terminal of its own, 200 columns wide; return what it printed there."""
    ours, theirs = pty.openpty()
    plain = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    with subprocess.Popen(
        [sys.executable, *code], stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT,
        env=plain | {"TERM": "xterm-256color", "COLUMNS": "200"} | environment,
    ) as process:  # fmt: skip
        os.close(theirs)
        shown = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            shown += piece
    os.close(ours)
    assert process.returncode == 0, shown.decode()
    return shown.decode()


TABLE = """
from rich.console import Console
from artifact.tables import commands as tables
tables.pairs({"minutes": 3.5, "file": "[red]x[/red]"}, Console())
"""
PROGRESS = """
from artifact.study.progress import StudyProgress
with StudyProgress(40.0, 2) as progress:
    progress.launch("block 0, tile, FULL", 2)
    progress.now("block 0, tile, FULL: churn, load 0.6")
    progress.advance(10.0)
"""


def test_a_pipe_gets_no_colours_and_a_terminal_gets_a_bar_with_time_left() -> None:
    environment = os.environ | {"TERM": "xterm-256color"}
    for code in (TABLE, PROGRESS):
        piped = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT, env=environment
        )
        assert "\x1b" not in piped.stdout + piped.stderr
    assert "[1/2] block 0, tile, FULL: 2 cells; about 40 s left" in piped.stderr
    shown = in_a_terminal(["-c", PROGRESS])
    assert COLOUR.search(shown)
    assert re.search(r"25%.* left .*block 0, tile, FULL: churn, load 0\.6", shown)
    assert not COLOUR.search(in_a_terminal(["-c", PROGRESS], NO_COLOR="1"))


def test_values_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    exec(TABLE)  # noqa: S102 - ours
    assert "[red]x[/red]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["explane"], "explane: no such command; did you mean explain?"),
        ([], "no command given; known: doctor, "),
        (["explain", "--jsn"], "--jsn: no such option; did you mean --json?"),
        (["plan", "modle=qwen3-8b"], "modle: no such key; did you mean model?"),
        (["plan", "study=smok"], "study=smok: no such study; did you mean smoke?"),
        (["plan", "server.max_num_seq=8"], "server.max_num_seq: no such key; did you mean server.max_num_seqs?"),
        (["plan", "report.foldr=x"], "report.foldr: no such key; did you mean report.folder?"),
        (["plan", "study.only=[qwen3-06b]"], "no such tile qwen3-06b; did you mean qwen3-0.6b?"),
        (["figures", "figures.source=shiped"], "did you mean shipped?"),
        (["recommend", "recommend.objective=tpot_p5"], "did you mean tpot_p50?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_the_nearest_right_name(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("artifact: ")
    assert said in line


def test_a_broken_conf_is_one_line_and_no_recursion(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names to suggest come from the defaults; where these are wrong, there is nothing to suggest."""
    monkeypatch.setattr("artifact.config._plain", lambda overrides: {**_plain(()), "gone": 1})
    load.__globals__["_composed"].cache_clear()
    with pytest.raises(InputError, match=r"^gone: no such key$"):
        load()
    load.__globals__["_composed"].cache_clear()


def test_a_plan_shows_gpu_minutes(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("artifact.engines.choose.gpu_present", lambda: False)
    assert main(["plan", "engine=vllm"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^gpu_minutes +[1-9]\S*", shown, re.M)

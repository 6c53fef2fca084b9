"""study=confirm on the simulator: the arms it adds, the verdict it ends with, and that it goes on."""

import json
from pathlib import Path

import pytest

from artifact.cli import main
from artifact.commands import confirm
from artifact.config import load


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    file = tmp_path / "trace.csv"
    rows = [f"{number * 0.02:.2f},{64 + number % 7 * 32},{24 + number % 5 * 8}" for number in range(240)]
    file.write_text("\n".join(["timestamp,prompt_tokens,output_tokens", *rows]) + "\n")
    return file


def asked(trace: Path, *more: str) -> list[str]:
    given = [f"trace.path={trace}", "trace.format=csv", "trace.time_unit=s", "engine=sim", "hardware=h200"]
    return ["study=confirm", *given, "recommend.seeds=2", *more]


def test_the_recommended_mode_becomes_the_second_arm(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = load(confirm.arranged(asked(trace)))
    default, other = config.study.arms
    assert default == "FULL_AND_PIECEWISE"
    assert config.study.arms[other] == (f"mode={other.lower()}",)
    assert other != default
    assert config.trace.window == (0.0, 30.0)
    assert f"confirm: {default} against {other}" in capsys.readouterr().err
    assert confirm.arranged(asked(trace)) == confirm.arranged(asked(trace))


def test_an_arm_and_a_window_of_one_s_own_stay(trace: Path) -> None:
    own = asked(trace, "study.arms.NONE=['mode=none']", "trace.window=[0,2]")
    assert confirm.arranged(own) == own
    assert confirm.arranged(["study=smoke"]) == ["study=smoke"]


def test_a_run_ends_with_a_verdict_and_goes_on(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["run", *asked(trace, "study.arms.NONE=['mode=none']", "trace.window=[0,4]", "study.blocks=3")]
    command += ["tracking=off", f"executor.results={tmp_path}/results", "--json"]
    assert main(command) == 0
    answer = json.loads(capsys.readouterr().out)
    [row] = [row for row in answer["verdicts"] if row["metric"] == "tpot_p50_ms"]
    assert (row["mode"], row["blocks"], row["exploratory"]) == ("NONE", 3, True)
    assert row["ratio"] > 2  # NONE launches every kernel by hand
    assert row["interval"][0] < row["ratio"] < row["interval"][1]
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["ran"] == 0


def test_another_trace_in_the_same_folder_gets_a_verdict_of_its_own(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def ratio(*more: str) -> float:
        command = ["run", *asked(trace, "study.arms.NONE=['mode=none']", "study.blocks=3", *more), "tracking=off"]
        assert main([*command, f"executor.results={tmp_path}/results", "--json"]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert len(answer["rows"]) == 6
        assert answer["beside_measured"] == []  # the shipped trace is another
        [row] = [row for row in answer["verdicts"] if row["metric"] == "tpot_p50_ms"]
        return float(row["ratio"])

    first, second = ratio("trace.window=[0,4]"), ratio("trace.window=[0,4]", "trace.speedup=4")
    assert first != second
    assert ratio("trace.window=[0,4]") == first

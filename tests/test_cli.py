"""The command line: answers, exit codes, and one line for every mistake."""

import json
from pathlib import Path

import pytest

from artifact.cli import COMMANDS, main

LIST = "server.cudagraph_capture_sizes=[1,2,4,8,16,24,32,40,48,56,64,72,80,88,96,104]"


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_explain_follows_a_batch_that_no_size_holds(capsys) -> None:
    found = answer(
        capsys,
        "explain",
        "mode=full_decode_only",
        "server.max_num_seqs=100",
        LIST,
        "explain.batches=[95,97,100]",
    )
    decode = [batch for batch in found["batches"] if batch["uniform_decode"]]
    assert [(batch["num_tokens"], batch["runtime_mode"]) for batch in decode] == [
        (95, "FULL"),
        (97, "NONE"),
        (100, "NONE"),
    ]
    assert {"kind": "decode", "from": 97, "to": 100, "runtime_mode": "NONE"} in found["fallthrough"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["explain", "mode=ful"], "did you mean full?"),
        (["explain", "backend=flashinfr"], "did you mean flashinfer?"),
        (["explain", "server.max_num_seq=4"], "server.max_num_seqs"),
        (["run", "workload=steady"], "study"),
        (["run", "engine=sim", "study.seed=-1"], "study.seed"),
        (["explain", "workload.arrival.rate_per_s=-3"], "workload.arrival.rate_per_s"),
        *(
            (["run", "engine=sim", f"server.cudagraph_capture_sizes={sizes}"], "server.cudagraph_capture_sizes")
            for sizes in ("[]", "[0,1]", "[-4]", "[1.5]", "[9000,9001]")
        ),
        (["expalin"], "did you mean explain?"),
        (["trace"], "trace.path"),
        (["figures", "figures.source=results", "executor.results=nowhere"], "nowhere"),
        (["explain", "server.max_num_seqs=1,2"], "sweep"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_line_and_exit_2(arguments, says, capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    lines = [line for line in err.splitlines() if not line.startswith(("engine:", "evidence:"))]
    assert len(lines) == 1, err
    assert lines[0].startswith("artifact: ")
    assert says in lines[0]
    assert not list(tmp_path.rglob("*.parquet"))  # nothing ran


def test_vllm_without_a_gpu_is_exit_3_and_says_what_to_do(capsys, monkeypatch) -> None:
    monkeypatch.setattr("artifact.engines.choose.gpu_present", lambda: False)
    assert main(["run", "engine=vllm"]) == 3
    assert "engine=sim" in capsys.readouterr().err


def test_a_gpu_without_vllm_is_never_simulated(capsys, monkeypatch) -> None:
    monkeypatch.setattr("artifact.engines.choose.gpu_present", lambda: True)
    monkeypatch.setattr("artifact.engines.choose.util.find_spec", lambda name: None)
    assert main(["run"]) == 3
    assert "not installed" in capsys.readouterr().err


def test_another_vllm_is_refused_unless_asked_for(capsys, monkeypatch) -> None:
    monkeypatch.setattr("artifact.engines.choose.gpu_present", lambda: True)
    monkeypatch.setattr("artifact.engines.choose.util.find_spec", lambda name: object())
    monkeypatch.setattr("artifact.engines.choose.metadata.version", lambda name: "0.20.2")
    assert main(["plan"]) == 3
    assert "0.20.2" in capsys.readouterr().err
    assert main(["plan", "engine.allow_other_version=true"]) == 0


def test_a_model_without_a_calibration_is_exit_3(capsys, tmp_path) -> None:
    # hardware stands in for it: smoke sets its model itself
    assert main(["run", "engine=sim", "hardware=b200", f"executor.results={tmp_path}", "tracking=off"]) == 3
    assert "no calibration for b200" in capsys.readouterr().err


def test_plan_lists_every_cell(capsys) -> None:
    found = answer(capsys, "plan", "engine=sim")
    assert found["cells"] == 14
    assert len(found["launches"]) == 7
    assert {launch["arm"] for launch in found["launches"]} >= {"EAGER", "NONE", "FULL", "FULL@FLASHINFER"}


def test_gpu_minutes_are_planned_without_a_gpu(capsys, monkeypatch) -> None:
    monkeypatch.setattr("artifact.engines.choose.gpu_present", lambda: False)
    found = answer(capsys, "plan", "engine=vllm")
    assert found["evidence"] == "measured"
    assert found["gpu_minutes"] == found["minutes"] > 5


def test_trace_describes_a_file(capsys, tmp_path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "2023-11-16 18:15:46.6805900,374,44\n" * 2)
    found = answer(capsys, "trace", f"trace.path={file}")
    assert found["requests"] == 2
    assert found["prompt_tokens"]["p50"] == 374


def test_people_get_a_table_of_every_command_that_has_one(capsys) -> None:
    assert main(["explain", "mode=full", "backend=flashinfer"]) == 0
    out = capsys.readouterr().out
    assert "FULL -> FULL_AND_PIECEWISE  (hollow: keys without graphs)" in out
    assert main(["plan", "engine=sim"]) == 0
    assert "FULL@FLASHINFER" in capsys.readouterr().out
    assert main(["doctor", "engine=sim"]) in (0, 3)
    assert "python" in capsys.readouterr().out


def test_help_names_every_command(capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert all(f"  {name} " in text for name in COMMANDS)


def test_a_folder_that_cannot_be_written_is_one_line_and_exit_3(capsys, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    assert main(["figures", f"figures.out={tmp_path}/file/inside"]) == 3
    err = capsys.readouterr().err.splitlines()
    assert err == [f"artifact: {tmp_path}/file/inside: Not a directory"]


def test_figures_come_out_of_the_shipped_data(capsys, tmp_path) -> None:
    from artifact.plots import FIGURES

    answered = answer(capsys, "figures", f"figures.out={tmp_path}")
    files = [Path(file) for file in answered["files"]]
    shipped = {folder.name for folder in (Path(__file__).parents[1] / "paper_figures" / "data").iterdir()}
    due = [name for name, (studies, _) in FIGURES.items() if shipped & set(studies)]
    drawn = [name for name in due if name not in answered["skipped"]]  # a study may ship a part of its tiles
    assert {file.name for file in files} == {f"{name}{suffix}" for name in drawn for suffix in (".pdf", ".png")}
    assert {"fig01_step_time", "fig02_tpot_memory", "fig03_startup"} <= set(drawn)
    again = tmp_path / "again"
    main(["figures", f"figures.out={again}"])
    for file in files:  # the same data gives the same bytes
        assert file.read_bytes() == (again / file.name).read_bytes()

"""The whole answer of ``artifact sizes``: on the shipped calibration, on synthetic ones, from the command line."""

import json
import shlex
from pathlib import Path

import pytest

from artifact.analysis.sizes import serving as size_serving
from artifact.analysis.sizes.answer import sizes
from artifact.cli import main
from artifact.config import load
from artifact.errors import EnvironmentLacks, InputError
from artifact.graphs.explain import explain
from artifact.simulator.cost import HostPace, load_calibration
from tests.sim_support import calibration_file, synthetic_calibration

SHIPPED = Path(__file__).parents[1] / "paper_figures" / "data"
AZURE = Path(__file__).parents[2] / "shared" / "traces" / "azure2023" / "AzureLLMInferenceTrace_conv.csv"
FEW = ["sizes.seeds=1", "sizes.load_factor=1"]
SHORT = [*FEW, "workload.duration_s=6.0"]
STATED = 0.05  # how far the expected step time may be from the simulated one


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch) -> None:
    monkeypatch.setattr(size_serving, "_PROCESSES", 1)


@pytest.fixture
def padding_costs(tmp_path) -> list[str]:
    """A GPU-bound model: 2 ms and 0.01 ms a token, so that every padded token is paid for."""
    return [f"engine.calibration={calibration_file(tmp_path, synthetic_calibration(noise_sigma=0.05))}"]


@pytest.fixture(scope="module")
def quiet(tmp_path_factory) -> str:
    """The shipped calibration on a host that stays quiet: else one run has too few of the host's states for a mean."""
    calibration = load_calibration(None, load().hardware, "qwen3-0.6b")
    still = calibration.model_copy(update={"host_pace": HostPace(slowness=(0.0,), dwell_s=1.0)})
    return f"engine.calibration={calibration_file(tmp_path_factory.mktemp('quiet'), still)}"


@pytest.mark.parametrize(
    ("mode", "load_"),
    [
        ("full_and_piecewise", ["workload=churn", "workload.arrival.rate_per_s=71.6"]),
        ("full_and_piecewise", ["workload=bursty"]),
        ("piecewise", ["workload=churn"]),
        ("full", ["workload=churn"]),
        ("full_decode_only", ["workload=steady", "workload.arrival.rate_per_s=20"]),
    ],
)
def test_the_expected_step_time_is_what_the_simulator_gives(mode: str, load_: list[str], quiet) -> None:
    answer = sizes([f"mode={mode}", *load_, *SHORT, quiet, "sizes.guard=[MAX]", "sizes.max_graphs=8"])
    for row in (answer, answer["default"]):
        assert row["expected_step_ms"] == pytest.approx(row["simulated_step_ms"], rel=STATED)
    ratio = answer["simulated_step_ms"] / answer["default"]["simulated_step_ms"]
    assert 1 - answer["saving"]["step_time"] == pytest.approx(ratio, abs=0.03)


def test_so_it_is_on_a_host_that_changes() -> None:
    answer = sizes(["workload=churn", "workload.duration_s=6.0", "sizes.seeds=6", "sizes.load_factor=1"])
    assert answer["expected_step_ms"] == pytest.approx(answer["simulated_step_ms"], rel=STATED)


def test_a_list_that_makes_its_own_batches_grow_is_warned_of(tmp_path) -> None:
    """Without MAX, a batch above the largest size runs without a graph, so that the next ones are larger yet."""
    shipped = load_calibration(None, load().hardware, "qwen3-0.6b")
    restless = shipped.model_copy(update={"host_pace": HostPace(slowness=(0.0, 1.0), dwell_s=1.0)})
    given = f"engine.calibration={calibration_file(tmp_path, restless)}"
    asked = ["mode=full_decode_only", "workload=steady", given, "sizes.guard=[]", "sizes.max_graphs=8"]
    answer = sizes([*asked, *FEW])
    assert max(answer["sizes"]) < 256
    assert answer["simulated_step_ms"] > 2 * answer["expected_step_ms"]
    assert any("keep MAX in sizes.guard" in text for text in answer["warnings"])
    assert not any("keep MAX" in text for text in sizes([*asked[:3], *FEW])["warnings"])


def test_the_answer_has_what_others_build_on() -> None:
    answer = sizes(["workload=churn", "workload.duration_s=6.0", "sizes.seeds=1"], SHIPPED)
    described = {"sizes", "graphs", "captures", "coverage", "padding_ratio", "expected_step_ms", "fallthrough"}
    described |= {"graph_bytes", "capture_s"}
    assert described | {"mode", "flags", "evidence", "default", "saving", "shifted", "warnings"} <= set(answer)
    assert described <= set(answer["default"])
    assert answer["evidence"] == "simulated"
    assert set(answer["saving"]) >= {"capture_s", "graph_bytes", "step_time"}
    json.dumps(answer, allow_nan=False)
    config = json.loads(shlex.split(answer["flags"])[-1])
    assert config == {"cudagraph_mode": "FULL_AND_PIECEWISE", "cudagraph_capture_sizes": answer["sizes"]}
    assert "--max-num-seqs 256 --max-num-batched-tokens 8192" in answer["flags"]
    assert str(answer["sizes"]) in answer["python"]
    # What explain makes of the list is what the answer says of it.
    told = explain(load([f"server.cudagraph_capture_sizes={answer['sizes']}"]))
    assert (told["capture_sizes"], told["graphs"], told["captures"]) == tuple(
        answer[name] for name in ("sizes", "graphs", "captures")
    )
    assert answer["default"]["sizes"] == explain(load())["capture_sizes"]
    assert answer["saving"]["graph_bytes"] > 0
    assert answer["shifted"][0]["regret"] >= -1e-9
    assert answer["shifted"][0]["load"] == "load x 1.5"


def test_the_same_question_has_the_same_answer() -> None:
    asked = ["workload=churn", *SHORT]
    assert sizes(asked) == sizes(asked)


def test_a_steady_batch_gets_its_own_size(padding_costs) -> None:
    """37 in flight: vLLM's list pads them to 40, and each padded token costs 0.01 ms of 2.4."""
    closed = ["workload=closed_loop", "workload.arrival.concurrency=37", "workload.requests=200"]
    answer = sizes([*padding_costs, *closed, *FEW, "sizes.guard=[MAX]", "sizes.margin=0.001", "sizes.max_graphs=9"])
    assert 37 in answer["sizes"]
    assert sum(answer["graphs"].values()) <= 9
    default = answer["default"]
    assert answer["expected_step_ms"] < default["expected_step_ms"]
    assert answer["simulated_step_ms"] < default["simulated_step_ms"]
    assert answer["padding_ratio"] < default["padding_ratio"]
    simulated = 1 - answer["simulated_step_ms"] / default["simulated_step_ms"]
    assert answer["saving"]["step_time"] == pytest.approx(simulated, abs=0.005)


def test_without_a_guard_another_load_costs_more(padding_costs) -> None:
    asked = [*padding_costs, "workload=steady", "workload.duration_s=6.0", "sizes.seeds=1", "sizes.load_factor=3"]
    bare = sizes([*asked, "sizes.guard=[]", "sizes.max_graphs=6"])
    kept = sizes(asked)
    assert bare["shifted"][0]["regret"] > kept["shifted"][0]["regret"] >= -1e-9
    assert set(load(asked).sizes.guard) - {"MAX"} <= set(kept["sizes"])
    [hole] = [hole for hole in bare["fallthrough"] if hole["kind"] == "decode"]
    assert (hole["from"], hole["to"]) == (max(size for size in bare["sizes"] if size <= 256) + 1, 256)


def test_what_falls_through_is_told_with_its_share(padding_costs) -> None:
    long = [
        "workload=churn",
        "workload.duration_s=6.0",
        "workload.prompt={kind: fixed, mean: 600, low: null, high: null}",
    ]
    answer = sizes([*padding_costs, *long, *FEW])
    above = answer["fallthrough"][-1]
    assert (above["kind"], above["from"], above["to"], above["runtime_mode"]) == ("mixed", 513, 8192, "NONE")
    assert above["steps"] == pytest.approx(1 - answer["coverage"]["steps"])
    assert any("sizes.largest=2048 would consider more" in text for text in answer["warnings"])
    more = sizes([*padding_costs, *long, *FEW, "sizes.largest=2048"])
    assert max(more["sizes"]) >= 600
    assert more["coverage"]["steps"] > answer["coverage"]["steps"]
    assert more["expected_step_ms"] < answer["expected_step_ms"]
    assert more["graph_bytes"] is None
    assert any("their memory is unknown" in text for text in more["warnings"])


def test_a_calibration_of_one_start_a_mode_says_so() -> None:
    answer = sizes(["model=llama-3.2-1b", "workload=churn", *SHORT])
    assert any("one engine start of each mode" in text for text in answer["warnings"])


def test_speculation_takes_multiples_and_is_not_simulated() -> None:
    answer = sizes(["workload=churn", "server.num_speculative_tokens=2", *SHORT])
    assert all(size % 3 == 0 for size in answer["sizes"])
    assert 768 in answer["sizes"]  # 3 x max_num_seqs
    assert answer["simulated_step_ms"] is None
    assert any("acceptance" in text for text in answer["warnings"])


def test_a_hollow_mode_is_said_to_replay_nothing() -> None:
    answer = sizes(["workload=churn", "mode=full", "backend=flashinfer", *SHORT])
    assert (answer["mode"], answer["resolved_mode"]) == ("FULL", "FULL_AND_PIECEWISE")
    assert any("hollow" in text for text in answer["warnings"])
    assert answer["captures"] == answer["graphs"]["FULL"]
    assert any(hole["runtime_mode"] == "PIECEWISE" and hole["steps"] > 0 for hole in answer["fallthrough"])


def write_trace(file: Path, gap_ms: int, prompt: int, count: int = 240) -> Path:
    """Write a trace in Azure's format; its stamps count 100 ns."""
    stamps = (divmod(index * gap_ms, 1000) for index in range(count))
    rows = (f"2023-11-16 18:00:{s:02}.{ms:03}0000,{prompt},40\n" for s, ms in stamps)
    file.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(rows))
    return file


def test_a_long_trace_is_served_in_slices_and_held_against_another(tmp_path, padding_costs) -> None:
    own, other = write_trace(tmp_path / "a.csv", 50, 40), write_trace(tmp_path / "b.csv", 40, 100)
    asked = [
        *padding_costs,
        "workload=trace",
        f"trace.path={own}",
        f"sizes.other_trace={other}",
    ]
    answer = sizes([*asked, "sizes.seeds=1", "sizes.requests=120"])
    assert any("120 of 240 requests were served" in text for text in answer["warnings"])
    assert [row["load"] for row in answer["shifted"]] == ["load x 1.5", str(other)]
    whole = sizes([*asked, "sizes.seeds=1", "sizes.requests=null"])
    assert answer["expected_step_ms"] == pytest.approx(whole["expected_step_ms"], rel=0.05)
    assert not any("were served" in text for text in whole["warnings"])


@pytest.mark.skipif(not SHIPPED.is_dir(), reason="no shipped measurements")
def test_measured_steps_take_the_place_of_simulated_ones() -> None:
    answer = sizes(["workload=churn", f"sizes.measured={SHIPPED / 'calibrate'}"], SHIPPED)
    assert "recorded steps of" in answer["source"]
    assert answer["simulated_step_ms"] is None
    assert answer["shifted"] == []
    with pytest.raises(InputError, match=r"no finished cell of qwen3-0.6b, workload=alpaca_like.*it holds .*churn"):
        sizes(["workload=alpaca_like", f"sizes.measured={SHIPPED / 'calibrate'}"])
    with pytest.raises(InputError, match=r"engine\.heavy_probe=true"):
        sizes(["workload=steady", f"sizes.measured={SHIPPED / 'smoke'}"])


@pytest.mark.skipif(not AZURE.is_file(), reason="the public trace is not there")
def test_a_real_trace() -> None:
    answer = sizes(["workload=trace", f"trace.path={AZURE}", "sizes.requests=120", "sizes.load_factor=1"], SHIPPED)
    assert answer["expected_step_ms"] == pytest.approx(answer["simulated_step_ms"], rel=STATED)
    assert 0.9 < answer["coverage"]["steps"] < 1
    assert answer["fallthrough"][-1]["step_time"] > 0.01  # prompts of over 512 tokens


@pytest.mark.parametrize(
    ("overrides", "error", "said"),
    [
        (["mode=none"], InputError, "mode=none: captures no graphs.*take mode=full_and_piecewise"),
        (["mode=eager"], InputError, "mode=eager: captures no graphs"),
        (["model=qwen3-4b"], EnvironmentLacks, "no calibration for h200 with qwen3-4b"),
        (["workload=trace"], InputError, "trace.path"),
        (["sizes.other_trace=nowhere.csv", *FEW], InputError, "sizes.other_trace: nowhere.csv: no such file"),
        (["sizes.margin=1.0"], InputError, "sizes.margin"),
        (["sizes.largest=0"], InputError, "sizes.largest"),
        (["sizes.max_graphs=3", *FEW], InputError, "sizes.max_graphs=3: no list keeps it"),
        (["sizes.measured=nowhere"], InputError, "nowhere.*does not exist"),
        (["server.max_model_len=50", *FEW], InputError, "more than server.max_model_len=50"),
    ],
)
def test_what_cannot_be_asked_is_one_line(overrides: list[str], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said) as caught:
        sizes(overrides)
    assert "\n" not in str(caught.value)


def test_on_the_command_line(capsys) -> None:
    assert main(["sizes", "workload=churn", *SHORT, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert main(["sizes", "workload=churn", "workload.duration_s=4.0", "sizes.seeds=1"]) == 0
    shown = capsys.readouterr().out
    assert ", ".join(map(str, answer["sizes"])) in shown
    for words in ("vLLM's own", "load x 1.5", "--compilation-config", "LLM(model=", "fitted on", "simulated"):
        assert words in shown
    assert main(["sizes", "mode=none"]) == 2
    assert capsys.readouterr().err.startswith("artifact: mode=none: captures no graphs")


@pytest.mark.parametrize("workload", ["churn", "bursty"])
def test_the_studys_list_is_what_the_command_prints(workload: str) -> None:
    study = load(["study=sizes"]).study
    chosen = load(study.arms["CHOSEN"]).server.cudagraph_capture_sizes
    answer = sizes([f"workload={workload}", "workload.arrival.rate_per_s=50.5", *FEW])
    assert tuple(answer["sizes"]) == chosen

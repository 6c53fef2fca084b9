"""The whole answer, on a synthetic calibration and small loads."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from artifact.analysis.contrasts.measured_cells import find
from artifact.analysis.recommend import mode_trials
from artifact.analysis.recommend.recommendation import MODES, ask, recommend
from artifact.cli import main
from artifact.config import load
from artifact.errors import InputError
from artifact.records import LaunchFacts
from artifact.schema import Mode
from artifact.study import parts
from artifact.study.identity import server_hash
from tests.sim_support import GIB, synthetic_calibration

FACTS = {  # synthetic: graph bytes and seconds of capture
    Mode.NONE: (0, 0.0),
    Mode.PIECEWISE: (250, 3.0),
    Mode.FULL: (252, 2.0),
    Mode.FULL_DECODE_ONLY: (164, 2.4),
    Mode.FULL_AND_PIECEWISE: (360, 3.6),
}
AZURE = Path(__file__).parents[2] / "shared" / "traces" / "azure2023" / "AzureLLMInferenceTrace_conv.csv"


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch) -> None:
    monkeypatch.setattr(mode_trials, "_PROCESSES", 1)


@pytest.fixture
def calibration(tmp_path) -> Path:
    launches = {
        mode: LaunchFacts(graph_bytes=mib * 2**20, capture_s=s, kv_available_bytes=100 * GIB)
        for mode, (mib, s) in FACTS.items()
    }
    plain = synthetic_calibration(noise_sigma=0.05)
    tables = {name: table.model_copy(update={"error_p50": 0.05}) for name, table in plain.tables.items()}
    file = tmp_path / "calibration.json"
    update = {"launches": launches, "tables": tables, "graph_launch_us": 4.0}
    file.write_text(plain.model_copy(update=update).model_dump_json())
    return file


@pytest.fixture
def small(calibration) -> list[str]:
    return [
        f"engine.calibration={calibration}",
        "workload=steady",
        "workload.duration_s=7.0",
        "workload.arrival.rate_per_s=30.0",
        "recommend.seeds=3",
        "recommend.launch_us=[8.0]",
    ]


def test_the_answer_has_what_others_build_on(small) -> None:
    answer = recommend(small)
    assert {"recommended", "flags", "evidence", "reason", "margin", "interval", "equivalent", "inconclusive"} <= set(
        answer
    )
    assert answer["evidence"] == "simulated"
    assert [row["mode"] for row in answer["ranking"]][-1] == "NONE"
    assert {row["mode"] for row in answer["ranking"]} == {mode.value for mode in MODES}
    values = [row["tpot_p50_ms"] for row in answer["ranking"]]
    assert values == sorted(values)
    assert answer["interval"][0] <= answer["margin"] <= answer["interval"][1]
    keys = ("ttft_p50_ms", "ttft_p99_ms", "e2e_p99_ms", "output_tokens_per_s", "goodput", "graph_bytes", "kv_tokens")
    assert all(row[key] is not None for row in answer["ranking"] for key in (*keys, "capture_s", "meets_slo"))
    assert json.loads(answer["flags"].split(" ", 1)[1].strip("'"))["cudagraph_mode"] == answer["recommended"]
    assert answer["recommended"] in answer["python"]
    [dear] = answer["sensitivity"]
    assert dear["launch_us"] == 8.0
    none = next(row for row in answer["ranking"] if row["mode"] == "NONE")
    assert none["verdict"] == "worse"
    json.dumps(answer, allow_nan=False)


def test_the_same_question_has_the_same_answer(small) -> None:
    assert recommend(small) == recommend(small)


def test_limits_leave_out_what_does_not_keep_them(small) -> None:
    answer = recommend([*small, "recommend.max_graph_mib=200", "recommend.max_capture_s=3.0"])
    assert answer["recommended"] == "FULL_DECODE_ONLY"
    allowed = {row["mode"] for row in answer["ranking"] if row["allowed"]}
    assert allowed == {"NONE", "FULL_DECODE_ONLY"}
    assert any(
        "recommend.require_slo" in text
        for text in recommend([*small, "recommend.require_slo=true", "workload.slo_tpot_ms=0.001"])["warnings"]
    )


def test_a_short_uptime_does_not_earn_a_capture_back(small) -> None:
    answer = recommend([*small, "recommend.uptime_s=0.01"])
    assert answer["recommended"] == "NONE"
    assert "not earned back" in answer["reason"]
    assert "is earned back after" in recommend([*small, "recommend.uptime_s=86400"])["reason"]


def test_the_calibrations_error_widens_the_interval(small, calibration) -> None:
    wide = recommend(small)
    exact = json.loads(calibration.read_text())
    for table in exact["tables"].values():
        table["error_p50"] = 0.0
    calibration.write_text(json.dumps(exact))
    narrow = recommend(small)
    assert wide["interval"][1] - wide["interval"][0] > narrow["interval"][1] - narrow["interval"][0]


def test_what_is_outside_the_evidence_keeps_the_default(small) -> None:
    kept = "vllm serve Qwen/Qwen3-0.6B --attention-backend FLASHINFER --max-num-seqs 100 -tp 2"
    answer = recommend([*small, f"recommend.serve_command={kept} -q fp8 -cc.cudagraph_mode=FULL"])
    assert answer["recommended"] == "FULL_AND_PIECEWISE"
    assert all(word in answer["reason"] for word in ("Outside the evidence", "FLASHINFER", "tensor", "fp8"))
    said = " ".join(answer["warnings"])
    assert "FULL is not ranked: hollow" in said
    assert "97..100" in said  # max_num_seqs is missing from the sizes
    assert "FULL" not in [row["mode"] for row in answer["ranking"]]
    assert answer["command"].startswith(kept)
    assert answer["notes"] == ["the command runs FULL now"]


def test_another_gpu_and_model_are_told_from_the_calibrated_one() -> None:
    question = ask(["model=llama-3.1-8b", "hardware=h100"])
    assert (question.simulated.model.name, question.simulated.hardware.gpu) == ("qwen3-8b", "h200")  # the like in size
    assert "llama-3.1-8b on h100" in question.outside[0]
    assert "no calibration" in question.warnings[0]


def test_a_calibration_of_one_start_a_mode_says_so() -> None:
    alone = "one engine start of each mode"
    said = {
        model: any(alone in text for text in ask([f"model={model}"]).warnings) for model in ("llama-3.2-1b", "qwen3-8b")
    }
    assert said == {"llama-3.2-1b": True, "qwen3-8b": False}


def test_kv_bytes_of_a_command_become_blocks(calibration) -> None:
    config = ask(
        [
            f"engine.calibration={calibration}",
            "recommend.serve_command=vllm serve Qwen/Qwen3-0.6B --kv-cache-memory-bytes 8G",
        ]
    ).config
    per_block = config.model.kv_bytes_per_token * config.server.block_size
    assert config.server.num_gpu_blocks_override == 8 * GIB // per_block


def test_an_objective_without_values_is_a_mistake(small) -> None:
    with pytest.raises(InputError, match=r"tpot_p99: .* raise workload.duration_s"):
        recommend([*small, "recommend.objective=tpot_p99", "workload.arrival.rate_per_s=5.0"])


def test_an_overloaded_mode_is_never_taken_for_a_latency(small) -> None:
    # NONE decodes 256 requests in 10 ms at best: 200 requests of 128 tokens a second
    load_ = ["workload.arrival.rate_per_s=260.0", "workload.duration_s=12.0", "workload.prompt.mean=32"]
    answer = recommend([*small, *load_, "recommend.seeds=1", "recommend.launch_us=[]"])
    none = next(row for row in answer["ranking"] if row["mode"] == "NONE")
    assert none["reason"] == "overload"
    assert not none["allowed"]
    assert any("NONE" in text and "queue grows" in text for text in answer["warnings"])


def test_a_prefix_cache_shortens_what_is_computed(small) -> None:
    heavy = [*small, "workload=prefill_heavy", "recommend.objective=ttft_p99"]
    cold, warm = (recommend([*heavy, f"workload.prefix_hit_rate={rate}"]) for rate in (0.0, 0.9))
    assert warm["ranking"][0]["ttft_p99_ms"] < cold["ranking"][0]["ttft_p99_ms"]
    assert any("prefix_hit_rate" in text for text in warm["warnings"])


def test_a_study_refuses_a_prefix_cache(capsys) -> None:
    assert main(["plan", "engine=sim", "study=smoke", "workload.prefix_hit_rate=0.5"]) == 2
    assert "workload.prefix_hit_rate" in capsys.readouterr().err
    assert "prefix_hit_rate" not in load([]).workload.model_dump()  # ids and seeds of cells stay


def test_requests_of_a_trace_that_are_too_long_are_counted(small, tmp_path) -> None:
    file = tmp_path / "trace.csv"
    lines = [f"2023-11-16 18:15:{second:02d}.{part}000000,{prompt},20" for second in range(15) for part, prompt in
             ((0, 100), (2, 200), (4, 300), (5, 100), (6, 100), (7, 50), (8, 20), (9, 10))]  # fmt: skip
    file.write_text(
        "\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *lines, "2023-11-16 18:15:20.0000000,9000,5"])
    )
    answer = recommend([small[0], "workload=trace", f"trace.path={file}", "recommend.launch_us=[]"])
    assert "120 requests a mode, 8 seeds" in answer["source"]
    assert any(text.startswith("1 of 121 requests are longer") for text in answer["warnings"])


@pytest.mark.skipif(not AZURE.exists(), reason="the public traces are not here")
def test_a_public_trace_is_answered(small) -> None:
    of_trace = ["workload=trace", f"trace.path={AZURE}", "trace.requests=400"]
    answer = recommend([small[0], *of_trace, "recommend.seeds=1", "recommend.launch_us=[]"])
    assert answer["ranking"][0]["ttft_p99_ms"] > 0
    assert any("served once" in text for text in answer["warnings"])


def test_long_schedules_ask_the_rest_of_their_first_requests(monkeypatch) -> None:
    monkeypatch.setattr(mode_trials, "_SHORT_REQUESTS", 50)
    monkeypatch.setattr(mode_trials, "_HEAD_REQUESTS", 40)
    config = load(["workload=steady", "workload.duration_s=8.0", "recommend.launch_us=[]"])
    plain = synthetic_calibration()
    found = mode_trials.simulate(config, [Mode.FULL, Mode.NONE], plain)
    assert (found.seeds, found.head_requests) == (1, 40)
    assert found.requests == 320
    assert all(np.isfinite(float(trial.base[0]["tpot_p50_ms"] or np.nan)) for trial in found.trials)


def shipped(root: Path, blocks: int) -> Path:
    """Write ``blocks`` made-up blocks of measurements of churn; FULL is the fastest."""
    config = load([])
    cells, launches = [], []
    for block in range(blocks):
        for place, mode in enumerate(MODES):
            name = f"{mode.value}-{block}"
            value = {Mode.FULL: 2.0, Mode.FULL_AND_PIECEWISE: 3.0}.get(mode, 9.0 + place) * (1 + 0.01 * (block % 3))
            numbers = dict.fromkeys(("tpot_p50_ms", "tpot_p99_ms", "ttft_p99_ms"), value)
            cells.append(
                {"cell_id": name, "launch_id": name, "study": "s", "host_id": "h", "block": str(block),
                 "requested_mode": mode.value, "status": "ok",
                 "realised_mode": mode.value, "evidence": "measured", "model": "qwen3-0.6b", "backend": "FLASH_ATTN",
                 "server_hash": server_hash(config), "workload": "churn", "offered_rate": 41.0, "flags": "",
                 "goodput": 1.0, "output_tokens_per_s": 5000.0} | numbers
            )  # fmt: skip
            launches.append({"launch_id": name, "gpu_name": "NVIDIA H200", "graph_bytes": 1 + place, "capture_s": 2.0,
                             "kv_tokens": 1000, "memory_valid": True})  # fmt: skip
    folder = root / "study"
    folder.mkdir(parents=True)
    for name, rows, schema in (("cells", cells, parts.CELLS), ("launches", launches, parts.LAUNCHES)):
        import pyarrow as pa

        parts.write_tables(folder / f"{name}.parquet", schema, iter([pa.Table.from_pylist(rows, schema=schema)]))
    return root


def test_enough_measured_blocks_answer_themselves(calibration, tmp_path) -> None:
    root = shipped(tmp_path / "data", 8)
    few = [
        "recommend.seeds=1",
        "recommend.launch_us=[]",
        "workload.duration_s=6.0",
        f"engine.calibration={calibration}",
    ]
    answer = recommend(few, root)
    assert (answer["evidence"], answer["recommended"]) == ("measured", "FULL")
    assert answer["margin"] == pytest.approx(1 / 3)
    assert "8 blocks" in answer["source"]


@pytest.mark.parametrize(
    ("overrides", "cells"),
    [
        ([], True),
        (["workload.arrival.rate_per_s=44.0"], True),
        (["workload.arrival.rate_per_s=50.0"], False),
        (["server.max_num_seqs=128"], False),
        (["workload=steady"], False),
        (["workload.output.high=100", "workload.output.mean=66"], False),
        (["hardware=h100"], False),
    ],
)
def test_only_close_cells_are_evidence(overrides, cells, tmp_path) -> None:
    found = find(load(overrides), MODES, shipped(tmp_path, 2))
    assert (len(found.cells) > 0) is cells
    assert not found.trials  # two blocks are exploratory
    assert isinstance(found.cells, pd.DataFrame)


def test_people_get_a_sentence_a_table_and_a_picture(small, tmp_path, capsys) -> None:
    assert main(["recommend", *small, "--plot", f"figures.out={tmp_path}"]) == 0
    out = capsys.readouterr().out
    assert "(simulated)" in out
    assert "--compilation-config" in out
    assert all(mode.value in out for mode in MODES)
    assert (tmp_path / "recommend.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_of_another_command_is_a_mistake(capsys) -> None:
    assert main(["plan", "--plot"]) == 2
    assert "--plot" in capsys.readouterr().err

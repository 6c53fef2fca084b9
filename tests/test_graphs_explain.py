"""What the explain command answers, and what is refused before an engine starts."""

import json

import pytest

from artifact.config import load
from artifact.errors import InputError
from artifact.graphs.explain import explain, validate

LISTED = "server.cudagraph_capture_sizes=[1,2,4,8,16,24,32,40,48,56,64,72,80,88,96,104]"


def warned(*overrides):
    return " | ".join(explain(load(overrides))["warnings"])


def test_the_hole_below_max_num_seqs():
    found = explain(load(["mode=full_decode_only", "server.max_num_seqs=100", LISTED, "explain.batches=[95,97,100]"]))
    decode = [batch for batch in found["batches"] if batch["uniform_decode"]]
    assert [(batch["runtime_mode"], batch["padded_tokens"]) for batch in decode] == [
        ("FULL", 96),
        ("NONE", 97),
        ("NONE", 100),
    ]
    assert found["fallthrough"][0] == {"kind": "decode", "from": 97, "to": 100, "runtime_mode": "NONE"}
    assert "decode batches of 97..100 tokens run NONE" in " ".join(found["warnings"])


def test_the_answer_is_json_with_the_documented_keys():
    found = explain(load(["explain.batches=[513]"]))
    assert json.loads(json.dumps(found)) == found
    assert set(found) == {
        "requested_mode",
        "resolved_mode",
        "hollow",
        "reason",
        "capture_sizes",
        "coverage",
        "graphs",
        "captures",
        "fallthrough",
        "batches",
        "warnings",
    }
    assert found["captures"] == 1514
    assert found["batches"] == [
        {"num_tokens": 513, "uniform_decode": uniform, "runtime_mode": "NONE", "padded_tokens": 513}
        for uniform in (True, False)
    ]


def test_the_default_configuration_has_nothing_to_warn_of():
    assert explain(load())["warnings"] == []


def test_hollow_full_on_flashinfer():
    found = explain(load(["mode=full", "backend=flashinfer"]))
    assert (found["requested_mode"], found["resolved_mode"], found["hollow"]) == ("FULL", "FULL_AND_PIECEWISE", True)
    assert found["graphs"] == {"PIECEWISE": 51, "FULL": 35}
    assert found["captures"] == 35
    assert "FLASHINFER" in found["reason"]
    assert "ask for mode=full_and_piecewise" in found["warnings"][0]


@pytest.mark.parametrize("mode", ["none", "eager"])
def test_without_graphs(mode):
    found = explain(load([f"mode={mode}", "explain.batches=[8]"]))
    assert (found["resolved_mode"], found["capture_sizes"], found["captures"]) == ("NONE", [], 0)
    assert found["fallthrough"] == found["warnings"] == []


def test_warnings_say_what_becomes_of_a_list():
    few = "server.cudagraph_capture_sizes=[1,2,4,8,16]"
    assert "[16] are above max_num_seqs=8: no decode graph" in warned("server.max_num_seqs=8", few)
    assert "nothing uses them" in warned("server.max_num_seqs=8", few, "mode=full_decode_only")
    assert warned("server.max_num_seqs=8", few, "mode=piecewise") == ""
    assert "[9000] are above max_num_batched_tokens" in warned("server.cudagraph_capture_sizes=[256,9000]")
    speculative = warned("server.num_speculative_tokens=6", few, "explain.batches=[7,8]")
    assert "sizes become [7, 14], which hold up to 2 sequences" in speculative
    assert "explain.batches [8] are not multiples of 1 + k = 7" in speculative
    assert "never scheduled" in warned("explain.batches=[8193]")


def test_warnings_of_lora_variants():
    wasted = warned("server.max_num_seqs=1", "server.max_loras=4", "server.specialize_active_lora=true")
    assert "graphs for [2, 4, 5] active adapters are captured and never used" in wasted
    always = warned("server.max_loras=4", "server.cudagraph_specialize_lora=false")
    assert "a step without adapters runs without a graph" in always


def test_warning_of_sequence_parallelism_on_a_small_model():
    text = warned("server.tensor_parallel_size=2", "server.enable_sequence_parallelism=true", "mode=full")
    assert "hidden sizes under 8192 (qwen3-0.6b: 1024)" in text


@pytest.mark.parametrize(
    "overrides",
    [
        ["server.cudagraph_capture_sizes=[]"],
        ["server.cudagraph_capture_sizes=[0,1]", "mode=none"],
        ["server.cudagraph_capture_sizes=[1,2]", "server.num_speculative_tokens=6"],
        ["backend=flash_attn", "backend.flash_attn_version=3", "hardware=a100"],
    ],
)
def test_validate_refuses_in_one_line_before_an_engine_starts(overrides):
    with pytest.raises(InputError) as caught:
        validate(load(overrides))
    assert "\n" not in str(caught.value)


def test_validate_takes_what_works():
    validate(load(["mode=none", "server.cudagraph_capture_sizes=[1,2]", "server.num_speculative_tokens=6"]))
    validate(load(["mode=full", "backend=flashinfer", LISTED]))

"""What vLLM and the probe said, as rows: without vLLM."""

import json
from types import SimpleNamespace

import pytest

from artifact.config import load
from artifact.engines.vllm_arguments import engine_arguments, model_folder
from artifact.engines.vllm_records import HEAVY_FIELDS, hollow, join_heavy, launch_facts, light_steps
from artifact.records import STEP_COLUMNS


def probe(**changes):
    """What an H200 answered for FULL_AND_PIECEWISE, in shape."""
    answer = {
        "resolved": "FULL_AND_PIECEWISE",
        "sizes": [1, 2, 4],
        "keys": {"PIECEWISE": 3, "FULL": 3},
        "wrappers": {"PIECEWISE": 29, "FULL": 1},
        "graphs": {"PIECEWISE": 87, "FULL": 3},
        "captures": 90,
        "counters": {"num_aot_artifacts_loaded": 0, "num_compiled_artifacts_loaded": 0},
        "compiles": True,
        "attention": "FLASH_ATTN (FA3)",
        "load_s": 1.0,
        "profile_s": 20.0,
        "compile_s": 18.0,
        "capture_s": 3.0,
        "graph_bytes": 300,
        "estimate_bytes": 280,
        "activation_bytes": 10,
        "available_bytes": 1000,
        "weights_bytes": 500,
    }
    return answer | changes


def step(mode, tokens, padded, running=2, waiting=0):
    graph = None
    if mode is not None:
        graph = SimpleNamespace(runtime_mode=mode, num_unpadded_tokens=tokens, num_padded_tokens=padded)
    return SimpleNamespace(
        cudagraph_stats=graph, num_running_reqs=running, num_waiting_reqs=waiting, kv_cache_usage=0.25
    )


def test_start_up_adds_up_and_nothing_is_lost() -> None:
    facts = launch_facts(load(), probe(), start_s=30.0, import_s=15.0)
    assert facts.realised_mode == "FULL_AND_PIECEWISE"
    assert facts.profile_s == 2.0  # its compile time taken off
    assert facts.unexplained_s == pytest.approx(30.0 - 1.0 - 18.0 - 2.0 - 3.0)
    assert facts.compile_cache == "cold"
    assert (facts.keys_piecewise, facts.wrappers_piecewise, facts.graphs_piecewise) == (3, 29, 87)


def test_keys_without_graphs_are_hollow() -> None:
    answer = probe(wrappers={"FULL": 1}, graphs={"FULL": 3}, captures=3)
    assert hollow(answer)
    facts = launch_facts(load(["mode=full", "backend=flashinfer"]), answer, 30.0, 15.0)
    assert facts.realised_mode == "FULL_AND_PIECEWISE:hollow"
    assert facts.graphs_piecewise == 0


def test_eager_is_its_own_mode_and_has_no_cache() -> None:
    answer = probe(resolved="NONE", keys={"PIECEWISE": 0, "FULL": 0}, wrappers={}, graphs={}, compiles=False)
    facts = launch_facts(load(["mode=eager"]), answer, 10.0, 15.0)
    assert facts.realised_mode == "EAGER"
    assert facts.hollow is False
    assert facts.compile_cache == "off"


def test_warm_cache_is_told_by_what_was_loaded() -> None:
    facts = launch_facts(load(), probe(counters={"num_aot_artifacts_loaded": 1}), 12.0, 15.0)
    assert facts.compile_cache == "warm"


def test_a_negative_memory_figure_is_kept_and_flagged() -> None:
    facts = launch_facts(load(), probe(graph_bytes=-4), 30.0, 15.0)
    assert facts.graph_bytes == -4
    assert facts.memory_valid is False


def test_an_estimate_that_was_not_made_is_null() -> None:
    facts = launch_facts(load(), probe(estimate_bytes=None), 30.0, 15.0)
    assert facts.graph_estimate_bytes is None
    assert facts.memory_valid is True


def test_light_steps_keep_unknown_apart_from_none() -> None:
    frame = light_steps(
        [(10.5, step("FULL", 3, 4)), (10.6, step(None, 0, 0)), (10.7, step(None, 0, 0, running=0))], start=10.0
    )
    assert list(frame.columns) == list(STEP_COLUMNS)
    assert len(frame) == 2  # the idle report is no step
    assert frame["t_s"].tolist() == pytest.approx([0.5, 0.6])
    assert frame["runtime_mode"].tolist()[0] == "FULL"
    assert frame["runtime_mode"].isna().tolist() == [False, True]
    assert frame["num_reqs"].isna().all()


def heavy(tokens):
    values = dict.fromkeys(HEAVY_FIELDS, None) | {
        "start_s": 1.0, "runtime_mode": "FULL", "num_tokens": tokens, "padded_tokens": tokens,
        "num_reqs": tokens, "num_decode": tokens, "prefill_tokens": 0, "context_tokens": 64,
        "wall_ms": 2.5, "launch_ms": 1.5, "gpu_ms": 1.4,
    }  # fmt: skip
    return [values[name] for name in HEAVY_FIELDS]


def test_heavy_rows_are_joined_in_order() -> None:
    light = light_steps([(1.0, step("FULL", 3, 4)), (1.1, step("FULL", 2, 2))], start=0.0)
    joined = join_heavy(light, [heavy(3), heavy(2)])
    assert joined["num_reqs"].tolist() == [3, 2]
    assert joined["padded_tokens"].tolist() == [4, 2]  # the front end's, not the worker's
    assert joined["wall_ms"].tolist() == [2.5, 2.5]


@pytest.mark.parametrize("rows", [[heavy(3)], [heavy(2), heavy(3)]], ids=["a step missing", "other steps"])
def test_heavy_rows_that_do_not_match_are_not_guessed(rows, capsys) -> None:
    light = light_steps([(1.0, step("FULL", 3, 4)), (1.1, step("FULL", 2, 2))], start=0.0)
    assert join_heavy(light, rows)["wall_ms"].isna().all()
    assert "not joined" in capsys.readouterr().out


def test_arguments_are_explicit(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("VLLM_CACHE_ROOT", str(tmp_path))
    config = load(["mode=full", "backend=flash_attn_2", "server.cudagraph_capture_sizes=[1,2]"])
    arguments = engine_arguments(config)
    assert arguments["compilation_config"] == {"cudagraph_mode": "FULL", "cudagraph_capture_sizes": [1, 2]}
    assert arguments["attention_config"] == {"backend": "FLASH_ATTN", "flash_attn_version": 2}
    assert arguments["enforce_eager"] is False
    assert (arguments["max_num_seqs"], arguments["max_num_batched_tokens"]) == (256, 8192)
    assert arguments["num_gpu_blocks_override"] == 16384
    assert "speculative_config" not in arguments
    assert engine_arguments(load(["mode=eager"]))["enforce_eager"] is True


def test_the_model_folder_depends_on_the_shape_alone(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("VLLM_CACHE_ROOT", str(tmp_path))
    folder = model_folder(load().model)
    assert folder == model_folder(load(["mode=none"]).model)
    assert folder != model_folder(load(["model.architecture.num_hidden_layers=4"]).model)
    written = json.loads((folder / "config.json").read_text())
    assert written["num_hidden_layers"] == 28
    assert written["architectures"] == ["Qwen3ForCausalLM"]
    assert [file.name for file in folder.iterdir()] == ["config.json"]

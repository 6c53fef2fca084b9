"""Existing `vllm serve` commands: what they set, what of them is not modelled, and their mistakes."""

import pytest

from artifact.analysis.recommend.serve_command import parse, quoted
from artifact.config import load
from artifact.errors import InputError
from artifact.schema import Mode

H200 = load([]).hardware
MODEL = "vllm serve Qwen/Qwen3-0.6B"


def server(command: str):
    return load(parse(command, H200).overrides).server


def test_what_is_left_out_is_what_vllm_serve_takes() -> None:
    found = server(MODEL)
    assert (found.max_num_seqs, found.max_num_batched_tokens, found.max_model_len) == (1024, 8192, 40960)
    assert (found.gpu_memory_utilization, found.num_gpu_blocks_override) == (0.92, None)
    a100 = load(["hardware=a100"]).hardware
    assert "server.max_num_seqs=256" in parse(MODEL, a100).overrides
    assert "server.max_num_batched_tokens=2048" in parse(MODEL, a100).overrides


@pytest.mark.parametrize(
    ("flags", "key", "value"),
    [
        ("--max-num-seqs 256", "max_num_seqs", 256),
        ("--max_num_seqs=256", "max_num_seqs", 256),
        ("--max-num-batched-tokens 4k", "max_num_batched_tokens", 4000),
        ("--max-num-batched-tokens 4K", "max_num_batched_tokens", 4096),
        ("--max-model-len auto", "max_model_len", 40960),
        ("--gpu-memory-utilization .5", "gpu_memory_utilization", 0.5),
        ("-tp 2", "tensor_parallel_size", 2),
        ("--cudagraph-capture-sizes 1 2 4", "cudagraph_capture_sizes", (1, 2, 4)),
        ("-cc.cudagraph_capture_sizes=[1,2]", "cudagraph_capture_sizes", (1, 2)),
        ("--compilation-config '{\"max_cudagraph_capture_size\": 64}'", "max_cudagraph_capture_size", 64),
        ("--no-enable-prefix-caching", "enable_prefix_caching", False),
        ("--no-async-scheduling", "async_scheduling", False),
        ("--num-gpu-blocks-override 1000", "num_gpu_blocks_override", 1000),
        ("--speculative-config.num_speculative_tokens 3", "num_speculative_tokens", 3),
    ],
)
def test_flags_become_settings(flags, key, value) -> None:
    assert getattr(server(f"{MODEL} {flags}"), key) == value


@pytest.mark.parametrize(
    ("flags", "mode"),
    [
        ("", Mode.FULL_AND_PIECEWISE),
        ("-O1", Mode.PIECEWISE),
        ("-O 0", Mode.EAGER),
        ("--optimization-level 3", Mode.FULL_AND_PIECEWISE),
        ("-cc.cudagraph_mode=full -O1", Mode.FULL),
        ("--enforce-eager -cc.cudagraph_mode FULL", Mode.EAGER),
        ('--compilation-config \'{"cudagraph_mode": "NONE"}\'', Mode.NONE),
    ],
)
def test_the_mode_that_the_command_runs(flags, mode) -> None:
    found = parse(f"{MODEL} {flags} --port 80", H200)
    assert found.mode is mode
    assert found.kept == ["vllm", "serve", "Qwen/Qwen3-0.6B", "--port", "80"]
    assert not found.warnings


def test_the_model_may_come_last_or_by_flag_or_not_at_all() -> None:
    for command in ("vllm serve --trust-remote-code qwen/qwen3-4b", "vllm serve --model Qwen/Qwen3-4B"):
        assert "model=qwen3-4b" in parse(command, H200).overrides
    assert "names no model" in parse("vllm serve --port 1", H200).warnings[0]
    assert "my/own" in parse("vllm serve my/own", H200).outside[0]


def test_nothing_is_dropped_without_a_word() -> None:
    command = f"A=1 VLLM_ATTENTION_BACKEND=FLASHINFER {MODEL} --foo 3 --bar -q fp8 -cc '{{\"mode\": 0}}' -ac.x=1"
    found = parse(command, H200)
    said = " ".join(found.warnings)
    assert all(word in said for word in ("A=1", "does not read", "--foo 3", "--bar", "mode", "x"))
    assert found.outside == ["--quantization fp8"]
    assert "backend=flashinfer" in found.overrides
    assert found.compilation == {"mode": 0}  # goes back into the command


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("vllm serve 'x", "no closing quotation"),
        ("", "empty"),
        ("python serve.py", "vllm serve MODEL"),
        (f"{MODEL} --max-num-seqs", "--max-num-seqs needs a value"),
        (f"{MODEL} --max-num-seqs many", "--max-num-seqs takes a whole number"),
        (f"{MODEL} --max-num-seqs 0", "--max-num-seqs takes a whole number"),
        (f"{MODEL} --gpu-memory-utilization 2", "--gpu-memory-utilization"),
        (f"{MODEL} -cc {{cudagraph_mode:FULL}}", "needs no quotes"),
        (f"{MODEL} -cc [1]", "JSON object"),
        (f"{MODEL} -cc.cudagraph_mode=FUL", "no mode"),
        (f"{MODEL} -O7", "0 to 3"),
        (f"{MODEL} --attention-backend NOPE", "not known"),
        (f"{MODEL} other/model", "neither a flag"),
    ],
)
def test_a_mistake_names_the_flag(command, says) -> None:
    with pytest.raises(InputError, match=r"recommend\.serve_command") as raised:
        parse(command, H200)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "command", [MODEL, f"{MODEL} -cc.cudagraph_mode=FULL", "vllm serve x -cc '{\"a\": [1, 2]}'", "a\\b"]
)
def test_any_command_survives_hydra(command) -> None:
    assert load([quoted(f"recommend.serve_command={command}")]).recommend.serve_command == command

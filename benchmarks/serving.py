"""A configuration in, the `vllm serve` of its engine out: what the benchmarks that start a server have in common."""

import json
import sys
from typing import Any

from artifact.engines.vllm_arguments import engine_arguments
from artifact.schema import Config

ADDRESS = "127.0.0.1"
VLLM = [sys.executable, "-m", "vllm.entrypoints.cli.main"]
_FLAGS = ("max_num_seqs", "max_num_batched_tokens", "max_model_len", "gpu_memory_utilization", "block_size")


def serve_command(config: Config, port: int, compilation: dict[str, Any] | None = None) -> list[str]:
    """Return `vllm serve` on loopback with dummy weights and the arguments of ``config``.

    ``compilation`` takes the place of the configuration's own, for who sets the mode otherwise.
    """
    arguments = engine_arguments(config)
    command = [*VLLM, "serve", arguments["model"], "--host", ADDRESS, "--port", str(port), "--load-format", "dummy"]
    for name in _FLAGS:
        command += [f"--{name.replace('_', '-')}", str(arguments[name])]
    if (blocks := arguments["num_gpu_blocks_override"]) is not None:
        command += ["--num-gpu-blocks-override", str(blocks)]
    chosen = arguments["compilation_config"] if compilation is None else compilation
    command += ["--attention-config", json.dumps(arguments["attention_config"])]
    command += ["--compilation-config", json.dumps(chosen), "--no-enable-prefix-caching", "--seed", "0"]
    return [*command, *(["--enforce-eager"] if arguments["enforce_eager"] else [])]

"""A configuration in, the keyword arguments of vLLM's ``AsyncEngineArgs`` out."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from artifact.engines.forcing import PROCESSOR
from artifact.schema import Config, ModelConfig


def model_folder(model: ModelConfig) -> Path:
    """Write the model's ``config.json`` once and return its folder.

    The path is part of vLLM's compile-cache key, so it depends on the shape alone and lies beside that cache.
    """
    text = json.dumps(model.architecture, indent=1, sort_keys=True)
    root = Path(os.environ.get("VLLM_CACHE_ROOT", "~/.cache/vllm")).expanduser()
    folder = root / "artifact_models" / f"{model.name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f"config.json.{os.getpid()}"
    partial.write_text(text)
    partial.replace(folder / "config.json")
    return folder


def engine_arguments(config: Config, forcing: bool = False) -> dict[str, Any]:
    """Return the keyword arguments of ``AsyncEngineArgs`` for a configuration: no tokenizer, exact token ids.

    With ``forcing``, requests may have their answers forced (engines.forcing_processor).
    """
    server = config.server
    attention: dict[str, Any] = {"backend": config.backend.name}
    if config.backend.flash_attn_version is not None:
        attention["flash_attn_version"] = config.backend.flash_attn_version
    compilation: dict[str, Any] = {"cudagraph_mode": config.mode.cudagraph_mode}
    if server.cudagraph_capture_sizes is not None:
        compilation["cudagraph_capture_sizes"] = list(server.cudagraph_capture_sizes)
    if server.max_cudagraph_capture_size is not None:
        compilation["max_cudagraph_capture_size"] = server.max_cudagraph_capture_size
    arguments: dict[str, Any] = {
        "model": str(model_folder(config.model)),
        "skip_tokenizer_init": True,
        "load_format": "dummy" if config.model.weights == "dummy" else "safetensors",
        "seed": 0,
        "enforce_eager": config.mode.enforce_eager,
        "compilation_config": compilation,
        "attention_config": attention,
        "worker_cls": "artifact.engines.vllm_probe.ProbeWorker",
        "cudagraph_metrics": True,
        "disable_log_stats": True,  # vLLM's own loggers; ours is passed beside them
        "enable_log_requests": False,
        "max_num_seqs": server.max_num_seqs,
        "max_num_batched_tokens": server.max_num_batched_tokens,
        "max_model_len": server.max_model_len,
        "gpu_memory_utilization": server.gpu_memory_utilization,
        "num_gpu_blocks_override": server.num_gpu_blocks_override,
        "block_size": server.block_size,
        "tensor_parallel_size": server.tensor_parallel_size,
        "enable_prefix_caching": server.enable_prefix_caching,
        "async_scheduling": server.async_scheduling,
    }
    if forcing:
        arguments["logits_processors"] = [PROCESSOR]
    if server.enable_sequence_parallelism:
        compilation["pass_config"] = {"enable_sp": True}
    if server.max_loras:
        compilation["cudagraph_specialize_lora"] = server.cudagraph_specialize_lora
        arguments |= {
            "enable_lora": True,
            "max_loras": server.max_loras,
            "specialize_active_lora": server.specialize_active_lora,
        }
    if server.num_speculative_tokens:
        arguments["speculative_config"] = {
            "method": "ngram",
            "num_speculative_tokens": server.num_speculative_tokens,
            "prompt_lookup_max": 4,
        }
    return arguments

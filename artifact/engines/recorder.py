"""vLLM's statistics in, a recording of the live server out: a plugin that ``vllm serve`` loads by its entry point.

``ARTIFACT_RECORD`` names the folder; without it nothing is recorded. ``ARTIFACT_RECORD_MIB`` bounds the folder (256).
Recorded are times, counts and lengths: no prompt, no output, no request id.
"""

import logging
import os
from pathlib import Path
from typing import Any

from vllm.v1.metrics.loggers import StatLoggerBase

from artifact import __version__
from artifact.engines import nvml
from artifact.engines.record_writer import MIB, RecordWriter

FOLDER, LIMIT = "ARTIFACT_RECORD", "ARTIFACT_RECORD_MIB"
_DEFAULT_MIB = 256
# A child of vLLM's own logger: its lines go where the server's go.
_log = logging.getLogger("vllm.artifact_recorder")


class Recorder(StatLoggerBase):  # type: ignore[misc]  # vllm is untyped where it is not installed
    """A stat logger of one engine: vLLM makes one for each engine of each front-end process."""

    def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
        self._writer: RecordWriter | None = None
        folder = os.environ.get(FOLDER)
        if not folder:
            return
        try:
            limit = _limit_bytes(os.environ.get(LIMIT))
            path = Path(folder).expanduser().absolute()
            self._writer = RecordWriter(path, limit, lambda: server_settings(vllm_config), _warn, engine_index)
            _log.info("artifact: recording to %s, at most %d MiB; engine %d", path, limit // MIB, engine_index)
        except Exception as error:  # a boundary: a recorder must never end the server that it watches
            _warn(f"nothing is recorded: {type(error).__name__}: {error}")

    def record(
        self,
        scheduler_stats: Any,
        iteration_stats: Any,
        mm_cache_stats: Any = None,  # noqa: ARG002  vLLM passes it by name, and the next
        engine_idx: int = 0,  # noqa: ARG002
    ) -> None:
        """Take a step's statistics; see ``RecordWriter.add``."""
        if self._writer is not None:
            self._writer.add(scheduler_stats, iteration_stats)

    def log_engine_initialized(self) -> None:
        """Say nothing: vLLM requires the method."""

    def close(self) -> None:
        """Write what is left; vLLM does not call it, the end of the process does."""
        if self._writer is not None:
            self._writer.close()


def _warn(line: str) -> None:
    _log.warning("artifact: %s", line)


def _limit_bytes(text: str | None) -> int:
    if not text:
        return _DEFAULT_MIB * MIB
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ValueError(f"{LIMIT}={text}: must be a whole number of MiB from 1 on")
    return int(text) * MIB


def server_settings(config: Any) -> dict[str, Any]:
    """Return what decides about graphs, as the front end knows it; null where this vLLM has no such setting.

    ``cudagraph_mode`` is the mode *before* the worker resolves it with the attention backend: the front end never
    learns the other.
    """
    compilation, scheduler = "compilation_config", "scheduler_config"
    mode = _of(config, f"{compilation}.cudagraph_mode")
    level = _of(config, f"{compilation}.mode")
    backend = _of(config, "attention_config.backend")
    sizes = _of(config, f"{compilation}.cudagraph_capture_sizes")
    lora = _of(config, "lora_config")
    return {
        "vllm_version": _vllm_version(),
        "artifact_version": __version__,
        "model": _of(config, "model_config.model"),
        "gpu": nvml.describe().name,
        "backend": None if backend is None else str(getattr(backend, "name", backend)),
        "flash_attn_version": _of(config, "attention_config.flash_attn_version"),
        "cudagraph_metrics": _of(config, "observability_config.cudagraph_metrics"),
        "cudagraph_mode": None if mode is None else str(getattr(mode, "name", mode)),
        "enforce_eager": _of(config, "model_config.enforce_eager"),
        "compilation_mode": None if level is None else str(getattr(level, "name", level)),
        "cudagraph_capture_sizes": None if sizes is None else [int(size) for size in sizes],
        "max_num_seqs": _of(config, f"{scheduler}.max_num_seqs"),
        "max_num_batched_tokens": _of(config, f"{scheduler}.max_num_batched_tokens"),
        "async_scheduling": _of(config, f"{scheduler}.async_scheduling"),
        "max_model_len": _of(config, "model_config.max_model_len"),
        "block_size": _of(config, "cache_config.block_size"),
        "gpu_memory_utilization": _of(config, "cache_config.gpu_memory_utilization"),
        "enable_prefix_caching": _of(config, "cache_config.enable_prefix_caching"),
        "num_speculative_tokens": _of(config, "speculative_config.num_speculative_tokens") or 0,
        "tensor_parallel_size": _of(config, "parallel_config.tensor_parallel_size"),
        "data_parallel_size": _of(config, "parallel_config.data_parallel_size"),
        "api_servers": _of(config, "parallel_config._api_process_count"),
        "enable_sequence_parallelism": bool(_of(config, f"{compilation}.pass_config.enable_sp")),
        "max_loras": 0 if lora is None else _of(config, "lora_config.max_loras"),
        "cudagraph_specialize_lora": _of(config, f"{compilation}.cudagraph_specialize_lora"),
        "specialize_active_lora": bool(_of(config, "lora_config.specialize_active_lora")),
    }


def _of(config: Any, path: str) -> Any:
    for name in path.split("."):
        config = getattr(config, name, None)
    return config


def _vllm_version() -> str | None:
    import vllm

    return getattr(vllm, "__version__", None)

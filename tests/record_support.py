"""Recordings made of stand-ins for vLLM 0.21.0's statistics: step by step, or of what the simulator served.

The stand-ins have the fields of v1/metrics/stats.py that the recorder reads, and no others.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from artifact.engines.record_writer import MIB, RecordWriter
from artifact.records import Measurement

BASE_S = 1_700_000_000.0  # synthetic: seconds since 1970 of a recording's first second


@dataclass
class Graph:
    num_unpadded_tokens: int
    num_padded_tokens: int
    runtime_mode: str


@dataclass
class Scheduler:
    num_running_reqs: int = 0
    num_waiting_reqs: int = 0
    num_skipped_waiting_reqs: int = 0
    kv_cache_usage: float = 0.0
    cudagraph_stats: Graph | None = None


@dataclass
class Finished:
    e2e_latency: float
    num_prompt_tokens: int
    num_generation_tokens: int
    mean_time_per_output_token: float = 0.0
    num_cached_tokens: int = 0
    finish_reason: int = 1


@dataclass
class Iteration:
    iteration_timestamp: float
    num_generation_tokens: int = 0
    time_to_first_tokens_iter: list[float] = field(default_factory=list)
    finished_requests: list[Finished] = field(default_factory=list)


def settings(**changes: Any) -> dict[str, Any]:
    """What the recorder writes of a server: the study's, on an H200."""
    return {
        "vllm_version": "0.21.0",
        "artifact_version": "0",
        "model": "model",
        "gpu": "NVIDIA H200",
        "backend": "FLASH_ATTN",
        "flash_attn_version": None,
        "cudagraph_metrics": True,
        "cudagraph_mode": "FULL_AND_PIECEWISE",
        "enforce_eager": False,
        "compilation_mode": "VLLM_COMPILE",
        "cudagraph_capture_sizes": [1, 2, 4, *range(8, 256, 8), *range(256, 513, 16)],
        "max_num_seqs": 256,
        "max_num_batched_tokens": 8192,
        "async_scheduling": True,
        "max_model_len": 8192,
        "block_size": 16,
        "gpu_memory_utilization": 0.9,
        "enable_prefix_caching": True,
        "num_speculative_tokens": 0,
        "tensor_parallel_size": 1,
        "data_parallel_size": 1,
        "api_servers": 1,
        "enable_sequence_parallelism": False,
        "max_loras": 0,
        "cudagraph_specialize_lora": True,
        "specialize_active_lora": False,
    } | changes


def vllm_config(**changes: Any) -> Any:
    """A ``VllmConfig`` with the attributes that the recorder reads; ``changes`` are whole sections."""
    sections: dict[str, Any] = {
        "model_config": SimpleNamespace(model="/models/m", enforce_eager=False, max_model_len=8192),
        "observability_config": SimpleNamespace(cudagraph_metrics=True),
        "compilation_config": SimpleNamespace(
            cudagraph_mode=SimpleNamespace(name="FULL"),
            mode=SimpleNamespace(name="VLLM_COMPILE"),
            cudagraph_capture_sizes=[1, 2, 4, 8],
            pass_config=SimpleNamespace(enable_sp=None),
            cudagraph_specialize_lora=True,
        ),
        "scheduler_config": SimpleNamespace(max_num_seqs=8, max_num_batched_tokens=2048, async_scheduling=True),
        "attention_config": SimpleNamespace(backend=SimpleNamespace(name="FLASHINFER"), flash_attn_version=None),
        "cache_config": SimpleNamespace(block_size=16, gpu_memory_utilization=0.9, enable_prefix_caching=True),
        "parallel_config": SimpleNamespace(tensor_parallel_size=1, data_parallel_size=1, _api_process_count=1),
        "speculative_config": None,
        "lora_config": None,
    }
    return SimpleNamespace(**(sections | changes))


def writer(folder: Path, limit_bytes: int = 256 * MIB, said: list[str] | None = None, **changes: Any) -> RecordWriter:
    """A writer that flushes when it is closed; ``said`` takes its lines."""
    say = [] if said is None else said
    return RecordWriter(folder, limit_bytes, lambda: settings(**changes), say.append, flush_s=1e6)


def record(folder: Path, calls: Iterable[tuple[Scheduler | None, Iteration | None]], **changes: Any) -> Path:
    """Write the recording of ``calls`` and return its folder."""
    recorder = writer(folder, **changes)
    for scheduler, iteration in calls:
        recorder.add(scheduler, iteration)
    recorder.close()
    return folder


def step(
    at_s: float, tokens: int, mode: str, padded: int | None = None, sampled: int | None = None, running: int = 1
) -> tuple[Scheduler, Iteration]:
    """A step at ``at_s`` after BASE_S; a decode step, one token a request, unless ``sampled`` is given."""
    graph = Graph(tokens, tokens if padded is None else padded, mode)
    return Scheduler(running, 0, 0, 0.5, graph), Iteration(BASE_S + at_s, tokens if sampled is None else sampled)


def served(measurement: Measurement) -> list[tuple[Scheduler, Iteration]]:
    """What vLLM would have told its loggers of a simulated cell: each request at the step that gave its token."""
    steps, requests = measurement.steps, measurement.requests
    ends_s = steps["t_s"].to_numpy()
    calls = []
    for row in steps.itertuples():
        graph = Graph(int(row.num_tokens), int(row.padded_tokens), str(row.runtime_mode))
        scheduler = Scheduler(int(row.num_running), int(row.num_waiting), 0, float(row.kv_usage), graph)
        sampled = int(row.num_tokens) if row.num_decode == row.num_reqs else int(row.num_decode)
        calls.append((scheduler, Iteration(BASE_S + row.t_s, sampled)))
    for row in requests.itertuples():
        first, last = (
            calls[min(int(np.searchsorted(ends_s, at_s - 1e-9)), len(calls) - 1)][1]
            for at_s in (row.first_token_s, row.last_token_s)
        )
        arrival_s = BASE_S + row.intended_s
        first.time_to_first_tokens_iter.append(first.iteration_timestamp - arrival_s)
        more = row.output_tokens - 1
        tpot_s = (row.last_token_s - row.first_token_s) / more if more else 0.0
        done = Finished(last.iteration_timestamp - arrival_s, row.prompt_tokens, row.output_tokens, tpot_s)
        last.finished_requests.append(done)
    return calls

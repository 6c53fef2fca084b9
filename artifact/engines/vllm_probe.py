"""A GPU worker of vLLM that times its start-up, counts what it captured and, on request, records every step.

vLLM takes this class by name (``worker_cls``) and calls its extra methods by name (``collective_rpc``). The light
probe adds nothing to a step. The heavy probe adds two CUDA events and a few dictionary look-ups to each.
"""

import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from vllm.compilation.counter import compilation_counter
from vllm.compilation.cuda_graph import CUDAGraphWrapper
from vllm.v1.worker.gpu_worker import Worker

_COPIED = 2**29  # bytes: many times an L2 cache, so that a copy moves memory


class ProbeWorker(Worker):  # type: ignore[misc]  # vllm is untyped where it is not installed
    """``probe``, ``dispatch_table``, ``host_probe`` and the heavy probe's methods are called from the engine."""

    def load_model(self, **kwargs: Any) -> None:
        """Load the model and time it."""
        start = time.perf_counter()
        super().load_model(**kwargs)
        torch.cuda.synchronize()
        self._load_s = time.perf_counter() - start

    def determine_available_memory(self) -> int:
        """Profile memory (the model compiles here) and time it."""
        start = time.perf_counter()
        available = super().determine_available_memory()
        self._profile_s = time.perf_counter() - start
        return int(available)

    def compile_or_warm_up_model(self) -> Any:
        """Warm up and capture; the capture's seconds and bytes are kept unrounded."""
        self._capture_s, self._graph_bytes = 0.0, 0
        capture = self.model_runner.capture_model

        def timed() -> int:
            start = time.perf_counter()
            self._graph_bytes = int(capture())
            torch.cuda.synchronize()
            self._capture_s = time.perf_counter() - start
            return self._graph_bytes

        self.model_runner.capture_model = timed
        try:
            return super().compile_or_warm_up_model()
        finally:
            del self.model_runner.capture_model

    def probe(self) -> dict[str, Any]:
        """Return what was resolved, what was captured, and what start-up took, as plain values."""
        wrappers: Counter[str] = Counter()
        graphs: Counter[str] = Counter()
        for wrapper in list(CUDAGraphWrapper._all_instances):
            kind = str(wrapper.runtime_mode)
            wrappers[kind] += 1
            graphs[kind] += sum(entry.cudagraph is not None for entry in wrapper.concrete_cudagraph_entries.values())
        runner = self.model_runner
        dispatcher = runner.cudagraph_dispatcher
        compilation = self.vllm_config.compilation_config
        return {
            "resolved": str(dispatcher.cudagraph_mode),
            "sizes": [int(size) for size in compilation.cudagraph_capture_sizes or []],
            "keys": {str(kind): len(keys) for kind, keys in dispatcher.cudagraph_keys.items()},
            "wrappers": dict(wrappers),
            "graphs": dict(graphs),
            "captures": compilation_counter.num_cudagraph_captured,
            "counters": {name: value for name, value in vars(compilation_counter).items() if isinstance(value, int)},
            "compiles": int(compilation.mode) != 0,  # CompilationMode.NONE; its str() is the number
            "attention": _attention_name(runner),
            "load_s": self._load_s,
            "profile_s": self._profile_s,
            "compile_s": float(compilation.compilation_time),
            "capture_s": self._capture_s,
            "graph_bytes": self._graph_bytes,
            # vLLM sets these only where it profiled memory
            "estimate_bytes": getattr(self, "cudagraph_memory_estimate", None),
            "activation_bytes": getattr(self, "peak_activation_memory", None),
            "available_bytes": getattr(self, "available_kv_cache_memory_bytes", None),
            "weights_bytes": int(runner.model_memory_usage),
        }

    def dispatch_table(self, last: int) -> dict[str, list[list[Any]]]:
        """Ask the real dispatcher about every batch of 1..``last`` tokens: [tokens, runtime mode, padded tokens]."""
        table: dict[str, list[list[Any]]] = {"decode": [], "mixed": []}
        query = self.model_runner.uniform_decode_query_len
        for kind, rows in table.items():
            for tokens in range(1, last + 1):
                uniform = kind == "decode"
                if uniform and tokens % query:
                    continue
                mode, key = self.model_runner.cudagraph_dispatcher.dispatch(num_tokens=tokens, uniform_decode=uniform)
                rows.append([tokens, str(mode), int(key.num_tokens)])
        return table

    def host_probe(self) -> dict[str, float | None]:
        """Return the CPU's microseconds per eager kernel launch and per graph launch, and ``copy_bytes_per_s``."""
        value = torch.zeros(16, device=self.device)
        for _ in range(10):
            value.add_(1)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            value.add_(1)
        return {
            "copy_bytes_per_s": self.copy_bytes_per_s(),
            "eager_launch_us": self.eager_launch_us(),
            "graph_launch_us": _launch_us(graph.replay),
        }

    def eager_launch_us(self) -> float:
        """Return the CPU's microseconds per launch of a kernel that does next to nothing."""
        value = torch.zeros(16, device=self.device)
        return _launch_us(lambda: value.add_(1))

    def copy_bytes_per_s(self) -> float | None:
        """Return the memory's bandwidth as STREAM counts it: bytes read plus written a second by the best of 20 copies.

        None where there is no room.
        """
        try:
            source, copy = (torch.empty(_COPIED, dtype=torch.uint8, device=self.device) for _ in range(2))
        except torch.OutOfMemoryError:
            return None
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(21)]
        for mark in marks:
            copy.copy_(source)  # the first, before any mark, is a warm-up
            mark.record()
        torch.cuda.synchronize()
        best_ms: float = min(begin.elapsed_time(end) for begin, end in pairwise(marks))
        del source, copy
        torch.cuda.empty_cache()  # NVML is asked next what the engine uses
        return 2 * _COPIED / (best_ms / 1e3)

    def cpu_jitter_us(self) -> float:
        """Return the 99th percentile of how much longer than asked a 1 ms sleep takes, of 200, on the worker's core."""
        late = []
        for _ in range(200):
            start = time.perf_counter()
            time.sleep(0.001)
            late.append((time.perf_counter() - start - 0.001) * 1e6)
        return sorted(late)[197]

    def heavy_start(self) -> None:
        """Put the hooks in place and begin to record every step."""
        self.heavy_off()  # hooks never stack
        self._steps: list[dict[str, Any]] = []
        self._hook()

    def heavy_stop(self) -> list[list[float | int | str | None]]:
        """Take the hooks away; return the steps since ``heavy_start``, one list each: ``vllm_records.HEAVY_FIELDS``."""
        self.heavy_off()
        torch.cuda.synchronize()
        rows: list[list[float | int | str | None]] = []
        for index, step in enumerate(self._steps):
            following = self._steps[index + 1] if index + 1 < len(self._steps) else None
            # Without a request in common the engine may have been idle in between: no period to speak of.
            busy = following is not None and not step["ids"].isdisjoint(following["ids"])
            wall_ms = (following["start"] - step["start"]) * 1e3 if following is not None and busy else None
            events = step.get("events")
            gpu_ms = events[0].elapsed_time(events[1]) if events else None
            composition = [step[name] for name in ("mode", "tokens", "padded", "reqs", "decode", "prefill", "context")]
            rows.append([step["start"], *composition, wall_ms, step["host_ms"], gpu_ms])
        return rows

    def heavy_off(self) -> None:
        """Take the hooks away, if any are there."""
        for name in _HOOKED:
            self.model_runner.__dict__.pop(name, None)  # the method of the class shows again

    def _hook(self) -> None:
        runner = self.model_runner
        execute, forward = runner.execute_model, runner._model_forward
        determine, sample = runner._determine_batch_execution_and_padding, runner.sample_tokens
        current: dict[str, Any] = {}

        def execute_model(scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
            if scheduler_output.total_num_scheduled_tokens == 0:
                return execute(scheduler_output, *args, **kwargs)
            start = time.perf_counter()
            current.clear()
            current.update(_composition(scheduler_output), start=start)
            try:
                return execute(scheduler_output, *args, **kwargs)
            finally:
                self._steps.append({**current, "host_ms": (time.perf_counter() - start) * 1e3})

        def determine_batch(*args: Any, **kwargs: Any) -> Any:
            decided = determine(*args, **kwargs)
            current.update(mode=str(decided[0]), padded=int(decided[1].num_tokens))
            return decided

        def model_forward(*args: Any, **kwargs: Any) -> Any:
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            try:
                return forward(*args, **kwargs)
            finally:
                end.record()
                current["events"] = (begin, end)

        def sample_tokens(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return sample(*args, **kwargs)
            finally:
                if self._steps:
                    self._steps[-1]["host_ms"] += (time.perf_counter() - start) * 1e3

        runner.execute_model, runner._model_forward = execute_model, model_forward
        runner._determine_batch_execution_and_padding, runner.sample_tokens = determine_batch, sample_tokens


_HOOKED = ("execute_model", "_model_forward", "_determine_batch_execution_and_padding", "sample_tokens")


def _launch_us(call: Callable[[], Any]) -> float:
    """Return the median of 21 rounds of 100 calls; none waits for the GPU, whose queue is longer than that."""
    rounds = []
    for _ in range(21):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(100):
            call()
        rounds.append((time.perf_counter() - start) / 100 * 1e6)
    torch.cuda.synchronize()
    return sorted(rounds)[10]


def _composition(scheduler_output: Any) -> dict[str, Any]:
    scheduled: dict[str, int] = scheduler_output.num_scheduled_tokens
    decode = sum(count == 1 for count in scheduled.values())
    cached = scheduler_output.scheduled_cached_reqs
    context = sum(
        tokens
        for request, tokens in zip(cached.req_ids, cached.num_computed_tokens, strict=True)
        if request in scheduled
    )
    context += sum(request.num_computed_tokens for request in scheduler_output.scheduled_new_reqs)
    total = scheduler_output.total_num_scheduled_tokens
    return {
        "ids": frozenset(scheduled),
        "tokens": total,
        "reqs": len(scheduled),
        "decode": decode,
        "prefill": total - decode,
        "context": int(context),
        "mode": None,
        "padded": None,
    }


def _attention_name(runner: Any) -> str | None:
    names = sorted({group.backend.get_name() for groups in runner.attn_groups for group in groups})
    if names == ["FLASH_ATTN"]:
        from vllm.config import set_current_vllm_config
        from vllm.v1.attention.backends.fa_utils import get_flash_attn_version

        with set_current_vllm_config(runner.vllm_config):
            return f"FLASH_ATTN (FA{get_flash_attn_version()})"
    return "+".join(names) or None

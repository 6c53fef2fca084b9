import time
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from vllm.compilation.cuda_graph import CUDAGraphStat, CUDAGraphWrapper
from vllm.config import CUDAGraphMode


class BatchDescriptor(NamedTuple):
    num_tokens: int
    num_reqs: int | None = None
    uniform: bool = False


KINDS = (CUDAGraphMode.PIECEWISE, CUDAGraphMode.FULL)


class CudagraphDispatcher:
    def __init__(self, mode: CUDAGraphMode, sizes: list[int], max_num_seqs: int) -> None:
        self.cudagraph_mode, self.sizes = mode, sizes
        self.cudagraph_keys: dict[Any, set[BatchDescriptor]] = {kind: set() for kind in KINDS}
        decode, mixed = mode.kinds()
        if mixed is not CUDAGraphMode.NONE:
            self.cudagraph_keys[mixed] |= {BatchDescriptor(size) for size in sizes}
        if decode is not mixed:
            self.cudagraph_keys[decode] |= {BatchDescriptor(n, n, True) for n in sizes if n <= max_num_seqs}

    def dispatch(
        self, num_tokens: int, uniform_decode: bool = False, has_lora: bool = False, num_active_loras: int = 0
    ) -> tuple[CUDAGraphMode, BatchDescriptor]:
        padded = next((size for size in self.sizes if size >= num_tokens), num_tokens)
        uniform = [BatchDescriptor(padded, padded, True)] if uniform_decode else []
        for mode in reversed(KINDS):  # FULL first
            for key in [*uniform, BatchDescriptor(padded)]:
                if key in self.cudagraph_keys[mode]:
                    return mode, key
        return CUDAGraphMode.NONE, BatchDescriptor(num_tokens)


class GPUModelRunner:
    uniform_decode_query_len = 1
    model_memory_usage = 1 << 30

    def __init__(self, vllm_config: Any) -> None:
        self.vllm_config = vllm_config
        requested = vllm_config.compilation_config.cudagraph_mode
        layers = vllm_config.model["num_hidden_layers"]
        # As in vLLM, the wrappers are made for the mode that was asked for, before it is resolved.
        self.wrappers = [
            CUDAGraphWrapper(kind)
            for kind in {*requested.kinds()} - {CUDAGraphMode.NONE}
            for _ in range(1 if kind is CUDAGraphMode.FULL else layers + 1)
        ]
        name = vllm_config.given.attention_config["backend"]
        self.attn_groups = [[SimpleNamespace(backend=SimpleNamespace(get_name=lambda: name))]]
        resolved = requested
        old = name == "FLASH_ATTN" and vllm_config.given.attention_config.get("flash_attn_version") == 2
        if (name == "FLASHINFER" or old) and requested is CUDAGraphMode.FULL:  # no mixed batches in full graphs
            resolved = CUDAGraphMode.FULL_AND_PIECEWISE
        sizes = vllm_config.compilation_config.cudagraph_capture_sizes
        self.cudagraph_dispatcher = CudagraphDispatcher(resolved, sizes, vllm_config.given.max_num_seqs)
        self.execute_model_state: Any = None
        self.stat: CUDAGraphStat | None = None

    def capture_model(self) -> int:
        for wrapper in self.wrappers:
            for key in self.cudagraph_dispatcher.cudagraph_keys[wrapper.runtime_mode]:
                wrapper.capture(key)
        return 1 << 20

    def execute_model(self, scheduler_output: Any, intermediate_tensors: Any = None) -> Any:
        if self.execute_model_state is not None:
            raise RuntimeError("State error: sample_tokens() must be called after execute_model() returns None.")
        total = scheduler_output.total_num_scheduled_tokens
        if total == 0:
            return []
        counts = np.array(list(scheduler_output.num_scheduled_tokens.values()))
        mode, key, *_ = self._determine_batch_execution_and_padding(
            num_tokens=total,
            num_reqs=len(counts),
            num_scheduled_tokens_np=counts,
            max_num_scheduled_tokens=int(counts.max()),
            use_cascade_attn=False,
        )
        self.stat = CUDAGraphStat(total, key.num_tokens, key.num_tokens - total, str(mode))
        self._model_forward(input_ids=None, positions=None)
        self.execute_model_state = list(scheduler_output.num_scheduled_tokens)
        return None

    def _determine_batch_execution_and_padding(
        self,
        num_tokens: int,
        num_reqs: int,
        num_scheduled_tokens_np: np.ndarray,
        max_num_scheduled_tokens: int,
        use_cascade_attn: bool,
    ) -> tuple[Any, ...]:
        uniform = max_num_scheduled_tokens == 1 and num_tokens == num_reqs
        return *self.cudagraph_dispatcher.dispatch(num_tokens, uniform), False, None, None

    def _model_forward(self, input_ids: Any = None, positions: Any = None, **model_kwargs: Any) -> Any: ...

    def sample_tokens(self, grammar_output: Any) -> list[str]:
        sampled, self.execute_model_state = self.execute_model_state, None
        return sampled


class Worker:
    def __init__(
        self,
        vllm_config: Any,
        local_rank: int,
        rank: int,
        distributed_init_method: str,
        is_driver_worker: bool = False,
    ) -> None:
        self.vllm_config, self.device = vllm_config, "cuda:0"

    def load_model(self, *, load_dummy_weights: bool = False) -> None:
        self.model_runner = GPUModelRunner(self.vllm_config)

    def determine_available_memory(self) -> int:
        begin = time.perf_counter()
        time.sleep(0.001)  # the model compiles while memory is profiled
        self.vllm_config.compilation_config.compilation_time = time.perf_counter() - begin
        self.peak_activation_memory, self.cudagraph_memory_estimate = 1 << 20, 1 << 20
        self.available_kv_cache_memory_bytes = 1 << 30
        return self.available_kv_cache_memory_bytes

    def compile_or_warm_up_model(self) -> Any:
        if not self.vllm_config.given.enforce_eager:
            self.model_runner.capture_model()
        return SimpleNamespace(language_model=0.0, encoder=0.0)

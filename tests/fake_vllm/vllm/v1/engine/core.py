from dataclasses import dataclass
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from vllm.compilation.counter import compilation_counter
from vllm.compilation.cuda_graph import CUDAGraphWrapper


@dataclass
class Request:
    req_id: str
    known: int  # tokens of the prompt and of the answer so far
    left: int
    num_computed_tokens: int = 0


class EngineCore:
    """One start: what vLLM gives a process of its own, and that process's counters, begins anew."""

    def __init__(self, vllm_config: Any) -> None:
        CUDAGraphWrapper._all_instances.clear()
        compilation_counter.__init__()
        self.config = vllm_config
        module, _, name = vllm_config.given.worker_cls.rpartition(".")
        worker_class = getattr(import_module(module), name)
        self.worker = worker_class(vllm_config, local_rank=0, rank=0, distributed_init_method="", is_driver_worker=True)
        self.worker.load_model()
        self.worker.determine_available_memory()
        self.worker.compile_or_warm_up_model()
        self.waiting: list[Request] = []
        self.running: list[Request] = []

    def _schedule(self) -> SimpleNamespace:
        given = self.config.given
        budget, counts = given.max_num_batched_tokens, {}
        cached, new = list(self.running), []
        while self.waiting and len(self.running) < given.max_num_seqs:
            new.append(self.waiting.pop(0))
            self.running.append(new[-1])
        for request in self.running:
            count = min(request.known - request.num_computed_tokens, budget)
            budget -= count
            if count:
                counts[request.req_id] = count
        return SimpleNamespace(
            scheduled_new_reqs=[SimpleNamespace(req_id=r.req_id, num_computed_tokens=0) for r in new],
            scheduled_cached_reqs=SimpleNamespace(
                req_ids=[r.req_id for r in cached], num_computed_tokens=[r.num_computed_tokens for r in cached]
            ),
            num_scheduled_tokens=counts,
            total_num_scheduled_tokens=sum(counts.values()),
        )

    def step(self) -> tuple[dict[str, bool], SimpleNamespace]:
        """Run one batch; return who got a token, with whether it was the last, and the scheduler's statistics."""
        output, runner, answers = self._schedule(), self.worker.model_runner, {}
        runner.stat = None
        if runner.execute_model(output, None) is None:
            runner.sample_tokens(None)
        for request in self.running:
            request.num_computed_tokens += output.num_scheduled_tokens.get(request.req_id, 0)
            if request.num_computed_tokens == request.known:
                request.known, request.left = request.known + 1, request.left - 1
                answers[request.req_id] = request.left == 0
        self.running = [request for request in self.running if request.left]
        cache = self.config.cache_config
        used = sum(-(-request.num_computed_tokens // cache.block_size) for request in self.running)
        return answers, SimpleNamespace(
            num_running_reqs=len(self.running),
            num_waiting_reqs=len(self.waiting),
            kv_cache_usage=used / cache.num_gpu_blocks,
            cudagraph_stats=runner.stat if self.config.given.cudagraph_metrics else None,
        )

    def abort(self, req_id: str) -> None:
        self.running = [request for request in self.running if request.req_id != req_id]
        self.waiting = [request for request in self.waiting if request.req_id != req_id]

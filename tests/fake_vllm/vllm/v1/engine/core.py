import math
from dataclasses import dataclass, field
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from vllm.compilation.counter import compilation_counter
from vllm.compilation.cuda_graph import CUDAGraphWrapper
from vllm.v1.sample.logits_processor import Row


@dataclass
class Request:
    req_id: str
    known: int  # tokens of the prompt and of the answer so far
    left: int
    num_computed_tokens: int = 0
    prompt: list[int] = field(default_factory=list)
    params: Any = None
    answer: list[int] = field(default_factory=list)
    output_ids: list[int] = field(default_factory=list)  # the worker's: placeholders, as under async scheduling


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
        self.processors = []
        for path in getattr(vllm_config.given, "logits_processors", None) or []:
            module, _, name = path.partition(":")
            self.processors.append(getattr(import_module(module), name)(vllm_config, "cuda:0", True))
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

    def _sample(self, request: Request) -> tuple[int, dict[int, SimpleNamespace] | None]:
        """Return the next token and, if asked for, log-probabilities before any processor: the token's, then the top.

        All tokens are equally likely but for one that the context chooses.
        """
        if request.params.logprobs is None and not request.params.extra_args:
            return 0, None  # no logits are made up that nobody reads
        vocabulary = self.config.model["vocab_size"]
        top = (31 * sum(request.prompt) + sum(n * token for n, token in enumerate(request.answer, 1))) % vocabulary
        raw = Row([0.0] * vocabulary)
        raw[top] = 2.0
        total = math.log(vocabulary - 1 + math.exp(2.0))
        logits = Row(raw)
        for processor in self.processors:
            state = processor.new_state(request.params, request.prompt, request.output_ids)
            if state is not None and not processor.is_argmax_invariant():
                logits = state(logits)
        token = max(range(vocabulary), key=logits.__getitem__)
        return token, {one: SimpleNamespace(logprob=raw[one] - total) for one in (token, top)}

    def step(self) -> tuple[dict[str, tuple[bool, int, Any]], SimpleNamespace]:
        """Run one batch; return who got a token, whether it was the last, which, and the scheduler's statistics."""
        output, runner, answers = self._schedule(), self.worker.model_runner, {}
        runner.stat = None
        if runner.execute_model(output, None) is None:
            runner.sample_tokens(None)
        for request in self.running:
            request.num_computed_tokens += output.num_scheduled_tokens.get(request.req_id, 0)
            if request.num_computed_tokens == request.known:
                request.known, request.left = request.known + 1, request.left - 1
                token, logprobs = self._sample(request)
                request.answer.append(token)
                request.output_ids.append(-1)
                answers[request.req_id] = request.left == 0, token, logprobs
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

import asyncio
import json
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

from vllm.sampling_params import RequestOutputKind, SamplingParams
from vllm.v1.engine.core import EngineCore, Request


class EngineDeadError(Exception):
    def __init__(self) -> None:
        super().__init__("EngineCore encountered an issue. See stack trace (above) for the root cause.")


class AsyncLLM:
    def __init__(self, vllm_config: Any, stat_loggers: list[Any]) -> None:
        self.vllm_config = vllm_config
        self.engine_core = EngineCore(vllm_config)
        self.loggers = [factory(vllm_config, 0) for factory in stat_loggers]
        for logger in self.loggers:
            logger.log_engine_initialized()
        self.queues: dict[str, asyncio.Queue[Any]] = {}
        self.work = asyncio.Event()
        self.errored = False
        self.output_handler = asyncio.create_task(self._run())

    @classmethod
    def from_engine_args(
        cls,
        engine_args: Any,
        start_engine_loop: bool = True,
        usage_context: Any = None,
        stat_loggers: list[Any] | None = None,
    ) -> "AsyncLLM":
        return cls(engine_args.create_engine_config(), stat_loggers or [])

    @property
    def dead_error(self) -> BaseException:
        return EngineDeadError()

    async def _run(self) -> None:
        try:
            while True:
                await self.work.wait()
                await asyncio.sleep(0.001)
                answers, stats = self.engine_core.step()
                for req_id, (finished, token, logprobs) in answers.items():
                    output = SimpleNamespace(token_ids=[token], logprobs=None if logprobs is None else [logprobs])
                    self.queues[req_id].put_nowait(SimpleNamespace(outputs=[output], finished=finished))
                for logger in self.loggers:
                    logger.record(stats, None, mm_cache_stats=None, engine_idx=0)
                if stats.cudagraph_stats is None and not stats.num_running_reqs:
                    self.work.clear()  # after a step without tokens, as in vLLM
        except Exception:
            self.errored = True
            for queue in self.queues.values():
                queue.put_nowait(None)

    async def generate(
        self, prompt: Any, sampling_params: SamplingParams, request_id: str, *, priority: int = 0
    ) -> AsyncGenerator[Any, None]:
        ids, wanted = prompt["prompt_token_ids"], sampling_params.max_tokens
        if not ids or max(ids) >= self.vllm_config.model["vocab_size"] or min(ids) < 0:
            raise ValueError("token ids out of the vocabulary")
        if len(ids) + wanted > self.vllm_config.given.max_model_len:
            raise ValueError("longer than the model's context")
        if not sampling_params.ignore_eos or sampling_params.output_kind is not RequestOutputKind.DELTA:
            raise NotImplementedError("this stand-in never ends early and yields deltas alone")
        if sampling_params.detokenize and self.vllm_config.given.skip_tokenizer_init:
            raise ValueError("no tokenizer to detokenize with")
        if request_id in self.queues:
            raise ValueError(f"request id {request_id} is taken")
        queue = self.queues[request_id] = asyncio.Queue()
        self.engine_core.waiting.append(Request(request_id, len(ids), wanted, prompt=ids, params=sampling_params))
        self.work.set()
        try:
            finished = False
            while not finished:
                if self.errored or (output := await queue.get()) is None:
                    raise EngineDeadError
                finished = output.finished
                yield output
        finally:
            self.engine_core.abort(request_id)
            del self.queues[request_id]

    async def collective_rpc(
        self,
        method: str,
        timeout: float | None = None,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> list[Any]:
        if self.errored:
            raise EngineDeadError
        answer = getattr(self.engine_core.worker, method)(*args, **(kwargs or {}))
        return [json.loads(json.dumps(answer))]  # it crosses a process: plain values alone

    def shutdown(self, timeout: float | None = None) -> None:
        self.errored = True
        self.output_handler.cancel()

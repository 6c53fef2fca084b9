"""The real engine: one vLLM start per object, in a process of its own, driven through AsyncLLM with token ids.

Runs in the child process of ``engines.isolate``; the fork server has imported vLLM already (``vllm_preload``).
"""

import asyncio
import gc
import json
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from artifact.engines import nvml
from artifact.engines.checkpoint import write_checkpoint
from artifact.engines.client import drive
from artifact.engines.forcing import EXTRA, scores
from artifact.engines.vllm_arguments import engine_arguments, model_folder
from artifact.engines.vllm_records import hollow, join_heavy, launch_facts, light_steps
from artifact.errors import InputError
from artifact.records import SCORE_COLUMNS, Conditions, Launch, LaunchFacts, Measurement, Schedule, typed
from artifact.schema import Config, Evidence
from artifact.workloads.build import build, forced_ids, prompt_buckets, token_ids

# The client spins shortly before each arrival: it gets cores that the engine core never runs on.
_CLIENT_CORES = 2
_DISPATCH_TABLE_TOKENS = 600
_LOOK_S = 0.5  # between two looks at a host that is not quiet: a look takes 0.02 s of its core


class VllmEngine:
    """``engines.base.Engine`` on vLLM. What it prints goes to the launch's log."""

    evidence = Evidence.MEASURED

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._engine: Any = None
        self._gpu = nvml.Gpu()
        self._config: Config | None = None
        self._records: list[tuple[float, Any]] = []
        self._scores: list[dict[str, float | int]] = []
        self._served = 0

    def start(self, launch: Launch) -> LaunchFacts:
        """See ``Engine.start``. Raises whatever vLLM raises; the parent turns it into a status."""
        from artifact.engines.vllm_preload import IMPORT_S  # the parent may import this module, but not vLLM

        config = self._config = launch.config
        if config.server.tensor_parallel_size != 1:
            raise InputError(
                f"server.tensor_parallel_size={config.server.tensor_parallel_size}: graphs and memory are read "
                "from one worker; measure with 1 (explain takes any)"
            )
        if config.model.weights == "generated":
            write_checkpoint(config.model, model_folder(config.model))
        forcing = any(cell.config.workload.arrival.process == "forced" for cell in launch.cells)
        self._gpu = nvml.describe()
        cores = sorted(os.sched_getaffinity(0))
        pin = config.engine.pin_cores and len(cores) >= 4 * _CLIENT_CORES
        if pin:  # the engine core is forked from this thread and inherits its cores
            os.sched_setaffinity(0, cores[_CLIENT_CORES:])
        begin = time.perf_counter()
        self._engine = self._runner.run(self._create(config, forcing))
        start_s = time.perf_counter() - begin
        if pin:
            for thread in Path("/proc/self/task").iterdir():
                os.sched_setaffinity(int(thread.name), cores[:_CLIENT_CORES])
        probe = self._call("probe")
        host = self._call("host_probe")
        self._log_dispatch(config, probe)
        first_answer_s = self._warm_up(launch)
        facts = launch_facts(config, probe, start_s, IMPORT_S)
        cache = self._engine.vllm_config.cache_config
        return facts.model_copy(
            update={
                **host,
                "first_answer_s": first_answer_s,
                "kv_tokens": int(cache.num_gpu_blocks) * int(cache.block_size),
                "nvml_baseline_bytes": self._gpu.used_bytes,
                "nvml_used_bytes": nvml.describe().used_bytes,
                "gpu_uuid": self._gpu.uuid,
                "gpu_name": self._gpu.name,
            }
        )

    def measure(self, schedule: Schedule, limit_s: float, heavy_probe: bool = False) -> Measurement:
        """See ``Engine.measure``. With ``engine.quiet_launch_us`` it waits first until the host is that quiet."""
        prompts = [self._prompt(schedule, index) for index in range(len(schedule))]
        launch_us, jitter = self._quiet_launch_us(), self._call("cpu_jitter_us")
        self._call("heavy_start" if heavy_probe else "heavy_off")  # a cell that timed out may have left it on
        gc.collect()
        gc.freeze()  # a collection in the client would look like a slow engine
        with nvml.Sampler() as sampler:
            self._records, self._scores = [], []
            start = time.perf_counter()
            requests = self._runner.run(drive(schedule, self._sender(schedule, prompts), start, limit_s))
            seconds = time.perf_counter() - start
        if self._engine.errored:  # each request only says that the engine is dead; the log says of what
            raise self._engine.dead_error
        launch_us_after = self._call("eager_launch_us")
        steps = light_steps(self._records, start)
        if heavy_probe:
            steps = join_heavy(steps, self._call("heavy_stop"))
        gpu = sampler.result
        conditions = Conditions(jitter, launch_us, launch_us_after, gpu.sm_clock_mhz, gpu.power_w, gpu.temperature_c)
        return Measurement(requests, steps, seconds, conditions, self._scored() if schedule.forced else None)

    def close(self) -> None:
        """See ``Engine.close``."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.shutdown()
        self._runner.close()

    def _required(self) -> Config:
        if self._config is None or self._engine is None:
            raise RuntimeError("the engine has not been started")
        return self._config

    def _call(self, method: str, *args: Any) -> Any:
        [answer] = self._runner.run(self._engine.collective_rpc(method, args=args))
        return answer

    def _quiet_launch_us(self) -> float:
        """Return what a kernel launch costs the host, once that is little enough or the wait is over."""
        engine, begin = self._required().engine, time.monotonic()
        launch_us = float(self._call("eager_launch_us"))
        while (
            engine.quiet_launch_us is not None
            and launch_us > engine.quiet_launch_us
            and time.monotonic() - begin < engine.quiet_wait_s
        ):
            time.sleep(_LOOK_S)
            launch_us = float(self._call("eager_launch_us"))
        return launch_us

    def _scored(self) -> pd.DataFrame:
        rows = pd.DataFrame(self._scores, columns=list(SCORE_COLUMNS))
        return typed(rows.sort_values(["batch_shape", "sequence", "position"]), SCORE_COLUMNS)

    async def _create(self, config: Config, forcing: bool) -> Any:
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM
        from vllm.v1.metrics.loggers import StatLoggerBase

        if forcing:  # vLLM imports it with no GPU in sight: now is better than then
            import artifact.engines.forcing_processor  # noqa: F401
        engine = self

        class Steps(StatLoggerBase):  # type: ignore[misc]
            """Keeps what each step reported, with the time it reached the front end."""

            def __init__(self, *_: Any, **__: Any) -> None: ...

            def log_engine_initialized(self) -> None: ...

            def record(self, scheduler_stats: Any = None, *_: Any, **__: Any) -> None:
                if scheduler_stats is not None:
                    engine._records.append((time.perf_counter(), scheduler_stats))

        return AsyncLLM.from_engine_args(AsyncEngineArgs(**engine_arguments(config, forcing)), stat_loggers=[Steps])

    def _vocabulary(self) -> int:
        return int(str(self._required().model.architecture["vocab_size"]))

    def _prompt(self, schedule: Schedule, index: int) -> dict[str, list[int]]:
        return {"prompt_token_ids": token_ids(schedule, index, self._vocabulary())}

    def _keep(self, schedule: Schedule, index: int, rows: list[dict[str, float | int]]) -> None:
        """Keep the rows of one request's scores, with what was served and in how large a batch."""
        if schedule.forced is not None:
            of_request = {
                "sequence": int(schedule.forced.sequence[index]),
                "batch_shape": int(schedule.forced.batch_shape[index]),
            }
            self._scores += [of_request | row for row in rows]

    def _sender(self, schedule: Schedule, prompts: list[dict[str, list[int]]]) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        self._served += 1
        prefix = f"cell{self._served}"

        vocabulary = self._vocabulary()

        async def send(index: int) -> AsyncIterator[int]:
            forced = forced_ids(schedule, index, vocabulary)
            parameters = SamplingParams(
                temperature=0,
                ignore_eos=True,
                max_tokens=int(schedule.output_tokens[index]),
                detokenize=False,
                output_kind=RequestOutputKind.DELTA,
                logprobs=None if forced is None else 1,
                extra_args=None if forced is None else {EXTRA: forced},
            )
            done = 0
            async for output in self._engine.generate(prompts[index], parameters, request_id=f"{prefix}-{index}"):
                answer = output.outputs[0]
                if forced is not None:
                    self._keep(schedule, index, scores(forced, done, answer.token_ids, answer.logprobs))
                done += len(answer.token_ids)
                yield len(answer.token_ids)

        return send

    def _warm_up(self, launch: Launch) -> float:
        """Serve every prompt bucket twice, alone and beside others, so that no kernel compiles while timing."""
        schedules = [build(cell.config.workload, cell.seed, cell.config.trace) for cell in launch.cells]
        lengths = prompt_buckets(schedules)
        prompts = np.array(lengths + lengths[::-1])
        count = len(prompts)
        warm = Schedule(
            arrival_s=np.zeros(count),
            prompt_tokens=prompts,
            output_tokens=np.full(count, 8),
            group=np.concatenate([np.arange(count // 2), np.full(count - count // 2, count // 2)]),
            measured=np.zeros(count, dtype=bool),
            seed=0,
        )
        ready = [self._prompt(warm, index) for index in range(count)]
        start = time.perf_counter()
        limit = launch.config.engine.cell_limit_s
        requests = self._runner.run(drive(warm, self._sender(warm, ready), start, limit))
        return float(requests["first_token_s"].iloc[0])

    def _log_dispatch(self, config: Config, probe: dict[str, Any]) -> None:
        """Print the real dispatcher's answers: the golden tables in tests/golden are cut from this line."""
        golden = {
            "vllm": config.engine.vllm_version,
            "gpu": self._gpu.name,
            "compute_capability": list(config.hardware.compute_capability),
            "requested_mode": config.mode.name.value,
            "backend": config.backend.model_dump(),
            "model_layers": config.model.layers,
            "server": config.server.model_dump(mode="json"),
            "resolved_mode": probe["resolved"],
            "hollow": hollow(probe),
            "capture_sizes": probe["sizes"],
            "keys": probe["keys"],
            "wrappers": probe["wrappers"],
            "captures": probe["captures"],
            "dispatch": self._call("dispatch_table", _DISPATCH_TABLE_TOKENS),
        }
        print("DISPATCH", json.dumps(golden), flush=True)
        print("COUNTERS", json.dumps(probe["counters"]), flush=True)

"""The simulated engine: a launch and schedules in, records out at once, on a virtual clock.

vLLM's scheduler and dispatch rules as the code has them, times from a cost model fitted on measured steps. What a
start takes is what the calibration measured for that mode.
"""

import math
import os
import signal
import time
from collections.abc import Callable
from typing import TypeVar

from artifact.errors import CellFailed, EnvironmentLacks, InputError
from artifact.graphs.dispatch import Dispatcher, dispatcher
from artifact.graphs.explain import resolve_config
from artifact.graphs.modes import Resolution
from artifact.records import (
    REQUEST_COLUMNS,
    STEP_COLUMNS,
    Launch,
    LaunchFacts,
    Measurement,
    Schedule,
    typed,
)
from artifact.schema import Config, Evidence, Mode
from artifact.simulator.clock import Price, serve
from artifact.simulator.cost import Calibration, CostModel, load_calibration
from artifact.simulator.scheduler import Batch, Scheduler

Number = TypeVar("Number", int, float)
_HEAVY = ("num_reqs", "num_decode", "prefill_tokens", "context_tokens", "wall_ms", "launch_ms", "gpu_ms")


class SimEngine:
    """``engines.base.Engine`` without a GPU. ``warnings`` says where the answer leaves what was calibrated."""

    evidence = Evidence.SIMULATED

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self._launch: Launch | None = None
        self._calibration: Calibration | None = None
        self._resolution: Resolution | None = None
        self._dispatcher: Dispatcher | None = None
        self._blocks = 0

    def start(self, launch: Launch) -> LaunchFacts:
        """See ``Engine.start``.

        Raises CellFailed where vLLM refuses the configuration or the KV cache cannot hold one sequence, InputError
        for what the simulator does not model, EnvironmentLacks without a calibration for the GPU and the model.
        """
        config = launch.config
        _check(config)
        _show_fault(launch, "load")
        self._resolution = resolve_config(config)
        self._dispatcher = dispatcher(config.server, self._resolution.resolved)
        self._calibration = load_calibration(config.engine.calibration, config.hardware, config.model.name)
        self._launch = launch
        if config.backend.name != self._calibration.backend:
            self.warnings.append(
                f"backend {config.backend.name} is priced as {self._calibration.backend}, which was calibrated"
            )
        _show_fault(launch, "capture")
        facts = _facts(config, self._calibration, self._resolution, self._dispatcher, self.warnings)
        self._blocks = _kv_blocks(config, facts, self._calibration)
        return facts.model_copy(update={"kv_tokens": self._blocks * config.server.block_size})

    def measure(self, schedule: Schedule, limit_s: float, heavy_probe: bool = False) -> Measurement:
        """See ``Engine.measure``. Equal schedules on equal launches give equal records."""
        if self._launch is None or self._calibration is None or self._resolution is None or self._dispatcher is None:
            raise RuntimeError("the engine has not been started")
        config, server = self._launch.config, self._launch.config.server
        dispatch = self._dispatcher.dispatch
        model = CostModel(
            self._calibration,
            Mode.EAGER if config.mode.enforce_eager else self._resolution.resolved,
            hollow=self._resolution.hollow,
            max_tokens=server.max_num_batched_tokens,
            seed=schedule.seed,
            launch_id=self._launch.launch_id,
        )

        def pricing(batch: Batch) -> Callable[[float, Batch], Price]:
            return model.pricing(batch, *dispatch(batch.num_tokens, batch.uniform))

        requests, steps, seconds = serve(
            schedule,
            # one block is never given out: vLLM keeps it as the null block
            Scheduler(server.max_num_seqs, server.max_num_batched_tokens, self._blocks - 1, server.block_size),
            pricing,
            max_model_len=server.max_model_len,
            frontend_s=self._calibration.frontend_ms / 1e3,
            spacing_s=self._calibration.frontend_per_request_ms / 1e3,
            async_scheduling=server.async_scheduling,
            limit_s=limit_s,
        )
        _show_fault(self._launch, "measure")
        for what, count in model.outside.items():
            self.warnings.append(f"{count} of {len(steps)} steps lie beyond the calibration: {what}")
        if not heavy_probe:
            steps = steps.drop(columns=list(_HEAVY))
        return Measurement(typed(requests, REQUEST_COLUMNS), typed(steps, STEP_COLUMNS), seconds)

    def close(self) -> None:
        """See ``Engine.close``."""
        self._launch = None


def _check(config: Config) -> None:
    """Refuse what the scheduler and the cost model leave out."""
    server = config.server
    for key, plain in (("num_speculative_tokens", 0), ("max_loras", 0), ("tensor_parallel_size", 1)):
        if (value := getattr(server, key)) != plain:
            raise InputError(f"server.{key}={value}: the simulator knows {plain} alone; take engine=vllm")
    if server.max_num_batched_tokens < server.max_num_seqs:
        raise CellFailed(
            "refused",
            f"vLLM refuses max_num_batched_tokens={server.max_num_batched_tokens} < max_num_seqs={server.max_num_seqs}",
        )


def _show_fault(launch: Launch, where: str) -> None:
    """Fail as vLLM does where engine.fault says so: the worker's error goes to the log, the caller gets another."""
    fault = launch.config.engine.fault
    if fault.kind is None or fault.where != where or fault.arm not in (None, launch.arm):
        return
    if fault.kind == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    while fault.kind == "hang":
        time.sleep(60)
    if fault.kind == "oom":
        print(f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (engine.fault at {where})")
    raise RuntimeError(f"the engine core failed (engine.fault: {fault.kind} at {where}); see above for the root cause")


def _facts(
    config: Config, calibration: Calibration, resolution: Resolution, graphs: Dispatcher, warnings: list[str]
) -> LaunchFacts:
    """Return what the calibration measured of such a start, its graphs scaled where the capture sizes differ."""
    measured = calibration.launches.get(config.mode.name)
    if measured is None:
        warnings.append(f"no measured start of mode {config.mode.name.value}: start-up and memory are null")
        measured = LaunchFacts()
    name = "EAGER" if config.mode.enforce_eager else resolution.resolved.value
    captures = graphs.captures(config.model.layers, resolution.hollow)
    scale = 1.0
    if measured.captures is not None and measured.captures != captures and measured.captures > 0:
        scale = captures / measured.captures
        warnings.append(
            f"{captures} graphs instead of the {measured.captures} calibrated: capture scaled by the number"
        )
    keys = graphs.keys
    return measured.model_copy(
        update={
            "resolved_mode": resolution.resolved,
            "realised_mode": f"{name}:hollow" if resolution.hollow else name,
            "hollow": resolution.hollow,
            "capture_sizes": len(graphs.sizes),
            "keys_piecewise": keys["PIECEWISE"],
            "keys_full": keys["FULL"],
            "graphs_piecewise": captures - keys["FULL"],
            "graphs_full": keys["FULL"],
            "captures": captures,
            "capture_s": _scaled(measured.capture_s, scale),
            "graph_bytes": _scaled(measured.graph_bytes, scale),
            "graph_estimate_bytes": _scaled(measured.graph_estimate_bytes, scale),
            "gpu_uuid": None,
            "gpu_name": calibration.gpu_name,
        }
    )


def _scaled(value: Number | None, factor: float) -> Number | None:
    return None if value is None else type(value)(value * factor)


def _kv_blocks(config: Config, facts: LaunchFacts, calibration: Calibration) -> int:
    """Return the KV blocks: the override, or what profiling left, moved with the GPU memory vLLM may take.

    Raises CellFailed(oom) where they cannot hold one sequence of max_model_len, as vLLM ends then.
    """
    server = config.server
    if server.num_gpu_blocks_override is not None:
        return server.num_gpu_blocks_override
    if facts.kv_available_bytes is None or calibration.gpu_memory_utilization is None:
        raise EnvironmentLacks(
            f"the calibration does not say what memory mode {config.mode.name.value} leaves for the KV cache: "
            "set server.num_gpu_blocks_override"
        )
    more = (server.gpu_memory_utilization - calibration.gpu_memory_utilization) * config.hardware.memory_bytes
    available = facts.kv_available_bytes + more
    blocks = math.floor(available / (config.model.kv_bytes_per_token * server.block_size))
    tokens = max(blocks, 0) * server.block_size
    if tokens < server.max_model_len:
        raise CellFailed(
            "oom",
            f"gpu_memory_utilization={server.gpu_memory_utilization} leaves {tokens} tokens of KV cache, less than "
            f"max_model_len={server.max_model_len}",
        )
    return blocks

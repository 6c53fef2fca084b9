"""A synthetic calibration (round numbers, no measurement), small launches and schedules: for the simulator's tests."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from artifact.config import load
from artifact.records import Cell, Launch, LaunchFacts, Schedule
from artifact.schema import Evidence, Mode
from artifact.simulator.cost import Calibration, HostPace, LoopCost, Source, StepTable, TableName

GIB = 1 << 30


def synthetic_calibration(
    noise_sigma: float = 0.0, frontend_ms: float = 0.0, launch_ms: dict[TableName, float] | None = None
) -> Calibration:
    """Synthetic, not measured: GPU 2 ms + 0.01 ms a token; launches of 12, 10, 4, 1 and 1 ms; no other cost."""
    launch = launch_ms or {"EAGER": 12.0, "NONE": 10.0, "PIECEWISE": 4.0, "FULL": 1.0, "FULL_DECODE": 1.0}
    tables = {
        name: StepTable(
            knots_tokens=(1, 8192),
            base_ms=(2.01, 83.92),
            gpu_per_request_ms=0.0,
            context_ms_per_token=0.0,
            square_ms_per_token2=0.0,
            launch_fixed_ms=fixed,
            launch_per_request_ms=0.0,
            launch_prefill_ms=0.0,
            slow_pace=1.0,
            noise_sigma=noise_sigma,
            gpu_source="synthetic",
            max_requests=1024,
            max_context_tokens=10**9,
            rows=0,
            error_p50=0.0,
            error_p90=0.0,
        )
        for name, fixed in launch.items()
    }
    facts = LaunchFacts(start_s=30.0, capture_s=4.0, graph_bytes=300, captures=1514, kv_available_bytes=100 * GIB)
    return Calibration(
        gpu="h200",
        gpu_name="NVIDIA H200",
        model="qwen3-0.6b",
        backend="FLASH_ATTN",
        vllm_version=None,
        evidence=Evidence.SIMULATED,
        source=Source(study="synthetic", launches=(), hosts=(), driver=None, cpu=None, date=None),
        gpu_memory_utilization=0.9,
        eager_launch_us=None,
        graph_launch_us=None,
        frontend_ms=frontend_ms,
        frontend_per_request_ms=0.0,
        host_pace=HostPace(slowness=(0.0,), dwell_s=1.0),
        loop=LoopCost(loop_fixed_ms=0.0, loop_per_request_ms=0.0, tail_fixed_ms=0.0, tail_per_request_ms=0.0),
        tables=tables,
        launches={Mode.FULL_AND_PIECEWISE: facts},
    )


def calibration_file(folder: Path, calibration: Calibration) -> Path:
    """Write a calibration and return its path."""
    file = folder / "synthetic.json"
    file.write_text(calibration.model_dump_json())
    return file


def launch(calibration: Path | None, *overrides: str, launch_id: str = "launch-0") -> Launch:
    """A launch of one cell on the simulator."""
    given = [] if calibration is None else [f"engine.calibration='{calibration}'"]
    config = load(["engine=sim", *given, *overrides])
    cell = Cell(cell_id="cell-0", config=config, load=None, seed=1, replicate=0)
    return Launch(launch_id, "study", "ARM", "tile", "block", 0, config, (cell,))


def schedule(
    lengths: Sequence[tuple[int, int]],
    arrival_s: Sequence[float] | None = None,
    group: Sequence[int] | None = None,
    concurrency: int | None = None,
) -> Schedule:
    """A schedule of (prompt, output) lengths; all at once unless ``arrival_s`` is given."""
    n = len(lengths)
    return Schedule(
        arrival_s=np.array(arrival_s if arrival_s is not None else [0.0] * n),
        prompt_tokens=np.array([prompt for prompt, _ in lengths]),
        output_tokens=np.array([output for _, output in lengths]),
        group=np.array(group if group is not None else [0] * n),
        measured=np.ones(n, dtype=bool),
        seed=7,
        concurrency=concurrency,
    )

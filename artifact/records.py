"""What an engine is given and what it gives back: schedules in, requests, steps and launches out.

The columns here are the Parquet files' columns. A value that does not exist is null, with a reason beside it, and
never zero. Times are seconds on the clock of the cell (0 = the cell's start) unless the name says otherwise.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from pydantic import Field, model_validator

from artifact.schema import Config, Evidence, Frozen, Mode, Status


@dataclass(frozen=True, eq=False)
class Forced:
    """Which sequence each request of a schedule serves, token by token as planned, and in how large a batch."""

    sequence: np.ndarray  # int64, shape (n,): equal numbers are equal prompts and answers
    batch_shape: np.ndarray  # int64, shape (n,): how many are served at a time


@dataclass(frozen=True, eq=False)
class Schedule:
    """The requests of one cell, fixed before it starts: the same for every arm of a block.

    All arrays have shape (n,). A *group* starts when the one before it has finished; arrivals are relative to the
    group's start, ascending within it. Open loops have one group. With ``concurrency`` set, at most that many
    requests are in flight and a request's intended arrival is when its seat came free.
    """

    arrival_s: np.ndarray  # float64, seconds after the group's start
    prompt_tokens: np.ndarray  # int64, >= 1
    output_tokens: np.ndarray  # int64, >= 1
    group: np.ndarray  # int64, ascending from 0
    measured: np.ndarray  # bool: counts in the metrics
    seed: int  # of the prompts' token ids
    concurrency: int | None = None
    offered_rate: float | None = None  # requests per second over the measured window; null for closed loops and bursts
    forced: Forced | None = None  # set where answers are teacher-forced and scored

    def __len__(self) -> int:
        return len(self.arrival_s)


@dataclass(frozen=True)
class Cell:
    """One arm x workload x load x block. ``config`` is complete: mode, backend, model, server, workload."""

    cell_id: str
    config: Config
    load: float | None  # fraction of the reference mode's saturation; null where the rate is absolute
    seed: int  # equal for all arms of a block at the same workload and load
    replicate: int


@dataclass(frozen=True)
class Launch:
    """One engine start and the cells it serves, in order. ``config`` is that of its first cell."""

    launch_id: str
    study: str
    arm: str
    tile: str
    block: str
    position: int
    config: Config
    cells: tuple[Cell, ...]


# name -> pandas dtype. requests.parquet also carries cell_id; so does steps.parquet.
REQUEST_COLUMNS = {
    "request": "int64",  # position in the schedule
    "intended_s": "float64",  # intended arrival, on the cell's clock
    "sent_s": "float64",  # when the client handed it to the engine; the dispatch delay is sent - intended
    "first_token_s": "float64",  # NaN where there was none
    "last_token_s": "float64",
    "prompt_tokens": "int64",
    "planned_output_tokens": "int64",
    "output_tokens": "int64",
    "measured": "bool",
    "failure": "string",  # null for a request that finished as planned
}

# Light columns are always there; heavy ones are NaN (null) unless the heavy probe was on.
STEP_COLUMNS = {
    "step": "int64",
    "t_s": "float64",  # when the step's outputs reached the front end, on the cell's clock
    "runtime_mode": "string",  # FULL, PIECEWISE, NONE as dispatched; null where vLLM reported none
    "num_tokens": "Int64",  # scheduled tokens, unpadded
    "padded_tokens": "Int64",  # tokens of the graph; equal to num_tokens where none was replayed
    "num_running": "Int64",  # of the scheduler, which is one step ahead of the dispatch columns
    "num_waiting": "Int64",
    "kv_usage": "float64",  # share of KV blocks in use, 0..1
    # heavy probe: recorded in the worker and joined by step order
    "num_reqs": "Int64",  # requests in the batch
    "num_decode": "Int64",  # requests with exactly one scheduled token
    "prefill_tokens": "Int64",  # tokens of the other requests
    "context_tokens": "Int64",  # tokens already in the KV cache, summed over the batch
    "wall_ms": "float64",  # from this step's launch to the next one's; NaN before an idle gap
    "launch_ms": "float64",  # host time inside execute_model: what the CPU spends to issue the step
    "gpu_ms": "float64",  # CUDA events around the forward pass: GPU time only where a whole graph replays
}


# What the model thought of each forced token: a row for every sequence, batch shape and position of the answer.
SCORE_COLUMNS = {
    "sequence": "int64",
    "batch_shape": "int64",
    "position": "int64",  # in the answer; 0 comes out of the prefill, the others out of decode steps
    "token": "int64",  # that was forced
    "logprob": "float64",  # of that token, natural logarithm, before it was forced
    "top_token": "int64",  # the most probable one: what greedy decoding would have taken
    "top_logprob": "float64",
}


@dataclass(frozen=True)
class Conditions:
    """Host and GPU around a cell: jitter just before it; median clock, mean power and peak temperature in it.

    The kernel launches tell how fast the host was at either end, by work that no arm changes.
    """

    cpu_jitter_us: float | None = None  # 99th percentile of a 1 ms sleep's overshoot
    launch_us_before: float | None = None  # microseconds of the CPU per eager kernel launch
    launch_us_after: float | None = None
    sm_clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None


@dataclass(frozen=True, eq=False)
class Measurement:
    """What one cell gave: frames with exactly REQUEST_COLUMNS and STEP_COLUMNS, and the cell's length in seconds.

    ``scores`` has SCORE_COLUMNS; null where nothing was scored, as by an engine that computes no logits.
    """

    requests: pd.DataFrame
    steps: pd.DataFrame
    seconds: float
    conditions: Conditions = Conditions()
    scores: pd.DataFrame | None = None


def typed(frame: pd.DataFrame, columns: dict[str, str]) -> pd.DataFrame:
    """Return ``frame`` with exactly ``columns`` and their dtypes; a column it lacks becomes null."""
    data: dict[str, pd.Series[Any]] = {}
    for name, dtype in columns.items():
        column: Any = frame[name] if name in frame else pd.Series([pd.NA] * len(frame), index=frame.index)
        if dtype == "float64":
            column = pd.to_numeric(column, errors="coerce")
        data[name] = column.astype(dtype)
    return pd.DataFrame(data).reset_index(drop=True)


class LaunchFacts(Frozen):
    """What an engine knows of its own start. Bytes are raw: an impossible one stays and ``memory_valid`` is false.

    The rule is metrics.memory.memory_valid.
    """

    resolved_mode: Mode | None = None  # read in the worker after resolution
    realised_mode: str | None = None  # the resolved mode, with :hollow where keys have no graphs behind them
    hollow: bool | None = None
    attention_backend: str | None = None  # as the worker names it, with FlashAttention's version
    capture_sizes: int | None = None  # how many
    # start-up, seconds
    compile_cache: Literal["cold", "warm", "off"] | None = None
    import_s: float | None = None  # of the parent, once for all its launches
    start_s: float | None = None  # from asking for the engine until it is ready
    load_s: float | None = None
    compile_s: float | None = None
    profile_s: float | None = None  # memory profiling, its compile time taken off
    capture_s: float | None = None
    first_answer_s: float | None = None  # of the first request, after the engine is ready
    unexplained_s: float | None = None  # start_s less load, compile, profile and capture
    # graphs
    keys_piecewise: int | None = None
    keys_full: int | None = None
    wrappers_piecewise: int | None = None
    wrappers_full: int | None = None
    graphs_piecewise: int | None = None  # captured entries of all piecewise wrappers
    graphs_full: int | None = None
    captures: int | None = None  # vLLM's own counter of captured graphs
    # memory
    graph_bytes: int | None = None
    graph_estimate_bytes: int | None = None
    weights_bytes: int | None = None
    activation_bytes: int | None = None
    kv_available_bytes: int | None = None  # what profiling left for the KV cache, before any override
    kv_tokens: int | None = None
    nvml_used_bytes: int | None = None
    nvml_baseline_bytes: int | None = None
    memory_valid: bool | None = None
    # host and GPU
    gpu_uuid: str | None = None
    gpu_name: str | None = None
    eager_launch_us: float | None = None
    graph_launch_us: float | None = None
    copy_bytes_per_s: float | None = None  # read plus written, of a copy within the GPU's memory


# Rows name files: an id that would lead out of the results folder, or hide there, is none.
Id = Annotated[str, Field(pattern=r"^[A-Za-z0-9_@-][A-Za-z0-9_.@-]{0,199}$")]


class LaunchRow(LaunchFacts):
    """One engine start: a row of launches.parquet."""

    launch_id: Id
    study: str
    arm: str
    tile: str
    block: str
    position: int  # in the block's random order, from 0
    evidence: Evidence
    status: Status
    reason: str | None = None
    requested_mode: Mode
    backend: str
    model: str
    kv_policy: str
    server_hash: str
    host_id: str
    provenance: str  # JSON: versions, commit, driver, CPU, kernel, times, the launch's configuration


class CellRow(Frozen):
    """One planned cell, whatever happened: cells.parquet. Latency columns are null unless ``status`` is ok."""

    cell_id: Id
    study: str
    arm: str
    tile: str
    block: str
    replicate: int
    launch_id: Id
    gpu_uuid: str | None = None
    host_id: str
    kv_policy: str
    server_hash: str
    evidence: Evidence
    requested_mode: Mode
    resolved_mode: Mode | None = None
    realised_mode: str | None = None
    backend: str
    model: str
    workload: str
    load: float | None = None  # fraction of the reference mode's saturation
    seed: int
    status: Status
    reason: str | None = None
    n_requests: int | None = None  # measured requests that finished as planned
    n_tpot: int | None = None  # those of them with more than one output token: the values of TPOT's percentiles
    n_failed: int | None = None
    seconds: float | None = None
    offered_rate: float | None = None  # requests per second
    achieved_rate: float | None = None
    dispatch_delay_p50_ms: float | None = None
    dispatch_delay_p99_ms: float | None = None
    ttft_p50_ms: float | None = None
    ttft_p90_ms: float | None = None
    ttft_p99_ms: float | None = None
    tpot_p50_ms: float | None = None
    tpot_p90_ms: float | None = None
    tpot_p99_ms: float | None = None
    e2e_p50_ms: float | None = None
    e2e_p90_ms: float | None = None
    e2e_p99_ms: float | None = None
    output_tokens_per_s: float | None = None
    goodput: float | None = None  # share of measured requests that meet both targets of the workload
    steps_full: int | None = None
    steps_piecewise: int | None = None
    steps_none: int | None = None
    padding_ratio: float | None = None  # padded tokens over tokens, less one
    running_cv: float | None = None  # standard deviation over mean of running requests, over time
    uniform_decode_share: float | None = None
    cpu_jitter_us: float | None = None
    launch_us_before: float | None = None
    launch_us_after: float | None = None
    sm_clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    flags: str = ""  # comma-separated; a flagged cell is shown and never ranked

    @model_validator(mode="after")
    def _metrics_need_ok(self) -> "CellRow":
        if self.status is not Status.OK and self.tpot_p50_ms is not None:
            raise ValueError(f"cell {self.cell_id}: status {self.status.value} carries latency metrics")
        if self.status not in (Status.OK, Status.DUPLICATE) and not self.reason:
            raise ValueError(f"cell {self.cell_id}: status {self.status.value} needs a reason")
        return self

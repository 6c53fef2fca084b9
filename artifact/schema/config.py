"""Composed configuration in, frozen and checked types out: one pydantic model per group of ``conf/``."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from artifact.errors import nearest
from artifact.schema.executor import ExecutorConfig
from artifact.schema.model import ModelConfig
from artifact.schema.recommend import RecommendConfig
from artifact.schema.record import RecordConfig
from artifact.schema.report import ReportConfig
from artifact.schema.sizes import SizesConfig
from artifact.schema.terms import Count, Fraction, Frozen, Mode, Natural, NonNegative, Positive
from artifact.schema.workload import WorkloadConfig


class ModeConfig(Frozen):
    """conf/mode: the mode that is asked for. EAGER stands for vLLM's ``enforce_eager``."""

    name: Mode

    @property
    def cudagraph_mode(self) -> str:
        """The value for ``compilation_config.cudagraph_mode``."""
        return "NONE" if self.name is Mode.EAGER else self.name.value

    @property
    def enforce_eager(self) -> bool:
        """Whether vLLM is to compile nothing."""
        return self.name is Mode.EAGER


class BackendConfig(Frozen):
    """conf/backend: the attention backend, by vLLM's name, and FlashAttention's version where it is pinned."""

    name: Literal["FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION"]
    flash_attn_version: Literal[2, 3, 4] | None = None


class ServerConfig(Frozen):
    """conf/server: vLLM's own argument names and meanings."""

    name: str
    max_num_seqs: Count
    max_num_batched_tokens: Count
    max_model_len: Count
    gpu_memory_utilization: Fraction
    num_gpu_blocks_override: Count | None
    block_size: Count
    cudagraph_capture_sizes: tuple[object, ...] | None  # checked by graphs.sizes, which says what vLLM would do
    max_cudagraph_capture_size: Count | None
    num_speculative_tokens: Natural
    tensor_parallel_size: Count
    enable_sequence_parallelism: bool
    enable_prefix_caching: bool
    async_scheduling: bool
    max_loras: Natural
    cudagraph_specialize_lora: bool
    specialize_active_lora: bool

    @property
    def kv_policy(self) -> Literal["iso_kv", "iso_utilisation"]:
        """Whether every mode gets the same number of KV blocks, or what its graphs leave over."""
        return "iso_utilisation" if self.num_gpu_blocks_override is None else "iso_kv"


class FaultConfig(Frozen):
    """Faults that the simulator can be told to show, so that the handling of each is tested.

    ``measure`` is in mid-run: the cell's requests have been served, and go with it.
    """

    kind: Literal["oom", "engine_error", "hang", "crash"] | None = None
    where: Literal["load", "capture", "measure"] = "load"
    arm: str | None = None  # the arm that is hit; all of them if null


class EngineConfig(Frozen):
    """conf/engine: which engine, how it is watched, and how long it may take."""

    kind: Literal["auto", "vllm", "sim"]
    vllm_version: str
    allow_other_version: bool
    heavy_probe: bool
    calibration: str | None  # a file; null takes the shipped one for the GPU and the model
    start_limit_s: Positive
    cell_limit_s: Positive
    pin_cores: bool
    quiet_launch_us: Positive | None  # see VllmEngine.measure
    quiet_wait_s: Positive
    fault: FaultConfig = FaultConfig()


class HardwareConfig(Frozen):
    """conf/hardware: the GPU that ``explain`` and the simulator assume."""

    gpu: str
    full_name: str
    compute_capability: tuple[Natural, Natural]
    memory_bytes: Count
    bandwidth_bytes_per_s: Positive


class TileConfig(Frozen):
    """One tile: Hydra overrides that set the model and server, and the workloads that each launch serves in order.

    ``loads`` are fractions of the model's saturation (conf/saturation.yaml), ``rates_per_s`` absolute rates; with
    neither, each workload's own rate is taken.
    """

    name: str
    overrides: tuple[str, ...]
    workloads: tuple[tuple[str, ...], ...]
    loads: tuple[Positive, ...] | None = None
    rates_per_s: tuple[Positive, ...] | None = None

    @model_validator(mode="after")
    def _one_load(self) -> Self:
        if self.loads is not None and self.rates_per_s is not None:
            raise ValueError("give loads or rates_per_s, not both")
        return self

    def at(self, loads: tuple[float, ...]) -> Self:
        """Return the tile with those of its loads that are in ``loads``."""
        return self.model_copy(update={"loads": tuple(load for load in self.loads or () if load in loads)})


class StudyConfig(Frozen):
    """conf/study: arms x tiles x blocks. An arm is a name and the Hydra overrides that make it.

    ``only`` names the tiles, ``loads`` the tiles' loads to take, where one command is to run a part of the study.
    """

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}$")]
    seed: Natural
    blocks: Count
    first_block: Natural
    block_prefix: Annotated[str, Field(pattern=r"^[a-z0-9_-]{0,32}$")]
    arms: dict[str, tuple[str, ...]]
    tiles: tuple[TileConfig, ...]
    only: tuple[str, ...] | None = None
    loads: tuple[Positive, ...] | None = None

    @model_validator(mode="after")
    def _known(self) -> Self:
        names = [tile.name for tile in self.tiles]
        if unknown := [name for name in self.only or () if name not in names]:
            hint = nearest(unknown[0], names)
            raise ValueError(f"only: no such tile {', '.join(unknown)}{hint}; known: {', '.join(names)}")
        known = sorted({load for tile in self.tiles for load in tile.loads or ()})
        if unknown_loads := [load for load in self.loads or () if load not in known]:
            raise ValueError(f"loads: no tile has {unknown_loads}; known: {known}")
        return self

    @property
    def chosen(self) -> tuple[TileConfig, ...]:
        """The tiles to run, in order; one that has none of ``loads`` is left out."""
        tiles = [tile for tile in self.tiles if self.only is None or tile.name in self.only]
        if self.loads is None:
            return tuple(tiles)
        return tuple(tile for tile in (each.at(self.loads) for each in tiles) if tile.loads)


class TrackingConfig(Frozen):
    """conf/tracking: where MLflow keeps its view of the results."""

    kind: Literal["off", "sqlite", "server"]
    uri: str | None
    experiment: str


class ExplainConfig(Frozen):
    """What ``explain`` is asked about besides the configuration itself."""

    batches: tuple[Count, ...]


class TraceConfig(Frozen):
    """conf/config.yaml, ``trace``: how a request trace is read; see ``artifact.workloads.traces``."""

    path: str | None
    format: Literal["auto", "azure", "mooncake", "burstgpt", "vllm", "recording", "csv", "jsonl"]
    time_unit: Literal["s", "ms", "us", "ns"] | None
    columns: dict[Literal["time", "prompt", "output"], str] | None
    rate_per_s: Positive | None  # Poisson arrivals for a format without times
    chars_per_token: Positive | None  # for a format whose prompts are text
    lenient: bool
    window: tuple[NonNegative, Positive] | None  # [from, to) in seconds of the trace's own clock
    max_tokens: Count | None  # prompt + output; longer requests are left out and counted
    ties: Literal["burst", "spread"]
    seed: Natural  # of spread ties and of Poisson arrivals
    speedup: Positive
    gap_cap: Positive | None  # seconds, applied after the speed-up
    requests: Count | None


class FiguresConfig(Frozen):
    """Where ``figures`` takes its rows from and where it writes."""

    source: Literal["shipped", "results"]
    out: str


class Config(Frozen):
    """One composed experiment: what is explained, planned, run and recommended is the same thing."""

    mode: ModeConfig
    backend: BackendConfig
    model: ModelConfig
    workload: WorkloadConfig
    server: ServerConfig
    engine: EngineConfig
    hardware: HardwareConfig
    study: StudyConfig
    tracking: TrackingConfig
    executor: ExecutorConfig
    explain: ExplainConfig
    trace: TraceConfig
    figures: FiguresConfig
    report: ReportConfig
    recommend: RecommendConfig
    sizes: SizesConfig
    record: RecordConfig

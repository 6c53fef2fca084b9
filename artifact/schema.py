"""Composed configuration in, frozen and checked types out: what one experiment is.

One pydantic model per group of ``conf/``. Every model is frozen and forbids unknown keys. Numbers carry their
unit in the field name. ``None`` always means "not set: vLLM's own default", never zero.
"""

from enum import StrEnum
from math import isfinite
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator


class Mode(StrEnum):
    """The five values of vLLM's ``cudagraph_mode``, plus EAGER: no compilation and no graphs."""

    NONE = "NONE"
    PIECEWISE = "PIECEWISE"
    FULL = "FULL"
    FULL_DECODE_ONLY = "FULL_DECODE_ONLY"
    FULL_AND_PIECEWISE = "FULL_AND_PIECEWISE"
    EAGER = "EAGER"


class Evidence(StrEnum):
    """Where a number comes from; the two are never mixed unlabelled."""

    MEASURED = "measured"
    SIMULATED = "simulated"


class Status(StrEnum):
    """How a planned cell ended. Only OK rows carry metrics."""

    OK = "ok"
    OOM = "oom"
    TIMEOUT = "timeout"
    ENGINE_ERROR = "engine_error"
    REFUSED = "refused"
    DUPLICATE = "duplicate"
    SKIPPED = "skipped"


def _finite(value: float) -> float:
    if not isfinite(value):
        raise ValueError("must be a finite number")
    return value


def _whole(value: object) -> object:
    """Refuse 1.5, "3" and true where a count is meant: pydantic would round or convert some of them."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"must be a whole number, not {value!r}")
    return value


Count = Annotated[int, BeforeValidator(_whole), Field(ge=1)]
Natural = Annotated[int, BeforeValidator(_whole), Field(ge=0)]
Positive = Annotated[float, AfterValidator(_finite), Field(gt=0)]
NonNegative = Annotated[float, AfterValidator(_finite), Field(ge=0)]
Fraction = Annotated[float, AfterValidator(_finite), Field(gt=0, le=1)]


class Frozen(BaseModel):
    """Base of all configuration: immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


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


class ModelConfig(Frozen):
    """conf/model: a decoder-only model's real shape (``config.json``), from which dummy weights are made."""

    name: str
    hf_id: str
    revision: str | None
    architecture: dict[str, object]

    def _shape(self, key: str, default: int | None = None) -> int:
        value = self.architecture.get(key, default)
        if not isinstance(value, int):
            raise ValueError(f"model {self.name}: architecture.{key} must be a whole number")
        return value

    @property
    def layers(self) -> int:
        """Number of decoder layers."""
        return self._shape("num_hidden_layers")

    @property
    def head_dim(self) -> int:
        """Size of one attention head."""
        return self._shape("head_dim", self._shape("hidden_size") // self._shape("num_attention_heads"))

    @property
    def kv_bytes_per_token(self) -> int:
        """KV-cache bytes of one token, all layers, bf16: 2 (K and V) x layers x KV heads x head size x 2 bytes."""
        return 2 * self.layers * self._shape("num_key_value_heads") * self.head_dim * 2

    @property
    def weight_bytes(self) -> int:
        """Bytes of the bf16 weights, from the shape: attention, gated MLP (or experts), embeddings; norms left out."""
        hidden, heads = self._shape("hidden_size"), self._shape("num_attention_heads")
        attention = hidden * self.head_dim * (2 * heads + 2 * self._shape("num_key_value_heads"))
        experts = self._shape("num_experts", 0)
        if experts:
            mlp = experts * 3 * hidden * self._shape("moe_intermediate_size") + hidden * experts
        else:
            mlp = 3 * hidden * self._shape("intermediate_size")
        tied = bool(self.architecture.get("tie_word_embeddings"))
        embeddings = self._shape("vocab_size") * hidden * (1 if tied else 2)
        return 2 * (self.layers * (attention + mlp) + embeddings)


class LengthConfig(Frozen):
    """Distribution of prompt or output lengths, in tokens.

    ``fixed``: always ``mean``. ``uniform``: whole numbers in [low, high], whose mean is (low + high) / 2 = ``mean``.
    ``lognormal``: mean ``mean``, coefficient of variation ``cv``, cut to [low, high].
    """

    kind: Literal["fixed", "uniform", "lognormal"]
    mean: Positive
    cv: NonNegative | None = None
    low: Count | None = None
    high: Count | None = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.kind == "fixed":
            if self.mean != int(self.mean):
                raise ValueError(f"mean must be a whole number of tokens for kind=fixed, not {self.mean}")
            if self.low is not None or self.high is not None or self.cv:
                raise ValueError("kind=fixed takes mean alone: set low, high and cv to null")
            return self
        if self.low is None or self.high is None or self.low > self.high:
            raise ValueError(f"kind={self.kind} needs low <= high")
        if self.kind == "uniform" and abs((self.low + self.high) / 2 - self.mean) > 1e-9:
            raise ValueError(f"mean must be (low + high) / 2 = {(self.low + self.high) / 2} for kind=uniform")
        if self.kind == "lognormal" and (self.cv is None or not self.low <= self.mean <= self.high):
            raise ValueError("kind=lognormal needs cv and low <= mean <= high")
        return self

    @property
    def longest(self) -> int:
        """The longest length that can be drawn, in tokens."""
        return int(self.mean) if self.kind == "fixed" else int(self.high or 0)


class ArrivalConfig(Frozen):
    """How requests arrive.

    Open loop: ``constant`` gaps, ``poisson``, or ``gamma`` gaps with coefficient of variation ``cv``; mean rate
    ``rate_per_s``. ``closed``: ``concurrency`` requests are kept in flight. ``bursts``: for each size in
    ``batches``, that many requests at once, the next burst when the last one has finished; ``repeats`` rounds.
    ``trace``: the trace's own time stamps.
    """

    process: Literal["constant", "poisson", "gamma", "closed", "bursts", "trace"]
    rate_per_s: Positive | None = None
    cv: Positive | None = None
    concurrency: Count | None = None
    batches: tuple[Count, ...] | None = None
    repeats: Count | None = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        needs = {
            "constant": {"rate_per_s"},
            "poisson": {"rate_per_s"},
            "gamma": {"rate_per_s", "cv"},
            "closed": {"concurrency"},
            "bursts": {"batches", "repeats"},
            "trace": set(),
        }[self.process]
        given = {name for name in ("rate_per_s", "cv", "concurrency", "batches", "repeats") if getattr(self, name)}
        if missing := needs - given:
            raise ValueError(f"arrival.process={self.process} needs {', '.join(sorted(missing))}")
        if extra := given - needs:
            raise ValueError(f"arrival.process={self.process} takes no {', '.join(sorted(extra))}: set to null")
        return self


class WorkloadConfig(Frozen):
    """conf/workload: arrivals and lengths of one cell, and which part of it is measured.

    Requests with an intended arrival in [``warmup_s``, ``duration_s`` - ``cooldown_s``) are measured, the others
    only keep the load up. ``requests`` replaces ``duration_s`` for closed loops; bursts are measured whole.
    ``slo_ttft_ms`` and ``slo_tpot_ms`` are the targets of goodput.
    """

    name: str
    arrival: ArrivalConfig
    prompt: LengthConfig | None = None
    output: LengthConfig | None = None
    duration_s: Positive | None = None
    requests: Count | None = None
    warmup_s: NonNegative = 0.0
    cooldown_s: NonNegative = 0.0
    slo_ttft_ms: Positive = 200.0
    slo_tpot_ms: Positive = 50.0

    @model_validator(mode="after")
    def _complete(self) -> Self:
        process = self.arrival.process
        if process != "trace" and (self.prompt is None or self.output is None):
            raise ValueError("prompt and output lengths are required unless arrival.process=trace")
        if process in ("constant", "poisson", "gamma") and self.duration_s is None:
            raise ValueError(f"arrival.process={process} needs duration_s")
        if process == "closed" and self.requests is None:
            raise ValueError("arrival.process=closed needs requests")
        if self.duration_s is not None and self.warmup_s + self.cooldown_s >= self.duration_s:
            raise ValueError("warmup_s + cooldown_s must be less than duration_s: nothing would be measured")
        return self


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
    """Faults that the simulator can be told to show, so that the handling of each is tested."""

    kind: Literal["oom", "engine_error", "hang", "crash"] | None = None
    where: Literal["start", "measure"] = "start"
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


class StudyConfig(Frozen):
    """conf/study: arms x tiles x blocks. An arm is a name and the Hydra overrides that make it."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}$")]
    seed: Natural
    blocks: Count
    first_block: Natural
    block_prefix: Annotated[str, Field(pattern=r"^[a-z0-9_-]{0,32}$")]
    arms: dict[str, tuple[str, ...]]
    tiles: tuple[TileConfig, ...]


class TrackingConfig(Frozen):
    """conf/tracking: where MLflow keeps its view of the results."""

    kind: Literal["off", "sqlite", "server"]
    uri: str | None
    experiment: str


class ExecutorConfig(Frozen):
    """conf/executor: where launches run, and how much of the plan one invocation may take."""

    kind: Literal["local"]
    limit_minutes: Positive | None
    results: str


class ExplainConfig(Frozen):
    """What ``explain`` is asked about besides the configuration itself."""

    batches: tuple[Count, ...]


class TraceConfig(Frozen):
    """conf/config.yaml, ``trace``: how a request trace is read; see ``artifact.workloads.traces``."""

    path: str | None
    format: Literal["auto", "azure", "mooncake", "csv", "jsonl"]
    time_unit: Literal["s", "ms", "us", "ns"] | None
    columns: dict[Literal["time", "prompt", "output"], str] | None
    lenient: bool
    window: tuple[NonNegative, Positive] | None  # [from, to) in seconds of the trace's own clock
    speedup: Positive
    gap_cap: Positive | None  # seconds, applied after the speed-up
    requests: Count | None


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

"""What a workload is: arrivals, lengths, and the window that is measured."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from artifact.schema.terms import Count, Frozen, Natural, NonNegative, Positive

_CV = (0.01, 100)  # of gaps: below, they are constant; beyond either, gamma numbers leave what a float holds


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
    ``trace``: the trace's own time stamps. ``forced``: the same requests, teacher-forced, once for each size in
    ``batches``: that many at a time, ``gap_ms`` apart, until all have been served.
    """

    process: Literal["constant", "poisson", "gamma", "closed", "bursts", "trace", "forced"]
    rate_per_s: Positive | None = None
    cv: Positive | None = None
    concurrency: Count | None = None
    batches: tuple[Count, ...] | None = None
    repeats: Count | None = None
    # Left out where it is null, so that ids and seeds of cells are what they were without it.
    gap_ms: Annotated[Positive | None, Field(exclude_if=lambda gap: gap is None)] = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.cv is not None and not _CV[0] <= self.cv <= _CV[1]:
            raise ValueError(f"arrival.cv={self.cv:g}: must be {_CV[0]} to {_CV[1]}; even gaps are process=constant")
        needs = {
            "constant": {"rate_per_s"},
            "poisson": {"rate_per_s"},
            "gamma": {"rate_per_s", "cv"},
            "closed": {"concurrency"},
            "bursts": {"batches", "repeats"},
            "trace": set(),
            "forced": {"batches", "gap_ms"},
        }[self.process]
        keys = ("rate_per_s", "cv", "concurrency", "batches", "repeats", "gap_ms")
        given = {name for name in keys if getattr(self, name)}
        if missing := needs - given:
            raise ValueError(f"arrival.process={self.process} needs {', '.join(sorted(missing))}")
        if extra := given - needs:
            raise ValueError(f"arrival.process={self.process} takes no {', '.join(sorted(extra))}: set to null")
        return self


class WorkloadConfig(Frozen):
    """conf/workload: arrivals and lengths of one cell, and which part of it is measured.

    Requests with an intended arrival in [``warmup_s``, ``duration_s`` - ``cooldown_s``) are measured, the others
    only keep the load up. ``requests`` replaces ``duration_s`` for closed loops; bursts are measured whole.
    Of a ``forced`` workload, ``requests`` is the number of sequences and ``sequences_seed`` what they are drawn from:
    they are the same in every cell, whatever its seed, so that arms and backends can be compared token by token.
    ``slo_ttft_ms`` and ``slo_tpot_ms`` are the targets of goodput. ``prefix_hit_rate`` is the share of prompt tokens
    that a prefix cache holds: ``recommend`` alone models it.
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
    # Left out where it is 0, so that ids and seeds of cells are what they were without it.
    prefix_hit_rate: Annotated[float, Field(ge=0, lt=1, exclude_if=lambda rate: rate == 0)] = 0.0
    sequences_seed: Annotated[Natural | None, Field(exclude_if=lambda seed: seed is None)] = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        process = self.arrival.process
        if process != "trace" and (self.prompt is None or self.output is None):
            raise ValueError("prompt and output lengths are required unless arrival.process=trace")
        if process in ("constant", "poisson", "gamma") and self.duration_s is None:
            raise ValueError(f"arrival.process={process} needs duration_s")
        if process in ("closed", "forced") and self.requests is None:
            raise ValueError(f"arrival.process={process} needs requests")
        if (process == "forced") != (self.sequences_seed is not None):
            raise ValueError("sequences_seed: needed by arrival.process=forced, and null for all others")
        if self.duration_s is not None and self.warmup_s + self.cooldown_s >= self.duration_s:
            raise ValueError("warmup_s + cooldown_s must be less than duration_s: nothing would be measured")
        return self

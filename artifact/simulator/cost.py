"""A calibration and a batch in, host and GPU time of the step out.

A step's host time (issuing it) and its GPU time are modelled apart, because which of the two decides moves with the
host. With n requests, any in prefill or not, c tokens in their KV cache and s prefill tokens of p requests:

    launch = launch_fixed + launch_per_request n + launch_prefill [p > 0]
    loop   = loop_fixed + loop_per_request n                                    (host, outside the launch)
    gpu    = base(padded tokens) + gpu_per_request n + context c + square s^2 / p
    tail   = tail_fixed + tail_per_request n                                    (GPU, logits and sampling)

(base: monotone, linear between knots). All are what a quiet host takes; launch and loop are multiplied by the host's
pace (1 when quiet, ``slow_pace`` when slow: see ``HostPace``) and by one lognormal factor per step. In a steady state
the period is max(loop + launch, gpu + tail).
"""

import math
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, ValidationError, model_validator

from artifact.errors import EnvironmentLacks, InputError
from artifact.records import LaunchFacts
from artifact.schema import Count, Evidence, Fraction, Frozen, HardwareConfig, Mode, Natural, NonNegative, Positive
from artifact.simulator.clock import Price
from artifact.simulator.scheduler import Batch

CALIBRATIONS = Path(__file__).resolve().parents[1] / "calibrations"

# Steps that cost alike: EAGER is uncompiled, NONE compiled without a graph, FULL replays mixed graphs (the mode FULL),
# FULL_DECODE graphs of uniform decode batches (the two modes that capture them apart).
TableName = Literal["EAGER", "NONE", "PIECEWISE", "FULL", "FULL_DECODE"]
_LEAST_PACE = 0.5  # of a host below slowness 0
_STANDS_IN: dict[TableName, TableName] = {"FULL": "FULL_DECODE", "FULL_DECODE": "FULL"}


class StepTable(Frozen):
    """Cost of one kind of step, how far it was calibrated, and how well it fits its own rows."""

    knots_tokens: Annotated[tuple[Count, ...], Field(min_length=1)]
    base_ms: tuple[NonNegative, ...]
    gpu_per_request_ms: NonNegative
    context_ms_per_token: NonNegative
    square_ms_per_token2: NonNegative
    launch_fixed_ms: NonNegative
    launch_per_request_ms: NonNegative
    launch_prefill_ms: NonNegative  # where any request is in prefill
    slow_pace: Annotated[float, Field(ge=1)]  # of its host time when the host is slow, the quiet host's being 1
    noise_sigma: NonNegative  # of the logarithm of the period, the host's pace taken out
    gpu_source: str  # where the GPU time was read
    max_requests: Natural
    max_context_tokens: Natural
    rows: Natural
    error_p50: NonNegative  # of |predicted / measured period - 1| over those rows, at the pace fitted to them
    error_p90: NonNegative

    @model_validator(mode="after")
    def _monotone(self) -> Self:
        if len(self.knots_tokens) != len(self.base_ms):
            raise ValueError("knots_tokens and base_ms must be of one length")
        if any(np.diff(self.knots_tokens) <= 0) or any(np.diff(self.base_ms) < 0):
            raise ValueError("knots_tokens must ascend and base_ms must not fall")
        return self

    def base(self, tokens: np.ndarray) -> np.ndarray:
        """Return ``base`` in ms for padded tokens, shape (n,): beyond the last knot on with the last slope."""
        values: np.ndarray = np.interp(tokens, self.knots_tokens, self.base_ms)
        if len(self.knots_tokens) > 1:
            (left, right), (low, high) = self.knots_tokens[-2:], self.base_ms[-2:]
            values = values + np.maximum(tokens - right, 0) * (high - low) / (right - left)
        return values


class HostPace(Frozen):
    """How a shared host's speed wanders: its slowness is 0 when quiet, 1 when slow, and below 0 when it is quicker yet.

    It is one of ``slowness``, equally likely, and then another; one holds for an exponential time of mean ``dwell_s``.
    Where ``recorded``, each holds for ``dwell_s`` in the order given, the last for good. A step's host time is
    multiplied by 1 + slowness (slow_pace of its table - 1). (0,) is a host that stays quiet.
    """

    slowness: Annotated[tuple[float, ...], Field(min_length=1)]
    dwell_s: Positive
    recorded: bool = False


class LoopCost(Frozen):
    """What every step pays outside its launch and its forward pass, whatever the mode."""

    loop_fixed_ms: NonNegative
    loop_per_request_ms: NonNegative
    tail_fixed_ms: NonNegative
    tail_per_request_ms: NonNegative


class Source(Frozen):
    """The launches a calibration was fitted on."""

    study: str
    launches: tuple[str, ...]
    hosts: tuple[str, ...]
    driver: str | None
    cpu: str | None
    date: str | None


class Calibration(Frozen):
    """artifact/calibrations/<gpu>__<model>.json: one GPU, model, backend and vLLM version."""

    gpu: str  # as hardware.gpu
    gpu_name: str
    model: str
    backend: str
    vllm_version: str | None
    evidence: Evidence  # of the rows it was fitted on
    source: Source
    gpu_memory_utilization: Fraction | None  # under which kv_available_bytes was left
    eager_launch_us: float | None  # host probe, median
    graph_launch_us: float | None
    frontend_ms: NonNegative  # client to engine core and back, for a request that finds the engine idle
    frontend_per_request_ms: NonNegative  # between the requests of a burst, which the front end takes one by one
    host_pace: HostPace
    loop: LoopCost
    tables: dict[TableName, StepTable]
    launches: dict[Mode, LaunchFacts]  # medians per requested mode

    @property
    def doubt(self) -> str | None:
        """What a reader of numbers that rest on it has to know, in a sentence; None where there is nothing."""
        if len(self.source.launches) > len(Mode):
            return None
        return "calibrated on one engine start of each mode: on a shared host another start can differ by more"


def calibration_file(gpu: str, model: str) -> str:
    """Return the name of a calibration's file."""
    return f"{gpu}__{model}.json"


def load_calibration(path: str | None, hardware: HardwareConfig, model: str) -> Calibration:
    """Read ``path``, or the calibration shipped for the GPU and the model.

    Raises EnvironmentLacks where none is shipped, naming those that are, and InputError where the file cannot be
    read or is of another GPU or model.
    """
    file = Path(path) if path is not None else CALIBRATIONS / calibration_file(hardware.gpu, model)
    if not file.is_file():
        if path is not None:
            raise InputError(f"engine.calibration={path}: no such file")
        known = ", ".join(sorted(each.stem.replace("__", " with ") for each in CALIBRATIONS.glob("*.json")))
        raise EnvironmentLacks(
            f"no calibration for {hardware.gpu} with {model} (shipped: {known or 'none'}): "
            "measure one with `artifact calibrate` on the GPU, or name a file in engine.calibration"
        )
    try:
        calibration = Calibration.model_validate_json(file.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{file}: {where + ': ' if where else ''}{first['msg']}") from None
    if (calibration.gpu, calibration.model) != (hardware.gpu, model):
        raise InputError(f"{file}: is for {calibration.gpu} with {calibration.model}, not {hardware.gpu} with {model}")
    return calibration


def table_name(mode: Mode, runtime_mode: str, *, hollow: bool) -> TableName:
    """Return the table of a step: ``mode`` as resolved, EAGER where nothing is compiled.

    A hollow PIECEWISE step is dispatched and padded like one that replays, and costs what NONE costs.
    """
    if mode is Mode.EAGER:
        return "EAGER"
    if runtime_mode == "FULL":
        return "FULL" if mode is Mode.FULL else "FULL_DECODE"
    return "PIECEWISE" if runtime_mode == "PIECEWISE" and not hollow else "NONE"


class _Host:
    """The host's slowness over one cell; ``at`` is asked in ascending order of time."""

    def __init__(self, pace: HostPace, rng: np.random.Generator) -> None:
        self._pace, self._rng = pace, rng
        self._recorded = iter(pace.slowness) if pace.recorded else None
        self._until_s = 0.0
        self._slowness = 0.0

    def at(self, now_s: float) -> float:
        while now_s >= self._until_s:
            if self._recorded is None:
                self._slowness = self._pace.slowness[self._rng.integers(len(self._pace.slowness))]
                self._until_s += self._rng.exponential(self._pace.dwell_s)
            else:
                self._slowness = next(self._recorded, self._slowness)
                self._until_s += self._pace.dwell_s
        return self._slowness


class CostModel:
    """Prices steps of one cell.

    ``seed`` and ``launch_id`` fix the noise and the host's pace: two launches differ, a repeat does not.
    """

    def __init__(
        self, calibration: Calibration, mode: Mode, *, hollow: bool, max_tokens: int, seed: int, launch_id: str
    ) -> None:
        self._calibration, self._mode, self._hollow = calibration, mode, hollow
        self._tokens = np.arange(max_tokens + 1)
        self._tables: dict[str, tuple[StepTable, list[float]]] = {}
        self._rng = np.random.default_rng([seed, zlib.crc32(launch_id.encode())])
        self._host = _Host(calibration.host_pace, self._rng)
        self._normals: list[float] = []
        self.outside: Counter[str] = Counter()  # steps beyond the calibrated range, by what was beyond

    def _table(self, runtime_mode: str) -> tuple[StepTable, list[float]]:
        """Return the table and its base by padded tokens."""
        name = table_name(self._mode, runtime_mode, hollow=self._hollow)
        tables = self._calibration.tables
        used = name if name in tables else _STANDS_IN.get(name, name)
        if used not in tables:
            raise EnvironmentLacks(
                f"the calibration of {self._calibration.gpu} with {self._calibration.model} holds no {name} steps "
                f"(only {', '.join(tables)}): calibrate with an arm that runs them"
            )
        table = tables[used]
        return table, table.base(self._tokens).tolist()

    def pricing(self, batch: Batch, runtime_mode: str, padded_tokens: int) -> Callable[[float, Batch], Price]:
        """Return what prices steps that differ from ``batch`` in nothing but their context.

        It gives the times of a step that the host turns to at ``now_s``, which never falls from call to call, whoever
        of one model is asked. Raises EnvironmentLacks where no such step was calibrated.
        """
        if runtime_mode not in self._tables:
            self._tables[runtime_mode] = self._table(runtime_mode)
        table, base_ms = self._tables[runtime_mode]
        loop, requests, whole_graph = self._calibration.loop, batch.num_reqs, runtime_mode == "FULL"
        prefills = requests - batch.num_decode
        beyond = [
            f"more than {most} {what} in a {runtime_mode} step"
            for what, count, most in (
                ("tokens", padded_tokens, table.knots_tokens[-1]),
                ("requests", requests, table.max_requests),
            )
            if count > most
        ]
        loop_ms = loop.loop_fixed_ms + loop.loop_per_request_ms * requests
        launch_ms = table.launch_fixed_ms + table.launch_per_request_ms * requests
        gpu_ms = base_ms[padded_tokens] + table.gpu_per_request_ms * requests
        if prefills:
            launch_ms += table.launch_prefill_ms
            gpu_ms += table.square_ms_per_token2 * batch.prefill_tokens**2 / prefills
        per_context_ms, most_context = table.context_ms_per_token, table.max_context_tokens
        tail_s = (loop.tail_fixed_ms + loop.tail_per_request_ms * requests) / 1e3
        slower, sigma, host, normals = table.slow_pace - 1, table.noise_sigma, self._host, self._normals

        def price(now_s: float, batch: Batch) -> Price:
            context = batch.context_tokens
            for what in beyond:
                self.outside[what] += 1
            if context > most_context:
                self.outside[f"more than {most_context} context tokens in a {runtime_mode} step"] += 1
            if not normals:
                normals.extend(self._rng.standard_normal(4096).tolist())
            pace = max(1 + host.at(now_s) * slower, _LEAST_PACE)
            s_per_ms = pace * math.exp(sigma * normals.pop()) / 1e3
            gpu_s = (gpu_ms + per_context_ms * context) / 1e3
            return Price(
                runtime_mode, padded_tokens, loop_ms * s_per_ms, launch_ms * s_per_ms, gpu_s, tail_s, whole_graph
            )

        return price

"""A calibration, batches and capture sizes in; the expected time of a step, and what is replayed, out.

The period of a step in a steady state is max(h f, g): h the host's time (loop and launch), g the GPU's (forward pass
at the padded size, and tail), as in ``simulator.cost``; f is the host's pace in one of its states times the step's
lognormal factor. Its expectation is h M(g / h) with M(r) = E[max(f, r)], which for one state of pace p is

    M(r) = r Phi((ln r - ln p) / s) + p exp(s^2 / 2) Phi(s - (ln r - ln p) / s)

(s: ``noise_sigma``). A host state holds for a time, not for a number of steps, so a state's share of the steps is
inverse to how long its steps take: ``host_shares``. Steps are taken one by one; that the host's part of one overlaps
the GPU's of the step before is right within a few percent (tests/test_sizes_answer.py compares with the simulator).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from artifact.analysis.sizes.batches import Batches
from artifact.analysis.sizes.search import Floats, Ints, Problem
from artifact.errors import EnvironmentLacks
from artifact.graphs.dispatch import Dispatcher
from artifact.graphs.modes import NONE, Resolution
from artifact.schema import ServerConfig
from artifact.simulator.cost import Calibration, StepTable, TableName, table_name

# Ratios of GPU to host time at which M is tabulated. Between them it is right to 1e-5 with the noise of a real host,
# and to 3e-4 without any, at the kink.
_RATIOS = np.geomspace(1e-4, 1e4, 16_001)
_STANDS_IN: dict[TableName, TableName] = {"FULL": "FULL_DECODE", "FULL_DECODE": "FULL"}  # as in simulator.cost


@dataclass(frozen=True, eq=False)
class _Kind:
    """What the batches cost in one kind of step, but for the padding: arrays of shape (n,), in ms."""

    table: StepTable
    host_ms: Floats
    gpu_ms: Floats  # without ``base``
    ratios: Floats  # M at _RATIOS


class StepCosts:
    """Expected periods of ``batches`` under a mode; ``shares`` of the steps fall on each of the host's states."""

    def __init__(
        self, calibration: Calibration, resolution: Resolution, batches: Batches, shares: Floats | None = None
    ) -> None:
        self.batches, self.resolved = batches, resolution.resolved
        self._calibration, self._resolution = calibration, resolution
        states = len(calibration.host_pace.slowness)
        self._shares = np.full(states, 1 / states) if shares is None else shares
        self._kinds: dict[TableName, _Kind] = {}

    def period_ms(self, runtime_mode: str, padded: Ints, rows: slice | npt.NDArray[np.bool_]) -> Floats:
        """Return the expected period in ms of the batches ``rows`` in such a step, ``padded`` tokens each or all.

        Raises EnvironmentLacks where no such step was calibrated.
        """
        kind = self._kind(table_name(self._resolution.resolved, runtime_mode, hollow=self._resolution.hollow))
        gpu_ms = kind.table.base(padded) + kind.gpu_ms[rows]
        beyond = np.asarray(padded) > kind.table.knots_tokens[-1]
        if runtime_mode != NONE and beyond.any():
            # Above what was calibrated a graph does at least the work of the same step without one.
            plain = self._kind("NONE")
            gpu_ms = np.where(beyond, np.maximum(gpu_ms, plain.table.base(padded) + plain.gpu_ms[rows]), gpu_ms)
        host_ms = np.maximum(kind.host_ms[rows], 1e-6)  # a synthetic calibration may have a host that takes no time
        period: Floats = host_ms * np.interp(gpu_ms / host_ms, _RATIOS, kind.ratios)
        return np.maximum(period, gpu_ms)

    def beyond(self, runtime_mode: str) -> npt.NDArray[np.bool_]:
        """Return which batches have more requests or context than were calibrated in such a step, shape (n,)."""
        kind = self._kind(table_name(self._resolution.resolved, runtime_mode, hollow=self._resolution.hollow))
        over: npt.NDArray[np.bool_] = (self.batches.requests > kind.table.max_requests) | (
            self.batches.context_tokens > kind.table.max_context_tokens
        )
        return over

    def _kind(self, name: TableName) -> _Kind:
        if name not in self._kinds:
            tables, batches = self._calibration.tables, self.batches
            table = tables.get(name) or tables.get(_STANDS_IN.get(name, name))
            if table is None:
                raise EnvironmentLacks(
                    f"the calibration of {self._calibration.gpu} with {self._calibration.model} holds no {name} steps "
                    f"(only {', '.join(tables)}): calibrate with an arm that runs them"
                )
            loop = self._calibration.loop
            prefills = batches.prefills > 0
            host = loop.loop_fixed_ms + loop.loop_per_request_ms * batches.requests + table.launch_fixed_ms
            host = host + table.launch_per_request_ms * batches.requests + table.launch_prefill_ms * prefills
            gpu = table.gpu_per_request_ms * batches.requests + table.context_ms_per_token * batches.context_tokens
            gpu = gpu + table.square_ms_per_token2 * batches.square
            gpu = gpu + loop.tail_fixed_ms + loop.tail_per_request_ms * batches.requests
            self._kinds[name] = _Kind(table, host, gpu, self._tabulated(table))
        return self._kinds[name]

    def _tabulated(self, table: StepTable) -> Floats:
        sigma = max(table.noise_sigma, 1e-9)
        values = np.zeros_like(_RATIOS)
        for slowness, share in zip(self._calibration.host_pace.slowness, self._shares, strict=True):
            pace = 1 + slowness * (table.slow_pace - 1)
            z = np.log(_RATIOS / pace) / sigma
            if share:
                values += share * (_RATIOS * ndtr(z) + pace * np.exp(sigma**2 / 2) * ndtr(sigma - z))
        return values


def host_shares(calibration: Calibration, resolution: Resolution, batches: Batches, graphs: Dispatcher) -> Floats:
    """Return the share of the steps that falls on each state of the host, with the graphs of ``graphs``."""
    states = len(calibration.host_pace.slowness)
    times = []
    for state in np.eye(states):
        costs = StepCosts(calibration, resolution, batches, state)
        times.append(replayed(costs, graphs).step_ms)
    inverse = 1 / np.array(times)
    shares: Floats = inverse / inverse.sum()
    return shares


@dataclass(frozen=True, eq=False)
class Replay:
    """How the batches run with one list of sizes; arrays of shape (n,), in the order of the batches."""

    runtime_mode: npt.NDArray[np.str_]
    padded: Ints
    period_ms: Floats
    step_ms: float  # mean over steps


def replayed(costs: StepCosts, graphs: Dispatcher, lora: bool = False) -> Replay:
    """Return how the batches run under ``graphs``, by vLLM's own rules."""
    batches = costs.batches
    answers = [
        graphs.dispatch(tokens, uniform, lora, int(lora))
        for tokens, uniform in zip(batches.tokens.tolist(), batches.uniform.tolist(), strict=True)
    ]
    modes = np.array([answer[0] for answer in answers])
    padded = np.array([answer[1] for answer in answers], dtype=np.int64)
    period_ms = np.zeros(len(answers))
    # Full graphs of decode batches and of mixed ones are one kind under one mode, so the runtime mode tells the table.
    for mode in np.unique(modes):
        rows = modes == mode
        period_ms[rows] = costs.period_ms(str(mode), padded[rows], rows)
    mean_ms = float(np.average(period_ms, weights=batches.steps))
    return Replay(modes, padded, period_ms, mean_ms)


def problem(costs: StepCosts, server: ServerConfig, sizes: Sequence[int], kept: Sequence[int], step: int) -> Problem:
    """Return the search over ``sizes`` (ascending) for the batches, every list holding ``kept``.

    ``step``: vLLM pads every batch to a multiple of it before it dispatches (sequence parallelism), else 1. Costs are
    sums over all steps, in ms.
    """
    batches = costs.batches
    m = len(sizes)
    lora = server.max_loras > 0
    graphs = Dispatcher(costs.resolved, sizes, server)
    bins = np.searchsorted(sizes, batches.tokens)  # of the smallest size that holds the batch; m where none does
    upto = np.searchsorted(batches.tokens, sizes, side="right")
    unpadded = -(-batches.tokens // step) * step
    without = np.bincount(bins, batches.steps * costs.period_ms(NONE, unpadded, slice(None)), m + 1)
    padded = np.zeros((m, m))  # of the batches of each bin, at each size that holds them
    for index, size in enumerate(sizes):
        here = slice(0, int(upto[index]))
        uniform = batches.uniform[here]
        total = np.zeros(len(uniform))
        for is_decode in (True, False):
            runtime, _ = graphs.dispatch(size, is_decode, lora, int(lora))
            tokens = unpadded[here] if runtime == NONE else np.full(len(uniform), size)
            total = np.where(uniform == is_decode, costs.period_ms(runtime, tokens, here), total)
        padded[:, index] = np.bincount(bins[here], batches.steps[here] * total, m)
    # Position i: what lies above candidate i - 1.
    segment = np.vstack([np.cumsum(padded[::-1], axis=0)[::-1], np.zeros((1, m))])
    above: Floats = np.cumsum(without[::-1])[::-1].astype(np.float64)
    low = int(np.searchsorted(sizes, graphs.max_decode_tokens, side="right"))
    return Problem(np.array(sizes, dtype=np.int64), low, segment, above, np.isin(sizes, kept))

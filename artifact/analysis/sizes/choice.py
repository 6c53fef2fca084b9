"""A server, a mode, limits and the costs of batches in; the capture sizes that keep the limits and cost least, out."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from artifact.analysis.sizes.costs import StepCosts, problem
from artifact.analysis.sizes.graphs import MEASURED_LARGEST, Takes
from artifact.analysis.sizes.search import Floats, Frontier, search
from artifact.errors import InputError
from artifact.graphs.dispatch import Dispatcher, lora_counts
from artifact.graphs.modes import (
    FULL,
    NONE,
    PIECEWISE,
    Resolution,
    decode_kind,
    mixed_kind,
    query_len,
    sequence_parallel,
)
from artifact.graphs.sizes import capture_sizes
from artifact.schema import Config, Mode, ServerConfig, SizesConfig

_COARSE_FROM, _COARSE = 512, 16  # above vLLM's own largest size, candidates are multiples of vLLM's own step there
_WORTH = 1e-4  # of the step time: what more graphs must save to be another row of the outline
_MIB = 2**20


@dataclass(frozen=True)
class Keys:
    """Dispatch keys per size: ``low`` is a size that decode graphs are captured at, ``high`` one above those."""

    low: tuple[int, int]  # piecewise, full
    high: tuple[int, int]

    def of(self, low: int, high: int) -> tuple[int, int]:
        """Return the piecewise and full keys of a list of so many sizes."""
        piecewise, full = (self.low[kind] * low + self.high[kind] * high for kind in (0, 1))
        return piecewise, full


@dataclass(frozen=True)
class Grid:
    """What lists may be made of. ``unit``: every size is a multiple; ``pad``: every batch is padded to a multiple."""

    server: ServerConfig
    mode: Mode  # as resolved
    unit: int
    pad: int
    most: int  # tokens of the largest size that is considered
    kept: tuple[int, ...]
    keys: Keys

    def candidates(self, tokens: npt.NDArray[np.int64]) -> tuple[int, ...]:
        """Return the sizes that a best list for batches of ``tokens`` can need, ascending; with ``kept`` among them.

        A size that no batch fills would be no worse as the largest batch below it, since no step is faster for more
        padding. Two more count where decode graphs end: the last size that has one and the first that has none.
        Above 512 tokens sizes are multiples of 16.
        """
        last = query_len(self.server) * self.server.max_num_seqs // self.unit * self.unit
        wanted = np.concatenate([-(-np.unique(tokens) // self.unit) * self.unit, [last, last + self.unit]])
        coarse = -(-_COARSE // self.unit) * self.unit
        wanted = np.where(wanted > _COARSE_FROM, -(-wanted // coarse) * coarse, wanted)
        most = min(self.most, last) if self.keys.high == (0, 0) else self.most
        found = {int(size) for size in wanted if 0 < size <= most} | set(self.kept)
        if not found:
            raise InputError(
                f"sizes.largest={self.most}: the load has no batch of so few tokens, and sizes.guard is empty"
            )
        return tuple(sorted(found))


def grid(config: Config, resolution: Resolution) -> Grid:
    """Return what lists for ``config`` may be made of. Raises InputError where vLLM's rules leave no size."""
    server, asked, mode = config.server, config.sizes, resolution.resolved
    q = query_len(server)
    pad = server.tensor_parallel_size if sequence_parallel(server) else 1
    unit = max(q, pad) if decode_kind(mode) == FULL and q > 1 else pad
    if unit % pad or (decode_kind(mode) == FULL and unit % q):
        capture_sizes(default_server(server), mode)  # says why no size will do
    variants = len(lora_counts(server))
    both = decode_kind(mode) == FULL and mode is not Mode.FULL
    mixed = (int(mixed_kind(mode) == PIECEWISE) * variants, int(mixed_kind(mode) == FULL) * variants)
    low = (mixed[0], mixed[1] + variants) if both else mixed
    if resolution.hollow:
        low, mixed = (0, low[1]), (0, mixed[1])
    last = min(q * server.max_num_seqs, server.max_num_batched_tokens)
    kept = {-(-size // unit) * unit for size in asked.guard if isinstance(size, int)}
    if "MAX" in asked.guard:
        # Decode graphs end at or below q x max_num_seqs: where that is no multiple of unit, one size cannot hold both.
        kept |= {last // unit * unit, -(-last // unit) * unit} - {0}
    end = server.max_num_batched_tokens if mixed_kind(mode) != NONE else last
    most = min(asked.largest, server.max_num_batched_tokens)
    return Grid(server, mode, unit, pad, most, tuple(sorted(size for size in kept if size <= end)), Keys(low, mixed))


def default_server(server: ServerConfig) -> ServerConfig:
    """Return the server with vLLM's own list."""
    return server.model_copy(update={"cudagraph_capture_sizes": None, "max_cudagraph_capture_size": None})


def with_sizes(server: ServerConfig, mode: Mode, sizes: Sequence[int]) -> ServerConfig:
    """Return the server with ``sizes``, which vLLM's rules for ``mode`` leave as they are."""
    listed = server.model_copy(update={"cudagraph_capture_sizes": tuple(sizes), "max_cudagraph_capture_size": None})
    if (becomes := capture_sizes(listed, mode)) != tuple(sizes):
        raise RuntimeError(f"vLLM would make {becomes} of the sizes {tuple(sizes)}")
    return listed


@dataclass(frozen=True, eq=False)
class Choice:
    """The best lists of all shapes, and which of them keep the limits."""

    grid: Grid
    frontier: Frontier
    graphs: npt.NDArray[np.int64]  # of a low and b high sizes, shape as ``frontier.cost``
    allowed: npt.NDArray[np.bool_]
    steps: float  # that the costs are a sum over

    def best_ms(self) -> float:
        """Return the least mean step time of the lists that keep the limits."""
        return float(self.frontier.cost[self.allowed].min() / self.steps)

    def sizes(self, margin: float) -> tuple[int, ...]:
        """Return the list of fewest graphs within ``margin`` of the least step time; of equally many, the fastest."""
        cost = np.where(self.allowed, self.frontier.cost, np.inf)
        near = cost <= cost.min() * (1 + margin)
        graphs = np.where(near, self.graphs, np.iinfo(np.int64).max)
        least = np.where(graphs == graphs.min(), cost, np.inf)
        low, high = np.unravel_index(int(np.argmin(least)), least.shape)
        return self.frontier.sizes(int(low), int(high))

    def outline(self) -> list[tuple[int, float]]:
        """Return the least step time in ms by number of graphs: the fewest possible, twice as many, and so on."""
        cost = self.frontier.cost
        found: list[tuple[int, float]] = []
        at_most = max(int(self.graphs[np.isfinite(cost)].min()), 1)
        while at_most < 2 * self.graphs.max():
            within = np.where(self.graphs <= at_most, cost, np.inf)
            if np.isfinite(ms := float(within.min() / self.steps)) and (not found or ms < found[-1][1] * (1 - _WORTH)):
                found.append((int(self.graphs[within == within.min()].min()), ms))
            at_most *= 2
        return found


def choose(costs: StepCosts, grid_: Grid, asked: SizesConfig, takes: Takes, most_graphs: int | None = None) -> Choice:
    """Return the lists for the batches of ``costs``, of at most ``most_graphs`` and within the limits of ``asked``.

    Of all lists with the same numbers of sizes the fastest is held against max_graph_mib: a slower one that ends at a
    smaller size may take less (the default guard keeps 512, so none does). Raises InputError, one line, where no list
    keeps the limits or what graphs take is not known.
    """
    sizes = grid_.candidates(costs.batches.tokens)
    graphs_limit = min((limit for limit in (asked.max_graphs, most_graphs) if limit is not None), default=None)
    per_low, per_high = max(sum(grid_.keys.low), 1), max(sum(grid_.keys.high), 1)
    caps = (None, None) if graphs_limit is None else (graphs_limit // per_low, graphs_limit // per_high)
    frontier = search(problem(costs, grid_.server, sizes, grid_.kept, grid_.pad), *caps)
    shape = frontier.cost.shape
    keys = [[grid_.keys.of(low, high) for high in range(shape[1])] for low in range(shape[0])]
    graphs = np.array([[sum(each) for each in row] for row in keys], dtype=np.int64)
    allowed = np.isfinite(frontier.cost)
    allowed[0, 0] = False  # vLLM takes no empty list
    if graphs_limit is not None:
        allowed = _within(allowed, graphs, graphs_limit, f"sizes.max_graphs={graphs_limit}", grid_)
    for name, limit, line in (
        ("max_graph_mib", asked.max_graph_mib, takes.graph_bytes),
        ("max_capture_s", asked.max_capture_s, takes.capture_s),
    ):
        if limit is None:
            continue
        key = f"sizes.{name}={limit:g}"
        if line is None:
            raise InputError(f"{key}: cannot be kept, since what graphs take is not known ({takes.source})")
        if name == "max_graph_mib" and sizes[-1] > MEASURED_LARGEST:
            raise InputError(
                f"{key}: the memory of graphs above {MEASURED_LARGEST} tokens was not measured; take sizes.largest="
                f"{MEASURED_LARGEST} and leave larger sizes (MAX is {max(grid_.kept, default=0)}) out of sizes.guard"
            )
        unit = _MIB if name == "max_graph_mib" else 1
        values = np.full(shape, np.inf)
        for low, high in np.argwhere(allowed).tolist():
            piecewise, full = keys[low][high]
            values[low, high] = line.at(piecewise, full, frontier.largest(low, high)) / unit
        allowed = _within(allowed, values, limit, key, grid_)
    return Choice(grid_, frontier, graphs, allowed, float(costs.batches.steps.sum()))


def _within(
    allowed: npt.NDArray[np.bool_], values: npt.NDArray[np.int64] | Floats, limit: float, key: str, grid_: Grid
) -> npt.NDArray[np.bool_]:
    """Return which of the ``allowed`` lists keep a limit. Raises InputError where none does."""
    kept = allowed & (values <= limit)
    if not kept.any():
        found = values[allowed]
        least = f"the least found is {math.ceil(found.min())}" if len(found) else "too few for what is kept"
        raise InputError(
            f"{key}: no list keeps it ({least}); raise it, or shorten sizes.guard, of which "
            f"{len(grid_.kept)} sizes are in every list"
        )
    return kept


def graph_counts(grid_: Grid, sizes: Sequence[int]) -> dict[str, int]:
    """Return the dispatch keys per kind of graph of a list, as ``explain`` counts them."""
    return Dispatcher(grid_.mode, sizes, grid_.server).keys

"""Resolved mode, capture sizes and server in; which graph each step replays, how many graphs there are, and the holes.

The rules are those of vLLM 0.21.0's ``CudagraphDispatcher`` (v1/cudagraph_dispatcher.py), compared with it call by
call in tests/conformance. A *uniform decode* step has exactly q = 1 + speculative tokens for every request; all
other steps are *mixed*.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from artifact.graphs.modes import FULL, NONE, PIECEWISE, decode_kind, mixed_kind, query_len, sequence_parallel
from artifact.graphs.sizes import capture_sizes
from artifact.schema import Mode, ServerConfig


@dataclass(frozen=True)
class FallThrough:
    """Batches of ``first``..``last`` tokens of a kind that do not get what the mode promises that kind."""

    kind: Literal["decode", "mixed"]
    first: int
    last: int
    runtime_mode: str


def lora_counts(server: ServerConfig) -> tuple[int, ...]:
    """Return the numbers of active adapters for which graphs are captured; (0,) without LoRA.

    Source: ``_get_lora_cases`` and ``get_captured_lora_counts`` (lora/utils.py).
    """
    top = server.max_loras + 1
    if server.max_loras == 0:
        return (0,)
    if not server.cudagraph_specialize_lora:
        return (top,)
    if not server.specialize_active_lora:
        return (0, top)
    return (0, *(n for n in range(1, top + 1) if n & (n - 1) == 0 or n == top))


class Dispatcher:
    """Answers, per step, what the real dispatcher would; tables are made once, so that a call is an index.

    ``sizes`` ascending, as ``capture_sizes`` gives them. A step's tokens are counted before padding.
    """

    def __init__(self, resolved: Mode, sizes: Sequence[int], server: ServerConfig) -> None:
        self.mode = resolved
        self.sizes = tuple(sizes)
        self.query_len = query_len(server)
        self.max_decode_tokens = self.query_len * server.max_num_seqs
        self._budget = server.max_num_batched_tokens
        self._counts = lora_counts(server)
        self._with_adapters = tuple(count for count in self._counts if count)
        self._exact_adapters = server.max_loras > 0 and server.specialize_active_lora
        # Under sequence parallelism the runner pads every step to a multiple of tp before it dispatches.
        self._step = server.tensor_parallel_size if sequence_parallel(server) else 1
        self._largest = self.sizes[-1] if self.sizes else 0
        self._mixed = self._table(mixed_kind(resolved), self.sizes)
        self._decode = self._mixed
        if decode_kind(resolved) == FULL and resolved is not Mode.FULL:  # FULL replays its mixed graphs for decode too
            decode = self._table(FULL, self._decode_sizes())
            self._decode = [own if own[0] == FULL else other for own, other in zip(decode, self._mixed, strict=True)]

    def _decode_sizes(self) -> list[int]:
        return [size for size in self.sizes if self.query_len <= size <= self.max_decode_tokens]

    def _table(self, kind: str, captured: Sequence[int]) -> list[tuple[str, int]]:
        """Return (runtime mode, padded tokens) of 0..largest tokens, if graphs of ``kind`` exist at ``captured``."""
        there = set(captured) if kind != NONE else set()
        table: list[tuple[str, int]] = [(NONE, 0)]
        for size in self.sizes:
            batches = range(len(table), size + 1)
            table.extend((kind, size) if size in there else (NONE, tokens) for tokens in batches)
        return table

    def dispatch(
        self, num_tokens: int, uniform_decode: bool, has_lora: bool = False, num_active_loras: int = 0
    ) -> tuple[str, int]:
        """Return the step's runtime mode (FULL, PIECEWISE or NONE) and its tokens after padding.

        NONE pads nothing, but for sequence parallelism's own multiples of tensor_parallel_size.
        """
        if self._step > 1:
            num_tokens = -(-num_tokens // self._step) * self._step
        if num_tokens > self._largest or not self._captured(has_lora, num_active_loras):
            return NONE, num_tokens
        return (self._decode if uniform_decode else self._mixed)[num_tokens]

    def _captured(self, has_lora: bool, active: int) -> bool:
        if not has_lora:
            return active == 0 and self._counts[0] == 0
        if active == 0 or not self._with_adapters:
            return False
        if not self._exact_adapters:
            return True
        # The smallest captured count that is no less. vLLM looks it up so even where one set alone was captured.
        return bisect_left(self._with_adapters, active) < len(self._with_adapters)

    @property
    def keys(self) -> dict[str, int]:
        """Number of dispatch keys per kind of graph, all LoRA variants counted."""
        keys = {PIECEWISE: 0, FULL: 0}
        if (kind := mixed_kind(self.mode)) != NONE:
            keys[kind] += len(self.sizes) * len(self._counts)
        if decode_kind(self.mode) == FULL and self.mode is not Mode.FULL:
            keys[FULL] += len(self._decode_sizes()) * len(self._counts)
        return keys

    def captures(self, layers: int, hollow: bool = False) -> int:
        """Return the number of captured graphs of a model with ``layers`` decoder layers.

        A piecewise key stands for layers + 1 graphs, one per piece between attention calls (28 layers: 29, as
        counted in vLLM), and for none where the mode is ``hollow``.
        """
        pieces = 0 if hollow else layers + 1
        return self.keys[PIECEWISE] * pieces + self.keys[FULL]

    def fallthrough(self, hollow: bool = False, has_lora: bool = False) -> list[FallThrough]:
        """Return the batches that do not replay the kind of graph the mode means for them, as ranges of tokens.

        Decode batches are covered up to q * max_num_seqs (or max_num_batched_tokens, if that is less), in steps of q:
        no others exist. Mixed batches are covered up to the largest capture size, above which no mode has graphs.
        FULL_DECODE_ONLY lists its mixed batches, which run without a graph by design; NONE promises nothing and lists
        nothing. Where the mode is ``hollow``, batches dispatched as PIECEWISE are listed as well: they replay nothing.
        """
        if self.mode in (Mode.NONE, Mode.EAGER):
            return []
        decode = range(self.query_len, min(self.max_decode_tokens, self._budget) + 1, self.query_len)
        return [
            *self._ranges("decode", decode, decode_kind(self.mode), hollow, has_lora),
            *self._ranges("mixed", range(1, self._largest + 1), mixed_kind(self.mode), hollow, has_lora),
        ]

    def _ranges(
        self, kind: Literal["decode", "mixed"], batches: Iterable[int], promised: str, hollow: bool, has_lora: bool
    ) -> list[FallThrough]:
        found: list[FallThrough] = []
        before = 0
        for tokens in batches:
            runtime, _ = self.dispatch(tokens, kind == "decode", has_lora, int(has_lora))
            if runtime == NONE or runtime != promised or (hollow and runtime == PIECEWISE):
                if found and found[-1].last == before and found[-1].runtime_mode == runtime:
                    found[-1] = FallThrough(kind, found[-1].first, tokens, runtime)
                else:
                    found.append(FallThrough(kind, tokens, tokens, runtime))
            before = tokens
        return found


def dispatcher(server: ServerConfig, resolved: Mode) -> Dispatcher:
    """Return the dispatcher of ``server`` under the ``resolved`` mode. Raises InputError as ``capture_sizes`` does."""
    return Dispatcher(resolved, capture_sizes(server, resolved), server)

"""Server settings and resolved mode in; the sizes vLLM 0.21.0 would capture out, ascending, in tokens.

Stricter than vLLM on purpose: it accepts 0 and negative sizes and fails in the worker, and turns a list wholly above
max_num_batched_tokens into no graphs at all, silently. Every unusable list is refused here, under NONE too, so that
all arms of a study meet the same check before any GPU time is spent.
"""

from collections.abc import Sequence

from artifact.errors import InputError
from artifact.graphs.modes import FULL, decode_kind, query_len, sequence_parallel
from artifact.schema import Mode, ServerConfig

_KEY = "server.cudagraph_capture_sizes"


def default_sizes(largest: int, max_num_batched_tokens: int) -> tuple[int, ...]:
    """Return vLLM's own list up to ``largest``: 1, 2, 4, then by 8 below 256, then by 16.

    Source: ``VllmConfig._set_cudagraph_sizes`` (config/vllm.py). The token budget is added where it fits.
    """
    sizes = {size for size in (1, 2, 4, *range(8, 256, 8)) if size <= largest}
    sizes.update(range(256, largest + 1, 16))
    if max_num_batched_tokens <= largest:
        sizes.add(max_num_batched_tokens)
    return tuple(sorted(sizes))


def _checked(sizes: Sequence[object], max_num_batched_tokens: int) -> tuple[int, ...]:
    """Return the user's list as vLLM takes it: ascending, once each, none above the token budget."""
    if not sizes:
        raise InputError(f"{_KEY}=[]: at least one size is needed; null takes vLLM's own list, mode=none captures none")
    whole: set[int] = set()
    for size in sizes:
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise InputError(f"{_KEY}: {size!r} is not a size; each must be a whole number of tokens, 1 or more")
        whole.add(size)
    kept = tuple(sorted(size for size in whole if size <= max_num_batched_tokens))
    if not kept:
        raise InputError(
            f"{_KEY}: all are above server.max_num_batched_tokens={max_num_batched_tokens} (smallest {min(whole)}); "
            "no graph could be captured"
        )
    return kept


def _before_resolution(server: ServerConfig) -> tuple[int, ...]:
    """Return the sizes as the configuration fixes them, before the mode is resolved."""
    limit, budget = server.max_cudagraph_capture_size, server.max_num_batched_tokens
    listed = server.cudagraph_capture_sizes is not None
    if server.cudagraph_capture_sizes is not None:
        sizes = _checked(server.cudagraph_capture_sizes, budget)
    else:
        largest = limit if limit is not None else min(2 * query_len(server) * server.max_num_seqs, 512)
        sizes = default_sizes(min(budget, largest), budget)
    tp = server.tensor_parallel_size
    if sequence_parallel(server):
        whole, sizes = sizes, tuple(size for size in sizes if size % tp == 0)
        if not sizes:
            raise InputError(
                f"{_KEY}: none of {list(whole)} is a multiple of server.tensor_parallel_size={tp} (tp), "
                "which sequence parallelism needs"
            )
    if listed and limit is not None and limit != sizes[-1]:
        raise InputError(
            f"{_KEY}: largest usable size {sizes[-1]} disagrees with server.max_cudagraph_capture_size={limit}; "
            "give one of the two, or make them equal"
        )
    return sizes


def _rounded(server: ServerConfig, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Round up to multiples of q, as full decode graphs need (``adjust_cudagraph_sizes_for_spec_decode``)."""
    q, step = query_len(server), query_len(server)
    if sequence_parallel(server):
        step = max(q, server.tensor_parallel_size)
        if step % q or step % server.tensor_parallel_size:
            raise InputError(
                f"server.num_speculative_tokens={server.num_speculative_tokens}: no size is a multiple of both 1 + k = "
                f"{q} and server.tensor_parallel_size={server.tensor_parallel_size} in vLLM's rule; "
                "one must divide the other"
            )
    largest = sizes[-1]
    rounded = sorted({up for size in sizes if (up := -(-size // step) * step) <= largest})
    if not rounded and step <= largest:
        rounded = [step]
    if not rounded:
        raise InputError(
            f"{_KEY}: none of {list(sizes)} leaves room for server.num_speculative_tokens="
            f"{server.num_speculative_tokens}; the largest must be {step} or more"
        )
    return tuple(rounded)


def capture_sizes(server: ServerConfig, resolved: Mode) -> tuple[int, ...]:
    """Return the capture sizes under the ``resolved`` mode; empty under NONE and EAGER.

    Duplicates and any order are taken, as by vLLM; entries above max_num_batched_tokens are dropped. With speculative
    decoding and full decode graphs every size is rounded up to a multiple of 1 + k. Raises InputError for a list
    that is empty, holds anything but whole numbers from 1, lies wholly above max_num_batched_tokens, disagrees with
    max_cudagraph_capture_size, has no multiple of tensor_parallel_size under sequence parallelism, or leaves nothing
    after rounding; the first four are checked under every mode.
    """
    sizes = _before_resolution(server)
    if resolved in (Mode.NONE, Mode.EAGER):
        return ()
    if decode_kind(resolved) == FULL and query_len(server) > 1:
        return _rounded(server, sizes)
    return sizes

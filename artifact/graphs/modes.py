"""Requested mode, backend, GPU and server in; the mode vLLM 0.21.0 resolves to out, or its refusal.

vLLM decides in three places, in this order: when the configuration is made (sequence parallelism leaves nothing to
split), when the model compiles (piecewise graphs are wrapped only if the mode asks for them *then*), and in the
worker, where the attention backend's support is known (``CompilationConfig.resolve_cudagraph_mode_and_sizes``).
"""

from dataclasses import dataclass
from enum import IntEnum

from artifact.errors import CellFailed, InputError
from artifact.schema import BackendConfig, Mode, ServerConfig

Capability = tuple[int, int]
FULL, PIECEWISE, NONE = "FULL", "PIECEWISE", "NONE"

_DECODE = {Mode.FULL: FULL, Mode.FULL_DECODE_ONLY: FULL, Mode.FULL_AND_PIECEWISE: FULL, Mode.PIECEWISE: PIECEWISE}
_MIXED = {Mode.FULL: FULL, Mode.FULL_AND_PIECEWISE: PIECEWISE, Mode.PIECEWISE: PIECEWISE}


class GraphSupport(IntEnum):
    """What a backend can hold in a full graph, in vLLM's order (``AttentionCGSupport``)."""

    NEVER = 0
    UNIFORM_SINGLE_TOKEN_DECODE = 1  # batches of one token per request
    UNIFORM_BATCH = 2  # batches of equal query lengths, so speculative decoding too
    ALWAYS = 3  # mixed batches too


@dataclass(frozen=True)
class Resolution:
    """What becomes of a requested mode.

    ``hollow``: the mode has PIECEWISE keys without graphs behind them, so that such a step is reported as PIECEWISE
    and replays nothing. ``reason`` says why ``resolved`` differs from ``requested``; null where it does not.
    """

    requested: Mode
    resolved: Mode
    hollow: bool
    reason: str | None


def decode_kind(mode: Mode) -> str:
    """Return the kind of graph that ``mode`` means uniform decode batches to replay: FULL, PIECEWISE or NONE."""
    return _DECODE.get(mode, NONE)


def mixed_kind(mode: Mode) -> str:
    """Return the kind of graph that ``mode`` means all other batches to replay: FULL, PIECEWISE or NONE."""
    return _MIXED.get(mode, NONE)


def query_len(server: ServerConfig) -> int:
    """Return q, the tokens per request of a uniform decode batch: 1 + speculative tokens."""
    return 1 + server.num_speculative_tokens


def sequence_parallel(server: ServerConfig) -> bool:
    """Return whether sequence parallelism is on: vLLM drops it for tensor_parallel_size 1."""
    return server.enable_sequence_parallelism and server.tensor_parallel_size > 1


def _flash_attn_version(pinned: int | None, capability: Capability) -> int:
    """Return FlashAttention's version (v1/attention/backends/fa_utils.py). Raises InputError for one the GPU lacks.

    vLLM would quietly replace a pinned 3 on Blackwell; here it is refused, since it would be another arm.
    """
    major, minor = capability
    usable = [2] + [3] * (major == 9) + [4] * (major in (9, 10, 11))
    if pinned is None:
        return {9: 3, 10: 4}.get(major, 2)
    if pinned not in usable:
        raise InputError(
            f"backend.flash_attn_version={pinned}: does not run on compute capability {major}.{minor}; "
            f"take {' or '.join(map(str, usable))}, or null for vLLM's choice"
        )
    return pinned


def graph_support(backend: BackendConfig, capability: Capability) -> GraphSupport:
    """Return what ``backend`` can capture on a GPU of compute ``capability`` (each backend's get_cudagraph_support).

    FLASHINFER counts as having its TRTLLM kernels on the SM100 family, where vLLM needs NVIDIA's artifactory to be
    reachable and query heads to be a multiple of KV heads. Raises InputError where the backend does not run.
    """
    if backend.name != "FLASH_ATTN" and backend.flash_attn_version is not None:
        raise InputError(f"backend.flash_attn_version={backend.flash_attn_version}: null unless backend=flash_attn")
    lowest = {"FLASH_ATTN": (8, 0), "FLASHINFER": (7, 5)}.get(backend.name, (0, 0))
    highest = {"FLASHINFER": (12, 1)}.get(backend.name, capability)
    if not lowest <= capability <= highest:
        raise InputError(
            f"backend={backend.name.lower()}: does not run on compute capability {capability[0]}.{capability[1]}; "
            "take backend=triton_attn"
        )
    if backend.name == "FLASH_ATTN":
        version = _flash_attn_version(backend.flash_attn_version, capability)
        return GraphSupport.ALWAYS if version == 3 else GraphSupport.UNIFORM_BATCH
    if backend.name == "FLASHINFER":
        trtllm = capability[0] == 10
        return GraphSupport.UNIFORM_BATCH if trtllm else GraphSupport.UNIFORM_SINGLE_TOKEN_DECODE
    return GraphSupport.ALWAYS  # TRITON_ATTN, FLEX_ATTENTION


def resolve_mode(
    requested: Mode, support: GraphSupport, backend: str, q: int = 1, no_split: bool = False
) -> Resolution:
    """Return the mode that ``requested`` becomes, with the reason.

    ``q`` is the decode query length; ``no_split`` is true where the graph is not split at attention (sequence
    parallelism). Raises CellFailed("refused") where vLLM raises ValueError: FULL on a backend without support.
    """
    if requested is Mode.EAGER:
        return Resolution(requested, Mode.NONE, False, "enforce_eager compiles nothing and captures nothing")
    reasons: list[str] = []
    asked: Mode = requested
    if no_split and mixed_kind(asked) == PIECEWISE:
        asked = Mode.FULL
        reasons.append("sequence parallelism compiles the model in one piece: no piecewise graphs, FULL instead")
    mode: Mode = asked
    name = f"{backend} (support {support.name})"
    if mixed_kind(mode) == FULL and support is not GraphSupport.ALWAYS:
        if support is GraphSupport.NEVER:
            raise CellFailed("refused", f"{name} takes no full graphs: vLLM refuses {mode.value}; try mode=piecewise")
        mode = Mode.FULL_DECODE_ONLY if no_split else Mode.FULL_AND_PIECEWISE
        reasons.append(f"{name} cannot hold mixed batches in a full graph: {asked.value} becomes {mode.value}")
    fallback = Mode.NONE if no_split else Mode.PIECEWISE
    if decode_kind(mode) == FULL and support is GraphSupport.NEVER:
        reasons.append(f"{name} takes no full graphs: {mode.value} becomes {fallback.value}")
        mode = fallback
    if decode_kind(mode) == FULL and q > 1 and support < GraphSupport.UNIFORM_BATCH:
        reasons.append(f"{name} cannot capture {q} tokens per request: {mode.value} becomes {fallback.value}")
        mode = fallback
    # Piecewise wrappers are made at compile time, for the mode as it was before the backend had its say.
    hollow = mixed_kind(mode) == PIECEWISE and mixed_kind(asked) != PIECEWISE
    return Resolution(requested, mode, hollow, "; ".join(reasons) or None)


def resolve(requested: Mode, backend: BackendConfig, capability: Capability, server: ServerConfig) -> Resolution:
    """Return what ``requested`` becomes with ``backend`` and ``server`` on a GPU of compute ``capability``.

    Raises InputError where the backend does not run on the GPU, CellFailed("refused") where vLLM refuses the mode.
    """
    support = graph_support(backend, capability)
    return resolve_mode(requested, support, backend.name, query_len(server), sequence_parallel(server))

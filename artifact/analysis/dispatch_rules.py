"""A recorded server's settings and steps in; which mode its dispatch looks like, and why batches ran without a graph.

The front end that records knows the mode that was asked for and what each step was dispatched to. It does not know the
mode after resolution, nor whether a graph was behind a key. The rules of ``artifact.graphs`` narrow both down.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from artifact.config import groups, load
from artifact.errors import CellFailed, InputError
from artifact.graphs.dispatch import Dispatcher
from artifact.graphs.modes import (
    FULL,
    NONE,
    PIECEWISE,
    GraphSupport,
    Resolution,
    decode_kind,
    graph_support,
    query_len,
    resolve_mode,
    sequence_parallel,
)
from artifact.graphs.sizes import capture_sizes
from artifact.schema import BackendConfig, Mode, ServerConfig

METRICS_FLAG = "--cudagraph-metrics"
_OTHERWISE = (
    "a graph holds this size by the rules: a step with cascade attention, encoder output or adapters, or another "
    "version of vLLM"
)


class Kind(NamedTuple):
    """Steps that were dispatched alike, and how many."""

    num_tokens: int
    runtime_mode: str
    padded_tokens: int
    decode: bool  # certainly a uniform decode batch: each scheduled token gave one new token
    steps: int


@dataclass(frozen=True)
class Realised:
    """What can be told of the mode. ``hollow`` is what the rules predict, None where they leave it open."""

    requested: Mode | None
    possible: tuple[Resolution, ...]  # the resolutions that fit the steps best
    unexplained_steps: int | None  # steps that those do not explain; None where nothing was compared
    hollow: bool | None
    reason: str


def server_of(settings: dict[str, Any]) -> ServerConfig | None:
    """Return the settings as conf/server has them; None where one that dispatch depends on was not recorded."""
    values = {
        "name": "recorded",
        "num_gpu_blocks_override": None,
        "max_cudagraph_capture_size": None,
        "cudagraph_capture_sizes": settings.get("cudagraph_capture_sizes") or None,
    }
    values |= {name: settings.get(name) for name in ServerConfig.model_fields if name not in values}
    # They do not touch dispatch, and older or newer versions may lack them.
    neutral = {"gpu_memory_utilization": 0.9, "enable_prefix_caching": True, "async_scheduling": True, "block_size": 16}
    values |= {name: value for name, value in neutral.items() if values[name] is None}
    try:
        return ServerConfig.model_validate(values)
    except ValueError:
        return None


def realised(settings: dict[str, Any], kinds: Sequence[Kind]) -> Realised:
    """Return what ``settings`` and the dispatched ``kinds`` tell of the resolved mode, and of hollow graphs."""
    requested, server = _requested(settings), server_of(settings)
    if requested is None or server is None:
        return Realised(requested, (), None, None, "the recording lacks settings that decide about the mode")
    possible = _resolutions(requested, settings, server)
    if not possible:
        return Realised(requested, (), None, None, f"vLLM would have refused {requested.value} with this backend")
    unexplained = None
    why_not = _not_comparable(settings, kinds)
    if why_not is None:
        misses = [_unexplained(each.resolved, server, kinds) for each in possible]
        unexplained = min(misses)
        possible = [each for each, missed in zip(possible, misses, strict=True) if missed == unexplained]
    hollow = {each.hollow for each in possible}
    reason = "; ".join(dict.fromkeys(each.reason for each in possible if each.reason))
    if hollow == {True}:
        reason = f"{reason}; piecewise graphs were never made for it: steps reported as PIECEWISE replay nothing"
    elif hollow == {False}:
        unseen = "a graph missing behind its key could not be seen from the front end"
        reason = f"{reason or 'dispatched as asked'}; {unseen}"
    else:
        tells = why_not or "steps of other sizes, or a backend named to vllm serve, would tell"
        reason = f"several outcomes fit, which one depends on the attention backend; {tells}"
    return Realised(requested, tuple(possible), unexplained, hollow.pop() if len(hollow) == 1 else None, reason)


def _requested(settings: dict[str, Any]) -> Mode | None:
    name = settings.get("cudagraph_mode")
    if settings.get("enforce_eager") and name in (None, NONE):
        return Mode.EAGER
    return Mode(name) if name in {mode.value for mode in Mode} else None


def _resolutions(requested: Mode, settings: dict[str, Any], server: ServerConfig) -> list[Resolution]:
    """Return what ``requested`` can become: with the recorded backend on the recorded GPU, or with any."""
    known = _support(settings)
    compiled = settings.get("compilation_mode") in (None, "VLLM_COMPILE")
    no_split = not compiled or sequence_parallel(server)
    found: dict[tuple[Mode, bool], Resolution] = {}
    for support in reversed(GraphSupport) if known is None else [known]:
        name = settings.get("backend") or "the attention backend"
        try:
            resolution = resolve_mode(requested, support, name, query_len(server), no_split)
        except CellFailed:
            continue
        found.setdefault((resolution.resolved, resolution.hollow), resolution)
    return list(found.values())


def _support(settings: dict[str, Any]) -> GraphSupport | None:
    """Return what the backend can capture; None where the backend or the GPU is none that the rules know."""
    presets = [load([f"hardware={name}"]).hardware for name in groups()["hardware"]]
    gpu = str(settings.get("gpu") or "").lower()
    capability = next((each.compute_capability for each in presets if gpu and each.full_name.lower() in gpu), None)
    if capability is None:
        return None
    try:
        backend = BackendConfig(name=settings["backend"], flash_attn_version=settings.get("flash_attn_version"))
        return graph_support(backend, capability)
    except (KeyError, ValueError, InputError):
        return None


def _not_comparable(settings: dict[str, Any], kinds: Sequence[Kind]) -> str | None:
    if not kinds:
        return f"runtime modes were not recorded: start vllm serve with {METRICS_FLAG}"
    if (settings.get("data_parallel_size") or 1) > 1:
        return "data parallel engines agree on a common batch, which the rules do not follow"
    return None


def graphs_of(resolved: Mode, server: ServerConfig) -> Dispatcher | None:
    """Return the dispatcher of a recorded server; None where its sizes and the mode do not go together."""
    try:
        return Dispatcher(resolved, capture_sizes(server, resolved), server)
    except InputError:
        return None


def _unexplained(resolved: Mode, server: ServerConfig, kinds: Sequence[Kind]) -> int:
    graphs = graphs_of(resolved, server)
    if graphs is None:
        return sum(kind.steps for kind in kinds)
    adapters = (False, True) if server.max_loras else (False,)
    missed = 0
    for kind in kinds:
        uniform = (True,) if kind.decode else (True, False)
        answers = {graphs.dispatch(kind.num_tokens, each, lora, int(lora)) for each in uniform for lora in adapters}
        missed += kind.steps if (kind.runtime_mode, kind.padded_tokens) not in answers else 0
    return missed


def why_not_replayed(kind: Kind, graphs: Dispatcher, hollow: bool | None) -> str | None:
    """Return why steps of ``kind`` did not replay the graph that the mode means for them; None where they did.

    A batch that is not certainly a decode batch and did replay a graph counts as what its mode means for it.
    """
    mode, tokens = graphs.mode, kind.num_tokens
    if kind.runtime_mode == PIECEWISE and hollow:
        return "hollow: dispatched as PIECEWISE, with no graph behind it by the rules"
    if kind.runtime_mode == NONE:
        return _why_none(kind, graphs)
    return _decode_hole(tokens, graphs) if kind.decode and kind.runtime_mode != decode_kind(mode) else None


def _why_none(kind: Kind, graphs: Dispatcher) -> str:
    mode, tokens = graphs.mode, kind.num_tokens
    if mode in (Mode.NONE, Mode.EAGER):
        return f"{mode.value} has no graphs"
    largest = graphs.sizes[-1] if graphs.sizes else 0
    if tokens > largest:
        return f"above the largest capture size ({largest}): no mode has a graph for it"
    decode, mixed = graphs.dispatch(tokens, True)[0], graphs.dispatch(tokens, False)[0]
    if kind.decode:
        return _decode_hole(tokens, graphs) if decode == NONE else _OTHERWISE
    if mixed == NONE:
        mixed_batch = f"a batch that holds a prefill: {mode.value} has graphs for decode alone"
        maybe_decode = decode != FULL and tokens <= graphs.max_decode_tokens
        return f"{mixed_batch}; or {_decode_hole(tokens, graphs)}" if maybe_decode else mixed_batch
    return _OTHERWISE


def _decode_hole(tokens: int, graphs: Dispatcher) -> str:
    size = next((size for size in graphs.sizes if size >= tokens), None)
    if size is None or size <= graphs.max_decode_tokens:
        return _OTHERWISE
    limit = f"max_num_seqs={graphs.max_decode_tokens // graphs.query_len}"
    return f"a decode batch that pads to {size}, above {limit}: no decode graph of that size is captured"

"""Configuration in; the graphs vLLM would capture, the batches that replay them and those that fall through, out."""

from typing import Any

from artifact.errors import CellFailed
from artifact.graphs.dispatch import Dispatcher, dispatcher, lora_counts
from artifact.graphs.modes import (
    FULL,
    NONE,
    PIECEWISE,
    Resolution,
    decode_kind,
    mixed_kind,
    query_len,
    resolve,
    sequence_parallel,
)
from artifact.graphs.sizes import capture_sizes
from artifact.schema import Config, Mode, ServerConfig

_SP_HIDDEN = 8192  # vLLM's SP_MIN_HIDDEN_SIZE (compilation/passes/fusion/sequence_parallelism.py)


def resolve_config(config: Config) -> Resolution:
    """Return what the configuration's mode becomes. Raises InputError, and CellFailed("refused"), as ``resolve``."""
    return resolve(config.mode.name, config.backend, config.hardware.compute_capability, config.server)


def validate(config: Config) -> None:
    """Raise InputError for a backend or capture sizes that cannot work; call it before any engine starts.

    A mode that vLLM refuses passes: that is a result of the cell, not a mistake in the configuration.
    """
    capture_sizes(config.server, Mode.NONE)
    try:
        resolution = resolve_config(config)
    except CellFailed:
        return
    capture_sizes(config.server, resolution.resolved)


def _listed(config: Config) -> tuple[int, ...]:
    """Return the user's list, ascending; empty where vLLM's own list is taken. ``capture_sizes`` has checked it."""
    return tuple(sorted({size for size in config.server.cudagraph_capture_sizes or () if isinstance(size, int)}))


def _size_warnings(config: Config, resolution: Resolution, graphs: Dispatcher) -> list[str]:
    """Return what happens to the user's sizes that is not plain from the list itself."""
    server, mode, q = config.server, resolution.resolved, graphs.query_len
    listed, warnings = _listed(config), []
    if above := [size for size in listed if size > server.max_num_batched_tokens]:
        warnings.append(f"sizes {above} are above max_num_batched_tokens={server.max_num_batched_tokens}: dropped")
    separate = decode_kind(mode) == FULL and mode is not Mode.FULL
    unused = [size for size in graphs.sizes if size > graphs.max_decode_tokens]
    if listed and separate and unused:
        kept = "mixed batches keep them" if mixed_kind(mode) == PIECEWISE else "nothing uses them"
        limit = f"max_num_seqs={server.max_num_seqs}" + (f" x {q} tokens" if q > 1 else "")
        warnings.append(f"sizes {unused} are above {limit}: no decode graph is captured for them, {kept}")
    unaligned = [size for size in listed if size % q]
    if unaligned and decode_kind(mode) == FULL:
        warnings.append(
            f"sizes {unaligned} are not multiples of 1 + k = {q}: sizes become {list(graphs.sizes)}, which hold up to "
            f"{graphs.sizes[-1] // q} sequences of max_num_seqs={server.max_num_seqs}"
        )
    return warnings


def _decode_warnings(graphs: Dispatcher, server: ServerConfig) -> list[str]:
    """Return a warning per range of decode batches whose size is missing."""
    warnings = []
    for hole in graphs.fallthrough(has_lora=server.max_loras > 0):
        if hole.kind == "decode":
            tokens = f"{hole.first}" if hole.first == hole.last else f"{hole.first}..{hole.last}"
            warnings.append(
                f"decode batches of {tokens} tokens run {hole.runtime_mode}: no {decode_kind(graphs.mode)} graph holds "
                f"them; with {hole.last} among the capture sizes they would replay one"
            )
    return warnings


def _lora_warnings(server: ServerConfig) -> list[str]:
    if server.max_loras == 0:
        return []
    warnings = []
    if not server.cudagraph_specialize_lora:
        warnings.append("cudagraph_specialize_lora=false: a step without adapters runs without a graph")
    counts = lora_counts(server)
    most = min(server.max_loras, server.max_num_seqs)
    reached = next((count for count in counts if count >= most), counts[-1])
    if server.specialize_active_lora and (never := [count for count in counts if count > reached]):
        warnings.append(
            f"graphs for {never} active adapters are captured and never used: a step has at most {most} "
            f"(max_num_seqs={server.max_num_seqs}, max_loras={server.max_loras})"
        )
    return warnings


def _other_warnings(config: Config, resolution: Resolution) -> list[str]:
    server, q = config.server, query_len(config.server)
    warnings = []
    if resolution.hollow:
        warnings.append(
            f"hollow: {resolution.requested.value} became {resolution.resolved.value} after the model was compiled, so "
            "steps reported as PIECEWISE replay nothing; "
            f"ask for mode={resolution.resolved.value.lower()} to get its graphs"
        )
    hidden = config.model.architecture.get("hidden_size")
    if sequence_parallel(server) and isinstance(hidden, int) and hidden < _SP_HIDDEN:
        warnings.append(
            f"vLLM turns sequence parallelism off for hidden sizes under {_SP_HIDDEN} ({config.model.name}: {hidden}) "
            "unless sp_min_token_num is set; this answer takes it to be on"
        )
    odd = [tokens for tokens in config.explain.batches if tokens % q]
    if odd:
        warnings.append(f"explain.batches {odd} are not multiples of 1 + k = {q}: only mixed batches have such sizes")
    if over := [tokens for tokens in config.explain.batches if tokens > server.max_num_batched_tokens]:
        warnings.append(
            f"explain.batches {over} are above max_num_batched_tokens={server.max_num_batched_tokens}: never scheduled"
        )
    return warnings


def _coverage(server: ServerConfig, graphs: Dispatcher) -> dict[str, int]:
    """Return the largest batches that replay a graph, beside the largest that the scheduler can make.

    Of decode batches in sequences (each 1 + k tokens), of mixed ones in tokens; 0 where none replays.
    """
    q, has_lora = graphs.query_len, server.max_loras > 0

    def replays(tokens: int, uniform: bool) -> bool:
        return graphs.dispatch(tokens, uniform, has_lora, int(has_lora))[0] != NONE

    sequences = min(server.max_num_seqs, server.max_num_batched_tokens // q)
    largest = graphs.sizes[-1] if graphs.sizes else 0
    return {
        "decode_sequences": next((n for n in range(min(sequences, largest // q), 0, -1) if replays(n * q, True)), 0),
        "decode_sequences_schedulable": sequences,
        "mixed_tokens": largest if largest and replays(largest, False) else 0,
        "mixed_tokens_schedulable": server.max_num_batched_tokens,
    }


def explain(config: Config) -> dict[str, Any]:
    """Return the JSON object of the ``explain`` command; ``warnings`` says in words what deserves attention.

    ``graphs`` are dispatch keys, ``captures`` the graphs behind them. With LoRA on, batches and fall-through are
    those of steps with an adapter. Raises InputError and CellFailed("refused") as ``resolve`` and ``capture_sizes``.
    """
    server = config.server
    resolution = resolve_config(config)
    graphs = dispatcher(server, resolution.resolved)
    lora = server.max_loras > 0
    batches = []
    for tokens in config.explain.batches:
        for uniform in (True, False):
            runtime, padded = graphs.dispatch(tokens, uniform, lora, int(lora))
            batches.append(
                {"num_tokens": tokens, "uniform_decode": uniform, "runtime_mode": runtime, "padded_tokens": padded}
            )
    warnings = _other_warnings(config, resolution)
    if graphs.sizes:
        warnings += _size_warnings(config, resolution, graphs) + _decode_warnings(graphs, server)
        warnings += _lora_warnings(server)
    return {
        "requested_mode": resolution.requested.value,
        "resolved_mode": resolution.resolved.value,
        "hollow": resolution.hollow,
        "reason": resolution.reason,
        "capture_sizes": list(graphs.sizes),
        "coverage": _coverage(config.server, graphs),
        "graphs": graphs.keys,
        "captures": graphs.captures(config.model.layers, resolution.hollow),
        "fallthrough": [
            {"kind": hole.kind, "from": hole.first, "to": hole.last, "runtime_mode": hole.runtime_mode}
            for hole in graphs.fallthrough(resolution.hollow, lora)
        ],
        "batches": batches,
        "warnings": warnings,
    }

"""A question, a load and a list of sizes in; the parts of the answer that describe the list, out."""

import json
import shlex
from collections.abc import Sequence
from typing import Any

from artifact.analysis.sizes.choice import choose, graph_counts
from artifact.analysis.sizes.costs import Replay, replayed
from artifact.analysis.sizes.graphs import MEASURED_LARGEST
from artifact.analysis.sizes.question import Load, Question
from artifact.graphs.dispatch import Dispatcher
from artifact.graphs.modes import FULL, NONE, PIECEWISE
from artifact.schema import ServerConfig

Answer = dict[str, Any]


def described(question: Question, load_: Load, chosen: Sequence[int], simulated_ms: float | None) -> Answer:
    """Return what a list is and gives under a load."""
    graphs = Dispatcher(question.grid.mode, chosen, question.config.server)
    replay = _replay(question, load_, chosen)
    counts = graph_counts(question.grid, chosen)
    keys = (0 if question.resolution.hollow else counts[PIECEWISE], counts[FULL])
    taken = {name: None if line is None else line.at(*keys, chosen[-1]) for name, line in question.takes.lines.items()}
    if chosen[-1] > MEASURED_LARGEST or taken["graph_bytes"] is None:
        taken["graph_bytes"] = None
    else:
        taken["graph_bytes"] = round(taken["graph_bytes"])
    return {
        "sizes": list(chosen),
        "graphs": counts,
        "captures": graphs.captures(question.config.model.layers, question.resolution.hollow),
        **taken,
        **_shares(question, load_, replay),
        "expected_step_ms": replay.step_ms,
        "simulated_step_ms": simulated_ms,
        "fallthrough": _fallthrough(question, load_, graphs, replay),
    }


def _replay(question: Question, load_: Load, chosen: Sequence[int]) -> Replay:
    server = question.config.server
    return replayed(load_.costs, Dispatcher(question.grid.mode, chosen, server), server.max_loras > 0)


def _replays(question: Question, replay: Replay) -> Any:
    hollow = (replay.runtime_mode == PIECEWISE) & question.resolution.hollow
    return (replay.runtime_mode != NONE) & ~hollow


def _shares(question: Question, load_: Load, replay: Replay) -> Answer:
    """Return coverage (steps and tokens that replay a graph) and padding (padded over scheduled tokens, less one)."""
    batches, graph = load_.served.batches, _replays(question, replay)
    tokens = batches.steps * batches.tokens
    return {
        "coverage": {
            "steps": float(batches.steps[graph].sum() / batches.steps.sum()),
            "tokens": float(tokens[graph].sum() / tokens.sum()),
        },
        "padding_ratio": float((batches.steps * replay.padded).sum() / tokens.sum() - 1),
    }


def _fallthrough(question: Question, load_: Load, graphs: Dispatcher, replay: Replay) -> list[Answer]:
    """Return the batches that do not replay what the mode means for them, and their share of this load."""
    batches, server = load_.served.batches, question.config.server
    lora = server.max_loras > 0
    holes = [(hole.kind, hole.first, hole.last, hole.runtime_mode) for hole in graphs.fallthrough(False, lora)]
    if question.resolution.hollow:
        holes = [(hole.kind, hole.first, hole.last, hole.runtime_mode) for hole in graphs.fallthrough(True, lora)]
    if graphs.sizes[-1] < server.max_num_batched_tokens:
        holes.append(("mixed", graphs.sizes[-1] + 1, server.max_num_batched_tokens, NONE))
    rows = []
    time_ms = batches.steps * replay.period_ms
    for kind, first, last, runtime in holes:
        inside = (batches.uniform == (kind == "decode")) & (batches.tokens >= first) & (batches.tokens <= last)
        rows.append(
            {
                "kind": kind,
                "from": first,
                "to": last,
                "runtime_mode": runtime,
                "steps": float(batches.steps[inside].sum() / batches.steps.sum()),
                "step_time": float(time_ms[inside].sum() / time_ms.sum()),
            }
        )
    return rows


def saving(mine: Answer, default: Answer) -> Answer:
    """Return what the chosen list takes less than the default; None where either is unknown."""

    def less(name: str) -> Any:
        return None if mine[name] is None or default[name] is None else default[name] - mine[name]

    return {
        "capture_s": less("capture_s"),
        "graph_bytes": less("graph_bytes"),
        "graphs": sum(default["graphs"].values()) - sum(mine["graphs"].values()),
        "step_time": 1 - mine["expected_step_ms"] / default["expected_step_ms"],
    }


def held_against(question: Question, load_: Load, chosen: Sequence[int], vllms_own: Sequence[int]) -> Answer:
    """Return what the chosen sizes give under another load than they were chosen for."""
    replay = _replay(question, load_, chosen)
    graphs = sum(graph_counts(question.grid, chosen).values())
    best_ms = choose(load_.costs, question.grid, question.config.sizes, question.takes, graphs).best_ms()
    return {
        "load": load_.name,
        "expected_step_ms": replay.step_ms,
        "default_step_ms": _replay(question, load_, vllms_own).step_ms,
        "best_step_ms": best_ms,
        "regret": replay.step_ms / best_ms - 1,
        **_shares(question, load_, replay),
        "overload": load_.served.overload,
    }


def _compilation(question: Question, server: ServerConfig) -> Answer:
    listed = [] if server.cudagraph_capture_sizes is None else list(server.cudagraph_capture_sizes)
    return {"cudagraph_mode": question.config.mode.cudagraph_mode, "cudagraph_capture_sizes": listed}


def flags(question: Question, server: ServerConfig) -> str:
    """Return what to paste after ``vllm serve MODEL``; the limits too, because the sizes were chosen for them."""
    backend = question.config.backend.name
    named = "" if backend == "FLASH_ATTN" else f"--attention-backend {backend} "
    limits = f"--max-num-seqs {server.max_num_seqs} --max-num-batched-tokens {server.max_num_batched_tokens}"
    return f"{named}{limits} --compilation-config {shlex.quote(json.dumps(_compilation(question, server)))}"


def python(question: Question, server: ServerConfig) -> str:
    """Return the same as ``flags``, as a call."""
    backend = question.config.backend.name
    named = "" if backend == "FLASH_ATTN" else f'attention_config={{"backend": "{backend}"}}, '
    limits = f"max_num_seqs={server.max_num_seqs}, max_num_batched_tokens={server.max_num_batched_tokens}"
    compilation = _compilation(question, server)
    return f"LLM(model={question.config.model.hf_id!r}, {named}{limits}, compilation_config={compilation!r})"

"""A question and its loads in; where the numbers come from, and what to be wary of, out, a sentence each."""

from collections.abc import Sequence
from typing import Any

from artifact.analysis.sizes.costs import replayed
from artifact.analysis.sizes.graphs import MEASURED_LARGEST
from artifact.analysis.sizes.question import Load, Question
from artifact.analysis.sizes.serving import Wanted
from artifact.graphs.dispatch import Dispatcher
from artifact.graphs.modes import NONE

_WORTH_SAYING = 0.01  # share of steps or of their time
_DRIFT = 0.05  # of the simulated over the expected step time, beside the default's


def source(question: Question, own: Wanted | None, load: Load) -> str:
    """Return where the batches and their costs come from."""
    calibration = question.calibration
    fitted = f"step costs calibrated on {calibration.gpu_name} with {calibration.model} ({calibration.evidence.value})"
    if own is None:
        return f"{load.served.steps:,} recorded steps of {question.config.sizes.measured}; {fitted}"
    seeds = "" if own.seeds == 1 else f", {own.seeds} seeds"
    return f"simulated: {load.served.steps:,} steps of {own.taken:,} requests{seeds}; {fitted}"


def warnings(
    question: Question, own: Wanted | None, loads: Sequence[Load], mine: dict[str, Any], default: dict[str, Any]
) -> list[str]:
    """Return what of the answer is not plain from its numbers."""
    return [
        *_of_the_server(question),
        *([] if own is None else _of_the_load(question, own)),
        *(f"{load.name}: the queue grows, the load is more than the server sustains" for load in loads
          if load.served.overload),
        *_of_the_simulation(mine, default),
        *_of_the_sizes(question, loads[0], mine),
    ]  # fmt: skip


def _of_the_server(question: Question) -> list[str]:
    config, server = question.config, question.config.server
    said = []
    if question.resolution.reason is not None:
        said.append(question.resolution.reason)
    if question.resolution.hollow:
        said.append("hollow: steps dispatched as PIECEWISE replay nothing, whatever the sizes")
    if server.cudagraph_capture_sizes is not None or server.max_cudagraph_capture_size is not None:
        said.append("server.cudagraph_capture_sizes is replaced; the default shown is vLLM's own list")
    if server.num_speculative_tokens:
        said.append(
            f"speculative decoding: the batches are those of plain decoding, {question.query_len} tokens a request; "
            "acceptance and the draft are not modelled, and nothing checks the step time"
        )
    if server.tensor_parallel_size > 1:
        said.append("tensor parallelism: batches and step times are those of one GPU")
    if server.max_loras:
        said.append("LoRA: every step has an adapter, which costs nothing here")
    if question.calibration.doubt:
        said.append(question.calibration.doubt)
    if config.backend.name != question.calibration.backend:
        said.append(f"backend {config.backend.name} is priced as {question.calibration.backend}, which was calibrated")
    if config.workload.prefix_hit_rate:
        said.append(
            f"workload.prefix_hit_rate={config.workload.prefix_hit_rate:g} is modelled as prompts shorter by that share"
        )
    return said


def _of_the_load(question: Question, own: Wanted) -> list[str]:
    said = []
    if own.left_out:
        said.append(
            f"{own.left_out} requests are longer than server.max_model_len={question.config.server.max_model_len}: "
            "left out"
        )
    if own.taken + own.left_out < own.requests:
        taken, requests = own.taken // own.seeds, own.requests // own.seeds
        said.append(
            f"{taken:,} of {requests:,} requests were served, in slices spread over the schedule; a queue that builds "
            "up for longer is not seen (sizes.requests=null serves all)"
        )
    return said


def _of_the_simulation(mine: dict[str, Any], default: dict[str, Any]) -> list[str]:
    """Return whether the load moved under the chosen sizes: a batch without a graph makes the next ones larger."""
    if mine["simulated_step_ms"] is None or default["simulated_step_ms"] is None:
        return []
    moved = [row["simulated_step_ms"] / row["expected_step_ms"] for row in (mine, default)]
    if abs(moved[0] / moved[1] - 1) <= _DRIFT:
        return []
    return [
        f"simulated with the chosen sizes, steps take {mine['simulated_step_ms']:.3g} ms, not the "
        f"{mine['expected_step_ms']:.3g} ms expected of the default's batches: batches change where they fall "
        "through; keep MAX in sizes.guard, or take a larger sizes.max_graphs"
    ]


def _of_the_sizes(question: Question, load: Load, mine: dict[str, Any]) -> list[str]:
    """Return what falls through above the largest size, and what of the sizes or batches was never calibrated."""
    said, batches, chosen = [], load.served.batches, mine["sizes"]
    graphs = Dispatcher(question.grid.mode, chosen, question.config.server)
    replay = replayed(load.costs, graphs, question.config.server.max_loras > 0)
    above = [hole for hole in mine["fallthrough"] if hole["kind"] == "mixed" and hole["from"] > chosen[-1]]
    if above and above[0]["step_time"] >= _WORTH_SAYING and question.grid.keys.high != (0, 0):
        said.append(
            f"{above[0]['step_time']:.1%} of the step time is mixed steps above {chosen[-1]} tokens, without a graph: "
            f"sizes.largest={min(4 * chosen[-1], question.config.server.max_num_batched_tokens)} would consider more"
        )
    if beyond := [size for size in chosen if size > MEASURED_LARGEST]:
        said.append(
            f"sizes {beyond} are above {MEASURED_LARGEST} tokens: no measured start captured such graphs, so their "
            "memory is unknown, and their step time is carried on from the sizes below"
        )
    over = sum(
        float(batches.steps[(replay.runtime_mode == mode) & load.costs.beyond(mode)].sum())
        for mode in {str(mode) for mode in replay.runtime_mode} | {NONE}
        if (replay.runtime_mode == mode).any()
    )
    if over / float(batches.steps.sum()) >= _WORTH_SAYING:
        said.append(
            f"{over / float(batches.steps.sum()):.0%} of the steps hold more requests or context than were calibrated"
        )
    return said

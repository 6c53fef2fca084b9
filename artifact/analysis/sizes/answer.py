"""Overrides (a load, a trace or a recording, a mode, limits) in; the capture sizes to take, and what they save, out."""

from collections.abc import Callable, Sequence
from pathlib import Path

from artifact.analysis.sizes import report as size_report
from artifact.analysis.sizes import warnings as size_warnings
from artifact.analysis.sizes.batches import recorded
from artifact.analysis.sizes.choice import choose, default_server, with_sizes
from artifact.analysis.sizes.question import Load, Question, ask, priced
from artifact.analysis.sizes.report import Answer
from artifact.analysis.sizes.serving import Servers, Wanted, shifted, wanted
from artifact.config import load
from artifact.errors import InputError
from artifact.graphs.sizes import capture_sizes
from artifact.schema import Config, Evidence


def sizes(
    overrides: Sequence[str], shipped: Path | None = None, advance: Callable[[float], None] | None = None
) -> Answer:
    """Return the JSON object of the ``sizes`` command.

    ``shipped`` holds study folders whose launches tell what graphs take; without it the calibration's starts do.
    ``advance`` is told the share of the work that was done. Step times are in ms; ``saving`` is default less chosen,
    of the step time as a share; ``shifted`` holds the chosen sizes against other loads, ``regret`` being what they
    cost there beside the best list of as many graphs. Raises InputError for what cannot be asked, EnvironmentLacks
    without a calibration, CellFailed("refused") for a mode that vLLM refuses.
    """
    question = ask(overrides, shipped)
    own, others = _wanted(question)
    # The load is served twice: with vLLM's own sizes, and with the chosen ones.
    total = sum(job.steps for of in (own, own, *others.values()) if of is not None for job in of.jobs)
    with Servers(None if advance is None else lambda steps: advance(steps / total)) as servers:
        loads = _serve(question, servers, own, others)
        choice = choose(loads[0].costs, question.grid, question.config.sizes, question.takes)
        chosen = choice.sizes(question.config.sizes.margin)
        server = with_sizes(question.config.server, question.grid.mode, chosen)
        simulated_ms = _simulated(question, servers, own, chosen)
    vllms_own = capture_sizes(default_server(server), question.grid.mode)
    mine = size_report.described(question, loads[0], chosen, simulated_ms)
    own_ms = loads[0].served.step_ms if question.is_plain and own is not None else None
    default = size_report.described(question, loads[0], vllms_own, own_ms)
    return {
        "mode": question.config.mode.name.value,
        "resolved_mode": question.grid.mode.value,
        **mine,
        "flags": size_report.flags(question, server),
        "python": size_report.python(question, server),
        "evidence": Evidence.SIMULATED.value,
        "source": size_warnings.source(question, own, loads[0]),
        "graphs_source": question.takes.source,
        "default": default,
        "saving": size_report.saving(mine, default),
        "shifted": [size_report.held_against(question, each, chosen, vllms_own) for each in loads[1:]],
        "outline": [{"graphs": graphs, "expected_step_ms": ms} for graphs, ms in choice.outline()],
        "warnings": size_warnings.warnings(question, own, loads, mine, default),
    }


def _wanted(question: Question) -> tuple[Wanted | None, dict[str, Wanted]]:
    """Return the load's schedules, None where a recording takes their place, and those it is held against, by name."""
    config, q = question.simulated, question.query_len
    asked = config.sizes
    others: dict[str, Config] = {}
    if asked.measured is None and asked.load_factor != 1:
        others[f"load x {asked.load_factor:g}"] = shifted(config, asked.load_factor)
    if asked.other_trace is not None:
        trace = config.trace.model_copy(update={"path": asked.other_trace, "window": None, "requests": None})
        workload = load(["workload=trace"]).workload
        others[asked.other_trace] = config.model_copy(update={"workload": workload, "trace": trace})
    own = wanted(config, q) if asked.measured is None else None
    found: dict[str, Wanted] = {}
    for name, each in others.items():
        try:
            found[name] = wanted(each, q)
        except InputError as error:
            raise InputError(f"{'sizes.other_trace' if name == asked.other_trace else name}: {error}") from None
    return own, found


def _serve(question: Question, servers: Servers, own: Wanted | None, others: dict[str, Wanted]) -> list[Load]:
    """Serve the load and what it is held against with vLLM's own sizes."""
    served = servers.serve([*([] if own is None else [own]), *others.values()])
    if question.config.sizes.measured is not None:
        folder = Path(question.config.sizes.measured)
        served.insert(0, recorded(question.config, folder, question.query_len))
    names = [question.config.workload.name, *others]
    return [priced(question, name, each) for name, each in zip(names, served, strict=True)]


def _simulated(question: Question, servers: Servers, own: Wanted | None, chosen: Sequence[int]) -> float | None:
    """Return the mean step time in ms with the chosen sizes on the simulator; None where it cannot take them."""
    if not question.is_plain or own is None:
        return None
    server = with_sizes(question.simulated.server, question.grid.mode, chosen)
    jobs = [job._replace(config=job.config.model_copy(update={"server": server})) for job in own.jobs]
    return servers.serve([own._replace(jobs=tuple(jobs))])[0].step_ms

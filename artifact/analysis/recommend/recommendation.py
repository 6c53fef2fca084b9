"""Overrides (a load, a trace or a ``vllm serve`` command, an objective, limits) in; which mode to run, and why, out."""

import json
import math
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from artifact.analysis.contrasts import measured_cells
from artifact.analysis.contrasts.measured_cells import Measured
from artifact.analysis.recommend import serve_command
from artifact.analysis.recommend.answer import Verdicts, conclude
from artifact.analysis.recommend.mode_trials import Simulated, simulate
from artifact.analysis.recommend.objectives import OBJECTIVES
from artifact.config import load
from artifact.errors import CellFailed, EnvironmentLacks, InputError
from artifact.graphs.explain import explain, resolve_config, validate
from artifact.schema import Config, Evidence, Mode, ModeConfig
from artifact.simulator.cost import CALIBRATIONS, Calibration, load_calibration

MODES = tuple(mode for mode in Mode if mode is not Mode.EAGER)
DEFAULT = Mode.FULL_AND_PIECEWISE


@dataclass
class Question:
    """The configuration that is asked about, and the one that the simulator takes in its place."""

    config: Config
    simulated: Config
    calibration: Calibration
    modes: tuple[Mode, ...]  # those that become what they are asked to be
    default: Mode
    outside: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    command: serve_command.ServeCommand | None = None


def recommend(
    overrides: Sequence[str], measured: Path | None = None, advance: Callable[[float], None] | None = None
) -> dict[str, Any]:
    """Return the JSON object of the ``recommend`` command.

    ``measured`` holds study folders of measurements; where they suffice they answer (``measured_cells``), else the
    simulator does. ``advance`` is told the share of the work that was done. ``margin`` and ``interval`` are the
    recommended mode's advantage on ``margin_against`` as a share; ``verdict`` in ``ranking`` is each mode's against
    the recommended one, and so are ``equivalent`` and ``inconclusive``.
    Raises InputError for what cannot be asked and EnvironmentLacks without any calibration.
    """
    question = ask(overrides)
    config = question.config
    known = measured_cells.find(config, question.modes, measured)
    simulated = simulate(question.simulated, question.modes, question.calibration, advance)
    rows = known.trials if known.trials and not question.outside else simulated.trials
    evidence = Evidence.MEASURED if rows is known.trials else Evidence.SIMULATED
    _check_objective(question, simulated)
    verdicts = conclude(question.simulated, rows, simulated, evidence, question.default, question.outside)
    return {
        "recommended": verdicts.choice.recommended.value,
        "flags": _flags(question, verdicts.choice.recommended),
        "python": _python(question, verdicts.choice.recommended),
        "command": _command(question, verdicts.choice.recommended),
        "evidence": evidence.value,
        "source": _source(question, evidence, known, simulated),
        **verdicts.answer,
        "notes": _notes(question, known, evidence),
        "out": config.figures.out,
        "warnings": [*question.warnings, *_simulation_warnings(question, simulated, evidence), *verdicts.warnings],
    }


def ask(overrides: Sequence[str]) -> Question:
    """Return what ``overrides`` ask. Raises InputError, EnvironmentLacks where no calibration is shipped at all."""
    overrides = [serve_command.quoted(override) for override in overrides]
    config = load(overrides)
    command = None
    if config.recommend.serve_command is not None:
        command = serve_command.parse(config.recommend.serve_command, config.hardware)
        config = load([*command.overrides, *overrides])
        if command.kv_bytes is not None:
            per_block = config.model.kv_bytes_per_token * config.server.block_size
            blocks = command.kv_bytes // per_block
            if blocks < 1:
                raise InputError(f"recommend.serve_command: --kv-cache-memory-bytes {command.kv_bytes} holds no block")
            config = load([*command.overrides, f"server.num_gpu_blocks_override={blocks}", *overrides])
    outside, warnings = ([], []) if command is None else (list(command.outside), list(command.warnings))
    validate(config)
    calibration, stand_in = _calibration(config, outside, warnings)
    modes, default = _modes(config, warnings)
    server = _plain_server(config, outside)
    if config.workload.prefix_hit_rate:
        warnings.append(
            f"workload.prefix_hit_rate={config.workload.prefix_hit_rate:g} is modelled as prompts shorter by that "
            "share: what their attention and KV cache take is understated"
        )
    simulated = stand_in.model_copy(update={"server": server})
    return Question(config, simulated, calibration, modes, default, outside, list(dict.fromkeys(warnings)), command)


def _calibration(config: Config, outside: list[str], warnings: list[str]) -> tuple[Calibration, Config]:
    """Return the calibration, and the configuration on the GPU and with the model that it is of."""
    try:
        calibration = load_calibration(config.engine.calibration, config.hardware, config.model.name)
        stand_in = config
    except EnvironmentLacks:
        names = [file.stem.split("__") for file in sorted(CALIBRATIONS.glob("*.json"))]
        if not names:
            raise
        # The same model on another GPU tells more of the host's share than another model on the same GPU; of other
        # models the one whose weights take the GPU a like time.
        models = {name: load([f"model={name}"]).model for _, name in names}
        gpu, model = min(
            names,
            key=lambda name: (
                name[1] != config.model.name,
                name[0] != config.hardware.gpu,
                abs(math.log(models[name[1]].weight_bytes / config.model.weight_bytes)),
            ),
        )
        stand_in = config.model_copy(update={"model": models[model], "hardware": load([f"hardware={gpu}"]).hardware})
        calibration = load_calibration(None, stand_in.hardware, model)
        outside.append(f"{config.model.name} on {config.hardware.gpu}, calibrated is {model} on {gpu}")
        warnings.append(
            f"no calibration for {config.hardware.gpu} with {config.model.name}: the numbers are those of {model} on "
            f"{gpu}; `artifact calibrate` on the GPU measures one"
        )
    if calibration.doubt:
        warnings.append(calibration.doubt)
    if config.backend.name != calibration.backend:
        outside.append(f"backend {config.backend.name}, calibrated is {calibration.backend}")
    return calibration, stand_in


def _plain_server(config: Config, outside: list[str]) -> Any:
    """Return the server as the simulator takes it: one GPU, no speculation, no adapters."""
    server = config.server
    for key, plain, words in (
        ("tensor_parallel_size", 1, "tensor parallelism"),
        ("num_speculative_tokens", 0, "speculative decoding"),
        ("max_loras", 0, "LoRA"),
    ):
        if getattr(server, key) != plain:
            if words not in outside:
                outside.append(words)
            server = server.model_copy(update={key: plain})
    return server


def _modes(config: Config, warnings: list[str]) -> tuple[tuple[Mode, ...], Mode]:
    """Return the modes that become what they are asked to be, and what the default becomes; warn of the others."""
    modes: list[Mode] = []
    default = DEFAULT
    said: dict[str, list[str]] = {}
    asked_for = config.explain.model_copy(update={"batches": ()})
    for mode in MODES:
        own = config.model_copy(update={"mode": ModeConfig(name=mode), "explain": asked_for})
        try:
            resolution = resolve_config(own)
        except CellFailed as refusal:
            warnings.append(f"{mode.value} is not ranked: {refusal.reason}")
            continue
        if mode is DEFAULT:
            default = resolution.resolved
        if resolution.resolved is mode and not resolution.hollow:
            modes.append(mode)
            for text in explain(own)["warnings"]:
                said.setdefault(text, []).append(mode.value)
        else:
            kind = "hollow, its PIECEWISE steps replay nothing" if resolution.hollow else "downgraded"
            warnings.append(f"{mode.value} is not ranked: {kind} ({resolution.reason})")
    warnings += [f"{', '.join(names)}: {text}" for text, names in said.items()]
    return tuple(modes), default


def _check_objective(question: Question, simulated: Simulated) -> None:
    """Raise InputError where a run has no value of the objective: too few requests, or none of the kind."""
    name = question.config.recommend.objective
    objective = OBJECTIVES[name]
    trials = [trial for of in (simulated.trials, *simulated.by_launch_us.values()) for trial in of]
    runs = [run for trial in trials for runs in (trial.runs, trial.base, *trial.slower.values()) for run in runs]
    for run in runs:
        if run[objective.column] is None:
            raise InputError(
                f"recommend.objective={name}: {run['n_requests']} measured requests of workload "
                f"{question.config.workload.name} have no {objective.words}; a p99 needs 100, TPOT more than one "
                "output token: raise workload.duration_s, or take another objective"
            )


def _compilation(question: Question, mode: Mode) -> dict[str, Any]:
    server, command = question.config.server, question.command
    config: dict[str, Any] = {"cudagraph_mode": mode.value}
    if command is not None:
        return config | command.compilation
    if server.cudagraph_capture_sizes is not None:
        config["cudagraph_capture_sizes"] = list(server.cudagraph_capture_sizes)
    return config


def _backend(question: Question) -> str | None:
    """Return the backend to name: none where it is vLLM's own choice."""
    is_default = question.config.backend.name == "FLASH_ATTN"
    return None if is_default else question.config.backend.name


def _flags(question: Question, mode: Mode) -> str:
    backend = _backend(question)
    named = "" if backend is None else f"--attention-backend {backend} "
    return f"{named}--compilation-config {shlex.quote(json.dumps(_compilation(question, mode)))}"


def _python(question: Question, mode: Mode) -> str:
    backend = _backend(question)
    named = "" if backend is None else f'attention_config={{"backend": "{backend}"}}, '
    return f"LLM(model={question.config.model.hf_id!r}, {named}compilation_config={_compilation(question, mode)!r})"


def _command(question: Question, mode: Mode) -> str | None:
    """Return the command that was given, with the mode in it."""
    if question.command is None:
        return None
    config = shlex.quote(json.dumps(_compilation(question, mode)))
    return f"{shlex.join(question.command.kept)} --compilation-config {config}"


def _source(question: Question, evidence: Evidence, known: Measured, simulated: Simulated) -> str:
    calibration = question.calibration
    if evidence is Evidence.MEASURED:
        return f"measured on {calibration.gpu_name}, {len(known.blocks)} blocks"
    fitted = f"calibrated on {calibration.gpu_name} with {calibration.model} ({calibration.evidence.value})"
    runs = "1 run" if simulated.seeds == 1 else f"{simulated.seeds} seeds"
    return f"simulated, {fitted}; {simulated.requests:,} requests a mode, {runs}"


def _notes(question: Question, known: Measured, evidence: Evidence) -> list[str]:
    """Return what the command runs now, and what was measured close by where that does not suffice to answer."""
    notes = [] if question.command is None else [f"the command runs {question.command.mode.value} now"]
    if known.cells.empty or evidence is Evidence.MEASURED:
        return notes
    objective = OBJECTIVES[question.config.recommend.objective]
    values = known.cells.groupby("requested_mode")[objective.column].median().dropna().sort_values()
    shown = ", ".join(f"{mode} {value:.3g}" for mode, value in values.items())
    return [
        *notes,
        f"measured close by, exploratory ({len(known.blocks)} of {known.needed} blocks needed): "
        f"{objective.words} ({objective.unit}): {shown}",
    ]


def _simulation_warnings(question: Question, simulated: Simulated, evidence: Evidence) -> list[str]:
    """Return what the engine said, of steps beyond the calibration from one in a hundred on."""
    warnings = []
    if simulated.left_out:
        warnings.append(
            f"{simulated.left_out} of {simulated.requests + simulated.left_out} requests are longer than "
            f"server.max_model_len={question.config.server.max_model_len}: left out"
        )
    if evidence is Evidence.MEASURED:
        return warnings
    said: dict[str, list[str]] = {}
    for mode, first in simulated.first.items():
        for text in first.warnings:
            text = re.sub(r"^\d+ graphs instead of the \d+ calibrated", "other graphs than were calibrated", text)  # noqa: PLW2901
            match = re.match(r"(\d+) of (\d+) steps (.*)", text)
            if match is None:
                said.setdefault(text, []).append(mode.value)
            elif (share := int(match[1]) / int(match[2])) >= 0.01:
                said.setdefault(f"{share:.0%} of its steps {match[3]}", []).append(mode.value)
    warnings += [f"{', '.join(modes)}: {text}" for text, modes in said.items()]
    if simulated.seeds == 1:
        warnings.append("the schedule was served once: intervals hold the calibration's error, not that of a sample")
    if simulated.head_requests < simulated.requests:
        warnings.append(
            f"how far the calibration's error carries, and other launch costs, were asked on the first "
            f"{simulated.head_requests:,} of {simulated.requests:,} requests"
        )
    if not simulated.by_launch_us:
        warnings.append("the calibration holds no launch cost: sensitivity to it is not shown")
    return warnings


__all__ = ["DEFAULT", "MODES", "Question", "Verdicts", "ask", "recommend"]

"""Command line in, tables or one JSON object out: ``artifact COMMAND [group=choice] [key=value] [--json]``.

Every command composes the same configuration. Results go to stdout, everything else to stderr. Exit codes: 0 done,
1 a cell failed, 2 bad input, 3 the environment lacks something.
"""

import argparse
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from rich.console import Console

from artifact import __version__, tables, tables_recommend
from artifact.config import load, nearest
from artifact.errors import ArtifactError, InputError
from artifact.schema import Evidence

Answer = dict[str, Any]


class Command(NamedTuple):
    """What a command does for ``--help``, the function that answers, and how the answer is shown to people."""

    help: str
    answer: Callable[[list[str]], Answer]
    show: Callable[[Answer, Console], None]


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _doctor(overrides: list[str]) -> Answer:
    from artifact.study.doctor import doctor

    checks = doctor(load(overrides))
    return {
        "checks": [check._asdict() for check in checks],
        "exit_code": 3 if any(c.ok is False for c in checks) else 0,
    }


def _explain(overrides: list[str]) -> Answer:
    from artifact.graphs.explain import explain

    return explain(load(overrides))


def _plan(overrides: list[str]) -> Answer:
    from artifact.engines import nvml
    from artifact.engines.choose import choose
    from artifact.study.plan import describe, plan

    engine = load(overrides).engine
    # What a study costs on a GPU is asked where there is none, too.
    evidence = Evidence.MEASURED if engine.kind == "vllm" else choose(engine).evidence
    return describe(plan(overrides, evidence, nvml.describe().name))


def _run(overrides: list[str]) -> Answer:
    from artifact.engines import nvml
    from artifact.engines.choose import choose
    from artifact.engines.isolate import Isolated
    from artifact.simulator.cost import load_calibration
    from artifact.study.plan import plan
    from artifact.study.run import run
    from artifact.study.store import Store
    from artifact.study.tracking import Tracker

    config = load(overrides)
    choice = choose(config.engine)
    _say(choice.sentence)
    gpu = nvml.describe()
    planned = plan(overrides, choice.evidence, gpu.name)
    source = f"measured on {gpu.name}, vLLM {config.engine.vllm_version}"
    if choice.evidence is Evidence.SIMULATED:
        models = {launch.config.model.name: launch.config for launch in planned.launches}
        for name, of_launch in models.items():
            calibration = load_calibration(of_launch.engine.calibration, of_launch.hardware, name)
            source = f"simulated, calibrated on {calibration.gpu_name}"
            _say(f"evidence: {source} with {name}")
    folder = Path(config.executor.results) / config.study.name
    engine_class = choice.engine_class()
    tracker = Tracker(config.tracking, folder)
    try:
        summary = run(
            planned, Store(folder), lambda log: Isolated(engine_class, choice.preload, log), on_launch=tracker.log
        )
    finally:
        tracker.close()
    rows = _rows(folder, config.study.name, choice.evidence)
    return {**summary, "source": source, **rows, "exit_code": 1 if summary["failed"] else 0}


def _rows(folder: Path, study: str, evidence: Evidence) -> Answer:
    """Return the study's rows and, for simulated ones, the shipped measurements of the same cells beside them."""
    from artifact.analysis.compare import overview, side_by_side
    from artifact.study.store import read_cells, read_launches

    cells = read_cells(folder)
    rows: Answer = {"rows": overview(cells, read_launches(folder)).to_dict("records")}
    measured = _shipped_folder() / study
    if evidence is Evidence.SIMULATED and measured.is_dir():
        rows["beside_measured"] = side_by_side(cells, read_cells(measured)).to_dict("records")
    return rows


def _calibrate(overrides: list[str]) -> Answer:
    from artifact.analysis.calibrate import fit_folder, save

    overrides = ["study=calibrate", *overrides]
    config = load(overrides)
    folder = Path(config.executor.results) / config.study.name
    if config.engine.kind != "sim":
        _run(overrides)
    calibration = fit_folder(folder, config.model.name, config.hardware)
    fit = {
        name: f"{t.error_p50:.1%} median, {t.error_p90:.1%} p90 of {t.rows} steps"
        for name, t in calibration.tables.items()
    }
    return {"file": str(save(calibration, folder)), "gpu": calibration.gpu_name, "fit": fit}


def _trace(overrides: list[str]) -> Answer:
    from artifact.workloads.traces import describe, read

    return describe(read(load(overrides).trace))


def _figures(overrides: list[str]) -> Answer:
    from artifact import plots

    config = load(overrides)
    if config.figures.source == "results":
        root = Path(config.executor.results)
        run = {path.parent.name for path in root.glob("*/cells.parquet")}
        names = [name for name, (studies, _) in plots.FIGURES.items() if run & set(studies)]
        if not names:
            raise InputError(f"{root}: no finished study that has a figure; artifact run study=smoke makes one")
    else:
        root, names = _shipped(), list(plots.FIGURES)
    out = Path(config.figures.out)
    return {"source": str(root), "files": [str(path) for name in names for path in plots.draw(name, root, out)]}


def _claims(overrides: list[str]) -> Answer:
    from artifact.analysis import claims

    config = load(overrides)
    root = Path(config.executor.results) if config.figures.source == "results" else _shipped()
    checked = claims.check(claims.read_claims(), root)
    rows = [
        {
            "id": each.claim.id,
            "verdict": each.verdict,
            "expected": each.claim.expected,
            "statement": each.claim.statement,
            "left": each.left,
            "is": each.claim.is_,
            "right": each.right,
            "reason": each.reason,
            "figure": each.claim.figure,
            "human_minutes": each.claim.human_minutes,
            "compute_minutes": each.claim.compute_minutes,
        }
        for each in checked
    ]
    surprises = [row["id"] for row in rows if row["verdict"] != row["expected"]]
    return {"source": str(root), "claims": rows, "surprises": surprises, "exit_code": 1 if surprises else 0}


def _shipped_folder() -> Path:
    return Path(__file__).resolve().parent.parent / "paper_figures" / "data"


def _shipped() -> Path:
    folder = _shipped_folder()
    if not folder.is_dir():
        raise InputError(
            "the shipped measurements are in paper_figures/data of a checkout; this is an installed package"
        )
    return folder


def _recommend(overrides: list[str]) -> Answer:
    from rich.progress import Progress

    from artifact.analysis.recommend import recommend

    folder = _shipped_folder()
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("simulating every mode", total=1.0)
        return recommend(overrides, folder if folder.is_dir() else None, lambda share: progress.advance(task, share))


def _sync(overrides: list[str]) -> Answer:
    from artifact.study.tracking import sync

    config = load(overrides)
    folder = Path(config.executor.results) / config.study.name
    return dict(sync(folder, config.tracking))


def _ui(overrides: list[str]) -> Answer:
    from artifact.study.tracking import ui_command

    command = ui_command(load(overrides))
    _say(" ".join(command))
    return {"exit_code": subprocess.run(command, check=False).returncode}


COMMANDS: dict[str, Command] = {
    "doctor": Command("check GPU, driver, NVML, vLLM, disk and cache, and say what to do", _doctor, tables.doctor),
    "explain": Command("resolve a mode and show sizes, graphs and what falls through", _explain, tables.explain),
    "plan": Command("the cells in order, launches, minutes and disk", _plan, tables.plan),
    "run": Command("run a study; resumes by itself", _run, tables.run),
    "calibrate": Command(
        "measure steps (study=calibrate) and fit the simulator's cost model", _calibrate, tables.pairs
    ),
    "trace": Command("read, check and describe a request trace", _trace, tables.pairs),
    "figures": Command("draw the figures, from shipped data or from results", _figures, tables.pairs),
    "claims": Command("check every claim against shipped data, or results", _claims, tables.claims),
    "recommend": Command(
        "which mode to run for a workload, a trace or a vllm serve command; --plot draws it",
        _recommend,
        tables_recommend.recommend,
    ),
    "sync": Command("rebuild the MLflow view of a study from its results", _sync, tables.pairs),
    "ui": Command("browse the runs in MLflow's UI on 127.0.0.1", _ui, lambda *_: None),
}


def _parser() -> argparse.ArgumentParser:
    lines = "\n".join(f"  {name:<10} {command.help}" for name, command in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="artifact",
        usage="artifact COMMAND [group=choice] [key=value] [--json]",
        description=f"commands:\n{lines}\n\ngroups and keys are those of conf/: mode=full server.max_num_seqs=64",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", metavar="COMMAND")
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--plot", action="store_true", help="recommend: also a picture, figures.out/recommend.png")
    parser.add_argument("--version", action="version", version=__version__)
    return parser


def _clean(value: Any) -> Any:
    """JSON knows neither NaN nor pandas' NA: what does not exist is null."""
    if isinstance(value, dict):
        return {key: _clean(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(inner) for inner in value]
    return None if value is pd.NA or (isinstance(value, float) and math.isnan(value)) else value


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code; a user's mistake is one line on stderr, never a traceback."""
    options = _parser().parse_intermixed_args(arguments)
    try:
        command = COMMANDS.get(options.command)
        if command is None:
            hint = nearest(options.command, list(COMMANDS))
            raise InputError(f"{options.command}: no such command{hint}; known: {', '.join(COMMANDS)}")
        if options.plot and options.command != "recommend":
            raise InputError(f"--plot: belongs to recommend; {options.command} has no picture")
        answer = _clean(command.answer(options.overrides))
        if options.plot:
            from artifact import plots

            answer["plot"] = str(plots.recommendation(answer, Path(answer["out"])))
        code = int(answer.pop("exit_code", 0))
        if options.json:
            print(json.dumps(answer, indent=1, allow_nan=False))
        else:
            # A file or a pipe has no width of its own: wide enough for every table.
            command.show(answer, Console() if sys.stdout.isatty() else Console(width=120))
        return code
    except ArtifactError as error:
        _say(f"artifact: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        _say("artifact: stopped; what was finished is kept, the same command goes on")
        return 130
    except BrokenPipeError:  # the reader, `head` say, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # a disk or a folder that does not do what was asked of it
        _say(f"artifact: {error.filename or 'the system'}: {error.strerror or error}")
        return 3

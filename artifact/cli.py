"""Command line in, tables or one JSON object out: ``artifact COMMAND [group=choice] [key=value] [--json]``.

Every command composes the same configuration. Results go to stdout, everything else to stderr. Exit codes: 0 done,
1 a cell failed, 2 bad input, 3 the environment lacks something.
"""

import argparse
import json
import math
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pandas as pd
from rich.console import Console

from artifact import __version__
from artifact.commands import answers, environment, guide, report, results, studies
from artifact.commands.common import Answer, say
from artifact.errors import ArtifactError, InputError, nearest
from artifact.tables import commands as tables
from artifact.tables import guide as tables_guide
from artifact.tables import inspect_server as tables_inspect
from artifact.tables import recommend as tables_recommend
from artifact.tables import sizes as tables_sizes


class Command(NamedTuple):
    """What a command does for ``--help``, the function that answers, and how the answer is shown to people."""

    help: str
    answer: Callable[[list[str]], Answer]
    show: Callable[[Answer, Console], None]


COMMANDS: dict[str, Command] = {
    "doctor": Command(
        "check GPU, driver, NVML, vLLM, disk and cache, and say what to do", environment.doctor, tables.doctor
    ),
    "explain": Command(
        "resolve a mode and show sizes, graphs and what falls through", environment.explain, tables.explain
    ),
    "plan": Command("the cells in order, launches, minutes and disk", studies.plan, tables.plan),
    "run": Command("run a study; resumes by itself", studies.run, tables.run),
    "calibrate": Command(
        "measure steps (study=calibrate) and fit the simulator's cost model", studies.calibrate, tables.pairs
    ),
    "trace": Command("read, check and describe a request trace", answers.trace, tables.pairs),
    "figures": Command("draw the figures, from shipped data or from results", results.figures, tables.pairs),
    "claims": Command("check every claim against shipped data, or results", results.claims, tables.claims),
    "guide": Command(
        "write GUIDE.md, which mode for which workload, from the measurements", guide.guide, tables_guide.guide
    ),
    "recommend": Command(
        "which mode to run for a workload, a trace or a vllm serve command; --plot draws it",
        answers.recommend,
        tables_recommend.recommend,
    ),
    "sizes": Command(
        "the capture sizes that pay for a workload or a trace, with the flags to paste",
        answers.sizes,
        tables_sizes.sizes,
    ),
    "inspect": Command(
        "what a recorded vllm serve dispatched, how stable its batches were, how it served",
        answers.inspect,
        tables_inspect.inspect_server,
    ),
    "report": Command("one HTML page of a study: answer, figures, tables, provenance", report.report, tables.pairs),
    "sync": Command("rebuild the MLflow view of a study from its results", studies.sync, tables.pairs),
    "ui": Command("browse the runs in MLflow's UI on 127.0.0.1", environment.ui, lambda *_: None),
}


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints are lines like all others, with the nearest right name."""

    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized arguments"):
            word = message.split(": ", 1)[1].split(maxsplit=1)[0]
            options = [option for action in self._actions for option in action.option_strings]
            raise InputError(f"{word}: no such option{nearest(word, options)}; known: {', '.join(options)}")
        if "COMMAND" in message:
            raise InputError(f"no command given; known: {', '.join(COMMANDS)}; --help says what they do")
        raise InputError(message)


def _parser() -> argparse.ArgumentParser:
    lines = "\n".join(f"  {name:<10} {command.help}" for name, command in COMMANDS.items())
    parser = _Parser(
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
    try:
        options = _parser().parse_intermixed_args(arguments)
        command = COMMANDS.get(options.command)
        if command is None:
            hint = nearest(options.command, list(COMMANDS))
            raise InputError(f"{options.command}: no such command{hint}; known: {', '.join(COMMANDS)}")
        if options.plot and options.command != "recommend":
            raise InputError(f"--plot: belongs to recommend; {options.command} has no picture")
        answer = _clean(command.answer(options.overrides))
        if options.plot:
            from artifact.plots.recommendation import recommendation

            answer["plot"] = str(recommendation(answer, Path(answer["out"])))
        code = int(answer.pop("exit_code", 0))
        if options.json:
            print(json.dumps(answer, indent=1, allow_nan=False))
        else:
            # A file or a pipe has no width of its own: wide enough for every table.
            command.show(answer, Console() if sys.stdout.isatty() else Console(width=120))
        return code
    except ArtifactError as error:
        say(f"artifact: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        say("artifact: stopped; what was finished is kept, the same command goes on")
        return 130
    except BrokenPipeError:  # the reader, `head` say, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # a disk or a folder that does not do what was asked of it
        say(f"artifact: {error.filename or 'the system'}: {error.strerror or error}")
        return 3

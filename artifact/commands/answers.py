"""Overrides in; answers for a workload or a trace out."""

import sys

from rich.console import Console

from artifact.commands.common import Answer, shipped_folder
from artifact.config import load


def recommend(overrides: list[str]) -> Answer:
    """Rank the modes for the configured workload."""
    from rich.progress import Progress

    from artifact.analysis.recommend.recommendation import recommend

    folder = shipped_folder()
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("simulating every mode", total=1.0)
        return recommend(overrides, folder if folder.is_dir() else None, lambda share: progress.advance(task, share))


def sizes(overrides: list[str]) -> Answer:
    """Choose the capture sizes for the configured workload and mode."""
    from rich.progress import Progress

    from artifact.analysis.sizes.answer import sizes

    folder = shipped_folder()
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("simulating the load", total=1.0)
        return sizes(overrides, folder if folder.is_dir() else None, lambda share: progress.advance(task, share))


def trace(overrides: list[str]) -> Answer:
    """Read, check and describe the configured trace."""
    from artifact.workloads.traces import describe, read

    return describe(read(load(overrides).trace))


def inspect(overrides: list[str]) -> Answer:
    """Say what the configured recording of a live server shows."""
    from artifact.analysis.inspect_server import inspect_server

    return inspect_server(load(overrides))

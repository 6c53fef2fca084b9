"""Launches and cells as they go in; a bar with time left on a terminal, one line a launch elsewhere, on stderr, out."""

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

_AN_HOUR_S = 3600


class StudyProgress:
    """Progress of a run, weighed by the seconds that the plan expects of each launch.

    Time left is what the plan expects of the rest, times how far the work done so far was off its own expectation.
    """

    def __init__(self, seconds: float, launches: int, workers: int = 1) -> None:
        self._total_s = seconds
        self._workers = workers
        self._done_s = 0.0
        self._launches = launches
        self._launch = 0
        self._name = ""
        self._begin = time.monotonic()
        self._bar: Progress | None = None
        if sys.stderr.isatty():
            self._bar = Progress(
                BarColumn(),
                TaskProgressColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.fields[left]} left"),
                TextColumn("{task.description}", markup=False),
                console=Console(stderr=True),
            )
            self._task = self._bar.add_task("", total=max(seconds, 1e-9), left=_span(seconds / workers))

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def launch(self, name: str, cells: int) -> None:
        """Tell that a launch starts."""
        if name != self._name:  # else an engine that died is replaced
            self._launch += 1
        self._name = name
        if self._bar is None:
            self.say(f"[{self._launch}/{self._launches}] {name}: {cells} cells; about {_span(self.left_s())} left")
        self.now(f"{name}: start")

    def now(self, what: str) -> None:
        """Tell what is going on."""
        if self._bar is not None:
            self._bar.update(self._task, description=what, left=_span(self.left_s()))

    def advance(self, seconds: float) -> None:
        """Tell that work is done which was expected to take ``seconds``."""
        self._done_s += seconds
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done_s, left=_span(self.left_s()))

    def say(self, line: str) -> None:
        """Print a line, above the bar where there is one."""
        if self._bar is not None:
            self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            print(line, file=sys.stderr, flush=True)

    def left_s(self) -> float:
        """Return the seconds that the rest should take."""
        pace = (time.monotonic() - self._begin) / self._done_s if self._done_s > 0 else 1 / self._workers
        return max(self._total_s - self._done_s, 0.0) * pace


def _span(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < _AN_HOUR_S:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / _AN_HOUR_S:.1f} h"

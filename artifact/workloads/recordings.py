"""A recording of a live server (a folder, or one file of it) in; its steps, its requests and what is missing, out.

Written by ``artifact.engines.recorder``. Times are seconds since 1970 on the front end's clock.
"""

import json
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from artifact.errors import InputError
from artifact.workloads.record_format import COLUMNS, DONE, FIRST, LOST, MAGIC, META, STEP, SUFFIX, columns_of, frames

MOST_STEPS = 2_000_000  # that are looked at together: about 1 GiB of memory, and an hour of a busy server
# An arrival is told as a time less a latency, twice: seconds since 1970 hold no more than a quarter of a microsecond.
_SAME_ARRIVAL_S = 1.5e-6
_CUT_OFF = "no end of it was recorded: the recording ended first, or its client gave it up (vLLM reports no aborts)"
_STILL_WAITING = "was waiting for its first token when the recording ended: lengths are known of finished requests"


class LeftOut(str):
    """Why a request is no row of a trace though nothing is wrong with the file: counted, never an error."""

    __slots__ = ()


@dataclass(frozen=True, eq=False)
class Recording:
    """What a recording holds. ``writer`` numbers the processes and engines that wrote, ``server`` their settings."""

    servers: tuple[dict[str, Any], ...]  # distinct settings, in order of their first segment
    writers: tuple[dict[str, Any], ...]  # pid, engine and started_s of each
    steps: pd.DataFrame  # record_format.COLUMNS[STEP], writer, server; ascending t_s
    first_tokens: pd.DataFrame  # COLUMNS[FIRST], writer, server
    finished: pd.DataFrame  # COLUMNS[DONE], writer, server; ascending arrival_s
    segments: int
    cut: tuple[str, ...]  # names of files that ended in the middle of a frame
    lost_rows: int  # that the recorder could not keep up with
    steps_left_out: int  # before the last MOST_STEPS

    def of_server(self, server: int) -> "Recording":
        """Return the rows that were recorded under the settings ``servers[server]``."""
        kept = (frame[frame["server"] == server] for frame in (self.steps, self.first_tokens, self.finished))
        steps, first_tokens, finished = (frame.reset_index(drop=True) for frame in kept)
        settings = (self.servers[server],)
        return replace(self, servers=settings, steps=steps, first_tokens=first_tokens, finished=finished)

    @property
    def latest(self) -> int:
        """The settings of the step or request that was recorded last."""
        frames_ = [frame for frame in (self.steps, self.finished, self.first_tokens) if len(frame)]
        last = max(frames_, key=lambda frame: float(frame["t_s"].max()))
        return int(last["server"].iloc[int(last["t_s"].to_numpy().argmax())])


def segments(path: Path) -> list[Path]:
    """Return the segment files of a recording, by name; none where ``path`` is no recording."""
    if path.is_dir():
        return sorted(path.glob(f"*{SUFFIX}"))
    if not path.is_file():  # a pipe would wait for a writer
        return []
    try:
        with path.open("rb") as file:
            return [path] if file.read(len(MAGIC)) == MAGIC else []
    except OSError:
        return []


def read(path: Path, every_step: bool = True, between: tuple[float, float] | None = None) -> Recording:
    """Return the recording at ``path``. A file that is cut off counts up to the cut.

    Of steps, those with t_s in [from, to) of ``between``, and the last MOST_STEPS of them. Without ``every_step``, of
    each write's steps the first and the last alone: what the requests need, in little memory.

    Raises InputError where there is no recording, a file cannot be read, or nothing was recorded yet.
    """
    files = segments(path)
    if not files:
        what = "no such file or folder" if not path.exists() else f"holds no recording ({SUFFIX} files)"
        raise InputError(f"{path}: {what}; ARTIFACT_RECORD=FOLDER before `vllm serve` makes one")
    reader = _Reader(every_step, between)
    for file in sorted(files, key=_written):
        reader.take(file)
    recording = reader.result(len(files))
    if between is None and not (len(recording.steps) or len(recording.finished) or len(recording.first_tokens)):
        raise InputError(f"{path}: nothing was recorded yet: the server has run no step, or its first second is not up")
    return recording


def _written(file: Path) -> tuple[int, str]:
    """Return when a segment was written last: those of several engines lie beside each other in time."""
    try:
        return file.stat().st_mtime_ns, file.name
    except FileNotFoundError:
        return 0, file.name


class _Reader:
    """Takes segment files one after the other; ``result`` is what they hold together."""

    def __init__(self, every_step: bool, between: tuple[float, float] | None) -> None:
        self._every_step = every_step
        self._between = between
        self._steps = 0  # that are kept
        self._left_out = 0
        self._servers: dict[str, int] = {}
        self._writers: dict[str, int] = {}
        self._columns: dict[bytes, dict[str, deque[array[Any]]]] = {
            kind: {name: deque() for name in (*columns, "writer", "server")} for kind, columns in COLUMNS.items()
        }
        self._cut: list[str] = []
        self._lost = 0

    def take(self, file: Path) -> None:
        """Add a file's rows. Raises InputError where it cannot be read."""
        try:
            found, after = frames(file.read_bytes())
        except FileNotFoundError:  # the recorder made room meanwhile
            return
        except OSError as error:
            raise InputError(f"{file}: cannot be read: {error.strerror}") from None
        if after or not found:
            self._cut.append(file.name)
        if not found or found[0][0] != META or (who := self._who(found[0][1])) is None:
            return
        for kind, body in found[1:]:
            if kind in COLUMNS:
                self._add(kind, body, *who)
            elif kind == LOST:
                self._lost += int(json.loads(body)["rows"])

    def _who(self, meta: bytes) -> tuple[int, int] | None:
        """Return the numbers of the writer and of its settings; None where the object is not the recorder's."""
        try:
            value = json.loads(meta)
            writer, settings = json.dumps(value["writer"]), json.dumps(value["server"], sort_keys=True)
        except (ValueError, KeyError, TypeError):
            return None
        server = self._servers.setdefault(settings, len(self._servers))
        return self._writers.setdefault(writer, len(self._writers)), server

    def _add(self, kind: bytes, body: bytes, writer: int, server: int) -> None:
        into = self._columns[kind]
        columns = columns_of(kind, body)
        if kind == STEP:
            columns = self._wanted(columns)
        for name, values in columns.items():
            into[name].append(values)
        count = len(columns["t_s"])
        into["writer"].append(array("i", [writer]) * count)
        into["server"].append(array("i", [server]) * count)
        if kind == STEP:
            self._steps += count
            while self._steps - len(into["t_s"][0]) >= MOST_STEPS:
                self._left_out += len(into["t_s"][0])
                self._steps -= len(into["t_s"][0])
                for parts in into.values():
                    parts.popleft()

    def _wanted(self, columns: dict[str, "array[Any]"]) -> dict[str, "array[Any]"]:
        if not self._every_step:
            return {name: values[:1] + values[1:][-1:] for name, values in columns.items()}
        if self._between is None:
            return columns
        # A writer's steps ascend in time, but where the clock is set back.
        first, end = (bisect_left(columns["t_s"], at) for at in self._between)
        return {name: values[first:end] for name, values in columns.items()}

    def result(self, count: int) -> Recording:
        """Return everything that was taken."""
        tables = {}
        for kind, parts in self._columns.items():
            codes = {**COLUMNS[kind], "writer": "i", "server": "i"}
            empty = {name: np.array(array(code)) for name, code in codes.items()}
            table = pd.DataFrame({name: np.concatenate([empty[name], *values]) for name, values in parts.items()})
            order = "arrival_s" if kind == DONE else "t_s"
            tables[kind] = table.sort_values(order, kind="stable", ignore_index=True)
        servers, writers = (tuple(map(json.loads, known)) for known in (self._servers, self._writers))
        return Recording(
            servers,
            writers,
            tables[STEP],
            tables[FIRST],
            tables[DONE],
            count,
            tuple(self._cut),
            self._lost,
            self._left_out,
        )


def unfinished_arrivals(recording: Recording) -> npt.NDArray[np.float64]:
    """Return the arrivals, ascending, of requests that had a first token and no end in the recording.

    A request is known by its arrival, to a microsecond or two. What finished without its first token on record (the
    segment was deleted to make room) is none of them.
    """
    started = np.sort(recording.first_tokens["arrival_s"].to_numpy())
    ended = recording.finished["arrival_s"].to_numpy()
    left: list[float] = []
    at = 0
    for arrival in started.tolist():
        while at < len(ended) and ended[at] < arrival - _SAME_ARRIVAL_S:
            at += 1
        if at < len(ended) and ended[at] <= arrival + _SAME_ARRIVAL_S:
            at += 1
        else:
            left.append(arrival)
    return np.array(left)


def waiting_at_end(recording: Recording) -> int:
    """Return how many requests waited in the scheduler's queue at each writer's last step, summed."""
    last = recording.steps.groupby("writer")["num_waiting"].last()
    return int(last.clip(lower=0).sum())


def trace_rows(path: Path) -> Iterator[tuple[int, tuple[int, int, int] | str]]:
    """Yield the requests of a recording as rows of a trace, in order of arrival: see ``trace_formats.Parsed``.

    A row's number is its place in that order; unfinished requests follow, each with its reason. Times are whole
    microseconds in ns: seconds since 1970 as a float hold no finer ones. Raises InputError as ``read`` does.
    """
    recording = read(path, every_step=False)
    done = recording.finished
    times_ns = np.rint(done["arrival_s"].to_numpy() * 1e6).astype(np.int64) * 1000
    rows = zip(times_ns.tolist(), done["prompt_tokens"].tolist(), done["output_tokens"].tolist(), strict=True)
    number = 0
    for number, (time_ns, prompt, output) in enumerate(rows, 1):
        if prompt < 1 or output < 1:
            yield number, LeftOut(f"{prompt} prompt and {output} output tokens: nothing was generated")
        else:
            yield number, (time_ns, prompt, output)
    for _ in unfinished_arrivals(recording):
        number += 1
        yield number, LeftOut(_CUT_OFF)
    for _ in range(waiting_at_end(recording)):
        number += 1
        yield number, LeftOut(_STILL_WAITING)

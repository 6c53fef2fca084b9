"""Measured engine starts in; what graphs of so many dispatch keys take in memory and start-up, out.

    seconds = fixed + per_piecewise x piecewise keys + per_full x full keys
    bytes = the same + per_token x tokens of the largest graph

since all graphs share one memory pool, whose size the largest sets. Fitted by non-negative least squares of relative
errors: on the mode's own starts where those captured lists of several lengths, else on all modes' starts, moved to what
the mode itself took. Without ``per_token`` where no starts tell it from the keys.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from artifact.errors import InputError
from artifact.graphs.modes import NONE, mixed_kind, query_len
from artifact.graphs.sizes import capture_sizes
from artifact.records import LaunchFacts, LaunchRow
from artifact.schema import Config, Evidence, Mode, ServerConfig, Status
from artifact.simulator.cost import Calibration
from artifact.study.store import read_launches

MEASURED_LARGEST = 512  # vLLM's own lists, which the measured starts captured, end there


class Start(NamedTuple):
    """One measured start."""

    mode: Mode
    piecewise: int  # keys
    full: int
    largest: int  # tokens of the largest graph
    graph_bytes: int | None
    capture_s: float | None


class Line(NamedTuple):
    """As the module says; the errors are relative, over the starts it was fitted on."""

    fixed: float
    per_piecewise: float
    per_full: float
    per_token: float
    error_p50: float
    error_max: float
    starts: int

    def at(self, piecewise: int, full: int, largest: int) -> float:
        """Return the value for so many keys, the largest of so many tokens; 0 for none."""
        if not piecewise and not full:
            return 0.0
        of_keys = self.per_piecewise * piecewise + self.per_full * full
        return max(self.fixed + of_keys + self.per_token * largest, 0.0)


class Takes(NamedTuple):
    """What graphs take under one mode. A line is None where the starts do not tell; ``source`` says where from."""

    graph_bytes: Line | None
    capture_s: Line | None
    source: str

    @property
    def lines(self) -> dict[str, Line | None]:
        """Both lines by name."""
        return {"graph_bytes": self.graph_bytes, "capture_s": self.capture_s}


def takes(config: Config, calibration: Calibration, shipped: Path | None) -> Takes:
    """Return what graphs take in ``config.mode``, from the study folders below ``shipped`` or the calibration's starts.

    Of starts of the calibration's GPU, model and backend that captured what their keys promise.
    """
    starts, source = _shipped(calibration, shipped), "the shipped launches"
    lines = _lines(config.mode.name, starts)
    if lines == (None, None):
        # One list a mode, and the same for all: its largest size tells nothing.
        starts = [_start(mode, facts, 0) for mode, facts in calibration.launches.items() if not facts.hollow]
        lines, source = _lines(config.mode.name, starts), "the calibration's launches"
    if lines == (None, None):
        return Takes(None, None, "unknown: no measured starts tell what a graph of each kind takes")
    said = [
        f"{name} unknown"
        if line is None
        else f"{name} of {line.starts} starts within {line.error_p50:.0%}, at worst {line.error_max:.0%}"
        for name, line in zip(("bytes", "seconds"), lines, strict=True)
    ]
    return Takes(*lines, f"fitted on {source}, measured on {calibration.gpu_name}: {'; '.join(said)}")


def _shipped(calibration: Calibration, shipped: Path | None) -> list[Start]:
    found = []
    for folder in [] if shipped is None else sorted(path.parent for path in shipped.glob("*/launches.parquet")):
        try:
            rows = read_launches(folder)
        except InputError:
            continue
        mine = rows[
            (rows["gpu_name"] == calibration.gpu_name)
            & (rows["model"] == calibration.model)
            & (rows["backend"] == calibration.backend)
            & (rows["evidence"] == Evidence.MEASURED.value)
            & (rows["status"] == Status.OK.value)
            & ~rows["hollow"].fillna(value=False).astype(bool)
        ]
        fields = ("keys_piecewise", "keys_full", "graph_bytes", "capture_s")
        for row in mine[["requested_mode", "provenance", *fields]].astype(object).itertuples(index=False):
            numbers = {name: value for name, value in zip(fields, row[2:], strict=True) if not pd.isna(value)}
            mode = Mode(row[0])
            found.append(_start(mode, LaunchFacts.model_validate(numbers), _largest(mode, row[1])))
    return found


def _largest(mode: Mode, provenance: str) -> int:
    """Return the tokens of the largest graph of a start that got the ``mode`` it asked for, 0 where it has none."""
    server = ServerConfig.model_validate(json.loads(provenance)["config"]["server"])
    last = server.max_num_batched_tokens if mixed_kind(mode) != NONE else query_len(server) * server.max_num_seqs
    return max((size for size in capture_sizes(server, mode) if size <= last), default=0)


def _start(mode: Mode, facts: LaunchFacts | LaunchRow, largest: int) -> Start:
    return Start(mode, facts.keys_piecewise or 0, facts.keys_full or 0, largest, facts.graph_bytes, facts.capture_s)


def _lines(mode: Mode, starts: Sequence[Start]) -> tuple[Line | None, Line | None]:
    captured = [start for start in starts if start.piecewise + start.full]
    return _line(mode, captured, "graph_bytes"), _line(mode, captured, "capture_s")


def _line(mode: Mode, starts: Sequence[Start], name: str) -> Line | None:
    """Return the line of one quantity: of the mode's own starts where they tell it, else of all modes' together.

    None where neither tell a fixed part and each kind's own apart.
    """
    known = [(start, float(value)) for start in starts if (value := getattr(start, name)) is not None and value > 0]
    own = [(start, value) for start, value in known if start.mode is mode]
    terms = 4 if name == "graph_bytes" else 3
    line = _fitted(own, terms)
    if line is not None or (line := _fitted(known, terms)) is None:
        return line
    if own:  # the slopes of all, through what the mode itself took
        rest = [value - line.at(start.piecewise, start.full, start.largest) for start, value in own]
        line = line._replace(fixed=line.fixed + float(np.median(rest)))
    return line


def _fitted(known: Sequence[tuple[Start, float]], terms: int) -> Line | None:
    """Return the non-negative least squares of the relative errors, of the first ``terms`` of the line.

    None where the starts are too alike to tell the first three.
    """
    counted = np.array([[1.0, start.piecewise, start.full, start.largest] for start, _ in known]).reshape(-1, 4)
    for count in range(terms, 2, -1):
        columns = np.flatnonzero(counted[:, :count].any(axis=0))  # a mode may have one kind of graphs alone
        if len(columns) >= 2 and np.linalg.matrix_rank(counted[:, columns]) == len(columns):
            break
    else:
        return None
    values = np.array([value for _, value in known])
    found = np.zeros(4)
    found[columns], _ = nnls(counted[:, columns] / values[:, None], np.ones(len(values)))
    errors = np.abs(counted @ found / values - 1)
    fixed, per_piecewise, per_full, per_token = found.tolist()
    return Line(fixed, per_piecewise, per_full, per_token, float(np.median(errors)), float(errors.max()), len(values))

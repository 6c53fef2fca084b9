"""A results folder in; all that its page says, in order, out.

Measured and simulated rows never share a table, and each table's caption says which of the two it holds.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from artifact.analysis.compare import side_by_side
from artifact.analysis.correctness import screened
from artifact.errors import InputError
from artifact.metrics.memory import believed
from artifact.plots.inline import Picture, pictures
from artifact.report import origin, words
from artifact.report.answer import Answer, answer
from artifact.report.repeat import commands
from artifact.report.table import Table, records, table
from artifact.schema import Status
from artifact.study.store import read_cells, read_launches

_MIB, _GIB = 2**20, 2**30


@dataclass(frozen=True)
class Contents:
    """What the page shows. ``source`` says of each kind of evidence on what it was measured or fitted."""

    study: str
    evidence: tuple[str, ...]
    sources: tuple[str, ...]
    headline: str
    answer: Answer
    pictures: tuple[Picture, ...]
    cells: tuple[Table, ...]
    launches: tuple[Table, ...]
    beside: tuple[Table, ...]
    validity: tuple[Table, ...]
    environment: tuple[Table, ...]
    commands: tuple[str, ...]


def gather(folder: Path, reference: Path | None = None) -> Contents:
    """Return the contents of the page for ``folder``, a study's results or shipped measurements.

    ``reference`` is a folder with measurements of the same study, shown beside simulated rows. Raises InputError where
    ``folder`` is none, holds no cell, or more than one study.
    """
    cells, launches = screened(read_cells(folder), folder.parent), read_launches(folder)
    studies = sorted(cells["study"].unique())
    if len(studies) != 1:
        what = f"holds cells of {len(studies)} studies ({', '.join(studies)})" if studies else "holds no cell"
        raise InputError(f"{folder}: {what}; report.folder names the results of one study")
    study = str(studies[0])
    evidence = tuple(sorted(cells["evidence"].unique()))  # measured before simulated
    notes = origin.notes(launches)
    return Contents(
        study=study,
        evidence=evidence,
        sources=tuple(_source(launches[launches["evidence"] == kind], kind) for kind in evidence),
        headline=_headline(cells, launches),
        answer=answer(cells, launches),
        pictures=tuple(pictures(folder, study)),
        cells=tuple(_cells(cells, launches)),
        launches=tuple(_launches(launches)),
        beside=tuple(_beside(cells, reference)),
        validity=(_flags(cells), _statuses(cells, launches)),
        environment=origin.environment(notes, folder),
        commands=commands(study, notes, folder),
    )


def _source(launches: pd.DataFrame, evidence: str) -> str:
    gpu = ", ".join(sorted(launches["gpu_name"].dropna().unique())) or "GPU unknown"
    models = ", ".join(sorted(launches["model"].unique()))
    how = f"measured on {gpu}" if evidence == "measured" else f"simulated, with step times fitted on {gpu}"
    return f"{how}; {models}" if models else how


def _headline(cells: pd.DataFrame, launches: pd.DataFrame) -> str:
    finished = int((cells["status"] == Status.OK).sum())
    flagged = int((cells["flags"] != "").sum())
    flags = f"{flagged} of them flagged" if flagged else "none flagged"
    return f"{finished} of {len(cells)} cells finished, {flags}; {len(launches)} engine starts."


_CELL_COLUMNS = {
    "arm": "arm",
    "workload": "workload",
    "load": "load",
    "block": "block",
    "requested_mode": "requested",
    "realised_mode": "realised",
    "status": "status",
    "n_requests": "requests",
    "tpot_p50_ms": "TPOT p50 ms",
    "tpot_p99_ms": "TPOT p99 ms",
    "ttft_p50_ms": "TTFT p50 ms",
    "ttft_p99_ms": "TTFT p99 ms",
    "output_tokens_per_s": "tokens/s",
    "goodput": "goodput",
    "graph_mib": "graphs MiB",
    "capture_s": "capture s",
    "flags": "flags",
    "reason": "reason",
}


def _cells(cells: pd.DataFrame, launches: pd.DataFrame) -> Iterator[Table]:
    of_launch = believed(launches)[["launch_id", "graph_bytes", "capture_s"]]
    joined = cells.merge(of_launch, on="launch_id", how="left")
    joined["graph_mib"] = joined["graph_bytes"].astype("float64") / _MIB
    joined = joined.sort_values(["block", "workload", "load", "arm"])
    for (evidence, tile), rows in joined.groupby(["evidence", "tile"], sort=True):
        yield table(f"{tile}: {evidence}, a row per cell", _CELL_COLUMNS, records(rows))


_LAUNCH_COLUMNS = {
    "arm": "arm",
    "block": "block",
    "status": "status",
    "requested_mode": "requested",
    "resolved_mode": "resolved",
    "realised_mode": "realised",
    "attention_backend": "attention",
    "compile_cache": "compile cache",
    "start_s": "start s",
    "load_s": "load s",
    "compile_s": "compile s",
    "profile_s": "profile s",
    "capture_s": "capture s",
    "graphs_piecewise": "PIECEWISE graphs",
    "graphs_full": "FULL graphs",
    "graph_mib": "graphs MiB",
    "estimate_mib": "estimated MiB",
    "weights_gib": "weights GiB",
    "kv_tokens": "KV tokens",
    "nvml_gib": "NVML used GiB",
    "memory_valid": "memory believed",
    "eager_launch_us": "kernel launch us",
    "graph_launch_us": "graph launch us",
    "reason": "reason",
    "launch_id": "launch",
}
_SCALED = {
    "graph_mib": ("graph_bytes", _MIB),
    "estimate_mib": ("graph_estimate_bytes", _MIB),
    "weights_gib": ("weights_bytes", _GIB),
    "nvml_gib": ("nvml_used_bytes", _GIB),
}


def _launches(launches: pd.DataFrame) -> Iterator[Table]:
    scaled = launches.assign(
        **{name: launches[column].astype("float64") / unit for name, (column, unit) in _SCALED.items()}
    )
    for (evidence, tile), rows in scaled.groupby(["evidence", "tile"], sort=True):
        ordered = rows.sort_values(["block", "position", "launch_id"])
        yield table(f"{tile}: {evidence}, a row per engine start", _LAUNCH_COLUMNS, records(ordered))


def _beside(cells: pd.DataFrame, reference: Path | None) -> Iterator[Table]:
    simulated = cells[cells["evidence"] == "simulated"]
    if simulated.empty or reference is None:
        return
    rows = side_by_side(simulated, read_cells(reference))
    columns = {"arm": "arm", "workload": "workload", "load": "load"}
    for name, head in (("tpot_p50_ms", "TPOT p50 ms"), ("ttft_p50_ms", "TTFT p50 ms"), ("tpot_p99_ms", "TPOT p99 ms")):
        short = head.removesuffix(" ms")
        columns |= {name: f"{head} simulated", f"{name}_reference": f"{short} measured", f"{name}_change": "difference"}
        rows[f"{name}_change"] = [
            None if pd.isna(value) else f"{value:+.0%}" for value in rows[f"{name}_difference"].astype("float64")
        ]
    if len(rows):
        yield table("simulated beside the shipped measurements of the same cells", columns, records(rows))


def _flags(cells: pd.DataFrame) -> Table:
    counts = Counter(flag for flags in cells["flags"] for flag in flags.split(",") if flag)
    rows: list[dict[str, Any]] = [
        {"flag": flag, "cells": counts[flag], "meaning": words.FLAGS.get(flag, words.UNKNOWN_FLAG)}
        for flag in [*words.FLAGS, *sorted(set(counts) - set(words.FLAGS))]
    ]
    rows.sort(key=lambda row: -row["cells"])
    return table(
        "a flagged cell is shown and never ranked", {"flag": "flag", "cells": "cells", "meaning": "what it says"}, rows
    )


def _statuses(cells: pd.DataFrame, launches: pd.DataFrame) -> Table:
    of_cells, of_launches = Counter(cells["status"]), Counter(launches["status"])
    rows = [
        {"status": status.value, "cells": of_cells[status], "launches": of_launches[status], "meaning": meaning}
        for status, meaning in words.STATUSES.items()
        if of_cells[status] or of_launches[status]
    ]
    heads = {"status": "status", "cells": "cells", "launches": "engine starts", "meaning": "what it says"}
    return table("how cells and engine starts ended", heads, rows)

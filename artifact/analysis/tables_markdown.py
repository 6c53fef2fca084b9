"""A folder of studies in; the tables of ARTIFACT.md as Markdown, and the file with them put in, out.

A block of ARTIFACT.md between ``<!-- table: NAME -->`` and ``<!-- end -->`` is what ``render`` gives for the shipped
measurements: its numbers trace to rows.
"""

import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from artifact.analysis import every_study
from artifact.analysis.chosen_sizes_table import chosen_sizes_table
from artifact.analysis.confirm_table import confirm_table
from artifact.analysis.correctness import WITHIN, correctness
from artifact.analysis.crosscheck_table import STUDY, crosscheck_table
from artifact.analysis.fidelity_table import fidelity_table
from artifact.analysis.host_pace_table import host_pace_table
from artifact.analysis.intervals import Estimate
from artifact.analysis.markdown import between, markdown, records, said, shown, span
from artifact.analysis.starts import fallback, start_up
from artifact.analysis.starts.break_even import break_even, request_seconds
from artifact.analysis.steps.mpk import mpk_table
from artifact.analysis.steps.table import probe_cost
from artifact.errors import InputError
from artifact.study.store import read_steps

_BLOCK = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end -->)", re.S)
_PHASES = {
    "load_s": "load",
    "compile_s": "compile",
    "profile_s": "profile",
    "capture_s": "capture",
    "unexplained_s": "unexplained",
}
_MIB = 2**20
_METRICS = {"ttft_p50_ms": "TTFT p50", "ttft_p99_ms": "TTFT p99", "tpot_p50_ms": "TPOT p50", "tpot_p99_ms": "TPOT p99"}


def render(name: str, root: Path) -> str:
    """Return table ``name`` of the studies below ``root``, with a line below it that says what it is made of.

    Where the rows are not there, a line that says which study has them. Raises InputError for an unknown name.
    """
    if name not in TABLES:
        raise InputError(f"table {name}: no such table; known: {', '.join(TABLES)}")
    study, function = TABLES[name]
    if study is not None and not (root / study / "cells.parquet").exists():
        return f"Not measured yet: `artifact run study={study}` makes its rows."
    return function(root)


def rewrite(text: str, root: Path) -> str:
    """Return ``text`` with every marked block rendered anew. Raises InputError for a block of an unknown name."""
    return _BLOCK.sub(lambda block: f"{block[1]}\n{render(block[2], root)}\n\n{block[3]}", text)


def _of_lists(launches: pd.DataFrame) -> pd.DataFrame:
    """Return the ready launches that took vLLM's own capture sizes, or have none."""
    found = start_up.ready(launches)
    return found[found["default_sizes"] | (found["graphs"] == 0)]


def _mode(requested: str, realised: str) -> str:
    """Return the mode, with what was asked for where vLLM changed it."""
    return realised if requested == realised else f"{requested}, became {realised.replace(':', ', ')}"


def _start_up(root: Path) -> str:
    launches = _of_lists(every_study.read(every_study.studies(root)).launches)
    rows = []
    for values, group in launches.groupby([*start_up.KIND[:4], "state"], observed=True):
        model, attention, requested, realised, state = (str(value) for value in values)
        means = [float(group[phase].astype("float64").mean()) for phase in (*_PHASES, "start_s")]
        whole = Estimate.of(group["start_s"])
        rows.append(
            [
                f"{model}, {attention}",
                _mode(requested, realised),
                state,
                str(len(group)),
                *(f"{mean:.1f}" for mean in means),
                between(whole.low, whole.high, ".1f") if whole is not None and whole.n > 2 else "-",
                f"{float(group['first_answer_s'].astype('float64').mean()):.2f}",
            ]
        )
    header = ["model, backend", "mode", "cache", "n", *_PHASES.values(), "start", "95 % interval", "first answer"]
    words = (
        "Seconds, means over starts, an interval from 3 of them on; importing vLLM comes on top, once a run. Cache: "
        "cold and warm of vLLM's compile cache; first: warm, but the backend's first on the machine; off: no compiler."
    )
    return f"{markdown(header, rows)}\n\n{said(launches, words)}"


def _graph_memory(root: Path) -> str:
    launches = _of_lists(every_study.read(every_study.studies(root)).launches)
    table, tokens = start_up.memory(launches), start_up.kv_tokens(launches)
    rows = []
    for row in records(table):
        own = tokens
        for name in start_up.KIND:
            own = own[own[name] == getattr(row, name)]
        lost = "; ".join(
            f"{each.lost:,.0f} = {each.share:.2%} at {each.utilisation:g}, {each.how} (n = {each.n})"
            for each in records(own)
            if pd.notna(each.lost)
        )
        rows.append(
            [
                f"{row.model}, {row.attention}",
                _mode(str(row.requested_mode), str(row.realised_mode)),
                f"{int(row.graphs_piecewise):,} + {int(row.graphs_full)}",
                str(row.n),
                shown(row.graph_bytes / _MIB, ".0f"),
                shown(row.estimate_bytes / _MIB, ".0f"),
                shown(row.error_share, "+.1%"),
                lost or "-",
            ]
        )
    header = ["model, backend", "mode", "graphs", "n", "MiB", "estimated", "error", "KV tokens fewer than NONE"]
    words = (
        "Graphs: piecewise + full. KV tokens: vLLM takes its estimate off the cache, not what the graphs take in the "
        "end; measured where it sized the cache itself, else derived from what profiling left at that share of the GPU."
    )
    return f"{markdown(header, rows)}\n\n{said(launches[launches['graphs'] > 0], words)}"


def _capture_sizes(root: Path) -> str:
    launches = start_up.ready(every_study.read(every_study.studies(root)).launches)
    table = start_up.by_sizes(launches)
    table = table[table["slope"].notna() & (table["per"] == "capture_sizes")]
    if table.empty:
        return "Not measured yet: `artifact run study=startup` starts engines with other lists of capture sizes."
    rows = [
        [
            f"{row.model}, {row.attention}",
            str(row.realised_mode).replace(":", ", "),
            f"{row.max_num_seqs:g}",
            "graphs, MiB" if row.of == "graph_bytes" else "capture, ms",
            f"{row.slope * scale:.2f}",
            between(row.low * scale, row.high * scale, ".2f"),
            f"{row.intercept * scale:.0f}",
            f"{row.n} of {row.numbers} lists",
        ]
        for row in records(table)
        for scale in ((1 / _MIB) if row.of == "graph_bytes" else 1e3,)
    ]
    header = ["model, backend", "mode", "max_num_seqs", "of", "per size", "95 % interval", "at none", "n"]
    return f"{markdown(header, rows)}\n\nLeast squares over starts with vLLM's own list, cut after so many sizes."


def _fallback(root: Path) -> str:
    found = every_study.read([root / "fallback"])
    rows = [
        [
            str(row.backend),
            str(row.requested_mode),
            str(row.realised_mode).replace(":", ", ") if pd.notna(row.realised_mode) else str(row.status),
            "-" if pd.isna(row.graphs_full) else f"{int(row.graphs_piecewise)} + {int(row.graphs_full)}",
            *(shown(share, ".0%") for share in (row.full_share, row.piecewise_share, row.none_share)),
            "no prediction" if pd.isna(row.agrees) else ("yes" if row.agrees else f"no: {row.predicted}"),
            str(row.flags) or "-" if pd.isna(row.reason) else str(row.reason),
        ]
        for row in records(fallback.matrix(*found))
    ]
    shares = ["FULL", "PIECEWISE", "NONE"]
    header = ["backend", "requested", "realised", "graphs", *shares, "as foretold", "flags or reason"]
    words = "Shares of the steps dispatched under churn; graphs: piecewise + full."
    return f"{markdown(header, rows)}\n\n{said(found.launches, words)}"


def _hollow(root: Path) -> str:
    found = every_study.read([root / "hollow"])
    rows = [
        [
            _METRICS[str(row.metric)],
            f"{row.arm} / {row.against}",
            shown(row.ratio, ".2f"),
            between(row.low, row.high, ".2f"),
            f"{shown(row.median_ms, '.1f')} / {shown(row.against_ms, '.1f')}",
            f"{row.n} ({row.left_out} left out)",
        ]
        for row in records(fallback.hollow_cost(found.cells))
    ]
    header = ["metric", "ratio of", "ratio", "95 % interval", "medians, ms", "blocks"]
    loads = found.cells.groupby(["workload", "backend"])["offered_rate"].mean().reset_index()
    served = "; ".join(f"{row.workload} at {row.offered_rate:.0f} requests/s, {row.backend}" for row in records(loads))
    words = f"Paired by block; a block in which either cell is flagged is left out. Load: {served}."
    return f"{markdown(header, rows)}\n\n{said(found.launches, words)}"


def _break_even(root: Path) -> str:
    folders = every_study.studies(root)
    found = every_study.read(folders)
    table = break_even(found.cells, found.launches, request_seconds(folders, found.cells))
    table = table[table["extra_s"].notna()]
    rows = []
    for values, group in table.groupby(["model", "attention", "mode", "against", "cost"], sort=False):
        model, attention, mode, against, cost = (str(value) for value in values)
        pays = group[group["requests"].notna()]
        open_ended = int(pays["requests_high"].isna().sum())
        ends = [
            shown(pays["requests_high"].astype("float64").max(), ".1f"),
            f"{open_ended} without" if open_ended else "",
        ]
        rows.append(
            [
                f"{model}, {attention}",
                f"{mode} against {against}",
                cost,
                f"{float(group['extra_s'].mean()):.1f}",
                f"{len(pays)} of {len(group)}",
                span(group["saved_s"], ".2f"),
                span(pays["requests"], ".1f"),
                ", ".join(end for end in ends if end),
                span(pays["minutes"] * 60, ".2f"),
            ]
        )
    if not rows:
        return "Not measured yet: `artifact run study=load_sweep` serves the loads."
    header = [
        "model, backend",
        "mode",
        "paid off",
        "extra s",
        "loads where it pays",
        "saved s",
        "requests",
        "at most",
        "uptime s",
    ]
    words = (
        "Requests = extra start-up seconds / end-to-end seconds that one request saves, which count in sum; from the "
        "least to the most over the loads. At most: the largest upper end of a load's 95 % interval, and how many have "
        "none. Not counted: requests that arrive while the engine starts wait for it."
    )
    return f"{markdown(header, rows)}\n\n{said(found.launches, words)}"


def _correctness(root: Path) -> str:
    table = correctness(root / "fallback")
    rows = [
        [
            f"{row.tile}, {row.arm}",
            str(row.verdict),
            *(shown(value, ".2g") for value in (row.max_abs_diff, row.tolerance)),
            shown(row.top_agreement, ".2%"),
            shown(row.positions, ","),
            "-" if row.verdict == WITHIN else str(row.evidence),
        ]
        for row in records(table)
    ]
    header = ["backend, mode", "verdict", "largest difference", "tolerance", "same top token", "positions", "why"]
    return f"{markdown(header, rows)}\n\nLog-probabilities of forced tokens against NONE's on the same backend."


def _probe_cost(root: Path) -> str:
    folder = root / "step_latency"
    found = every_study.read([folder])
    table = probe_cost(found.cells[found.cells["status"] == "ok"], read_steps(folder))
    rows = [
        [
            f"{row.model}, {row.tile}",
            str(row.arm),
            f"{row.ratio:.3f}",
            between(row.low, row.high, ".3f") if pd.isna(row.reason) else row.reason,
            str(row.n_launches),
        ]
        for row in records(table)
    ]
    header = ["model, tile", "mode", "step with / without", "95 % interval", "launches"]
    return f"{markdown(header, rows)}\n\n{said(found.launches, 'Decode steps, geometric mean over batch sizes.')}"


# name -> the study without which there is nothing to say (null: any), and the function that says it
TABLES: dict[str, tuple[str | None, Callable[[Path], str]]] = {
    "start-up": (None, _start_up),
    "graph-memory": (None, _graph_memory),
    "capture-sizes": (None, _capture_sizes),
    "chosen-sizes": ("sizes", chosen_sizes_table),
    "fallback": ("fallback", _fallback),
    "hollow-cost": ("hollow", _hollow),
    "break-even": ("load_sweep", _break_even),
    "correctness": ("fallback", _correctness),
    "probe-cost": ("step_latency", _probe_cost),
    "mpk": ("step_latency", mpk_table),
    "fidelity": ("smoke", fidelity_table),
    "confirm": ("confirm", confirm_table),
    "crosscheck": (STUDY, crosscheck_table),
    "host-pace": (None, host_pace_table),
}

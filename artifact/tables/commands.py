"""A command's answer in, a table for people out."""

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

Answer = dict[str, Any]


# Names and numbers, which no one can read in pieces; texts wrap.
_WHOLE = (
    "arm",
    "workload",
    "load",
    "n",
    "TPOT p50 ms",
    "TTFT p50 ms",
    "TPOT p50",
    "TTFT p50",
    "p99",
    "block",
    "claim",
    "verdict",
)


def _table(*columns: str, title: str | None = None) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=column in _WHOLE)
    return table


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{round(value, 3):.4g}"
    if isinstance(value, list):
        return ", ".join(_text(item) for item in value) or "-"
    if isinstance(value, dict):  # counts: those of zero say nothing
        return ", ".join(f"{key} {_text(item)}" for key, item in value.items() if item != 0) or "-"
    return str(value)


def pairs(answer: Answer, console: Console) -> None:
    """Show keys and values, one a line."""
    table = _table("", "")
    table.show_header = False
    for key, value in answer.items():
        table.add_row(escape(key), escape(_text(value)))
    console.print(table)


def doctor(answer: Answer, console: Console) -> None:
    """Show the checks; each failed one with its remedy."""
    table = _table("check", "", "found", "what to do")
    for check in answer["checks"]:
        mark = {True: "ok", False: "FAILS", None: "note"}[check["ok"]]
        table.add_row(check["check"], mark, escape(check["found"]), escape(check["remedy"]))
    console.print(table)


def explain(answer: Answer, console: Console) -> None:
    """Show the resolution, the sizes, and the runtime mode of each batch."""
    hollow = "  (hollow: keys without graphs)" if answer["hollow"] else ""
    console.print(f"{answer['requested_mode']} -> {answer['resolved_mode']}{hollow}", highlight=False)
    if answer["reason"]:
        console.print(escape(answer["reason"]), highlight=False)
    keys = ("capture_sizes", "graphs", "captures")
    pairs({key: answer[key] for key in keys if key in answer}, console)
    table = _table("tokens", "uniform decode", "runtime mode", "padded to", title="\nbatches")
    for batch in answer["batches"]:
        names = ("num_tokens", "uniform_decode", "runtime_mode", "padded_tokens")
        table.add_row(*(_text(batch[name]) for name in names))
    console.print(table)
    if answer["fallthrough"]:
        table = _table("kind", "from", "to", "runs", title="\nfalls through")
        for hole in answer["fallthrough"]:
            table.add_row(*(_text(hole[name]) for name in ("kind", "from", "to", "runtime_mode")))
        console.print(table)
    for warning in answer.get("warnings", []):
        console.print(f"warning: {escape(warning)}", highlight=False)


def plan(answer: Answer, console: Console) -> None:
    """Show launches and their cells in order, then the totals."""
    table = _table("block", "arm", "tile", "minutes", "cells")
    for launch in answer["launches"]:
        of = launch["duplicate_of"]
        cells = f"duplicate of {of}" if of else ", ".join(map(_planned, launch["cells"]))
        table.add_row(launch["block"], escape(launch["arm"]), launch["tile"], _text(launch["minutes"]), escape(cells))
    console.print(table)
    console.print()
    pairs({**answer, "launches": len(answer["launches"]), "pieces": len(answer["pieces"])}, console)


def _planned(cell: Answer) -> str:
    rate, load = cell["rate_per_s"], cell["load"]
    at = "" if rate is None else f" {rate:.4g}/s" + ("" if load is None else f" (load {load:g})")
    return f"{cell['workload']}{at}"


_RUN_COLUMNS = {
    "workload": "workload",
    "load": "load",
    "n_requests": "n",
    "tpot_p50_ms": "TPOT p50",
    "tpot_p99_ms": "p99",
    "ttft_p50_ms": "TTFT p50",
    "ttft_p99_ms": "p99",
    "graph_mib": "graphs MiB",
    "capture_s": "capture s",
    "status": "status",
    "flags": "flags",
}
_MOST_ROWS = 60  # beyond that a table says less than the files


def run(answer: Answer, console: Console) -> None:
    """Show a row per cell, simulated beside measured where both are there, and what became of the sweep."""
    rows = answer["rows"]
    if len(rows) <= _MOST_ROWS:
        # A column in which every cell says the same, or nothing, is left out.
        dull: dict[str, set[object]] = {"load": {None}, "status": {"ok"}, "flags": {""}}
        shown = [name for name in _RUN_COLUMNS if {row[name] for row in rows} != dull.get(name)]
        title = f"{answer['study']}: {answer['source']}; times in ms"
        table = _table("arm", *(_RUN_COLUMNS[name] for name in shown), title=title)
        for row in rows:
            table.add_row(_arm(row), *(escape(_text(row[name])) for name in shown))
        console.print(table)
    if beside := answer.get("beside_measured"):
        title = "\nsimulated | measured (difference); medians of the same cells, with the measuring host's noise"
        table = _table("arm", "workload", "TPOT p50 ms", "TTFT p50 ms", "TPOT p99", "TTFT p99", title=title)
        for row in beside:
            pairs_ = (_pair(row, name) for name in ("tpot_p50_ms", "ttft_p50_ms"))
            table.add_row(
                escape(row["arm"]), _workload(row), *pairs_, _change(row, "tpot_p99_ms"), _change(row, "ttft_p99_ms")
            )
        console.print(table)
    if found := answer.get("verdicts"):
        table = _table("mode", "metric", "over the default", "95 % interval", "verdict", title="\nagainst the default")
        for row in found:
            interval = "-" if row["interval"] is None else "{:.3f} to {:.3f}".format(*row["interval"])
            verdict = f"{row['verdict']} ({row['reason']})" if row["reason"] else row["verdict"]
            table.add_row(escape(row["mode"]), row["metric"], _text(row["ratio"]), interval, verdict)
        console.print(table)
    console.print()
    pairs({key: answer[key] for key in ("study", "results", "cells", "evidence", "seconds")}, console)


def _workload(row: Answer) -> str:
    return str(row["workload"]) if row["load"] is None else f"{row['workload']}, load {row['load']:g}"


def _arm(row: Answer) -> str:
    realised = row["realised_mode"]
    return escape(row["arm"] if realised in (None, row["arm"]) else f"{row['arm']} = {realised}")


def _change(row: Answer, name: str) -> str:
    difference = row[f"{name}_difference"]
    return "-" if difference is None else f"{difference:+.0%}"


def _pair(row: Answer, name: str) -> str:
    ours, measured = row[name], row[f"{name}_reference"]
    if ours is None or measured is None:
        return f"{_text(ours)} | {_text(measured)}"
    return f"{ours:6.2f} | {measured:6.2f} ({_change(row, name)})"


def claims(answer: Answer, console: Console) -> None:
    """Show a line per claim; one whose verdict is not the expected one is marked."""
    table = _table("verdict", "claim", "statement", "found")
    for claim in answer["claims"]:
        mark = "" if claim["verdict"] == claim["expected"] else f" (expected {claim['expected']})"
        ends = f" [{', '.join(_text(end) for end in claim['interval'])}]" if claim["interval"] else ""
        compared = f"{_text(claim['left'])}{ends} {claim['is'].replace('_', ' ')} {_text(claim['right'])}"
        found = claim["reason"] or compared
        table.add_row(claim["verdict"] + mark, claim["id"], escape(claim["statement"]), escape(found))
    console.print(table)

"""A command's answer in, a table for people out."""

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

Answer = dict[str, Any]


def _table(*columns: str, title: str | None = None) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, justify="left", overflow="fold")
    return table


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return ", ".join(_text(item) for item in value) or "-"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_text(item)}" for key, item in value.items()) or "-"
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
    """Show launches and cells in order, then the totals."""
    table = _table("block", "arm", "cell")
    for cell in answer["cells"]:
        table.add_row(*(escape(_text(cell[name])) for name in ("block", "arm", "cell_id")))
    console.print(table)
    pairs({key: value for key, value in answer.items() if key != "cells"}, console)


_RUN_COLUMNS = {
    "arm": "arm",
    "workload": "workload",
    "realised_mode": "realised",
    "status": "status",
    "n_requests": "n",
    "tpot_p50_ms": "TPOT p50 ms",
    "tpot_p99_ms": "p99",
    "ttft_p50_ms": "TTFT p50 ms",
    "ttft_p99_ms": "p99",
    "graph_mib": "graphs MiB",
    "capture_s": "capture s",
    "flags": "flags",
}


def run(answer: Answer, console: Console) -> None:
    """Show a row per cell and what became of the sweep."""
    rows = answer.get("rows", [])
    if rows:
        table = _table(*_RUN_COLUMNS.values(), title=answer.get("title"))
        for row in rows:
            table.add_row(*(escape(_text(row.get(name))) for name in _RUN_COLUMNS))
        console.print(table)
    for name in ("side_by_side",):
        if answer.get(name):
            side = answer[name]
            table = _table(*side["columns"], title="\n" + side["title"])
            for row in side["rows"]:
                table.add_row(*(escape(_text(value)) for value in row))
            console.print(table)
    pairs({key: answer[key] for key in ("study", "results", "cells", "evidence", "seconds")}, console)

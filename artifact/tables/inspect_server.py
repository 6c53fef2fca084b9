"""The answer of ``inspect`` in, what a live server dispatched and how it served, for people, out."""

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

Answer = dict[str, Any]
_LENGTHS = {"prompt_tokens": "prompt tokens", "output_tokens": "output tokens"}
_TIMES = {"ttft": "TTFT ms", "tpot": "TPOT ms", "e2e": "E2E ms"}


def inspect_server(answer: Answer, console: Console) -> None:
    """Show the server and its mode, the dispatch, what fell through, batches, requests, and what to be wary of."""
    server, hollow = answer["server"], answer["hollow"]
    resolved = " or ".join(answer["resolved_modes"]) or "unknown"
    mark = {True: "  (hollow, by the rules)", False: "", None: "  (hollow or not: open)"}[hollow]
    console.print(f"[bold]{answer['requested_mode']} -> {resolved}[/bold]{mark}", highlight=False)
    console.print(escape(answer["mode_reason"]), highlight=False)
    backend = server.get("backend") or "backend chosen by vLLM"
    of = ", ".join(str(part) for part in (server.get("model"), server.get("gpu") or "GPU unknown", backend))
    console.print(f"{escape(of)}; vLLM {server.get('vllm_version')}", highlight=False)
    console.print(f"{answer['seconds']:,.1f} s from {answer['from']}, {answer['steps']:,} steps", highlight=False)
    _dispatch(answer, console)
    _stability(answer, console)
    _requests(answer, console)
    console.print()
    for warning in answer["warnings"]:
        console.print(f"warning: {escape(warning)}", highlight=False)


def _dispatch(answer: Answer, console: Console) -> None:
    if answer["dispatch"] is None:
        console.print(f"\ndispatch: {escape(answer['dispatch_reason'])}", highlight=False)
        return
    table = _table("\ndispatched", "runtime mode", "steps", "share", "tokens", "share")
    for row in answer["dispatch"]:
        steps, tokens = (f"{row[name]:,}" for name in ("steps", "tokens"))
        table.add_row(row["runtime_mode"], steps, f"{row['step_share']:.1%}", tokens, f"{row['token_share']:.1%}")
    console.print(table)
    console.print(f"padding: {_number(answer['padding_ratio'], '.1%')} more tokens than scheduled", highlight=False)
    if answer["fallthrough"]:
        table = _table("\nfell through", "runs", "steps", "share", "tokens", "most frequent", "why")
        for row in answer["fallthrough"]:
            span = f"{row['from']}" if row["from"] == row["to"] else f"{row['from']}..{row['to']}"
            most = ", ".join(f"{each['num_tokens']} ({each['steps']:,})" for each in row["most_frequent"][:4])
            shares = (f"{row['steps']:,}", f"{row['step_share']:.1%}")
            table.add_row(row["runtime_mode"], *shares, span, most, escape(row["reason"]))
        console.print(table)


def _stability(answer: Answer, console: Console) -> None:
    columns = {
        "steps": ("steps", ","),
        "running_p50": ("running p50", ".0f"),
        "running_max": ("max", ","),
        "running_cv": ("CV", ".2f"),
        "waiting_max": ("waiting max", ","),
        "kv_usage_max": ("KV max", ".1%"),
        "decode_step_share": ("pure decode", ".1%"),
        "graph_changes_per_s": ("graph changes/s", ".1f"),
    }
    table = _table("\nbatches", "engine", *(name for name, _ in columns.values()))
    for row in answer["stability"]:
        numbers = (_number(row[name], style) for name, (_, style) in columns.items())
        table.add_row(f"{row['engine']} (pid {row['pid']})", *numbers)
    console.print(table)


def _requests(answer: Answer, console: Console) -> None:
    requests, times = answer["requests"], answer["latency"]
    counts = f"{requests['finished']:,} finished, {requests['unfinished']:,} without an end"
    rate = f"{_number(requests['rate_per_s'], '.3g')}/s, arrival CV {_number(requests['arrival_cv'], '.2f')}"
    cached = _number(requests["cached_prompt_share"], ".1%")
    console.print(f"\nrequests: {counts}; {rate}; {cached} of prompt tokens from the prefix cache", highlight=False)
    table = _table(None, "", "p50", "p90", "p99", "max")
    for name, label in _LENGTHS.items():
        spread = requests[name] or {}
        table.add_row(label, *(_number(spread.get(each), ",.0f") for each in ("p50", "p90", "p99", "max")))
    for name, label in _TIMES.items():
        table.add_row(label, *(_number(times[f"{name}_p{rank}_ms"], ",.4g") for rank in (50, 90, 99)), "")
    console.print(table)


def _table(title: str | None, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=column not in ("why", "most frequent"))
    return table


def _number(value: float | int | None, style: str) -> str:
    return "-" if value is None else format(value, style)

"""The answer of ``recommend`` in, a sentence, a table and the flags to paste for people out."""

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

Answer = dict[str, Any]
_NUMBERS = {
    "tpot_p50_ms": ("TPOT p50", 1.0),
    "tpot_p99_ms": ("p99", 1.0),
    "ttft_p50_ms": ("TTFT p50", 1.0),
    "ttft_p99_ms": ("p99", 1.0),
    "e2e_p99_ms": ("E2E p99", 1.0),
    "output_tokens_per_s": ("tok/s", 1.0),
    "goodput": ("goodput", 1.0),
    "graph_bytes": ("graphs MiB", 2**20),
    "capture_s": ("capture s", 1.0),
}


def recommend(answer: Answer, console: Console) -> None:
    """Show the recommended mode and why, the ranking, what launch costs would change, and what to be wary of."""
    console.print(f"[bold]{escape(answer['recommended'])}[/bold]  ({escape(answer['evidence'])})", highlight=False)
    console.print(escape(answer["reason"]), highlight=False)
    console.print()
    _ranking(answer, console)
    if answer["sensitivity"]:
        _sensitivity(answer, console)
    lines = {"flags": answer["flags"], "python": answer["python"]}
    if answer["command"] is not None:
        lines = {"command": answer["command"]}
    console.print()
    for where, text in lines.items():
        console.print(f"{where + ':':<12}{escape(text)}", highlight=False, soft_wrap=True)
    if answer.get("plot"):
        console.print(f"{'picture:':<12}{escape(answer['plot'])}", highlight=False)
    console.print()
    for note in answer["notes"]:
        console.print(f"note: {escape(note)}", highlight=False)
    for warning in answer["warnings"]:
        console.print(f"warning: {escape(warning)}", highlight=False)


def _ranking(answer: Answer, console: Console) -> None:
    table = _table(f"{answer['source']}; times in ms")
    table.add_column("", no_wrap=True)
    table.add_column("mode", no_wrap=True)
    for name, _ in _NUMBERS.values():
        table.add_column(name, justify="right", no_wrap=name not in ("graphs MiB", "capture s"))
    table.add_column("verdict")
    for row in answer["ranking"]:
        mark = ">" if row["mode"] == answer["recommended"] else ""
        numbers = (_number(row[column], unit) for column, (_, unit) in _NUMBERS.items())
        table.add_row(mark, row["mode"], *numbers, escape(_verdict(row)))
    console.print(table)


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")


def _verdict(row: Answer) -> str:
    if row["verdict"] is None:
        return row["reason"] or "-"
    words = [row["verdict"], "" if row["reason"] is None else row["reason"], "" if row["allowed"] else "not allowed"]
    return ", ".join(word for word in words if word and word != "recommended") or "recommended"


def _sensitivity(answer: Answer, console: Console) -> None:
    table = _table("\nif a graph launch cost the host")
    for column in ("us", "recommended", "advantage", "interval", "against", "cannot be told from it"):
        table.add_column(
            column, no_wrap=column != "cannot be told from it", justify="right" if column == "us" else "left"
        )
    for row in answer["sensitivity"]:
        low, high = row["interval"]
        known = row["margin"] is not None
        table.add_row(
            f"{row['launch_us']:g}",
            row["recommended"],
            f"{row['margin']:+.1%}" if known else "-",
            f"{low:+.1%} to {high:+.1%}" if known else "-",
            row["margin_against"] or "-",
            ", ".join(row["inconclusive"]) or "-",
        )
    console.print(table)


def _number(value: float | int | None, unit: float) -> str:
    if value is None:
        return "-"
    scaled = value / unit
    return f"{scaled:,.0f}" if abs(scaled) >= 100 else f"{scaled:.3g}"

"""The answer of ``sizes`` in; the list, what it takes beside vLLM's own, other loads and the flags, for people, out."""

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

Answer = dict[str, Any]
_MIB = 2**20


def sizes(answer: Answer, console: Console) -> None:
    """Show the chosen sizes beside vLLM's own, what falls through, other loads, what more graphs would buy, flags."""
    listed = ", ".join(map(str, answer["sizes"]))
    console.print(f"[bold]{listed}[/bold]  ({escape(answer['mode'])}, {escape(answer['evidence'])})", highlight=False)
    console.print(escape(_sentence(answer)), highlight=False)
    console.print()
    console.print(_beside(answer))
    if any(hole["steps"] for hole in answer["fallthrough"]):
        console.print(_holes(answer))
    if answer["shifted"]:
        console.print(_shifted(answer))
    if len(answer["outline"]) > 1:
        console.print(_outline(answer))
    console.print()
    for where in ("flags", "python"):
        console.print(f"{where + ':':<12}{escape(answer[where])}", highlight=False, soft_wrap=True)
    console.print()
    for note in (answer["source"], f"memory and capture: {answer['graphs_source']}"):
        console.print(f"note: {escape(note)}", highlight=False)
    for warning in answer["warnings"]:
        console.print(f"warning: {escape(warning)}", highlight=False)


def _sentence(answer: Answer) -> str:
    """Return what the list saves on vLLM's own; what is not known is left out."""
    saving = answer["saving"]
    parts = [f"{saving['graphs']:+d} graphs"]
    if saving["graph_bytes"] is not None:
        parts.append(f"{saving['graph_bytes'] / _MIB:+,.0f} MiB")
    if saving["capture_s"] is not None:
        parts.append(f"{saving['capture_s']:+.1f} s of start-up")
    return f"Saved on vLLM's own {len(answer['default']['sizes'])} sizes: {', '.join(parts)}; " + (
        f"step time {-saving['step_time']:+.2%}."
    )


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    return table


def _beside(answer: Answer) -> Table:
    table = _table(
        "expected, mean over steps", "", "sizes", "graphs", "MiB", "capture s", "step ms", "simulated", "replayed",
        "of tokens", "padding",
    )  # fmt: skip
    for name, row in (("chosen", answer), ("vLLM's own", answer["default"])):
        table.add_row(
            name,
            str(len(row["sizes"])),
            str(sum(row["graphs"].values())),
            _number(None if row["graph_bytes"] is None else row["graph_bytes"] / _MIB, ".0f"),
            _number(row["capture_s"], ".1f"),
            _number(row["expected_step_ms"], ".3f"),
            _number(row["simulated_step_ms"], ".3f"),
            _number(row["coverage"]["steps"], ".1%"),
            _number(row["coverage"]["tokens"], ".1%"),
            _number(row["padding_ratio"], ".1%"),
        )
    return table


def _holes(answer: Answer) -> Table:
    table = _table("\nruns otherwise than the mode means it", "", "tokens", "as", "of steps", "of step time")
    for hole in answer["fallthrough"]:
        if hole["steps"]:
            tokens = f"{hole['from']}..{hole['to']}"
            share, time = _number(hole["steps"], ".1%"), _number(hole["step_time"], ".1%")
            table.add_row(hole["kind"], tokens, hole["runtime_mode"], share, time)
    return table


def _shifted(answer: Answer) -> Table:
    table = _table(
        "\nif the load is another, step ms",
        "",
        "chosen",
        "vLLM's own",
        "best of as many",
        "lost",
        "replayed",
        "padding",
    )
    for row in answer["shifted"]:
        table.add_row(
            escape(row["load"]) + (" (overload)" if row["overload"] else ""),
            _number(row["expected_step_ms"], ".3f"),
            _number(row["default_step_ms"], ".3f"),
            _number(row["best_step_ms"], ".3f"),
            _number(row["regret"], ".2%"),
            _number(row["coverage"]["steps"], ".1%"),
            _number(row["padding_ratio"], ".1%"),
        )
    return table


def _outline(answer: Answer) -> Table:
    table = _table("\nthe best list of so many graphs", "graphs", "step ms")
    for row in answer["outline"]:
        table.add_row(str(row["graphs"]), _number(row["expected_step_ms"], ".3f"))
    return table


def _number(value: float | None, spec: str) -> str:
    return "-" if value is None else format(value, spec)

"""Rows and numbers in, the Markdown that says them out; what is not there is a dash."""

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table of texts."""
    lines = [list(header), ["---"] * len(header), *([cell.replace("|", r"\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)


def said(launches: pd.DataFrame, words: str) -> str:
    """Return the line below a table: evidence, GPUs, versions, the number of engine starts, and ``words``."""
    evidence = ", ".join(sorted(launches["evidence"].unique()))
    gpus = ", ".join(sorted(launches["gpu_name"].dropna().unique())) or "GPU unknown"
    return f"{evidence.capitalize()} on {gpus}, vLLM 0.21.0; {len(launches)} engine starts. {words}"


def records(table: pd.DataFrame) -> Iterator[Any]:
    """Yield the rows, whose columns are attributes of any type."""
    yield from table.itertuples()


def shown(value: float | None, form: str) -> str:
    """Return a number as ``form`` has it, or a dash where there is none."""
    return "-" if pd.isna(value) else format(value, form)


def between(low: float | None, high: float | None, form: str) -> str:
    """Return an interval, or a dash where there is none."""
    return "-" if pd.isna(low) or pd.isna(high) else f"{shown(low, form)} to {shown(high, form)}"


def contrast(row: dict[str, Any] | None) -> str:
    """Return ratio, interval, verdict and blocks of a contrast (``verdicts.Finding.row``)."""
    if row is None or row["ratio"] is None:
        return "not measured"
    if row["interval"] is None:
        return f"{row['ratio']:.2f} (n = {row['blocks']})"
    low, high = row["interval"]
    return f"{row['ratio']:.2f} [{low:.2f}, {high:.2f}] {row['verdict']} (n = {row['blocks']})"


def span(values: "pd.Series[Any]", form: str) -> str:
    """Return the least and the most of numbers, or the one where they are written alike."""
    low, high = (shown(end, form) for end in (values.astype("float64").min(), values.astype("float64").max()))
    return low if low == high else f"{low} to {high}"

"""Values in, tables of texts out: what does not exist is a dash, never a zero."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

ABSENT = "-"


@dataclass(frozen=True)
class Table:
    """Texts in rows. ``numeric`` holds the places of the columns to align right; ``folded`` ones open on a click."""

    caption: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()
    folded: bool = False


def text(value: Any) -> str:
    """Return ``value`` for people: four significant digits, thousands apart, a dash for null, NaN and nothing."""
    if isinstance(value, list | tuple):
        return ", ".join(text(item) for item in value) or ABSENT
    if isinstance(value, dict):
        return ", ".join(f"{key}: {text(item)}" for key, item in value.items()) or ABSENT
    if value is None or value is pd.NA or value == "" or (isinstance(value, float) and pd.isna(value)):
        return ABSENT
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def table(
    caption: str, columns: Mapping[str, str], rows: Iterable[Mapping[str, Any]], *, folded: bool = False
) -> Table:
    """Return the table of ``rows`` under the heads that ``columns`` (name -> head) gives; numbers are aligned right.

    A column in which no row has a value is left out, but for the first.
    """
    values = [[row.get(name) for name in columns] for row in rows]
    kept = [at for at, _ in enumerate(columns) if at == 0 or any(text(row[at]) != ABSENT for row in values)]
    heads = list(columns.values())
    numeric = (place for place, at in enumerate(kept) if _is_numeric([row[at] for row in values]))
    return Table(
        caption=caption,
        heads=tuple(heads[at] for at in kept),
        rows=tuple(tuple(text(row[at]) for at in kept) for row in values),
        numeric=frozenset(numeric),
        folded=folded,
    )


def _is_numeric(values: Sequence[Any]) -> bool:
    known = [value for value in values if text(value) != ABSENT]
    return bool(known) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in known)


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of ``frame`` as plain values, null where there is none."""
    plain = frame.astype(object).where(frame.notna(), None)
    return [{str(key): value for key, value in row.items()} for row in plain.to_dict("records")]

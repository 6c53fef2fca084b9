"""Rows of launches.parquet in; medians of what starts took, and what their provenance agrees on, out."""

import json
from typing import Any

import numpy as np
import pandas as pd

from artifact.records import LaunchFacts


def median(column: "pd.Series[Any]") -> float | None:
    """Return the median of a column's numbers, None where there are none."""
    value = float(pd.to_numeric(column, errors="coerce").median()) if column.notna().any() else np.nan
    return None if np.isnan(value) else value


def agreed(column: "pd.Series[Any]") -> Any:
    """Return the commonest value of a column, None where all are null."""
    counts = column.dropna().mode()
    return None if counts.empty else counts.iloc[0]


def median_facts(launches: pd.DataFrame) -> LaunchFacts:
    """Return medians of the numbers and the commonest of the rest, of launches with the commonest cache state."""
    state = agreed(launches["compile_cache"])
    alike = launches if state is None else launches[launches["compile_cache"] == state]
    values: dict[str, Any] = {}
    for name, field in LaunchFacts.model_fields.items():
        if name not in alike or alike[name].isna().all() or name in ("gpu_uuid", "gpu_name"):
            continue
        if field.annotation in (float | None, int | None):
            middle = median(alike[name])
            values[name] = round(middle) if middle is not None and field.annotation == int | None else middle
        else:
            values[name] = agreed(alike[name])
    return LaunchFacts.model_validate(values)


def provenance(launches: pd.DataFrame, names: tuple[str, ...]) -> str | None:
    """Return the first value under one of ``names`` anywhere in the launches' provenance."""

    def found(node: Any) -> Any:
        if isinstance(node, dict):
            for name in names:
                if isinstance(node.get(name), str | int | float):
                    return node[name]
            return next((value for value in map(found, node.values()) if value is not None), None)
        return None

    values = (found(json.loads(text)) for text in launches["provenance"].dropna())
    return next((str(value) for value in values if value is not None), None)

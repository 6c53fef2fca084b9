"""conf/claims.yaml and a folder of studies in; for each claim PASS, FAIL or NOT MEASURED, with the two numbers, out.

A claim is data, not code: rows chosen by equal values, one column reduced to a number, compared with another.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from omegaconf import OmegaConf
from pydantic import ValidationError, model_validator

from artifact.config import CONF_DIR
from artifact.errors import InputError
from artifact.schema import Evidence, Frozen, NonNegative
from artifact.study.store import read_cells, read_launches, read_steps

Verdict = Literal["PASS", "FAIL", "NOT MEASURED"]
Relation = Literal["equal", "greater", "less", "at_least", "at_most"]


class Rows(Frozen):
    """A number out of rows: ``column`` of the rows whose columns equal ``where``, reduced. Steps know their arm."""

    table: Literal["cells", "launches", "steps"]
    where: dict[str, str | int | float | bool]
    column: str
    reduce: Literal["min", "max", "median", "mean"]


class Claim(Frozen):
    """``left is right x factor``, where "equal" allows a relative ``tolerance``; minutes are what checking takes."""

    id: str
    statement: str
    study: str
    left: Rows
    is_: Relation
    right: Rows | float
    factor: float = 1.0
    tolerance: NonNegative = 0.0
    expected: Verdict = "PASS"
    figure: str | None
    human_minutes: NonNegative = 1
    compute_minutes: NonNegative = 1

    @model_validator(mode="before")
    @classmethod
    def _is(cls, values: Any) -> Any:
        """``is`` is a word of Python's own."""
        return {"is_" if key == "is" else key: value for key, value in values.items()}


class Checked(NamedTuple):
    """A claim's verdict; the numbers are null where it was not measured, and ``reason`` says why."""

    claim: Claim
    verdict: Verdict
    left: float | None
    right: float | None
    reason: str


_RELATIONS: dict[Relation, Callable[[float, float, float], bool]] = {
    "equal": lambda left, right, tolerance: abs(left - right) <= tolerance * abs(right),
    "greater": lambda left, right, _: left > right,
    "less": lambda left, right, _: left < right,
    "at_least": lambda left, right, _: left >= right,
    "at_most": lambda left, right, _: left <= right,
}


def read_claims(file: Path | None = None) -> list[Claim]:
    """Return the claims of ``file`` (conf/claims.yaml). Raises InputError that names the file, claim and key."""
    file = file or CONF_DIR / "claims.yaml"
    raw: Any = OmegaConf.to_container(OmegaConf.load(file))
    claims = []
    for entry in raw["claims"]:
        try:
            claims.append(Claim.model_validate(entry))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise InputError(f"{file.name}: claim {entry.get('id', '?')}: {where}: {first['msg']}") from None
    repeated = [claim.id for number, claim in enumerate(claims) if claim.id in {each.id for each in claims[:number]}]
    if repeated:
        raise InputError(f"{file.name}: claim {repeated[0]} is there twice")
    return claims


def check(claims: list[Claim], root: Path) -> list[Checked]:
    """Check ``claims`` against the study folders below ``root``. Simulated and failed rows count for nothing.

    Raises InputError for a column that a table does not have.
    """

    @cache
    def table(study: str, name: str) -> pd.DataFrame:
        folder = root / study
        cells = read_cells(folder)
        cells = cells[(cells["status"] == "ok") & (cells["evidence"] == Evidence.MEASURED.value)]
        if name == "cells":
            return cells
        if name == "launches":
            launches = read_launches(folder)
            return launches[launches["launch_id"].isin(cells["launch_id"])]
        return read_steps(folder).merge(cells[["cell_id", "arm", "workload", "load", "model", "block"]], on="cell_id")

    def number(claim: Claim, side: Rows | float) -> float:
        if isinstance(side, float):
            return side
        frame = table(claim.study, side.table)
        if missing := [name for name in (*side.where, side.column) if name not in frame]:
            raise InputError(f"claims.yaml: claim {claim.id}: {side.table} have no column {', '.join(missing)}")
        for name, value in side.where.items():
            frame = frame[frame[name] == value]
        values = frame[side.column].dropna().to_numpy(float)
        if not len(values):
            raise LookupError(f"no measured {side.table} with {', '.join(f'{k}={v}' for k, v in side.where.items())}")
        return float(getattr(np, side.reduce)(values))

    checked = []
    for claim in claims:
        if not (root / claim.study / "cells.parquet").exists():
            checked.append(Checked(claim, "NOT MEASURED", None, None, f"no study {claim.study}"))
            continue
        try:
            left, right = number(claim, claim.left), claim.factor * number(claim, claim.right)
        except LookupError as error:
            checked.append(Checked(claim, "NOT MEASURED", None, None, str(error)))
            continue
        holds = _RELATIONS[claim.is_](left, right, claim.tolerance)
        checked.append(Checked(claim, "PASS" if holds else "FAIL", left, right, ""))
    return checked

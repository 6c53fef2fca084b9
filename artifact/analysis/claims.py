"""conf/claims.yaml and a folder of studies in; for each claim PASS, FAIL or NOT MEASURED, with the two numbers, out.

A claim is data, not code: rows chosen by equal values, one column reduced to a number, compared with another. With
``paired_by`` both sides are reduced block by block, and what is compared is the interval of their ratio.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

import numpy as np
import pandas as pd
from omegaconf import OmegaConf
from pydantic import AfterValidator, Field, ValidationError, model_validator

from artifact.analysis import every_study
from artifact.analysis.contrasts import chosen_sizes
from artifact.analysis.correctness import correctness
from artifact.analysis.starts import fallback
from artifact.analysis.steps import effects as step_effects
from artifact.analysis.steps import table as step_table
from artifact.analysis.steps.floor import copies_below
from artifact.config import CONF_DIR
from artifact.errors import InputError
from artifact.schema import Evidence, Frozen, NonNegative
from artifact.study.store import read_cells, read_launches, read_steps

Verdict = Literal["PASS", "FAIL", "NOT MEASURED"]
Relation = Literal["equal", "greater", "less", "at_least", "at_most"]


# Made of a study's folder and its finished, measured cells and launches. A null end of an interval counts for nothing.
DERIVED: dict[str, Callable[[Path, pd.DataFrame, pd.DataFrame], pd.DataFrame]] = {
    "step_table": lambda at, cells, launches: step_table.step_table(
        cells, read_steps(at), launches, copies_below(at.parent)
    ),
    "probe_cost": lambda at, cells, _: step_table.probe_cost(cells, read_steps(at)),
    "compile_vs_graph": lambda at, cells, _: step_effects.compile_vs_graph(cells, read_steps(at)),
    "mixed_table": lambda at, cells, _: step_effects.mixed_table(cells, read_steps(at)),
    "graph_benefit": lambda at, cells, launches: step_effects.graph_benefit(cells, read_steps(at), launches),
    "chosen_sizes": lambda _, cells, launches: chosen_sizes.table(cells, launches),
    "fallback_matrix": lambda _, cells, launches: fallback.matrix(cells, every_study.described(launches)),
    "correctness": lambda at, *_: correctness(at),
}
_STEPS_KNOW = ["cell_id", "launch_id", "arm", "tile", "workload", "load", "model", "block", "host_id", "flags"]


def _known(table: str) -> str:
    tables = ("cells", "launches", "steps", *DERIVED)
    if table not in tables:
        raise ValueError(f"{table} is no table; take {', '.join(tables)}")
    return table


class Rows(Frozen):
    """A number out of rows: ``column`` of the rows whose columns equal ``where``, reduced. Steps know their cell.

    ``table`` is one of the store's or of DERIVED.
    """

    table: Annotated[str, AfterValidator(_known)]
    where: dict[str, str | int | float | bool]
    column: str
    reduce: Literal["min", "max", "median", "mean"]


class Claim(Frozen):
    """``left is right x factor``, where "equal" allows a relative ``tolerance``; minutes are what checking takes.

    With ``paired_by: block`` the ratio of left to right is taken in each block of a machine that has both, and the
    whole 95 % t-interval of its geometric mean has to be so against ``factor``: to be "equal" it has to lie within
    ``tolerance`` of it. With fewer than ``blocks`` of them the claim is not measured.
    """

    id: str
    statement: str
    study: str
    left: Rows
    is_: Relation
    right: Rows | float
    paired_by: Literal["block"] | None = None
    blocks: Annotated[int, Field(ge=2)] = 2
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

    @model_validator(mode="after")
    def _pairs(self) -> Self:
        sides = (self.left, self.right)
        if self.paired_by and not all(isinstance(side, Rows) and side.table not in DERIVED for side in sides):
            raise ValueError("paired_by needs rows of cells, launches or steps on both sides")
        return self


class Checked(NamedTuple):
    """A claim's verdict; the numbers are null where it was not measured, and ``reason`` says why.

    Of a paired claim ``left`` is the ratio, ``interval`` its ends and ``right`` the factor.
    """

    claim: Claim
    verdict: Verdict
    left: float | None
    right: float | None
    reason: str
    interval: tuple[float, float] | None = None


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
    tables = cache(lambda study, name: _table(root / study, name))
    checked = []
    for claim in claims:
        if not (root / claim.study / "cells.parquet").exists():
            checked.append(Checked(claim, "NOT MEASURED", None, None, f"no study {claim.study}"))
            continue
        try:
            checked.append((_paired if claim.paired_by else _compared)(claim, tables))
        except LookupError as error:
            checked.append(Checked(claim, "NOT MEASURED", None, None, str(error)))
    return checked


_Tables = Callable[[str, str], pd.DataFrame]


def _table(folder: Path, name: str) -> pd.DataFrame:
    cells = read_cells(folder)
    cells = cells[(cells["status"] == "ok") & (cells["evidence"] == Evidence.MEASURED.value)]
    if name == "cells":
        return cells
    if name == "steps":
        return read_steps(folder).merge(cells[_STEPS_KNOW], on="cell_id")
    launches = read_launches(folder)
    launches = launches[launches["launch_id"].isin(cells["launch_id"])]
    if name == "launches":
        return launches
    return DERIVED[name](folder, cells, launches)


def _values(claim: Claim, side: Rows, tables: _Tables) -> pd.DataFrame:
    """Return the rows of ``side`` that have a value. Raises LookupError where there are none."""
    frame = tables(claim.study, side.table)
    if missing := [name for name in (*side.where, side.column) if name not in frame]:
        raise InputError(f"claims.yaml: claim {claim.id}: {side.table} have no column {', '.join(missing)}")
    for name, value in side.where.items():
        frame = frame[frame[name] == value]
    frame = frame.dropna(subset=[side.column])
    if frame.empty:
        chosen = ", ".join(f"{name}={value}" for name, value in side.where.items())
        raise LookupError(f"no measured {side.table} with {chosen}")
    return frame


def _compared(claim: Claim, tables: _Tables) -> Checked:
    def number(side: Rows | float) -> float:
        if isinstance(side, float):
            return side
        return float(getattr(np, side.reduce)(_values(claim, side, tables)[side.column].to_numpy(float)))

    left, right = number(claim.left), claim.factor * number(claim.right)
    holds = _RELATIONS[claim.is_](left, right, claim.tolerance)
    return Checked(claim, "PASS" if holds else "FAIL", left, right, "")


def _paired(claim: Claim, tables: _Tables) -> Checked:
    """Compare both ends of the ratio's interval: what holds for both holds for all between them."""

    def by_block(side: Rows) -> "pd.Series[float]":
        values = _values(claim, side, tables)
        # A block's name is its study's; its machine's rows pair with each other alone.
        blocks = values[side.column].astype(float).groupby([values["host_id"], values["tile"], values["block"]])
        reduced: pd.Series[float] = blocks.agg(side.reduce)
        return reduced

    sides = [by_block(side) for side in (claim.left, claim.right) if isinstance(side, Rows)]
    ratios = (sides[0] / sides[1]).dropna()
    ratio, low, high, n = step_table.interval(ratios)
    if n < claim.blocks:
        raise LookupError(f"{n} of {claim.blocks} blocks have both sides")
    holds = all(_RELATIONS[claim.is_](end, claim.factor, claim.tolerance) for end in (low, high))
    return Checked(claim, "PASS" if holds else "FAIL", ratio, claim.factor, "", (low, high))

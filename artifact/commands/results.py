"""Overrides in; figures and claims, from what was run here or from the shipped measurements, out."""

import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from artifact.commands.common import Answer, shipped
from artifact.config import load
from artifact.errors import InputError


def figures(overrides: list[str]) -> Answer:
    """Draw the figures whose studies are there; return the files, and why a figure was left out all the same."""
    from artifact.plots import FIGURES

    config = load(overrides)
    root = Path(config.executor.results) if config.figures.source == "results" else shipped()
    there = {path.parent.name for path in root.glob("*/cells.parquet")}
    names = [name for name, (studies, _) in FIGURES.items() if there & set(studies)]
    files: list[str] = []
    skipped: dict[str, str] = {}
    # A process a core: nearly all of the time goes into matplotlib, which takes one core. Fresh ones, not forks: a
    # fork could inherit a lock that a thread of Arrow's holds.
    workers = max(1, min(len(names), os.cpu_count() or 1))
    one = partial(_drawn, root=root, out=Path(config.figures.out))
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for name, (drawn, why) in zip(names, pool.map(one, names), strict=True):
            files += drawn
            skipped |= {name: why} if why else {}
    if not files:
        raise InputError(f"{root}: no finished study that has a figure; artifact run study=smoke makes one")
    return {"source": str(root), "files": files, "skipped": skipped}


def _drawn(name: str, root: Path, out: Path) -> tuple[list[str], str]:
    """Draw one figure; return its files, and why there are none."""
    from artifact.plots import draw
    from artifact.plots.data import NothingToDraw

    try:
        return [str(path) for path in draw(name, root, out)], ""
    except NothingToDraw as why:
        return [], str(why)


def claims(overrides: list[str]) -> Answer:
    """Check every claim; exit code 1 where a verdict is not the expected one."""
    from artifact.analysis import claims

    config = load(overrides)
    root = Path(config.executor.results) if config.figures.source == "results" else shipped()
    checked = claims.check(claims.read_claims(), root)
    rows = [
        {
            "id": each.claim.id,
            "verdict": each.verdict,
            "expected": each.claim.expected,
            "statement": each.claim.statement,
            "left": each.left,
            "is": each.claim.is_,
            "right": each.right,
            "interval": each.interval,
            "reason": each.reason,
            "figure": each.claim.figure,
            "human_minutes": each.claim.human_minutes,
            "compute_minutes": each.claim.compute_minutes,
        }
        for each in checked
    ]
    surprises = [row["id"] for row in rows if row["verdict"] != row["expected"]]
    return {"source": str(root), "claims": rows, "surprises": surprises, "exit_code": 1 if surprises else 0}

"""Overrides in; figures and claims, from what was run here or from the shipped measurements, out."""

from pathlib import Path

from artifact.commands.common import Answer, shipped
from artifact.config import load
from artifact.errors import InputError


def figures(overrides: list[str]) -> Answer:
    """Draw the figures whose studies are there; return the files, and why a figure was left out all the same."""
    from artifact import plots
    from artifact.plots.data import NothingToDraw

    config = load(overrides)
    root = Path(config.executor.results) if config.figures.source == "results" else shipped()
    there = {path.parent.name for path in root.glob("*/cells.parquet")}
    files: list[str] = []
    skipped: dict[str, str] = {}
    for name in [name for name, (studies, _) in plots.FIGURES.items() if there & set(studies)]:
        try:
            files += [str(path) for path in plots.draw(name, root, Path(config.figures.out))]
        except NothingToDraw as why:
            skipped[name] = str(why)
    if not files:
        raise InputError(f"{root}: no finished study that has a figure; artifact run study=smoke makes one")
    return {"source": str(root), "files": files, "skipped": skipped}


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

"""Overrides in; figures and claims, from what was run here or from the shipped measurements, out."""

from pathlib import Path

from artifact.commands.common import Answer, shipped
from artifact.config import load
from artifact.errors import InputError


def figures(overrides: list[str]) -> Answer:
    """Draw the figures that the rows allow; return the files."""
    from artifact import plots

    config = load(overrides)
    if config.figures.source == "results":
        root = Path(config.executor.results)
        run = {path.parent.name for path in root.glob("*/cells.parquet")}
        names = [name for name, (studies, _) in plots.FIGURES.items() if run & set(studies)]
        if not names:
            raise InputError(f"{root}: no finished study that has a figure; artifact run study=smoke makes one")
    else:
        root, names = shipped(), list(plots.FIGURES)
    out = Path(config.figures.out)
    return {"source": str(root), "files": [str(path) for name in names for path in plots.draw(name, root, out)]}


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
            "reason": each.reason,
            "figure": each.claim.figure,
            "human_minutes": each.claim.human_minutes,
            "compute_minutes": each.claim.compute_minutes,
        }
        for each in checked
    ]
    surprises = [row["id"] for row in rows if row["verdict"] != row["expected"]]
    return {"source": str(root), "claims": rows, "surprises": surprises, "exit_code": 1 if surprises else 0}

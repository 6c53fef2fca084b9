"""Overrides in; the guide of what was measured, written as GUIDE.md and returned as one object, out."""

from pathlib import Path

from artifact.commands.common import Answer, shipped
from artifact.config import load


def guide(overrides: list[str]) -> Answer:
    """Write GUIDE.md: of the shipped measurements beside README.md, of results in their folder; return what it says."""
    from artifact.analysis.guide.page import gather
    from artifact.analysis.guide.text import render
    from artifact.study.parts import write_atomically

    config = load(overrides)
    is_results = config.figures.source == "results"
    root = Path(config.executor.results) if is_results else shipped()
    out = (root if is_results else root.parents[1]) / "GUIDE.md"
    contents = gather(root)
    text = render(contents)
    write_atomically(out, lambda partial: partial.write_text(text, encoding="utf-8"))
    return {"source": str(root), "file": str(out), **contents}

"""Overrides in; one HTML page of a results folder out."""

from pathlib import Path

from artifact.commands.common import Answer, shipped_folder
from artifact.config import load


def report(overrides: list[str]) -> Answer:
    """Write the page of the study's results, or of ``report.folder``; return what it holds and where it is."""
    from artifact.report import gather, render
    from artifact.study.parts import write_atomically

    config = load(overrides)
    folder = Path(config.report.folder or Path(config.executor.results) / config.study.name)
    shipped = shipped_folder()
    reference = shipped / folder.resolve().name
    is_shipped = folder.resolve().is_relative_to(shipped)
    contents = gather(folder, reference if reference.is_dir() and not is_shipped else None)
    beside = Path(config.figures.out) / f"report_{contents.study}.html" if is_shipped else folder / "report.html"
    out = Path(config.report.out or beside)
    page = render(contents)
    write_atomically(out, lambda partial: partial.write_text(page, encoding="utf-8"))
    return {
        "study": contents.study,
        "evidence": list(contents.evidence),
        "figures": [picture.name for picture in contents.pictures if picture.svg],
        "bytes": len(page.encode()),
        "report": str(out),
    }

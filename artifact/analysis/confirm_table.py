"""A folder of studies in, the Markdown table of study=confirm out."""

from pathlib import Path

from artifact.analysis.contrasts import confirmed
from artifact.analysis.contrasts.sweep import DEFAULT
from artifact.analysis.guide.answers import WORDS, standing
from artifact.analysis.markdown import contrast, markdown, said, shown
from artifact.errors import InputError


def confirm_table(root: Path) -> str:
    """Return a row a metric: medians of both modes over their cells, the ratio over blocks. Raises InputError."""
    found = confirmed.read(root)
    if found is None:
        raise InputError(f"{root / confirmed.STUDY}: no rows; artifact run study=confirm trace.path=FILE makes them")
    arms = found.cells.groupby("arm")
    medians = {metric: arms[metric].median().to_dict() for metric in WORDS}
    rows = [
        [
            each.mode,
            f"{WORDS[each.metric]}, ms",
            shown(medians[each.metric][DEFAULT], ".2f"),
            shown(medians[each.metric][each.mode], ".2f"),
            contrast(each.row()),
        ]
        for each in found.findings
    ]
    header = ["mode", "metric", "the default's", "its own", "ratio"]
    words = (
        f"{found.trace}. Medians over cells; ratios over the default's are paired by block, with the 95 % interval and "
        f"the guide's verdicts{standing(found.findings)}."
    )
    return f"{markdown(header, rows)}\n\n{said(found.launches, words)}"

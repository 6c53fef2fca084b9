"""A folder of studies in; the Markdown table of contrasts with and without the host's pace out."""

from pathlib import Path

from artifact.analysis.contrasts import chosen_sizes, sweep
from artifact.analysis.contrasts.host_pace import FEWEST, AtEqualPace, at_equal_pace
from artifact.analysis.contrasts.verdicts import Finding, findings
from artifact.analysis.guide.answers import WORDS
from artifact.analysis.markdown import markdown

_METRICS = ("tpot_p50_ms", "tpot_p99_ms")
# studies -> the arms that are compared, and with which
_COMPARED = (
    (sweep.STUDIES, (sweep.MODES, sweep.DEFAULT)),
    (chosen_sizes.STUDIES, ((chosen_sizes.CHOSEN,), chosen_sizes.OWN)),
)


def host_pace_table(root: Path) -> str:
    """Return the table of the contrasts below ``root`` that have enough blocks, and what it is made of."""
    rows: list[list[str]] = []
    for studies, arms in _COMPARED:
        if (found := sweep.read(root, studies)) is not None:
            rows += _rows(findings(found, _METRICS, *arms), at_equal_pace(found, _METRICS, *arms))
    if not rows:
        return f"No contrast has {FEWEST} blocks yet."
    header = ["model, load", "arm", "metric", "blocks", "ratio", "at equal pace", "explained"]
    return (
        f"{markdown(header, rows)}\n\nRatios to the default mode, or of chosen capture sizes to vLLM's own, with 95 % "
        "intervals; at equal pace: regressed on the microseconds that a kernel launch took before and after each cell, "
        "or before the cells of its start where that was not taken yet. Explained: the share of the variance over "
        "blocks that goes with that."
    )


def _rows(plain: list[Finding], adjusted: list[AtEqualPace]) -> list[list[str]]:
    by_key = {(each.place, each.mode, each.metric): each for each in plain}
    rows = []
    for each in adjusted:
        interval = by_key[each.place, each.mode, each.metric].interval
        ends = "" if interval is None else f" [{interval[0]:.2f}, {interval[1]:.2f}]"
        rows.append(
            [
                f"{each.place.model}, {each.place.words}",
                each.mode,
                WORDS[each.metric],
                str(each.blocks),
                f"{each.plain:.2f}{ends}",
                f"{each.ratio:.2f} [{each.low:.2f}, {each.high:.2f}]",
                f"{each.explained:.0%}",
            ]
        )
    return rows

"""A folder of studies in, the Markdown table of how far simulated cells are from measured ones out."""

from pathlib import Path

from artifact.analysis.fidelity import GIVEN, METRICS, SHARES, Error, choices, errors, floor, read
from artifact.analysis.markdown import markdown, shown

_WORDS = {"tpot_p50_ms": "TPOT p50", "tpot_p99_ms": "TPOT p99", "ttft_p50_ms": "TTFT p50", "ttft_p99_ms": "TTFT p99"}


def fidelity_table(root: Path) -> str:
    """Return the table of the held-out cells below ``root``, all together and by arm, and what it is made of."""
    rows = read(root)
    found = {(each.what, each.metric): each for each in errors(rows)}
    lines = []
    for what in dict.fromkeys(name for name, _ in found):
        own = [found.get((what, metric)) for metric in METRICS]
        cells = max(each.n for each in own if each is not None)
        lines.append([what, str(cells), *map(_shown, own)])
    given = {each.metric: each for each in errors(rows, end=GIVEN) if each.what == "all"}
    lines.append(["all, at the host's pace in the very cell", str(given[METRICS[0]].n), *map(_shown, given.values())])
    repeats = [floor(rows, metric) for metric in METRICS]
    lines.append(
        ["the same cell measured again", f"{repeats[0][1]} pairs", *(shown(apart, ".0%") for apart, _ in repeats)]
    )
    step_shares = max(float((rows[f"{name}_simulated"] - rows[name]).abs().median()) for name in SHARES)
    chosen = choices(rows)
    right = int((chosen["chosen"] == chosen["best"]).sum())
    regrets = ", ".join(f"{chosen[name].mean():.1%}" for name in ("regret", "default_regret"))
    models = ", ".join(sorted(rows["model"].unique()))
    said = (
        f"Simulated against measured, held-out open loops of {models}; median size of the relative error (and its "
        "median with sign). What is simulated is the median over five draws of how the shared host's speed wanders; "
        "the last row but one is simulated at the speed that each cell's own steps show: what is left is not the "
        f"host's. Shares of steps by runtime mode: {step_shares:.1%} off. TPOT p50: the simulator names the "
        f"best arm in {right} of {len(chosen)} block's workloads, all exploratory; mean regret of its choice and the "
        f"default's: {regrets}."
    )
    return "\n\n".join([markdown(["arm", "cells", *_WORDS.values()], lines), said])


def _shown(error: Error | None) -> str:
    return f"{error.median:.0%} ({error.bias:+.0%})" if error is not None else "-"

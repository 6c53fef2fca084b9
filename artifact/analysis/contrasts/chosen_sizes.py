"""Rows of the studies of chosen capture sizes in; these against vLLM's own, in latency and in what they take, out.

Latencies are contrasts like any other (``verdicts``). What capturing takes is compared start by start: ratios within a
block, on one machine and GPU, and their geometric mean over blocks with its 95 % t-interval.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from artifact.analysis import every_study
from artifact.analysis.contrasts import sweep, verdicts
from artifact.analysis.contrasts.sweep import Place, Sweep
from artifact.analysis.contrasts.verdicts import Finding
from artifact.analysis.correctness import screened
from artifact.analysis.intervals import geometric
from artifact.analysis.starts.start_up import ready, with_tokens

STUDIES = ("sizes", "sizes_8b", "sizes_8b_bursty", "sizes_8b_conv")  # a list of sizes each
OWN, CHOSEN = "DEFAULT", "CHOSEN"  # the study's arms: vLLM's list, and the one that `artifact sizes` chose
METRICS = ("tpot_p50_ms", "tpot_p99_ms", "ttft_p50_ms")
TAKEN = ("graph_bytes", "capture_s", "tokens")


class Taken(NamedTuple):
    """What starts of a tile take: ``what`` of TAKEN, means of both arms over ``blocks``, and chosen over own.

    ``tokens`` are the KV cache's, as ``start_up.with_tokens`` has them: there more is better.
    """

    model: str
    tile: str
    what: str
    own: float
    chosen: float
    ratio: float
    low: float | None
    high: float | None
    blocks: int

    @property
    def saved(self) -> float:
        """What the chosen sizes save, of tokens what they win, as a share of what vLLM's own list takes or has."""
        return self._share(self.ratio)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of ``saved``; None for one block."""
        if self.low is None or self.high is None:
            return None
        low, high = sorted((self._share(self.low), self._share(self.high)))
        return low, high

    def _share(self, ratio: float) -> float:
        return ratio - 1 if self.what == "tokens" else 1 - ratio


class Compared(NamedTuple):
    """The contrasts by place and metric, the starts by tile, and the engine starts behind both."""

    findings: list[Finding]
    taken: list[Taken]
    launches: pd.DataFrame  # as start_up.ready

    @property
    def lists(self) -> str:
        """How many sizes the lists have, as in "10 capture sizes against 51"; of several models with their names."""
        chosen = self.launches[self.launches["arm"] == CHOSEN].groupby("model")["capture_sizes"].unique()
        own = self.launches.loc[self.launches["arm"] == OWN, "capture_sizes"].unique()
        numbers = [" or ".join(f"{size:g}" for size in sorted(sizes)) for sizes in chosen]
        if len(numbers) > 1:
            numbers = [f"{sizes} ({model})" for model, sizes in zip(chosen.index, numbers, strict=True)]
        return f"{' and '.join(numbers)} capture sizes against {' or '.join(f'{size:g}' for size in sorted(own))}"


def folders(root: Path) -> list[Path]:
    """Return those of the STUDIES below ``root`` that are there."""
    return [folder for folder in every_study.studies(root) if folder.name in STUDIES]


def compare(studies: Sequence[Path]) -> Compared:
    """Return the comparison of study folders. Raises InputError where there is none, or not readable."""
    rows = every_study.read(studies)
    found = sweep.of(screened(rows.cells, studies[0].parent), rows.launches)
    launches = ready(rows.launches)
    return Compared(contrasts(found), _taken(launches), launches)


def contrasts(rows: Sweep) -> list[Finding]:
    """Return the chosen sizes against vLLM's own: by place, and METRICS in their order."""
    return verdicts.findings(rows, METRICS, (CHOSEN,), reference=OWN)


def table(cells: pd.DataFrame, launches: pd.DataFrame) -> pd.DataFrame:
    """Return the contrasts of cells of one kind of evidence: Place, metric, blocks, ratio, low, high.

    The ends are null where there are fewer blocks than a verdict needs.
    """
    rows = []
    for each in contrasts(sweep.of(cells, launches)) if len(cells) else []:
        low, high = (None, None) if each.is_exploratory or each.interval is None else each.interval
        rows.append([*each.place, each.metric, each.blocks, each.ratio, low, high])
    return pd.DataFrame(rows, columns=[*Place._fields, "metric", "blocks", "ratio", "low", "high"])


def _taken(launches: pd.DataFrame) -> list[Taken]:
    found = with_tokens(launches)
    found["where"] = sweep.blocks(found)
    found["cold"] = found["state"] == "cold"
    found[list(TAKEN)] = found[list(TAKEN)].astype("float64")
    rows = []
    for (model, tile), group in found.groupby(["model", "tile"]):
        # A launch that was interrupted between its cells has started twice: a block's mean of such starts.
        own, chosen = (
            group[group["arm"] == arm].groupby("where")[[*TAKEN, "cold"]].mean().add_suffix(suffix)
            for arm, suffix in ((OWN, "_own"), (CHOSEN, "_chosen"))
        )
        both = own.join(chosen, how="inner")
        for what in TAKEN:
            # Compiling leaves less for the cache, so a cold start's tokens say nothing beside a warm one's.
            alike = both[both["cold_own"] == both["cold_chosen"]] if what == "tokens" else both
            pairs = alike[[f"{what}_own", f"{what}_chosen"]].dropna()
            ratio = geometric(pairs[f"{what}_chosen"] / pairs[f"{what}_own"])
            if ratio is not None:
                means = [float(pairs[f"{what}_{name}"].mean()) for name in ("own", "chosen")]
                rows.append(Taken(str(model), str(tile), what, means[0], means[1], *ratio))
    return rows

"""Scores of forced tokens in; per arm and backend, whether it computes what mode NONE computes, with evidence, out.

The rule, set before any scores were taken. *Noise* is how far NONE is from itself: the largest absolute difference of
a forced token's, or of the most probable token's, log-probability between two batch shapes of the same cell. The
*tolerance* is twice the noise, and at least 1/32: two steps of a bfloat16 logit between 2 and 4. An arm is
disqualified where it differs from NONE, on the same backend at the same batch shape and position, by more than the
tolerance: in the forced token's log-probability or, where another token would have been chosen, in the chosen one's.
Other batch shapes round otherwise, and so do graphs, which pad the batch; a wrong block of the KV cache is tens of
tolerances away.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from artifact.schema import Evidence, Mode, Status
from artifact.study.store import read_cells, read_launches, read_scores

MARGIN = 2.0
LEAST_TOLERANCE = 1 / 32
WITHIN, DISQUALIFIED, NOT_MEASURED = "within", "disqualified", "not measured"
STUDY = "fallback"  # whose cells are scored
WRONG_OUTPUTS = "wrong_outputs"  # the flag of a disqualified arm's cells
_PLACE = ["batch_shape", "sequence", "position", "token"]
_NUMBERS = ("positions", "max_abs_diff", "p99_abs_diff", "top_agreement", "top_gap", "tolerance", "flash_attn_diff")


def correctness(folder: Path) -> pd.DataFrame:
    """Return a row per tile and arm of the results in ``folder``, in the order of their names.

    Columns: study, tile, arm, backend, flash_attn_version (where it is pinned), requested_mode, realised_mode;
    ``positions`` compared; ``max_abs_diff`` and ``p99_abs_diff`` of the forced token's log-probability (natural) to
    NONE's; ``top_agreement``, the share of positions with the same most probable token, and ``top_gap``, how far the
    two differ in log-probability at most where they are not the same one; ``tolerance``; ``flash_attn_diff``, the
    largest difference to NONE on FLASH_ATTN of the version that vLLM chooses; ``verdict`` (within, disqualified, not
    measured) and ``evidence``, a sentence. Numbers are null where there are none. Blocks are compared each within
    itself and pooled. Raises InputError where ``folder`` holds no results.
    """
    cells, scores = read_cells(folder), read_scores(folder)
    pinned = _pinned(read_launches(folder))
    by_cell = {str(name): frame.set_index(_PLACE).sort_index() for name, frame in scores.groupby("cell_id")}
    workloads = set(cells.loc[cells["cell_id"].isin(list(by_cell)), "workload"])
    scored = cells[cells["workload"].isin(workloads)]
    none = scored[(scored["requested_mode"] == Mode.NONE.value) & scored["cell_id"].isin(list(by_cell))]
    rows = []
    for (tile, arm), of_arm in cells.groupby(["tile", "arm"]):
        first = of_arm.iloc[0]
        known = of_arm["realised_mode"].dropna()
        own = scored[(scored["tile"] == tile) & (scored["arm"] == arm)]
        beside = none[(none["tile"] == tile) & (none["backend"] == first["backend"])]
        free = none["launch_id"].map(pinned).isna()
        common = none[(none["backend"] == "FLASH_ATTN") & free & (none["model"] == first["model"])]
        rows.append(
            {
                "study": first["study"],
                "tile": tile,
                "arm": arm,
                "backend": first["backend"],
                "flash_attn_version": pinned.get(str(first["launch_id"])),
                "requested_mode": first["requested_mode"],
                "realised_mode": known.iloc[0] if len(known) else None,
                **dict.fromkeys(_NUMBERS),
                **_judged(own, beside, common, by_cell),
            }
        )
    what = ["study", "tile", "arm", "backend", "flash_attn_version", "requested_mode", "realised_mode"]
    table = pd.DataFrame(rows, columns=[*what, *_NUMBERS, "verdict", "evidence"])
    counts = dict.fromkeys(("positions", "flash_attn_version"), "Int64")
    return table.astype(dict.fromkeys(_NUMBERS, "float64")).astype(counts)


def disqualified(verdicts: pd.DataFrame) -> dict[tuple[str, str], str]:
    """Return the evidence against each (tile, arm) of ``correctness`` that may not be ranked."""
    wrong = verdicts[verdicts["verdict"] == DISQUALIFIED]
    rows = zip(wrong["tile"], wrong["arm"], wrong["evidence"], strict=True)
    return {(str(tile), str(arm)): str(evidence) for tile, arm, evidence in rows}


def flagged(cells: pd.DataFrame, verdicts: pd.DataFrame) -> pd.DataFrame:
    """Return ``cells`` (records.CellRow) with the flag ``wrong_outputs`` on those that run a disqualified mode.

    They are the disqualified arm's own, and in any other study those of its mode on its backend, unless the arm pinned
    a version of FlashAttention, which others do not run. A flagged cell is shown and never ranked.
    """
    own = disqualified(verdicts)
    studies = set(verdicts["study"])
    wrong = verdicts[(verdicts["verdict"] == DISQUALIFIED) & verdicts["flash_attn_version"].isna()]
    modes = set(zip(wrong["requested_mode"], wrong["backend"], strict=True))
    columns = (cells[name] for name in ("study", "tile", "arm", "requested_mode", "backend"))
    hit = [
        (tile, arm) in own if study in studies else (mode, backend) in modes
        for study, tile, arm, mode, backend in zip(*columns, strict=True)
    ]
    flags = cells["flags"].fillna("")
    added = flags.where(flags == "", flags + ",") + WRONG_OUTPUTS
    return cells.assign(flags=flags.where(~np.array(hit, dtype=bool), added))


def screened(cells: pd.DataFrame, root: Path) -> pd.DataFrame:
    """Return ``cells``, flagged by what study=fallback below ``root`` found; as they are where it scored nothing."""
    folder = root / STUDY
    return flagged(cells, correctness(folder)) if (folder / "scores.parquet").exists() else cells


def noise(scores: pd.DataFrame) -> float | None:
    """Return the largest difference between batch shapes of one cell's scores; None with fewer than two of them.

    Infinite where a log-probability is not finite.
    """
    if scores.index.unique("batch_shape").size < 2:
        return None
    values = scores[["logprob", "top_logprob"]]
    if not np.isfinite(values.to_numpy()).all():
        return float("inf")
    of_place = values.groupby(level=["sequence", "position", "token"])
    return float((of_place.max() - of_place.min()).to_numpy().max())


def _pinned(launches: pd.DataFrame) -> dict[str, Any]:
    """Return FlashAttention's version by launch, where the configuration names one."""
    versions = {}
    for name, text in zip(launches["launch_id"], launches["provenance"], strict=True):
        config = json.loads(text).get("config") or {}
        versions[str(name)] = config.get("backend", {}).get("flash_attn_version")
    return versions


def _judged(
    own: pd.DataFrame, beside: pd.DataFrame, common: pd.DataFrame, by_cell: dict[str, pd.DataFrame]
) -> dict[str, Any]:
    """Return one arm's numbers, verdict and evidence: its scoring cells, NONE's of its backend and of FLASH_ATTN in."""
    mine = own[own["cell_id"].isin(list(by_cell))]
    if mine.empty:
        return {"verdict": NOT_MEASURED, "evidence": _absence(own)}
    pairs, of_none = _pairs(mine, beside, by_cell)
    if pairs is None:
        return {"verdict": NOT_MEASURED, "evidence": "mode NONE was not scored on this backend in the same block"}
    widest = [noise(by_cell[name]) for name in beside.loc[beside["block"].isin(mine["block"]), "cell_id"]]
    known = [value for value in widest if value is not None]
    if not known or not np.isfinite(known).all():
        why = "not finite" if known else "of one batch shape alone, which gives no tolerance"
        return {"verdict": NOT_MEASURED, "evidence": f"NONE's log-probabilities on this backend are {why}"}
    tolerance = max(MARGIN * max(known), LEAST_TOLERANCE)
    lacking = max(sum(len(by_cell[name]) for name in mine["cell_id"]), of_none) - len(pairs)
    if lacking or not len(pairs):
        return {"verdict": NOT_MEASURED, "evidence": f"{lacking} positions were scored by one of the two alone"}
    numbers, worst = _numbers(pairs)
    across, _ = _pairs(mine, common, by_cell)
    if across is not None and len(across):
        numbers["flash_attn_diff"] = float(_difference(across, "logprob").max())
    verdict = WITHIN if worst <= tolerance else DISQUALIFIED
    return {**numbers, "tolerance": tolerance, "verdict": verdict, "evidence": _sentence(numbers, tolerance, mine)}


def _absence(own: pd.DataFrame) -> str:
    if own.empty:
        return "no cell of this arm was to be scored"
    if (own["evidence"] == Evidence.SIMULATED.value).any():
        return "simulated: the simulator computes no log-probabilities"
    last = own.iloc[-1]
    if last["status"] == Status.OK.value:
        return "its cell has no scores"
    return f"{last['status']}: {last['reason']}"


def _pairs(
    mine: pd.DataFrame, others: pd.DataFrame, by_cell: dict[str, pd.DataFrame]
) -> tuple[pd.DataFrame | None, int]:
    """Return the positions that cells of a block have in common, with suffix _none for NONE's, and how many NONE has.

    None where a cell has no NONE beside it.
    """
    found, of_none = [], 0
    for cell_id, block, workload in zip(mine["cell_id"], mine["block"], mine["workload"], strict=True):
        matching = others[(others["block"] == block) & (others["workload"] == workload)]
        if matching.empty:
            return None, 0
        reference = by_cell[matching["cell_id"].iloc[0]]
        of_none += len(reference)
        found.append(by_cell[cell_id].merge(reference, left_index=True, right_index=True, suffixes=("", "_none")))
    return pd.concat(found), of_none


def _difference(pairs: pd.DataFrame, name: str) -> "pd.Series[float]":
    """Return absolute differences; infinite where either is not finite, which no tolerance allows."""
    gap: pd.Series[float] = (pairs[name] - pairs[f"{name}_none"]).abs()
    return gap.fillna(np.inf)


def _numbers(pairs: pd.DataFrame) -> tuple[dict[str, Any], float]:
    """Return the columns that ``pairs`` give, and the difference that the tolerance is held against."""
    forced, top = _difference(pairs, "logprob"), _difference(pairs, "top_logprob")
    other = pairs["top_token"] != pairs["top_token_none"]
    gap = float(top[other].max()) if other.any() else None
    numbers = {
        "positions": len(pairs),
        "max_abs_diff": float(forced.max()),
        "p99_abs_diff": float(np.percentile(forced, 99)) if np.isfinite(forced).all() else float("inf"),
        "top_agreement": float(1 - other.mean()),
        "top_gap": gap,
    }
    return numbers, max(float(forced.max()), gap or 0.0)


def _sentence(numbers: dict[str, Any], tolerance: float, mine: pd.DataFrame) -> str:
    parts = [
        f"{numbers['positions']} positions: log-probabilities of forced tokens differ from NONE's by at most "
        f"{numbers['max_abs_diff']:.4g} (tolerance {tolerance:.4g})",
        f"the most probable token is the same at {numbers['top_agreement']:.2%}",
    ]
    if numbers["top_gap"] is not None:
        parts[-1] += f", elsewhere their log-probabilities are at most {numbers['top_gap']:.4g} apart"
    steps = {kind: mine[f"steps_{kind.lower()}"].sum(min_count=1) for kind in ("FULL", "PIECEWISE", "NONE")}
    if all(pd.notna(count) for count in steps.values()):
        parts.append("steps dispatched: " + ", ".join(f"{int(count)} {kind}" for kind, count in steps.items()))
    return "; ".join(parts)

"""Cells and engine starts in; what every backend makes of every mode, beside what our rules say, and its price, out."""

import json
from typing import Any

import pandas as pd
from pydantic import ValidationError

from artifact.analysis.intervals import geometric
from artifact.errors import CellFailed, InputError
from artifact.graphs.modes import resolve
from artifact.schema import BackendConfig, HardwareConfig, Mode, ServerConfig

MODES = tuple(mode.value for mode in Mode if mode is not Mode.EAGER)
METRICS = ("ttft_p50_ms", "ttft_p99_ms", "tpot_p50_ms", "tpot_p99_ms")
CONTRASTS = (("HOLLOW", "REAL"), ("HOLLOW", "NONE"), ("REAL", "NONE"))
_FORCED = "teacher_forced"  # batches of the study's making: their steps are no load's
_OUTCOME = ["status", "reason", "resolved_mode", "realised_mode", "graphs_piecewise", "graphs_full"]
_SHARES = {"full_share": "steps_full", "piecewise_share": "steps_piecewise", "none_share": "steps_none"}


def matrix(cells: pd.DataFrame, launches: pd.DataFrame) -> pd.DataFrame:
    """Return a row per backend, requested mode and outcome, in that order; ``launches`` as ``every_study.described``.

    Columns: backend (as the worker names it), requested_mode, status, reason, resolved_mode, realised_mode,
    graphs_piecewise, graphs_full, then ``full_share``, ``piecewise_share`` and ``none_share`` of the steps dispatched
    under load (null where no such cell finished), ``steps`` and ``flags`` of those cells, ``n`` launches, and of our
    rules ``predicted`` (a mode, ``:hollow`` where graphs are missing, or ``refused``), ``agrees`` (null where there is
    no prediction) and ``predicted_reason``. ``status`` is the launch's, or of a load's cell that failed in it; a start
    that failed stands behind those of its backend and mode that did not.
    """
    found = launches[launches["requested_mode"].isin(MODES)].copy()
    named = found[found["attention_backend"].notna()].drop_duplicates("asked").set_index("asked")["attention"]
    found["backend_name"] = found["asked"].map(named).fillna(found["asked"])
    of_load = cells[cells["workload"] != _FORCED]
    failed = of_load[~of_load["status"].isin(("ok", "skipped", "duplicate"))].drop_duplicates("launch_id")
    in_cell = {row.launch_id: row for row in failed.itertuples()}
    ended = [in_cell.get(row.launch_id, row) if row.status == "ok" else row for row in found.itertuples()]
    for name in ("status", "reason"):
        found[name] = [getattr(row, name) for row in ended]
    rows = []
    for _, group in found.groupby(["asked", "requested_mode", *_OUTCOME], dropna=False, sort=False):
        first = group.iloc[0]
        served = of_load[(of_load["status"] == "ok") & of_load["launch_id"].isin(group["launch_id"])]
        steps = {share: int(served[column].fillna(0).sum()) for share, column in _SHARES.items()}
        total = sum(steps.values())
        predicted, why = _predicted(first)
        got = _got(first)
        rows.append(
            {
                "backend": first["backend_name"],
                **{name: _plain(first[name]) for name in ("requested_mode", *_OUTCOME)},
                **{share: count / total if total else None for share, count in steps.items()},
                "steps": total,
                "flags": ",".join(sorted({flag for flags in served["flags"] for flag in flags.split(",") if flag})),
                "n": len(group),
                "predicted": predicted,
                "agrees": None if predicted is None or got is None else predicted == got,
                "predicted_reason": why,
            }
        )
    columns = [
        "backend",
        "requested_mode",
        *_OUTCOME,
        *_SHARES,
        "steps",
        "flags",
        "n",
        "predicted",
        "agrees",
        "predicted_reason",
    ]
    table = pd.DataFrame(rows, columns=columns)
    backends = sorted(set(table["backend"]), key=lambda name: (not name.startswith("FLASH_ATTN"), name))
    order = {name: place for place, name in enumerate([*backends, *MODES])}
    places = table[["backend", "requested_mode"]].apply(lambda column: column.map(order))
    places["failed"] = table["realised_mode"].isna()
    ordered: pd.DataFrame = table.loc[places.sort_values(list(places), kind="stable").index]
    return ordered.reset_index(drop=True)


def _plain(value: Any) -> Any:
    return None if pd.isna(value) else value


def _got(launch: "pd.Series[Any]") -> str | None:
    """Return what vLLM made of the mode; None where a failure does not tell."""
    if launch["status"] == "refused":
        return "refused"
    return None if pd.isna(launch["realised_mode"]) else str(launch["realised_mode"])


def _predicted(launch: "pd.Series[Any]") -> tuple[str | None, str | None]:
    """Return what the rules make of the launch's configuration, and why: a change of mode, or no prediction."""
    try:
        config = json.loads(launch["provenance"])["config"]
        hardware = HardwareConfig.model_validate(config["hardware"])
        if pd.notna(launch["gpu_name"]) and launch["gpu_name"] != hardware.full_name:
            return None, f"the configuration describes {hardware.full_name}, not {launch['gpu_name']}"
        backend = BackendConfig.model_validate(config["backend"])
        server = ServerConfig.model_validate(config["server"])
        result = resolve(Mode(launch["requested_mode"]), backend, hardware.compute_capability, server)
    except CellFailed as failure:
        return "refused", failure.reason
    except (KeyError, ValidationError, InputError) as error:
        return None, f"the launch's configuration does not say: {str(error).splitlines()[0]}"
    return f"{result.resolved.value}:hollow" if result.hollow else result.resolved.value, result.reason


def hollow_cost(cells: pd.DataFrame) -> pd.DataFrame:
    """Return what a hollow fallback costs: ratios of the arms HOLLOW, REAL and NONE of ``cells``, paired by block.

    A row per metric and contrast: metric, arm, against, ratio (geometric mean over blocks of arm / against), low,
    high (95 % t-interval of the log-ratios), n (blocks), median_ms and against_ms (of those blocks), left_out (pairs
    of blocks in which a cell is flagged or failed), reason where there is no ratio or no interval. Blocks pair within
    one machine. Every interval stands on its own: they are not corrected for their number.
    """
    rows = []
    for metric in METRICS:
        for arm, against in CONTRASTS:
            pairs, left_out = _pairs(cells, arm, against, metric)
            found = geometric(pairs["mine"] / pairs["other"])
            row: dict[str, Any] = {"metric": metric, "arm": arm, "against": against, "left_out": left_out}
            if found is None:
                rows.append({**row, "n": 0, "reason": f"no block has both {arm} and {against} with {metric}"})
                continue
            ratio, low, high, n = found
            medians = {"median_ms": pairs["mine"].median(), "against_ms": pairs["other"].median()}
            reason = "one block: no interval" if n == 1 else None
            rows.append({**row, "ratio": ratio, "low": low, "high": high, "n": n, **medians, "reason": reason})
    columns = ["metric", "arm", "against", "ratio", "low", "high", "n", "median_ms", "against_ms", "left_out", "reason"]
    return pd.DataFrame(rows, columns=columns)


def _pairs(cells: pd.DataFrame, arm: str, against: str, metric: str) -> tuple[pd.DataFrame, int]:
    """Return ``mine`` and ``other`` of ``metric`` per block that has both, and how many blocks were left out."""
    key = ["host_id", "tile", "block", "workload", "seed"]
    sides = []
    for name in (arm, against):
        own = cells[cells["arm"] == name].set_index(key)
        sides.append(own[~own.index.duplicated()])
    joined = sides[0].merge(sides[1], left_index=True, right_index=True, suffixes=("", "_other"))
    good = (joined["status"] == "ok") & (joined["status_other"] == "ok")
    good &= (joined["flags"] == "") & (joined["flags_other"] == "")
    kept = joined[good]
    pairs = pd.DataFrame({"mine": kept[metric], "other": kept[f"{metric}_other"]}).astype("float64").dropna()
    return pairs, len(joined) - len(kept)

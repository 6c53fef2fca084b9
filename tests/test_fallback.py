"""What a backend makes of a mode, against our rules; the price of a hollow fallback, with known answers."""

import math
from pathlib import Path

import pandas as pd
import pytest

from artifact.analysis import every_study
from artifact.analysis.starts.fallback import MODES, hollow_cost, matrix
from artifact.config import groups, load
from artifact.records import CellRow, LaunchRow
from artifact.schema import Evidence
from artifact.study.plan import plan
from tests.launch_support import cell, frame, launch

DATA = Path(__file__).parents[1] / "paper_figures" / "data"
HOLLOW = {"resolved_mode": "FULL_AND_PIECEWISE", "realised_mode": "FULL_AND_PIECEWISE:hollow", "hollow": True}


def made(launches: list[LaunchRow], cells: list[CellRow]) -> pd.DataFrame:
    return matrix(frame(cells), every_study.described(frame(launches)))


def test_a_hollow_fallback_as_foretold_with_its_dispatch_shares() -> None:
    row = launch(0, "FULL", ["backend=flashinfer"], **HOLLOW)
    served = cell(0, row, steps_full=60, steps_piecewise=30, steps_none=10)
    forced = cell(1, row, workload="teacher_forced", offered_rate=None, steps_full=999, steps_piecewise=0, steps_none=0)
    [found] = made([row], [served, forced]).itertuples()
    assert (found.backend, found.requested_mode, found.status) == ("FLASHINFER", "FULL", "ok")
    assert (found.resolved_mode, found.realised_mode) == ("FULL_AND_PIECEWISE", "FULL_AND_PIECEWISE:hollow")
    assert (found.full_share, found.piecewise_share, found.none_share) == (0.6, 0.3, 0.1)
    assert (found.steps, found.n) == (100, 1)
    assert (found.predicted, found.agrees) == ("FULL_AND_PIECEWISE:hollow", True)
    assert "cannot hold mixed batches" in found.predicted_reason


def test_rules_that_were_wrong_are_called_so() -> None:
    row = launch(0, "FULL", ["backend=flash_attn_2"], attention_backend="FLASH_ATTN (FA2)")
    [found] = made([row], [cell(0, row)]).itertuples()
    assert (found.backend, found.realised_mode) == ("FLASH_ATTN (FA2)", "FULL")
    assert (found.predicted, found.agrees) == ("FULL_AND_PIECEWISE:hollow", False)


def test_a_start_that_failed_has_its_reason_and_its_backends_name() -> None:
    good = launch(0, "NONE")
    bad = launch(
        1,
        "FULL",
        status="engine_error",
        reason="RuntimeError: no",
        attention_backend=None,
        resolved_mode=None,
        realised_mode=None,
        graphs_full=None,
        graphs_piecewise=None,
    )
    cells = [cell(0, good, steps_none=5), cell(1, bad, status="engine_error", reason="RuntimeError: no")]
    found = made([bad, good], cells)
    assert list(found["requested_mode"]) == ["NONE", "FULL"]
    assert set(found["backend"]) == {"FLASH_ATTN (FA3)"}
    failed = found.iloc[1]
    assert (failed["status"], failed["reason"]) == ("engine_error", "RuntimeError: no")
    assert failed["agrees"] is None
    assert pd.isna(failed["full_share"])


def test_a_refusal_is_an_outcome_that_rules_can_miss() -> None:
    row = launch(0, "FULL", status="refused", reason="vLLM refuses", realised_mode=None, resolved_mode=None)
    [found] = made([row], [cell(0, row, status="refused", reason="vLLM refuses")]).itertuples()
    assert (found.status, found.predicted, found.agrees) == ("refused", "FULL", False)


def test_a_load_that_broke_the_engine_is_the_fields_status() -> None:
    row = launch(0, "FULL")
    [found] = made([row], [cell(0, row, status="engine_error", reason="died")]).itertuples()
    assert (found.status, found.reason, found.realised_mode, found.agrees) == ("engine_error", "died", "FULL", True)


def test_launches_that_disagree_are_rows_of_their_own_and_equal_ones_are_counted() -> None:
    rows = [launch(0, "FULL"), launch(1, "FULL"), launch(2, "FULL", graphs_full=35)]
    found = made(rows, [cell(number, row) for number, row in enumerate(rows)])
    assert sorted(found["n"]) == [1, 2]


def test_no_prediction_for_another_gpu_or_without_a_configuration() -> None:
    rows = [launch(0, "FULL", gpu_name="NVIDIA L4"), launch(1, "NONE", provenance="{}")]
    found = made(rows, [cell(number, row) for number, row in enumerate(rows)]).set_index("requested_mode")
    assert "describes NVIDIA H200, not NVIDIA L4" in found.loc["FULL", "predicted_reason"]
    assert "does not say" in found.loc["NONE", "predicted_reason"]
    assert found["agrees"].isna().all()


def test_shipped_smoke_study_is_as_foretold() -> None:
    found = matrix(*every_study.read([DATA / "smoke"]))
    assert len(found) == 6
    assert found["agrees"].all()
    hollow = found[found["backend"] == "FLASHINFER"].iloc[0]
    assert (hollow["graphs_piecewise"], hollow["graphs_full"]) == (0, 35)
    assert hollow["piecewise_share"] > 0.1  # dispatched, and nothing replays


def trio(block: int, hollow_ms: float, real_ms: float, **flags: str) -> list[CellRow]:
    times = {"HOLLOW": hollow_ms, "REAL": real_ms, "NONE": 40.0}
    cells = []
    for number, (arm, value) in enumerate(times.items()):
        row = launch(0, "FULL", launch_id=f"{arm}-{block}", arm=arm, block=str(block))
        metrics = dict.fromkeys(("ttft_p50_ms", "ttft_p99_ms", "tpot_p50_ms"), value)
        cells.append(cell(block * 3 + number, row, **metrics, flags=flags.get(arm, "")))
    return cells


def test_hollow_cost_is_the_geometric_mean_of_paired_ratios() -> None:
    table = hollow_cost(frame([*trio(0, 20.0, 10.0), *trio(1, 80.0, 10.0)]))
    row = table[(table["metric"] == "ttft_p50_ms") & (table["arm"] == "HOLLOW") & (table["against"] == "REAL")].iloc[0]
    assert row["ratio"] == pytest.approx(4.0)  # of 2 and 8
    half = 12.706205 * math.log(2)  # t(1) x standard error of ln 2 and ln 8
    assert math.log(row["high"] / 4.0) == pytest.approx(half, rel=1e-5)
    assert (row["n"], row["left_out"], row["median_ms"]) == (2, 0, 50.0)
    missing = table[table["metric"] == "tpot_p99_ms"]
    assert missing["ratio"].isna().all()
    assert missing["reason"].str.contains("no block has both").all()


def test_flagged_blocks_leave_their_pairs_alone() -> None:
    table = hollow_cost(frame([*trio(0, 20.0, 10.0), *trio(1, 80.0, 10.0, NONE="unsteady")]))
    table = table[table["metric"] == "tpot_p50_ms"].set_index(["arm", "against"])
    assert table.loc[("HOLLOW", "REAL"), "n"] == 2
    alone = table.loc[("HOLLOW", "NONE")]
    assert (alone["n"], alone["left_out"]) == (1, 1)
    assert alone["reason"] == "one block: no interval"
    assert pd.isna(alone["low"])


def test_blocks_pair_within_a_machine() -> None:
    there, here = trio(0, 20.0, 10.0), trio(0, 20.0, 10.0)
    elsewhere = [row.model_copy(update={"host_id": "other", "cell_id": f"x{row.cell_id}"}) for row in here]
    table = hollow_cost(frame([there[0], *elsewhere[1:]]))
    assert table[table["arm"] == "HOLLOW"]["n"].eq(0).all()


@pytest.mark.parametrize("gpu", ["NVIDIA H200", None])
def test_the_plan_takes_hollow_and_real_for_two_arms(gpu: str | None) -> None:
    evidence = Evidence.MEASURED if gpu else Evidence.SIMULATED
    planned = plan(["study=hollow", "study.blocks=1"], evidence, gpu)
    assert planned.duplicates == {}
    assert {launch.arm for launch in planned.launches} == {"HOLLOW", "REAL", "NONE"}


def test_the_fallback_study_asks_every_backend_for_every_mode() -> None:
    study = load(["study=fallback"]).study
    backends = {override for tile in study.tiles for override in tile.overrides if override.startswith("backend=")}
    assert backends == {f"backend={name}" for name in groups()["backend"]}
    assert {f"mode={mode.lower()}" for mode in MODES} == {override for arm in study.arms.values() for override in arm}

"""Sweeps made up here: what pairs, what is ranked, and what verdicts, regrets, rates and the guide make of it."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artifact.analysis.contrasts import outcomes, rates, stability_effects, sweep, verdicts
from artifact.analysis.contrasts.sweep import AGAIN, DEFAULT, MODES, Place, Sweep
from tests.sweep_support import MODEL, TRUTH, cell, made, swept

TPOT = "tpot_p50_ms"


def by_mode(of: Sweep, metric: str = TPOT) -> dict[str, verdicts.Finding]:
    return {each.mode: each for each in verdicts.findings(of, (metric,))}


def test_every_contrast_has_its_verdict() -> None:
    found = by_mode(swept(made()))
    assert {mode: each.verdict for mode, each in found.items()} == {
        "NONE": "worse",
        "PIECEWISE": "worse",
        "FULL": "better",
        "FULL_DECODE_ONLY": "equivalent",
    }
    full = found["FULL"]
    assert full.ratio == pytest.approx(0.8, rel=0.01)
    assert full.interval is not None
    assert full.interval[0] < 0.8 < full.interval[1]
    assert (full.blocks, full.needed, full.is_exploratory, full.reason) == (8, 8, False, "")


@pytest.mark.parametrize(("blocks", "reason"), [(1, "1 of 8 blocks: no interval"), (5, "exploratory: 5 of 8 blocks")])
def test_few_blocks_are_said(blocks: int, reason: str) -> None:
    found = by_mode(swept(made(blocks)))["FULL"]
    assert found.reason == reason
    assert found.is_exploratory
    assert (found.interval is None) == (blocks < 3)
    assert found.verdict == ("inconclusive" if blocks < 3 else "better")


def test_a_large_model_needs_fewer_blocks() -> None:
    found = by_mode(swept(made(5, model="qwen3-8b", tile="qwen3-8b-churn")))["FULL"]
    assert (found.needed, found.is_exploratory) == (5, False)


def test_loud_blocks_are_inconclusive() -> None:
    assert by_mode(swept(made(noise=0.4)))["FULL_DECODE_ONLY"].verdict == "inconclusive"


@settings(max_examples=8)
@given(st.randoms(use_true_random=False), st.sampled_from([0.001, 3.0, 1e4]))
def test_order_of_rows_and_scale_change_nothing(random, scale: float) -> None:
    rows = made(4, noise=0.1)
    moved = [row | {metric: row[metric] * scale for metric in sweep.METRICS} for row in rows]
    random.shuffle(moved)
    for mode, ours in by_mode(swept(rows)).items():
        theirs = by_mode(swept(moved))[mode]
        assert theirs.verdict == ours.verdict
        assert theirs.ratio == pytest.approx(ours.ratio)
        assert theirs.interval == pytest.approx(ours.interval)
        assert theirs.p_difference == pytest.approx(ours.p_difference)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"flags": "client_bound"}, "client_bound"),
        ({"flags": "unsteady,overload"}, "at or above saturation"),
        ({"load": 1.0}, "at or above saturation"),
        ({"realised_mode": "PIECEWISE"}, "realised as PIECEWISE"),
        ({"status": "oom", TPOT: None}, "oom"),
    ],
)
def test_what_is_not_ranked_is_counted_by_why(change: dict[str, Any], why: str) -> None:
    rows = [row | change if (row["arm"], row["block"]) == ("FULL", "3") else row for row in made(4)]
    found = swept(rows)
    assert found.cells["unranked"].dropna().tolist() == [why]
    contrasts = [each for each in verdicts.findings(found, (TPOT,)) if each.mode == "FULL"]
    assert sum(each.blocks for each in contrasts) == 3
    assert [each.unranked for each in contrasts if each.unranked] == [{why: 1}]


def test_too_few_requests_speak_against_the_99th_percentile_alone() -> None:
    few = {"flags": "under_sampled", "tpot_p99_ms": None}
    found = swept([row | few if row["block"] == "0" else row for row in made(4)])
    assert by_mode(found, TPOT)["FULL"].blocks == 4
    assert by_mode(found, "tpot_p99_ms")["FULL"].blocks == 3


@pytest.mark.parametrize(
    "other",
    [{"host_id": "elsewhere"}, {"gpu_uuid": "GPU-2"}, {"seed": 2}, {"offered_rate": 50.0}, {"study": "another"}],
)
def test_blocks_pair_within_one_machine_gpu_and_schedule(other: dict[str, Any]) -> None:
    rows = [row | other if (row["arm"], row["block"]) == ("FULL", "0") else row for row in made(4)]
    assert by_mode(swept(rows))["FULL"].blocks == 3
    assert by_mode(swept(rows))["NONE"].blocks == 4


def test_blocks_of_two_studies_count_together() -> None:
    found = by_mode(swept(made(4) + made(4, seed=2, study="load_sweep_aa")))["FULL"]
    assert (found.blocks, found.is_exploratory) == (8, False)


def test_simulated_rows_never_join_measured_ones() -> None:
    found = swept(made(3) + made(4, seed=2, evidence="simulated"))
    assert found.evidence == "measured"
    assert by_mode(found)["FULL"].blocks == 3


def test_levels_are_loads_rates_or_neither() -> None:
    rows = made(1) + made(1, workload="closed_loop", load=None)
    rows += [
        row | {"cell_id": row["cell_id"].replace("-own-", "-16rps-"), "workload": "s", "tile": "t"} for row in rows[5:]
    ]
    levels = {place.workload: (place.level, place.load, place.amount) for place in swept(rows).places()}
    assert levels == {"churn": ("0.35", 0.35, 0.35), "closed_loop": ("own", None, None), "s": ("16rps", None, 16.0)}
    assert Place(MODEL, f"{MODEL}-small-kv", "churn", "0.6").words == "churn, small-kv, load 0.6"


def test_two_launches_of_the_default_give_the_noise_floor() -> None:
    again = [cell(AGAIN, str(block), {TPOT: value}) for block, value in enumerate((5.0, 6.0))]
    default = [cell(DEFAULT, str(block), {TPOT: 5.5}) for block in range(2)]
    [noise] = outcomes.noise_floor(swept(again + default), (TPOT,))
    logs = [math.log(5 / 5.5), math.log(6 / 5.5)]
    assert noise.sd == pytest.approx(math.sqrt((logs[0] ** 2 + logs[1] ** 2) / 2))
    assert (noise.cells, noise.blocks) == (2, 2)
    assert noise.largest == pytest.approx(1.1)
    assert noise.seen_with(8) < noise.seen_with(5)
    assert outcomes.noise_floor(swept(default), (TPOT,)) == []


def test_the_default_regrets_what_the_best_mode_gains() -> None:
    [found] = outcomes.regrets(swept(made()), TPOT)
    assert (found.best, found.blocks) == ("FULL", 8)
    assert found.regret == pytest.approx(0.2, abs=0.01)
    assert found.low is not None
    assert found.high is not None
    assert 0 < found.low < found.regret < found.high
    slow = [
        row | {metric: 5 * row[metric] for metric in sweep.METRICS} if row["arm"] != DEFAULT else row for row in made()
    ]
    [none] = outcomes.regrets(swept(slow), TPOT)
    assert (none.best, none.regret, none.low, none.high) == (DEFAULT, 0.0, 0.0, 0.0)
    assert outcomes.regrets(swept(made(2)), TPOT)[0].high is None


def test_the_interval_of_the_regret_covers_it_though_the_best_is_picked_afterwards() -> None:
    # no mode differs: the best of four is below 1 by luck alone, and the interval has to reach down to 0
    missed = 0
    for seed in range(60):
        rows = made(6, noise=0.05, seed=seed)
        level = {row["arm"]: TRUTH[row["arm"]] for row in rows}
        flat = [row | {TPOT: row[TPOT] / level[row["arm"]]} for row in rows]
        [found] = outcomes.regrets(swept(flat), TPOT)
        missed += (found.low or 0) > 0
    assert missed <= 8  # 5 % of 60 is 3


def test_a_mode_sustains_what_its_queue_does_not_grow_at() -> None:
    rows = [row for load in (0.35, 0.6, 0.85) for row in made(3, load=load)]
    rows = [row | {"flags": "overload"} if row["arm"] == "NONE" and row["load"] == 0.6 else row for row in rows]
    found = {each.mode: each for each in rates.sustained(swept(rows))}
    assert (found["NONE"].level, found["NONE"].fails_at) == ("0.35", "0.6")
    assert (found["FULL"].level, found["FULL"].fails_at) == ("0.85", None)


def test_capacity_is_held_against_the_default() -> None:
    rows = made(3, workload="saturate", load=None, tile=f"{MODEL}-closed")
    rows = [row | {"output_tokens_per_s": 1000 / TRUTH[row["arm"]]} for row in rows]
    found = {each.mode: each for each in rates.capacities(swept(rows))}
    assert found["NONE"].ratio == pytest.approx(0.25)
    assert found[DEFAULT].ratio is None
    assert found["FULL"].tokens_per_s == pytest.approx(1250)


def test_stability_moves_a_margin_at_equal_load() -> None:
    bursty = [
        row | {TPOT: row[TPOT] * (1.5 if row["arm"] == "FULL" else 1.0)} for row in made(6, seed=3, workload="bursty")
    ]
    moved = stability_effects.stability_effects(swept(made(6, seed=2, workload="steady") + bursty), TPOT)
    found = {each.mode: each for each in moved if (each.one, each.other) == ("steady", "bursty")}
    assert found["FULL"].verdict == "better"
    assert found["FULL"].ratio == pytest.approx(1 / 1.5, rel=0.02)
    assert found["NONE"].verdict == "equivalent"
    assert found[DEFAULT].verdict == "inconclusive"  # the blocks' pace differs by more than 2 %
    assert stability_effects.stability_effects(swept(made(6)), TPOT) == []


def test_costs_are_medians_of_a_modes_starts() -> None:
    found = {each.mode: each for each in outcomes.costs(swept(made(2)))}
    assert set(found) == set(MODES)
    assert found["FULL"][2:] == (2, 1.0, 1.0, 10.0)


def test_an_empty_folder_has_no_sweep(tmp_path) -> None:
    assert sweep.read(tmp_path) is None

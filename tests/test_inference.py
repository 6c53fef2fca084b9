"""The statistics of the contrasts against hand-computed values, by properties, and by simulation with known truth."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from artifact.analysis.contrasts.inference import ALPHA, Spread, bootstrap, estimate, holm, p_values, spreads, verdict

VALUES = np.array([0.10, 0.12, 0.08, 0.11, 0.09])
OWN = Spread(math.sqrt(0.00025), 4, is_pooled=False)  # of VALUES: squares 0.001, over 4
LOGS = st.lists(st.floats(-1, 1, allow_nan=False), min_size=2, max_size=12)


def test_an_interval_is_the_paired_t_interval() -> None:
    found = estimate(VALUES, OWN)
    # mean 0.1, s = 0.0158114, s / sqrt(5) = 0.00707107, t(4, 0.975) = 2.776445
    assert found.mean == pytest.approx(0.1)
    assert (found.low, found.high) == pytest.approx(
        (0.1 - 2.776445 * 0.00707107, 0.1 + 2.776445 * 0.00707107), abs=1e-7
    )
    assert found.p_difference == pytest.approx(stats.ttest_1samp(VALUES, 0).pvalue)


def test_tost_against_a_hand_computed_value() -> None:
    # ln 1.02 = 0.0198026; mean 0.005, error 0.004, 7 degrees of freedom: t = (0.0198026 - 0.005) / 0.004 = 3.70066
    difference, equivalence = p_values(0.005, 0.004, 7)
    assert difference == pytest.approx(2 * stats.t.sf(1.25, 7))
    assert equivalence == pytest.approx(0.003828, abs=2e-5)
    assert p_values(-0.005, 0.004, 7) == pytest.approx((difference, equivalence))
    assert p_values(0.03, 0.004, 7)[1] > 0.9


def test_tost_rejects_where_the_90_percent_interval_lies_within_the_margin() -> None:
    for mean in (0.0, 0.004, 0.0079, 0.0081, 0.012):
        half = stats.t.ppf(0.95, 7) * 0.006
        inside = mean + half < math.log(1.02) and mean - half > -math.log(1.02)
        assert (p_values(mean, 0.006, 7)[1] < ALPHA) == inside


def test_holm_against_a_hand_computed_table() -> None:
    # sorted 0.005 x 4, 0.01 x 3, 0.03 x 2, 0.04 x 1, each at least the one before
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.6]) == pytest.approx([1.0, 1.0])
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_lies_between_no_adjustment_and_bonferroni(values: list[float]) -> None:
    adjusted = holm(values)
    for raw, its in zip(values, adjusted, strict=True):
        assert raw <= its <= min(1.0, raw * len(values)) + 1e-12
    order = np.argsort(values, kind="stable")
    assert (np.diff(np.array(adjusted)[order]) >= 0).all()


@settings(max_examples=40)
@given(LOGS, st.randoms(use_true_random=False))
def test_the_order_of_blocks_changes_nothing(values: list[float], random) -> None:
    shuffled = values.copy()
    random.shuffle(shuffled)
    spread = Spread(0.1, 5, is_pooled=True)
    assert estimate(np.array(values), spread) == estimate(np.array(shuffled), spread)


@settings(max_examples=40)
@given(LOGS)
def test_turning_the_contrast_round_mirrors_it(values: list[float]) -> None:
    spread = Spread(0.1, 5, is_pooled=True)
    one, other = estimate(np.array(values), spread), estimate(-np.array(values), spread)
    assert (one.low, one.high) == pytest.approx((-other.high, -other.low))
    assert one.p_difference == pytest.approx(other.p_difference)
    assert one.p_equivalence == pytest.approx(other.p_equivalence)


def test_equal_numbers_leave_nothing_to_chance() -> None:
    none = Spread(0.0, 3, is_pooled=False)
    same, apart = estimate(np.zeros(4), none), estimate(np.full(4, 0.1), none)
    assert (same.p_difference, same.p_equivalence) == (1.0, 0.0)
    assert (apart.p_difference, apart.p_equivalence) == (0.0, 1.0)


def test_four_verdicts() -> None:
    assert verdict(-0.3, 0.001, 1.0) == "better"
    assert verdict(0.3, 0.001, 1.0) == "worse"
    assert verdict(0.004, 0.001, 0.001) == "equivalent"  # known to differ, and known not to matter
    assert verdict(0.1, 0.2, 0.3) == "inconclusive"


def test_the_spread_is_pooled_and_loads_of_a_tile_count_once() -> None:
    cells = {
        ("a", 1): np.array([0.0, 0.2, 0.1]),
        ("a", 2): np.array([0.0, 0.2, 0.3, 0.1]),
        ("b", 1): np.array([0.1, 0.3, 0.2]),
        ("b", 2): np.array([0.1, 0.3]),
    }
    found = spreads(cells, lambda cell: cell[0])
    # squares 0.02, 0.05, 0.02 over 2 + 3 + 2; tile a has 3 degrees of freedom, b has 2; two blocks are too few
    assert found[("a", 1)] == pytest.approx((math.sqrt(0.09 / 7), 5, True))
    assert set(found) == set(cells) - {("b", 2)}
    assert spreads({("a", 1): np.array([0.1])}, lambda cell: cell[0]) == {}


def test_a_cell_noisier_than_the_others_keeps_its_own_spread() -> None:
    quiet = {("a", n): np.array([0.0, 0.01, 0.02, 0.01, 0.0, 0.02]) for n in range(4)}
    loud = np.array([0.0, 0.5, -0.5, 0.4, -0.4, 0.1])
    found = spreads(quiet | {("b", 0): loud}, lambda cell: cell[0])
    assert found[("b", 0)] == pytest.approx((float(loud.std(ddof=1)), 5, False))
    assert found[("a", 0)].is_pooled


def test_the_bootstrap_is_near_the_t_interval_of_many_blocks() -> None:
    values = np.random.default_rng(7).normal(0.1, 0.05, 60)
    found = estimate(values, Spread(float(values.std(ddof=1)), 59, is_pooled=False))
    assert bootstrap(values) == pytest.approx((found.low, found.high), abs=0.003)
    assert bootstrap(values) == bootstrap(values[::-1])


def simulated(
    rng: np.random.Generator, blocks: int, sds: list[float], share: float
) -> dict[tuple[str, int], np.ndarray]:
    """Return log-ratios of no effect: loads of a tile share ``share`` of their variance in each block."""
    cells = {}
    for tile in ("steady", "churn"):
        common = rng.normal(size=blocks)
        for load, sd in enumerate(sds):
            own = rng.normal(size=blocks)
            cells[tile, load] = sd * (math.sqrt(share) * common + math.sqrt(1 - share) * own)
    return cells


@pytest.mark.parametrize(
    ("sds", "share"),
    [([0.1] * 4, 0.0), ([0.1] * 4, 0.8), ([0.08, 0.1, 0.12, 0.15], 0.5), ([0.05, 0.05, 0.05, 0.3], 0.5)],
    ids=["independent loads", "loads share launches", "unequal noise", "one loud load"],
)
def test_a_difference_is_found_by_chance_about_as_often_as_said(sds: list[float], share: float) -> None:
    rng = np.random.default_rng(20260102)
    rejected: dict[int, list[bool]] = {load: [] for load in range(len(sds))}
    for _ in range(150):
        cells = simulated(rng, 8, sds, share)
        for cell, spread in spreads(cells, lambda cell: cell[0]).items():
            mean, error = float(cells[cell].mean()), spread.sd / math.sqrt(8)
            rejected[cell[1]].append(p_values(mean, error, spread.df)[0] < ALPHA)
    by_load = [float(np.mean(each)) for each in rejected.values()]
    # 300 tests a load, 1,200 in all, not independent: four standard errors of 0.05 are 0.05 and 0.03
    assert 0.02 <= np.mean(by_load) <= 0.08
    assert max(by_load) <= 0.13


def test_equivalence_is_found_by_chance_no_more_often_than_said() -> None:
    rng = np.random.default_rng(20260103)
    width = math.log(1.02)
    found = []
    for _ in range(400):
        values = rng.normal(width, 0.01, 8)  # exactly at the margin
        found.append(p_values(float(values.mean()), float(values.std(ddof=1)) / math.sqrt(8), 7)[1] < ALPHA)
    assert np.mean(found) == pytest.approx(ALPHA, abs=0.03)


@settings(max_examples=40)
@given(st.floats(-0.5, 0.5), st.floats(0.01, 0.3), st.integers(2, 20))
def test_more_blocks_narrow_the_interval(mean: float, sd: float, blocks: int) -> None:
    spread = Spread(sd, 10, is_pooled=True)
    few, many = (estimate(np.full(n, mean), spread) for n in (blocks, blocks + 1))
    assert many.high - many.low < few.high - few.low

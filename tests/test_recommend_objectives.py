"""Contrasts, verdicts and the choice: on made-up runs, so that what must come out is known."""

import math

import pytest

from artifact.analysis.recommend.objectives import OBJECTIVES, Trial, choose, contrast
from artifact.schema import Mode

DEFAULT, FULL, DECODE, NONE = Mode.FULL_AND_PIECEWISE, Mode.FULL, Mode.FULL_DECODE_ONLY, Mode.NONE
TPOT = OBJECTIVES["tpot_p50"]


def trial(mode: Mode, *values: float, graph_bytes: int | None = 100, **more: object) -> Trial:
    return Trial(mode, tuple({"tpot_p50_ms": value} for value in values), graph_bytes, 1.0, **more)


def choice(*trials: Trial, allowed: list[Mode] | None = None):
    return choose(trials, allowed or [each.mode for each in trials], TPOT, 0.02, DEFAULT)


def test_an_interval_is_that_of_students_t() -> None:
    # gains ln(2/1), ln(4/2), ln(8/2): mean 2.77/3; t(0.975, 2) = 4.3027
    found = contrast(trial(FULL, 1, 2, 2), trial(DEFAULT, 2, 4, 8), TPOT, 1)
    gains = [math.log(2), math.log(2), math.log(4)]
    mean = sum(gains) / 3
    sd = math.sqrt(sum((gain - mean) ** 2 for gain in gains) / 2)
    assert found.mean == pytest.approx(mean)
    assert found.high - found.mean == pytest.approx(4.302653 * sd / math.sqrt(3))
    assert found.low == pytest.approx(2 * found.mean - found.high)


def test_comparing_more_modes_widens_the_interval() -> None:
    one, other = trial(FULL, 1, 2, 2), trial(DEFAULT, 2, 4, 8)
    assert contrast(one, other, TPOT, 4).high > contrast(one, other, TPOT, 1).high


def test_the_calibrations_error_cancels_where_both_modes_run_the_kind_of_step() -> None:
    base, slower = ({"tpot_p50_ms": 2.0},), ({"tpot_p50_ms": 2.2},)
    shared = [trial(mode, 2.0, base=base, slower={"FULL_DECODE": slower}) for mode in (DECODE, DEFAULT)]
    assert contrast(*shared, TPOT, 1) == (0.0, 0.0, 0.0)
    alone = trial(FULL, 2.0, base=base, slower={"FULL": slower})
    found = contrast(alone, shared[1], TPOT, 1)
    # each of the two kinds moves the gain by ln 1.1
    assert found.high == pytest.approx(1.959964 * math.sqrt(2) * math.log(1.1))


def test_a_better_mode_is_taken_against_the_default() -> None:
    found = choice(trial(DEFAULT, 4.0, 4.1, 4.0, 4.1), trial(FULL, 2.0, 2.1, 2.0, 2.0))
    assert (found.recommended, found.reference, found.clear) == (FULL, DEFAULT, True)
    assert found.verdicts == {DEFAULT: "worse"}


def test_of_equivalent_modes_the_cheapest_is_taken() -> None:
    found = choice(
        trial(DEFAULT, 2.0, 2.1, 2.0, 2.1, graph_bytes=300),
        trial(DECODE, 2.0, 2.1, 2.0, 2.1, graph_bytes=100),
        trial(NONE, 9.0, 9.1, 9.2, 9.1, graph_bytes=0),
    )
    assert (found.recommended, found.clear) == (DECODE, True)
    assert found.verdicts == {DEFAULT: "equivalent", NONE: "worse"}


def test_unknown_memory_is_never_the_cheapest() -> None:
    found = choice(trial(DEFAULT, 2.0, 2.1, graph_bytes=300), trial(DECODE, 2.0, 2.1, graph_bytes=None))
    assert found.recommended is DEFAULT


def test_without_a_clear_winner_the_default_stays() -> None:
    found = choice(trial(DEFAULT, 2.0, 4.0, 2.0, 4.0), trial(FULL, 1.5, 4.5, 1.4, 3.9))
    assert (found.recommended, found.clear) == (DEFAULT, False)
    assert found.verdicts == {FULL: "inconclusive"}
    assert found.reference is FULL


def test_without_a_clear_winner_a_mode_equal_to_the_default_and_cheaper_is_taken() -> None:
    found = choice(
        trial(DEFAULT, 2.0, 4.0, 2.0, 4.0, graph_bytes=300),
        trial(FULL, 1.5, 4.5, 1.4, 3.9, graph_bytes=50),
        trial(DECODE, 2.0, 4.0, 2.0, 4.0, graph_bytes=100),
    )
    assert (found.recommended, found.clear) == (DECODE, False)


def test_a_default_that_is_worse_does_not_stay() -> None:
    found = choice(
        trial(DEFAULT, 9.0, 9.0, 9.1, 9.0), trial(FULL, 2.0, 4.0, 2.0, 4.0), trial(DECODE, 1.9, 4.4, 1.8, 4.3)
    )
    assert not found.clear
    assert found.recommended is not DEFAULT
    assert found.verdicts[DEFAULT] == "worse"


def test_what_is_not_allowed_is_shown_and_never_taken() -> None:
    found = choice(trial(DEFAULT, 4.0, 4.0, 4.1), trial(FULL, 1.0, 1.0, 1.1), allowed=[DEFAULT])
    assert found.recommended is DEFAULT
    assert found.verdicts == {FULL: "better"}


@pytest.mark.parametrize(
    ("name", "value", "reference", "shown"),
    [("tpot_p99", 8.0, 10.0, 0.2), ("throughput", 120.0, 100.0, 0.2), ("goodput", 0.9, 0.7, 0.2)],
)
def test_an_advantage_is_a_share_of_the_reference(name, value, reference, shown) -> None:
    objective = OBJECTIVES[name]
    assert objective.shown(objective.gain(value, reference)) == pytest.approx(shown)


def test_goodput_of_nothing_can_be_compared() -> None:
    runs = [Trial(mode, ({"goodput": good},) * 3) for mode, good in ((DEFAULT, 0.0), (FULL, 1.0))]
    found = choose(runs, [DEFAULT, FULL], OBJECTIVES["goodput"], 0.02, DEFAULT)
    assert found.recommended is FULL


def test_a_missing_value_is_not_compared() -> None:
    with pytest.raises(ValueError, match="tpot_p50_ms"):
        contrast(Trial(FULL, ({"tpot_p50_ms": None},)), trial(DEFAULT, 1.0), TPOT, 1)

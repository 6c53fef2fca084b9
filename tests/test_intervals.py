"""Means, ratios, quotients and lines with known answers."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from artifact.analysis.intervals import Estimate, geometric, line, quotient

NUMBERS = st.lists(st.integers(-1000, 1000).map(float), min_size=2, max_size=8, unique=True)


def test_mean_of_known_numbers() -> None:
    found = Estimate.of([1.0, 2.0, 3.0, None, float("nan")])
    assert found is not None
    assert (found.mean, found.n) == (2.0, 3)
    assert found.error == pytest.approx(1 / math.sqrt(3))
    assert found.high == pytest.approx(2 + 4.302653 / math.sqrt(3), rel=1e-5)
    assert found.low == pytest.approx(4 - found.high)


def test_one_number_has_no_interval_and_none_has_no_mean() -> None:
    found = Estimate.of([5.0])
    assert found is not None
    assert (found.mean, found.low, found.high, found.n) == (5.0, None, None, 1)
    assert Estimate.of([None, float("nan")]) is None


@given(NUMBERS, NUMBERS)
def test_difference_is_welchs(one: list[float], other: list[float]) -> None:
    first, second = Estimate.of(one), Estimate.of(other)
    assert first is not None
    assert second is not None
    found = first.less(second)
    expected = stats.ttest_ind(one, other, equal_var=False).confidence_interval()
    assert found.low == pytest.approx(expected.low, rel=1e-6, abs=1e-9)
    assert found.high == pytest.approx(expected.high, rel=1e-6, abs=1e-9)


def test_a_side_of_one_number_leaves_no_interval() -> None:
    many, one = Estimate.of([1.0, 2.0]), Estimate.of([1.0])
    assert many is not None
    assert one is not None
    assert many.less(one).low is None
    assert quotient(many, one) == quotient(one, many) == (None, None)


def test_geometric_mean_of_ratios() -> None:
    found = geometric([0.5, 2.0])
    assert found is not None
    mean, low, high, n = found
    assert (mean, n) == (pytest.approx(1.0), 2)
    assert low is not None
    assert high is not None
    assert low * high == pytest.approx(1.0)
    assert geometric([]) is None


@given(st.floats(1.0, 100.0), st.floats(0.01, 0.3), st.floats(1.0, 100.0), st.floats(0.01, 0.3), st.integers(2, 20))
def test_fieller_ends_are_where_the_difference_is_no_longer_told_from_zero(a, share_a, b, share_b, freedom) -> None:
    above, below = Estimate(a, a * share_a, freedom, freedom + 1), Estimate(b, b * share_b, freedom, freedom + 1)
    low, high = quotient(above, below)
    t = stats.t.ppf(0.975, freedom)
    if share_b * t >= 1:
        assert (low, high) == (None, None)
        return
    assert low is not None
    assert high is not None
    assert low <= a / b <= high
    for end in (low, high):
        error = math.hypot(above.error or 0.0, end * (below.error or 0.0))
        assert abs(a - end * b) == pytest.approx(t * error, rel=1e-6, abs=1e-9 * a)


def test_line_through_known_points() -> None:
    x = [1, 8, 19, 35, 51]
    found = line(x, [3.0 + 2.0 * value for value in x])
    assert found is not None
    assert (found.slope, found.intercept, found.n) == (pytest.approx(2.0), pytest.approx(3.0), 5)
    noisy = line(x * 2, [3.0 + 2.0 * value + offset for offset in (-1.0, 1.0) for value in x])
    assert noisy is not None
    assert noisy.low is not None
    assert noisy.high is not None
    assert noisy.low < 2.0 < noisy.high
    assert noisy.slope == pytest.approx(2.0)


def test_two_different_x_make_no_line() -> None:
    assert line([1, 1, 51, 51], [1.0, 2.0, 3.0, 4.0]) is None
    assert line([1, 2, 3], [1.0, 2.0, np.nan]) is None

"""The dynamic program over capture sizes finds what trying every list finds."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artifact.analysis.sizes.search import Problem, search

COSTS = st.floats(0, 100, allow_nan=False, width=32)


@st.composite
def problems(draw) -> Problem:
    """Any costs at all: additive is all that the search needs."""
    m = draw(st.integers(1, 7))
    sizes = sorted(draw(st.sets(st.integers(1, 60), min_size=m, max_size=m)))
    segment = draw(st.lists(st.lists(COSTS, min_size=m, max_size=m), min_size=m + 1, max_size=m + 1))
    above = draw(st.lists(COSTS, min_size=m + 1, max_size=m + 1))
    kept = draw(st.lists(st.booleans(), min_size=m, max_size=m))
    return Problem(np.array(sizes), draw(st.integers(0, m)), np.array(segment), np.array(above), np.array(kept))


def cost_of(problem: Problem, chosen: tuple[int, ...]) -> float:
    """Add up a list of candidates' places, without the search."""
    total, before = 0.0, 0
    for place in chosen:
        total += problem.segment[before, place]
        before = place + 1
    return float(total + problem.above[before])


@settings(max_examples=50)
@given(problems())
def test_no_list_of_any_shape_costs_less(problem: Problem) -> None:
    m, low = len(problem.sizes), problem.low
    best = np.full((low + 1, m - low + 1), np.inf)
    for count in range(m + 1):
        for chosen in combinations(range(m), count):
            if all(place in chosen for place in np.flatnonzero(problem.kept)):
                lows = sum(place < low for place in chosen)
                best[lows, count - lows] = min(best[lows, count - lows], cost_of(problem, chosen))
    found = search(problem)
    np.testing.assert_allclose(found.cost, best)
    for lows, highs in zip(*np.nonzero(np.isfinite(found.cost)), strict=True):
        sizes = found.sizes(int(lows), int(highs))
        places = tuple(int(place) for place in np.searchsorted(problem.sizes, sizes))
        assert cost_of(problem, places) == pytest.approx(found.cost[lows, highs])
        assert set(problem.sizes[problem.kept]) <= set(sizes)
        assert (sum(place < low for place in places), len(places)) == (lows, lows + highs)
        assert found.largest(int(lows), int(highs)) == max(sizes, default=0)


@given(problems(), st.integers(0, 7), st.integers(0, 7))
def test_limits_cut_the_table_and_change_nothing_else(problem: Problem, low: int, high: int) -> None:
    whole, cut = search(problem).cost, search(problem, low, high).cost
    assert cut.shape == (min(low, problem.low) + 1, min(high, len(problem.sizes) - problem.low) + 1)
    np.testing.assert_array_equal(cut, whole[: cut.shape[0], : cut.shape[1]])

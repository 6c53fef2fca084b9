"""Arrival processes have the rate and the burstiness that they are asked for."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artifact.errors import InputError
from artifact.schema import ArrivalConfig
from artifact.workloads.arrivals import bursts, open_loop


def gamma(rate: float, cv: float) -> ArrivalConfig:
    return ArrivalConfig(process="gamma", rate_per_s=rate, cv=cv)


def test_constant_gaps_start_at_zero_and_end_before_the_duration() -> None:
    times = open_loop(ArrivalConfig(process="constant", rate_per_s=4), 2.0, np.random.default_rng(0))
    assert times.tolist() == [0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75]


@pytest.mark.parametrize("cv", [0.5, 1.0, 2.0, 4.0])
def test_gaps_have_their_mean_and_variation(cv: float) -> None:
    gaps = np.diff(open_loop(gamma(50, cv), 4000, np.random.default_rng(4)))
    assert gaps.mean() == pytest.approx(1 / 50, rel=0.05)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.05)


def test_poisson_is_gamma_with_cv_one() -> None:
    poisson = open_loop(ArrivalConfig(process="poisson", rate_per_s=40), 12, np.random.default_rng(7))
    assert np.array_equal(poisson, open_loop(gamma(40, 1.0), 12, np.random.default_rng(7)))


@pytest.mark.parametrize("cv", [1.0, 4.0])
def test_a_short_window_at_the_start_gets_its_share(cv: float) -> None:
    """A process that started with an arrival would give (cv^2 - 1) / 2 too many, 7.5 for cv 4."""
    counts = [len(open_loop(gamma(10, cv), 2.0, np.random.default_rng(seed))) for seed in range(4000)]
    assert np.mean(counts) == pytest.approx(20, abs=5 * np.std(counts) / np.sqrt(len(counts)))


def test_the_number_of_arrivals_varies_with_the_seed() -> None:
    counts = {len(open_loop(gamma(40, 1.0), 12, np.random.default_rng(seed))) for seed in range(20)}
    assert len(counts) > 5


@given(rate=st.floats(0.01, 200), cv=st.floats(0.05, 8), duration=st.floats(0.01, 50), seed=st.integers(0, 2**63))
@settings(max_examples=100)
def test_arrivals_ascend_within_the_duration(rate: float, cv: float, duration: float, seed: int) -> None:
    times = open_loop(gamma(rate, cv), duration, np.random.default_rng(seed))
    assert np.array_equal(times, open_loop(gamma(rate, cv), duration, np.random.default_rng(seed)))
    assert (np.diff(times) >= 0).all()
    assert ((times >= 0) & (times < duration)).all()


def test_more_requests_than_a_cell_can_hold_are_refused() -> None:
    with pytest.raises(InputError, match=r"workload\.arrival"):
        open_loop(gamma(1e9, 1.0), 50, np.random.default_rng(0))


def test_other_processes_have_no_arrival_times() -> None:
    with pytest.raises(ValueError, match="closed"):
        open_loop(ArrivalConfig(process="closed", concurrency=2), 1, np.random.default_rng(0))


def test_bursts_give_every_size_once_a_round_in_another_order() -> None:
    group = bursts((1, 2, 3, 4, 5, 6, 7, 8), 3, np.random.default_rng(0))
    sizes = np.bincount(group)
    rounds = sizes.reshape(3, 8).tolist()
    assert all(sorted(sizes) == [1, 2, 3, 4, 5, 6, 7, 8] for sizes in rounds)
    assert rounds[0] != rounds[1]
    assert (np.diff(group) >= 0).all()

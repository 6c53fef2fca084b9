"""Lengths keep their bounds and the mean that the configuration promises."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artifact import config
from artifact.schema import LengthConfig
from artifact.workloads.lengths import draw


def lognormal(mean: float, cv: float, low: int, high: int) -> LengthConfig:
    return LengthConfig(kind="lognormal", mean=mean, cv=cv, low=low, high=high)


def test_fixed_is_the_mean() -> None:
    assert draw(LengthConfig(kind="fixed", mean=33), 3, np.random.default_rng(0)).tolist() == [33, 33, 33]


def test_uniform_takes_both_ends_and_its_mean() -> None:
    drawn = draw(LengthConfig(kind="uniform", mean=5, low=2, high=8), 20_000, np.random.default_rng(0))
    assert (drawn.min(), drawn.max()) == (2, 8)
    assert drawn.mean() == pytest.approx(5, abs=0.05)


@pytest.mark.parametrize(
    ("mean", "cv", "low", "high"),
    [
        (19, 0.6, 2, 256),
        (58, 0.9, 2, 1024),
        (161, 1.2, 4, 2048),
        (300, 5.0, 4, 400),
        (2.5, 2.0, 1, 9),
        (3.25, 1.0, 3, 4),
    ],
)
def test_lognormal_keeps_its_mean_after_cutting(mean: float, cv: float, low: int, high: int) -> None:
    drawn = draw(lognormal(mean, cv, low, high), 200_000, np.random.default_rng(1))
    assert drawn.dtype == np.int64
    assert drawn.mean() == pytest.approx(mean, abs=5 * drawn.std() / np.sqrt(len(drawn)))


def test_lognormal_keeps_its_cv_where_little_is_cut() -> None:
    drawn = draw(lognormal(1000, 0.5, 1, 1_000_000), 200_000, np.random.default_rng(2))
    assert drawn.std() / drawn.mean() == pytest.approx(0.5, rel=0.02)


@pytest.mark.parametrize("mean", [2.0, 9.0])
def test_lognormal_with_its_mean_at_a_bound_is_constant(mean: float) -> None:
    assert set(draw(lognormal(mean, 1.0, 2, 9), 100, np.random.default_rng(0)).tolist()) == {int(mean)}


def test_lognormal_without_variation_keeps_a_broken_mean() -> None:
    drawn = draw(lognormal(2.5, 0, 1, 9), 20_000, np.random.default_rng(0))
    assert set(drawn.tolist()) == {2, 3}
    assert drawn.mean() == pytest.approx(2.5, abs=0.03)


@given(
    low=st.integers(1, 1000),
    span=st.integers(0, 100_000),
    part=st.floats(0, 1),
    cv=st.floats(0, 1e300),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=300)
def test_lognormal_never_leaves_its_bounds(low: int, span: int, part: float, cv: float, seed: int) -> None:
    length = lognormal(min(low + part * span, low + span), cv, low, low + span)
    drawn = draw(length, 50, np.random.default_rng(seed))
    assert len(drawn) == 50
    assert low <= drawn.min()
    assert drawn.max() <= low + span == length.longest


@pytest.mark.parametrize("name", [name for name in config.groups()["workload"] if name != "trace"])
def test_presets_draw_the_mean_they_state(name: str) -> None:
    workload = config.load([f"workload={name}"]).workload
    assert workload.prompt is not None
    assert workload.output is not None
    for length in (workload.prompt, workload.output):
        drawn = draw(length, 50_000, np.random.default_rng(3))
        assert drawn.mean() == pytest.approx(length.mean, rel=0.03)

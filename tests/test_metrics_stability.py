"""Stability metrics: what steps were dispatched to, and how constant the batch was."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifact.metrics import stability
from artifact.records import STEP_COLUMNS, CellRow, typed


def frame(**columns: object) -> pd.DataFrame:
    rows = pd.DataFrame(columns)
    return typed(rows.assign(step=range(len(rows))), STEP_COLUMNS)


def test_the_columns_are_those_of_a_cell() -> None:
    assert set(stability.summarise(frame(t_s=[0.0, 1.0]))) <= set(CellRow.model_fields)


def test_unknown_is_not_zero() -> None:
    for steps in (frame(t_s=[0.0, 1.0]), frame(t_s=[])):
        assert set(stability.summarise(steps).values()) == {None}
        assert stability.graph_changes_per_s(steps) is None


def test_modes_are_counted_where_they_are_known() -> None:
    steps = frame(t_s=range(5), runtime_mode=["FULL", "FULL", "NONE", None, "FULL"])
    assert stability.mode_counts(steps) == {"steps_full": 3, "steps_piecewise": 0, "steps_none": 1}


def test_padding_is_over_the_sums_of_known_steps() -> None:
    steps = frame(t_s=range(3), num_tokens=[3, 100, None], padded_tokens=[4, 104, 8])
    assert stability.padding_ratio(steps) == pytest.approx(108 / 103 - 1)
    assert stability.padding_ratio(frame(t_s=[0.0], num_tokens=[0], padded_tokens=[0])) is None


def test_running_is_weighted_by_time() -> None:
    steady = frame(t_s=[0.0, 1.0, 5.0], num_running=[8, 8, 8])
    assert stability.running_cv(steady) == 0
    # 1 for three seconds, 5 for one: mean 2, variance (3 + 9) / 4 = 3
    steps = frame(t_s=[0.0, 3.0, 4.0], num_running=[1, 5, 1000])
    assert stability.running_cv(steps) == pytest.approx(3**0.5 / 2)


@pytest.mark.parametrize(
    "steps",
    [
        frame(t_s=[1.0], num_running=[4]),
        frame(t_s=[1.0, 1.0], num_running=[4, 5]),
        frame(t_s=[1.0, 2.0], num_running=[0, 0]),
    ],
)
def test_running_without_time_or_requests_has_no_variation(steps: pd.DataFrame) -> None:
    assert stability.running_cv(steps) is None


@given(
    gaps=st.lists(st.floats(0.001, 1), min_size=2, max_size=20), running=st.integers(1, 256), scale=st.floats(0.01, 100)
)
def test_running_cv_does_not_depend_on_the_unit_of_time(gaps: list[float], running: int, scale: float) -> None:
    t_s = np.cumsum(gaps)
    values = [running + position % 3 for position in range(len(gaps))]
    one, other = (stability.running_cv(frame(t_s=times, num_running=values)) for times in (t_s, t_s * scale))
    assert one == pytest.approx(other, rel=1e-6, abs=1e-9)


def test_uniform_decode_needs_the_heavy_probe() -> None:
    assert stability.uniform_decode_share(frame(t_s=[0.0], num_tokens=[4], padded_tokens=[4])) is None
    steps = frame(t_s=range(4), num_reqs=[4, 4, 2, None], num_decode=[4, 3, 2, None])
    assert stability.uniform_decode_share(steps) == pytest.approx(2 / 3)


def test_graph_changes_count_modes_and_sizes() -> None:
    steps = frame(
        t_s=[0.0, 0.5, 1.0, 1.5, 2.0, 2.5],
        runtime_mode=["FULL", "FULL", "FULL", "PIECEWISE", "NONE", "NONE"],
        padded_tokens=[8, 8, 16, 16, 600, 700],
    )
    assert stability.graph_changes_per_s(steps) == pytest.approx(3 / 2.5)


def test_only_steps_in_the_window_count_in_order_of_time() -> None:
    steps = frame(t_s=[3.0, 1.0, 2.0, 0.5], runtime_mode=["FULL", "NONE", "FULL", "FULL"], num_running=[9, 1, 1, 7])
    inside = stability.summarise(steps, (1.0, 3.0))
    assert (inside["steps_full"], inside["steps_none"], inside["running_cv"]) == (1, 1, 0)
    assert stability.inside(steps, None)["t_s"].tolist() == [0.5, 1.0, 2.0, 3.0]

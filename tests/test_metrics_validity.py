"""The gates of a cell on a virtual clock, where the right answer is known exactly."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifact import config
from artifact.metrics.validity import flags, trend
from artifact.records import STEP_COLUMNS, Conditions, typed
from artifact.schema import WorkloadConfig

STEADY = config.load(["workload=steady"]).workload
WINDOW = (2.0, 12.0)


def steps(running: "list[float] | np.ndarray", t_s: "list[float] | np.ndarray | None" = None) -> pd.DataFrame:
    """Steps with these running requests, spread evenly over the window and a second before and after it."""
    times = np.linspace(1.0, 13.0, len(running)) if t_s is None else t_s
    return typed(pd.DataFrame({"step": np.arange(len(running)), "t_s": times, "num_running": running}), STEP_COLUMNS)


def found(rows: pd.DataFrame, workload: WorkloadConfig = STEADY, jitter_us: float | None = None) -> list[str]:
    return flags(rows, WINDOW, workload, Conditions(cpu_jitter_us=jitter_us))


def test_a_line_is_found_as_it_is() -> None:
    t_s = np.arange(0.0, 14.0, 0.5)
    line = trend(steps((t_s * 2).astype(int), t_s), WINDOW)
    assert line is not None
    # a step's number holds for half a second: 2 t in steps of one, whose mean over [2, 12) is 13.5 and slope 2 a second
    assert line.change == pytest.approx(10 * 2 / 13.5)
    assert line.errors == np.inf or line.errors > 1e6


def test_an_even_load_has_no_trend() -> None:
    line = trend(steps([20] * 50), WINDOW)
    assert line is not None
    assert line.change == pytest.approx(0, abs=1e-9)
    assert found(steps([20] * 50)) == []


def test_growth_over_half_of_the_mean_is_unsteady_and_less_is_not() -> None:
    grown = np.linspace(10, 30, 200).round().astype(int)
    assert found(steps(grown)) == ["unsteady"]
    assert found(steps(grown[::-1])) == ["unsteady"]  # a pile-up of the warm-up that is worked off
    drift = np.linspace(18, 22, 200).round().astype(int)
    assert found(steps(drift)) == []


def test_ups_and_downs_without_a_direction_are_no_trend() -> None:
    swings = (20 + 15 * np.sin(np.arange(400) / 20)).round().astype(int)
    assert found(steps(swings)) == []


def test_time_counts_and_not_the_number_of_steps() -> None:
    """Ten requests for most of the time; the steps of the others are many and short."""
    t_s = np.concatenate([np.arange(1.0, 13.0, 0.1), np.linspace(11.9, 11.95, 500)])
    order = np.argsort(t_s)
    running = np.concatenate([np.full(120, 10), np.full(500, 100)])
    assert found(steps(running[order], t_s[order])) == []


@given(unit=st.floats(0.1, 100))
def test_the_unit_of_time_does_not_matter(unit: float) -> None:
    running = np.array([10, 14, 11, 17, 15, 22, 19, 25, 21, 28, 26, 31, 30])
    t_s = np.arange(13.0) + 0.5
    one, other = trend(steps(running, t_s), (1.0, 12.0)), trend(steps(running, t_s * unit), (unit, 12.0 * unit))
    assert one is not None
    assert other is not None
    assert other == pytest.approx(one, rel=1e-6)


def test_only_loads_that_are_to_be_steady_are_judged() -> None:
    grown = steps(np.linspace(10, 30, 200).round().astype(int))
    for name in ("closed_loop", "step_grid", "trace"):
        assert found(grown, config.load([f"workload={name}"]).workload) == []


@pytest.mark.parametrize(
    "rows",
    [
        steps([]),
        steps([5, 6]),
        steps([0] * 50),
        steps(np.arange(50), np.linspace(6, 13, 50)),
        steps(np.arange(50), np.linspace(1, 9, 50)),
        steps([5] * 50).assign(num_running=pd.array([pd.NA] * 50, dtype="Int64")),
    ],
)
def test_too_little_is_unknown_and_no_flag(rows: pd.DataFrame) -> None:
    assert trend(rows, WINDOW) is None
    assert found(rows) == []
    assert trend(rows, None) is None


@pytest.mark.parametrize(("jitter_us", "expected"), [(None, []), (250.0, []), (1000.0, []), (1001.0, ["host_jitter"])])
def test_host_jitter_over_a_millisecond_is_flagged(jitter_us: float | None, expected: list[str]) -> None:
    assert found(steps([20] * 50), STEADY, jitter_us) == expected


def test_cells_of_the_heavy_probe_are_flagged() -> None:
    """Also those that are shipped: their latencies are no result, and nothing may take them for one."""
    from pathlib import Path

    from artifact.study.store import read_cells, read_steps

    data = Path(__file__).parents[1] / "paper_figures" / "data" / "calibrate"
    steps = read_steps(data)
    heavy = set(steps[steps["wall_ms"].notna()]["cell_id"])
    flagged = read_cells(data).set_index("cell_id")["flags"].eq("heavy_probe")
    assert set(flagged.index[flagged]) == heavy
    assert 0 < len(heavy) < len(flagged)

"""Latency metrics: formulas, what has no value, and the flags that keep a cell out of a ranking."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifact import config
from artifact.metrics import latency
from artifact.records import REQUEST_COLUMNS, CellRow, typed
from artifact.schema import WorkloadConfig

STEADY = config.load(["workload=steady"]).workload  # window [2, 11) s, targets 200 and 50 ms
CLOSED = config.load(["workload=closed_loop"]).workload
BURSTS = config.load(["workload=step_grid"]).workload


def frame(n: int = 200, **columns: object) -> pd.DataFrame:
    """Return requests at 40 a second from 2 s on: TTFT 50 ms, TPOT 10 ms, 11 tokens, sent after 1 ms."""
    intended_s = 2 + np.arange(n) / 40
    data = {
        "request": np.arange(n),
        "intended_s": intended_s,
        "sent_s": intended_s + 0.001,
        "first_token_s": intended_s + 0.05,
        "last_token_s": intended_s + 0.15,
        "prompt_tokens": 256,
        "planned_output_tokens": 11,
        "output_tokens": 11,
        "measured": True,
        **columns,
    }
    return typed(pd.DataFrame(data), REQUEST_COLUMNS)


def changed(rows: pd.DataFrame, row: int, **values: object) -> pd.DataFrame:
    for name, value in values.items():
        rows.loc[row, name] = value
    return rows


def flags(rows: pd.DataFrame, workload: WorkloadConfig = STEADY, offered: float | None = 40.0) -> list[str]:
    return latency.summarise(rows, workload, offered)[1]


# Percentiles


def test_percentiles_interpolate() -> None:
    assert latency.percentile([4, 1, 3, 2], 50) == 2.5
    assert latency.percentile([1, 2, 3, 4, 5], 90) == pytest.approx(4.6)


@given(value=st.floats(-1e12, 1e12), q=st.floats(0, 100))
def test_one_value_is_its_own_percentile(value: float, q: float) -> None:
    assert latency.percentile([value], q) == value


@given(values=st.lists(st.floats(0, 1e6), min_size=1), q=st.floats(0, 100))
def test_percentiles_lie_among_the_values(values: list[float], q: float) -> None:
    assert min(values) <= latency.percentile(values, q) <= max(values)


@pytest.mark.parametrize("values", [[], [1.0, float("nan")], [float("inf")]])
def test_no_values_and_no_numbers_raise(values: list[float]) -> None:
    with pytest.raises(ValueError, match=r"percentile"):
        latency.percentile(values, 50)


# Formulas


def test_times_count_from_the_intended_arrival() -> None:
    row = latency.per_request(changed(frame(3), 1, sent_s=2.035)).loc[1]
    assert row.to_dict() == pytest.approx(
        {"ttft_s": 0.05, "tpot_s": 0.01, "e2e_s": 0.15, "normalised_s": 0.15 / 11, "dispatch_delay_s": 0.01}
    )


def test_one_token_has_no_tpot() -> None:
    rows = changed(frame(120), 0, output_tokens=1, planned_output_tokens=1, last_token_s=2.05)
    times = latency.per_request(rows)
    assert np.isnan(times.loc[0, "tpot_s"])
    assert latency.summarise(rows, STEADY, 40.0)[0]["tpot_p50_ms"] == pytest.approx(10)
    single = frame(120, output_tokens=1, planned_output_tokens=1)
    columns, found = latency.summarise(single, STEADY, 40.0)
    assert (columns["tpot_p50_ms"], columns["tpot_p99_ms"]) == (None, None)
    assert columns["goodput"] == 1
    assert found == []  # there is no TPOT to take more samples of


def test_the_columns_are_those_of_a_cell() -> None:
    columns, found = latency.summarise(frame(), STEADY, 40.0)
    assert set(columns) <= set(CellRow.model_fields)
    assert {name for name in CellRow.model_fields if name.startswith(("ttft", "tpot", "e2e", "dispatch"))} <= set(
        columns
    )
    assert found == []
    assert columns["n_requests"] == 200
    assert columns["n_failed"] == 0
    assert columns["ttft_p99_ms"] == pytest.approx(50)
    assert columns["e2e_p90_ms"] == pytest.approx(150)
    assert columns["dispatch_delay_p99_ms"] == pytest.approx(1)
    assert columns["achieved_rate"] == pytest.approx(40)


def test_a_p99_needs_a_hundred_values() -> None:
    columns, found = latency.summarise(frame(99), STEADY, 40.0)
    assert columns["ttft_p90_ms"] is not None
    assert [columns[f"{name}_p99_ms"] for name in ("ttft", "tpot", "e2e", "dispatch_delay")] == [None] * 4
    assert found == ["under_sampled"]
    assert latency.summarise(frame(100), STEADY, 40.0)[0]["ttft_p99_ms"] is not None


def test_only_measured_requests_that_finished_count() -> None:
    rows = frame(202)
    changed(rows, 0, measured=False, first_token_s=50.0, last_token_s=60.0)
    changed(rows, 1, failure="engine_error", first_token_s=np.nan, last_token_s=np.nan, output_tokens=0)
    columns, found = latency.summarise(rows, STEADY, 40.0)
    assert (columns["n_requests"], columns["n_failed"]) == (200, 1)
    assert columns["e2e_p99_ms"] == pytest.approx(150)
    assert columns["goodput"] == pytest.approx(200 / 201)
    assert found == ["failures"]


def test_no_output_is_a_failure_even_where_the_engine_calls_it_none() -> None:
    columns, found = latency.summarise(changed(frame(), 5, output_tokens=0), STEADY, 40.0)
    assert (columns["n_failed"], found) == (1, ["failures"])


def test_nothing_finished_is_null_and_not_zero() -> None:
    rows = frame(10, failure="timeout", first_token_s=np.nan, last_token_s=np.nan, output_tokens=0)
    columns, found = latency.summarise(rows, CLOSED, None)
    assert columns["n_requests"] == 0
    assert columns["output_tokens_per_s"] is None
    assert all(value is None for name, value in columns.items() if name.endswith("_ms"))
    assert columns["goodput"] == 0
    assert found == ["failures", "under_sampled"]
    nothing = latency.summarise(frame(10, measured=False), STEADY, None)[0]
    assert (nothing["goodput"], nothing["achieved_rate"]) == (None, None)


def test_goodput_needs_both_targets() -> None:
    rows = frame(4)
    changed(rows, 0, first_token_s=2.25, last_token_s=2.3)  # late start
    changed(rows, 1, last_token_s=2.025 + 0.05 + 0.6)  # 60 ms a token
    assert latency.goodput(rows, 200, 50) == 0.5
    assert latency.goodput(rows, 300, 50) == 0.75
    assert latency.goodput(rows, 300, 70) == 1


def test_output_rate_counts_what_arrives_in_the_window() -> None:
    rows = frame(1, first_token_s=4.0, last_token_s=6.0, output_tokens=21)
    assert latency.output_rate(rows, (0.0, 10.0)) == pytest.approx(2.1)
    assert latency.output_rate(rows, (5.0, 7.0)) == pytest.approx(5.0)
    assert latency.output_rate(rows, (3.0, 5.0)) == pytest.approx(5.5)
    assert latency.output_rate(rows, (7.0, 9.0)) == 0
    at_once = frame(1, first_token_s=4.0, last_token_s=4.0, output_tokens=5)
    assert latency.output_rate(at_once, (3.0, 5.0)) == pytest.approx(2.5)
    assert latency.output_rate(rows, None) is None


def test_the_window_is_the_workloads_or_that_of_the_measured_requests() -> None:
    rows = changed(frame(4), 0, measured=False)
    assert latency.measured_window(rows, STEADY) == (2.0, 11.0)
    assert latency.measured_window(rows, CLOSED) == pytest.approx((2.025, 2.225))


# Flags


def test_a_slow_client_is_flagged() -> None:
    rows = frame()
    late = frame(sent_s=rows["intended_s"] + 0.011)
    assert flags(late) == ["client_bound"]
    assert flags(frame(sent_s=rows["intended_s"] + 0.009)) == []
    assert flags(late, CLOSED, None) == ["client_bound"]
    assert flags(late, BURSTS, None) == []


def test_a_client_that_cannot_keep_the_rate_is_flagged() -> None:
    rows = frame()
    slow = frame(sent_s=2 + (rows["intended_s"] - 2) * 200 / 183.5)
    columns, found = latency.summarise(slow, STEADY, 40.0)
    assert columns["achieved_rate"] == pytest.approx(40 * 183.5 / 200)
    assert found == ["client_bound"]


def test_an_even_delay_leaves_the_rate_as_it_is() -> None:
    rows = frame()
    assert latency.achieved_rate(frame(sent_s=rows["intended_s"] + 0.5), 40.0) == pytest.approx(40)
    half = frame()
    half.loc[100:, "sent_s"] = np.nan
    assert latency.achieved_rate(half, 40.0) == pytest.approx(20)
    assert latency.achieved_rate(rows, None) is None


def test_other_outputs_than_planned_are_flagged() -> None:
    assert flags(changed(frame(), 3, output_tokens=10)) == ["outputs_differ"]


@pytest.mark.parametrize(("growth", "expected"), [(0.0, []), (0.1, []), (0.5, ["overload"]), (2.0, ["overload"])])
def test_a_growing_queue_is_an_overload(growth: float, expected: list[str]) -> None:
    ttft_s = 0.05 + growth * np.arange(200) / 40
    intended_s = 2 + np.arange(200) / 40
    rows = frame(first_token_s=intended_s + ttft_s, last_token_s=intended_s + ttft_s + 0.1)
    assert flags(rows) == expected
    assert flags(rows.sample(frac=1, random_state=0)) == expected
    assert flags(rows, CLOSED, None) == []


def test_a_long_but_even_wait_is_no_overload() -> None:
    intended_s = 2 + np.arange(200) / 40
    assert flags(frame(first_token_s=intended_s + 3, last_token_s=intended_s + 3.1)) == []

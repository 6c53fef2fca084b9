"""Kind: a number that is right for something else than what it is called.

Asked 200/s and sent 183.5, failures, no output, p99 of few: tests/test_metrics_latency.py. Rates of 0, inf and nan:
tests/test_config.py. Trends and host jitter: tests/test_metrics_validity.py.
"""

import numpy as np
import pandas as pd
import pytest

from artifact import config
from artifact.errors import InputError
from artifact.metrics import latency
from artifact.records import REQUEST_COLUMNS, typed
from artifact.schema import Evidence
from artifact.study.plan import plan
from artifact.workloads.arrivals import open_loop
from artifact.workloads.build import build, token_ids


def test_no_two_requests_of_a_launch_share_a_block_of_prompt() -> None:
    """A warm prefix cache inflates throughput unevenly: no block of 16 tokens comes twice, whatever was served."""
    planned = plan(["study=smoke"], Evidence.SIMULATED)
    assert {launch.config.server.enable_prefix_caching for launch in planned.launches} == {False}
    first = set()
    count = 0
    for cell in planned.launches[0].cells:
        schedule = build(cell.config.workload, cell.seed)
        for index in range(0, len(schedule), 50):
            first.add(tuple(token_ids(schedule, index, 151_936)[:16]))
            count += 1
    assert len(first) == count


@pytest.mark.parametrize("cv", ["inf", "nan", "-1", "0", "1e-200", "0.001", "101", "1e200"])
def test_burstiness_without_sense_is_refused(cv: str) -> None:
    with pytest.raises(InputError, match=r"workload\.arrival") as caught:
        config.load(["workload=bursty", f"workload.arrival.cv={cv}"])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("cv", [0.01, 100])
def test_gaps_at_the_ends_of_what_is_taken_are_numbers(cv: float) -> None:
    arrival = config.load(["workload=bursty", f"workload.arrival.cv={cv}"]).workload.arrival
    counts = []
    for seed in range(200):
        times = open_loop(arrival, 10.0, np.random.default_rng(seed))
        assert np.isfinite(times).all()
        assert (np.diff(times) >= 0).all()
        counts.append(len(times))
    if cv < 1:
        assert set(counts) <= {399, 400, 401}


def requests(n: int, output_tokens: "np.ndarray | int") -> pd.DataFrame:
    at = 2 + np.arange(n) / 40
    data = {"request": np.arange(n), "intended_s": at, "sent_s": at, "first_token_s": at + 0.05,
            "last_token_s": at + 0.05 + (np.asarray(output_tokens) - 1) * 0.01, "prompt_tokens": 9,
            "planned_output_tokens": output_tokens, "output_tokens": output_tokens, "measured": True}  # fmt: skip
    return typed(pd.DataFrame(data), REQUEST_COLUMNS)


def test_every_percentile_has_its_n_beside_it() -> None:
    """Half of the answers have one token: TTFT has 300 values, TPOT 150."""
    workload = config.load(["workload=steady"]).workload
    columns, flags = latency.summarise(requests(300, np.tile([1, 11], 150)), workload, 40.0)
    assert (columns["n_requests"], columns["n_tpot"]) == (300, 150)
    assert columns["tpot_p99_ms"] == pytest.approx(10)
    assert flags == []
    columns, flags = latency.summarise(requests(120, np.tile([1, 11], 60)), workload, 40.0)
    assert (columns["n_tpot"], columns["tpot_p99_ms"], columns["ttft_p99_ms"] is None) == (60, None, False)
    assert flags == ["under_sampled"]


@pytest.mark.parametrize(("n", "known"), [(1, (50,)), (9, (50,)), (10, (50, 90)), (99, (50, 90)), (100, (50, 90, 99))])
def test_a_percentile_of_too_few_values_is_null(n: int, known: tuple[int, ...]) -> None:
    columns, _ = latency.summarise(requests(n, 11), config.load(["workload=steady"]).workload, 40.0)
    for name in ("ttft", "tpot", "e2e"):
        there = tuple(rank for rank in (50, 90, 99) if columns[f"{name}_p{rank}_ms"] is not None)
        assert there == known


def test_failures_are_counted_and_no_infinite_latency() -> None:
    rows = requests(200, 11)
    rows.loc[:19, ["first_token_s", "last_token_s"]] = np.nan
    rows.loc[:19, "failure"] = "EngineDeadError"
    columns, flags = latency.summarise(rows, config.load(["workload=steady"]).workload, 40.0)
    assert (columns["n_requests"], columns["n_failed"], flags) == (180, 20, ["failures"])
    assert all(np.isfinite(float(value)) for value in columns.values() if value is not None)

"""Times on the virtual clock, worked by hand."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sim_support import schedule

from artifact.errors import CellFailed
from artifact.records import Schedule
from artifact.simulator.clock import Price, serve
from artifact.simulator.scheduler import Batch, Scheduler


def run(
    sent: Schedule,
    *,
    launch_ms: float,
    gpu_ms: float,
    whole: bool = True,
    overlapped: bool = True,
    seats: int = 8,
    blocks: int = 1000,
    max_model_len: int = 10_000,
    frontend_ms: float = 0.0,
    spacing_ms: float = 0.0,
    limit_s: float = 60.0,
    loop_ms: float = 0.0,
    tail_ms: float = 0.0,
):
    def price(now_s: float, batch: Batch) -> Price:
        times = (loop_ms / 1e3, launch_ms / 1e3, gpu_ms / 1e3, tail_ms / 1e3)
        return Price("FULL" if whole else "NONE", batch.num_tokens, *times, whole)

    return serve(
        sent,
        Scheduler(seats, 8192, blocks, 16),
        lambda _: price,
        max_model_len=max_model_len,
        frontend_s=frontend_ms / 1e3,
        spacing_s=spacing_ms / 1e3,
        async_scheduling=overlapped,
        limit_s=limit_s,
    )


def ms(values: object) -> list[float]:
    return [round(float(value) * 1e3, 6) for value in values]  # type: ignore[attr-defined]


def test_synchronous_steps_pay_host_and_gpu_in_turn() -> None:
    requests, steps, seconds = run(schedule([(10, 3)]), launch_ms=2, gpu_ms=5, overlapped=False)
    assert ms(steps["t_s"]) == [7, 14, 21]
    assert ms(requests["first_token_s"]) == [7]
    assert ms(requests["last_token_s"]) == [21]
    assert ms([seconds]) == [21]


def test_gpu_bound_steps_hide_the_host() -> None:
    # launches at 0, 2, 7, 12: the third waits for the first's outputs
    _, steps, _ = run(schedule([(10, 4)]), launch_ms=2, gpu_ms=5)
    assert ms(steps["t_s"]) == [7, 12, 17, 22]
    assert ms(steps["wall_ms"].iloc[:3] / 1e3) == [2, 5, 5]


def test_host_bound_steps_hide_the_gpu_and_hand_out_tokens_a_launch_late() -> None:
    # issued at 0..10, 10..20, 20..30; the GPU ends at 12, 22, 32; outputs of step n are read after step n+1 is issued
    _, steps, _ = run(schedule([(10, 3)]), launch_ms=10, gpu_ms=2)
    assert ms(steps["t_s"]) == [20, 30, 32]
    # launched one by one, kernels run while the host issues: the last ends with its launch
    _, steps, _ = run(schedule([(10, 3)]), launch_ms=10, gpu_ms=2, whole=False)
    assert ms(steps["t_s"]) == [20, 30, 30]


def test_loop_adds_to_the_host_and_tail_to_the_gpu() -> None:
    _, steps, _ = run(schedule([(10, 6)]), launch_ms=2, gpu_ms=5, loop_ms=1, tail_ms=3)
    assert ms(steps["wall_ms"].iloc[2:5] / 1e3) == [8, 8, 8]
    assert ms(steps["gpu_ms"].iloc[:1] / 1e3) == [5]
    _, steps, _ = run(schedule([(10, 6)]), launch_ms=9, gpu_ms=2, loop_ms=1, tail_ms=3)
    assert ms(steps["wall_ms"].iloc[2:5] / 1e3) == [10, 10, 10]


def test_one_seat_serves_one_request_after_the_other() -> None:
    sent = schedule([(5, 2), (6, 1), (7, 1)])
    requests, _, _ = run(sent, launch_ms=1, gpu_ms=4, seats=1, overlapped=False)
    assert ms(requests["first_token_s"]) == [5, 15, 20]
    assert ms(requests["last_token_s"]) == [10, 15, 20]
    # overlapped: request 0 ends at 1 + 4 + 4; its seat is free then, so each start pays launch + GPU
    requests, _, _ = run(sent, launch_ms=1, gpu_ms=4, seats=1)
    assert ms(requests["last_token_s"]) == [9, 14, 19]


def test_a_request_that_arrives_during_a_step_joins_the_next_but_one() -> None:
    # launches at 0, 2, 7, 12, ...: an arrival at 3 is seen at 7, its step ends at 17
    sent = schedule([(10, 10), (10, 1)], arrival_s=[0.0, 0.003])
    requests, steps, _ = run(sent, launch_ms=2, gpu_ms=5)
    assert ms(requests["first_token_s"]) == [7, 17]
    assert steps["num_reqs"].iloc[:4].tolist() == [1, 1, 2, 1]


def test_idle_gap_has_no_period_and_frontend_delays_the_request() -> None:
    sent = schedule([(10, 1), (10, 1)], arrival_s=[0.0, 1.0])
    requests, steps, _ = run(sent, launch_ms=2, gpu_ms=5, frontend_ms=3)
    assert ms(requests["first_token_s"]) == [10, 1010]
    assert ms(requests["sent_s"]) == [0, 1000]
    assert steps["wall_ms"].isna().all()


def test_groups_start_when_the_one_before_has_finished() -> None:
    sent = schedule([(10, 2), (10, 1), (10, 1)], arrival_s=[0.0, 0.0, 0.001], group=[0, 1, 1])
    requests, _, _ = run(sent, launch_ms=2, gpu_ms=5)
    # group 0 ends at 12; its successors are intended at 12 and 13
    assert ms(requests["intended_s"]) == [0, 12, 13]


def test_closed_loop_sends_when_a_seat_comes_free() -> None:
    sent = schedule([(10, 1), (10, 2), (10, 1)], concurrency=2)
    requests, steps, _ = run(sent, launch_ms=2, gpu_ms=5, overlapped=False)
    assert ms(requests["intended_s"]) == [0, 0, 7]
    assert steps["num_reqs"].tolist() == [2, 2]


def test_length_limits_of_the_front_end() -> None:
    sent = schedule([(100, 1), (95, 10), (10, 1)], concurrency=1)
    requests, _, _ = run(sent, launch_ms=2, gpu_ms=5, max_model_len=100)
    assert requests["output_tokens"].tolist() == [0, 5, 1]
    assert "prompt of 100 tokens" in requests["failure"].iloc[0]
    assert requests["failure"].iloc[1] == "5 output tokens, planned 10"
    assert requests["failure"].isna().tolist() == [False, False, True]
    assert np.isnan(requests["first_token_s"].iloc[0])


def test_limit_and_deadlock_are_timeouts() -> None:
    with pytest.raises(CellFailed, match=r"0 of 1 requests finished in 0\.02 s") as caught:
        run(schedule([(10, 100)]), launch_ms=2, gpu_ms=5, limit_s=0.02)
    assert caught.value.status == "timeout"
    with pytest.raises(CellFailed, match="would wait for ever"):
        run(schedule([(10, 100)]), launch_ms=2, gpu_ms=5, blocks=2)


def test_requests_of_a_burst_pass_the_front_end_one_by_one() -> None:
    requests, steps, _ = run(schedule([(10, 1)] * 3), launch_ms=1, gpu_ms=4, frontend_ms=2, spacing_ms=3)
    # at the engine at 2, 5 and 8 ms: each is alone in its step, launched at 2, 7 (the engine waits for outputs) and 8
    assert steps["num_reqs"].tolist() == [1, 1, 1]
    assert ms(requests["sent_s"]) == [0, 3, 6]
    assert ms(requests["first_token_s"]) == [7, 12, 16]
    assert ms(requests["intended_s"]) == [0, 0, 0]


REQUESTS = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 40), st.integers(0, 90)), min_size=1, max_size=14)


@given(requests=REQUESTS, blocks=st.integers(8, 40), overlapped=st.booleans(), seats=st.integers(1, 8))
def test_steps_that_only_decode_are_those_of_the_whole_scheduler(
    requests: list[tuple[int, int, int]], blocks: int, overlapped: bool, seats: int
) -> None:
    """With few blocks, so that requests are also preempted."""
    lengths = [(prompt, output) for prompt, output, _ in requests]
    arrivals = sorted(at_ms / 1e3 for _, _, at_ms in requests)

    def served() -> tuple[pd.DataFrame, pd.DataFrame, float]:
        return run(
            schedule(lengths, arrivals), launch_ms=1, gpu_ms=1.5, blocks=blocks, overlapped=overlapped, seats=seats
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scheduler, "only_decodes", lambda _: 0)
        slow = served()
    fast = served()
    pd.testing.assert_frame_equal(fast[0], slow[0])
    pd.testing.assert_frame_equal(fast[1], slow[1])
    assert fast[2] == slow[2]

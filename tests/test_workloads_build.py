"""A schedule is complete, repeatable, and measures what the workload says."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifact import config
from artifact.errors import InputError
from artifact.records import Schedule
from artifact.schema import TraceConfig, WorkloadConfig
from artifact.workloads.build import build, fits, forced_ids, prompt_buckets, token_ids

ARRAYS = ("arrival_s", "prompt_tokens", "output_tokens", "group", "measured")


def preset(name: str, *more: str) -> WorkloadConfig:
    return config.load([f"workload={name}", *more]).workload


def trace_of(path: Path, rows: str, **options: object) -> TraceConfig:
    path.write_text("timestamp,prompt_tokens,output_tokens\n" + rows)
    base = config.load(["trace.format=csv", "trace.time_unit=s"]).trace
    return base.model_copy(update={"path": str(path), **options})


@pytest.mark.parametrize("name", [name for name in config.groups()["workload"] if name != "trace"])
def test_every_preset_builds_the_same_from_the_same_seed_and_fits(name: str) -> None:
    first, second, other = (build(preset(name), seed) for seed in (5, 5, 6))
    for array in ARRAYS:
        assert np.array_equal(getattr(first, array), getattr(second, array))
        assert len(getattr(first, array)) == len(first)
    assert first.measured.any()
    assert (first.prompt_tokens >= 1).all()
    assert (first.output_tokens >= 1).all()
    fits(first, config.load().server)
    same = token_ids(first, 0, 151_936) == token_ids(other, 0, 151_936)
    assert same == (preset(name).sequences_seed is not None)  # which holds in every cell, whatever the cell's seed


def test_lengths_do_not_depend_on_the_arrivals() -> None:
    churn, bursty = build(preset("churn"), 3), build(preset("bursty"), 3)
    n = min(len(churn), len(bursty))
    assert np.array_equal(churn.prompt_tokens[:n], bursty.prompt_tokens[:n])
    assert np.array_equal(churn.output_tokens[:n], bursty.output_tokens[:n])
    assert not np.array_equal(churn.prompt_tokens, churn.output_tokens)


def test_open_loops_measure_between_warm_up_and_cool_down() -> None:
    schedule = build(preset("steady"), 0)
    inside = schedule.arrival_s[schedule.measured]
    assert (inside.min(), len(inside)) == (2.0, 360)
    assert inside.max() < 11
    assert schedule.offered_rate == pytest.approx(40)
    assert schedule.concurrency is None
    assert set(schedule.group.tolist()) == {0}


def test_closed_loops_leave_out_the_ends() -> None:
    schedule = build(preset("closed_loop"), 0)
    assert (len(schedule), schedule.concurrency, schedule.offered_rate) == (512, 32, None)
    assert np.flatnonzero(schedule.measured).tolist() == list(range(32, 480))
    with pytest.raises(InputError, match=r"workload\.requests=64.*more than 64"):
        build(preset("closed_loop", "workload.requests=64"), 0)


def test_bursts_are_groups_measured_whole() -> None:
    workload = preset("step_grid")
    schedule = build(workload, 0)
    assert schedule.measured.all()
    assert not schedule.arrival_s.any()
    assert sorted(np.bincount(schedule.group).tolist()) == sorted([*(workload.arrival.batches or ())] * 2)
    assert not np.array_equal(schedule.group, build(workload, 1).group)


@given(
    n=st.integers(1, 30),
    shapes=st.lists(st.integers(1, 30), min_size=1, max_size=4, unique=True),
    seeds=st.tuples(st.integers(0, 2**32), st.integers(0, 2**32)),
)
def test_forced_sequences_are_served_once_at_each_batch_shape(
    n: int, shapes: list[int], seeds: tuple[int, int]
) -> None:
    workload = preset("teacher_forced")
    arrival = workload.arrival.model_copy(update={"batches": tuple(min(shape, n) for shape in shapes)})
    workload = workload.model_copy(update={"requests": n, "arrival": arrival})
    if len(set(arrival.batches or ())) < len(shapes):
        with pytest.raises(InputError, match="each batch shape once"):
            build(workload, 0)
        return
    schedule, other = (build(workload, seed) for seed in seeds)
    forced = schedule.forced
    assert forced is not None
    assert all(np.array_equal(getattr(schedule, name), getattr(other, name)) for name in ARRAYS)
    assert schedule.seed == other.seed == workload.sequences_seed
    assert len(schedule) == n * len(shapes)
    assert set(np.diff(schedule.group)) <= {0, 1}
    for shape in arrival.batches or ():
        of_shape = forced.batch_shape == shape
        assert forced.sequence[of_shape].tolist() == list(range(n))
        sizes = np.bincount(schedule.group[of_shape] - schedule.group[of_shape][0])
        assert sizes.tolist() == [shape] * (n // shape) + [n % shape] * bool(n % shape)
        assert np.array_equal(schedule.prompt_tokens[of_shape], schedule.prompt_tokens[:n])
    for group in np.unique(schedule.group):
        inside = schedule.group == group
        assert len(set(forced.batch_shape[inside])) == 1
        assert schedule.arrival_s[inside] == pytest.approx(0.001 * np.arange(inside.sum()))


def test_forced_tokens_belong_to_the_sequence_alone() -> None:
    schedule = build(preset("teacher_forced"), 1)
    for ids in (token_ids, forced_ids):
        assert ids(schedule, 3, 1000) == ids(schedule, 3 + 24, 1000) == ids(schedule, 3 + 48, 1000)
        assert ids(schedule, 3, 1000) != ids(schedule, 4, 1000)
    forced = forced_ids(schedule, 3, 1000) or []
    assert len(forced) == 24
    assert forced != token_ids(schedule, 3, 1000)[:24]
    assert forced_ids(build(preset("churn"), 1), 3, 1000) is None


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("workload.arrival.batches=[1,25]", "25 at a time of workload.requests=24"),
        ("workload.sequences_seed=null", "sequences_seed: needed by"),
        ("workload.arrival.gap_ms=null", "needs gap_ms"),
        ("workload.requests=null", "needs requests"),
    ],
)
def test_a_forced_workload_that_is_not_whole_names_the_key(override: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        build(preset("teacher_forced", override), 0)


def test_a_load_too_low_to_measure_anything_is_refused() -> None:
    with pytest.raises(InputError, match="no request arrives in the measured window"):
        build(preset("churn", "workload.arrival.rate_per_s=0.0001"), 0)


def test_a_trace_keeps_its_times_and_lengths(tmp_path: Path) -> None:
    trace = trace_of(tmp_path / "t.csv", "10,5,2\n11,6,3\n11,7,4\n14,8,5\n")
    schedule = build(preset("trace"), 9, trace)
    assert schedule.arrival_s.tolist() == [0, 1, 1, 4]
    assert schedule.prompt_tokens.tolist() == [5, 6, 7, 8]
    assert schedule.output_tokens.tolist() == [2, 3, 4, 5]
    assert schedule.measured.all()
    assert schedule.offered_rate == pytest.approx(1.0)


def test_a_trace_is_cut_at_the_workloads_duration(tmp_path: Path) -> None:
    trace = trace_of(tmp_path / "t.csv", "0,5,2\n1,6,3\n2,7,4\n3,8,5\n4,9,6\n")
    cut = {"duration_s": 4.0, "warmup_s": 1.0, "cooldown_s": 1.0}
    schedule = build(preset("trace").model_copy(update=cut), 0, trace)
    assert schedule.prompt_tokens.tolist() == [5, 6, 7, 8]
    assert schedule.measured.tolist() == [False, True, True, False]
    assert schedule.offered_rate == pytest.approx(1.0)


def test_a_trace_of_one_request_has_no_rate(tmp_path: Path) -> None:
    schedule = build(preset("trace"), 0, trace_of(tmp_path / "t.csv", "7,5,2\n"))
    assert (schedule.measured.tolist(), schedule.offered_rate) == ([True], None)


def test_a_trace_workload_without_a_trace_names_the_key() -> None:
    with pytest.raises(InputError, match=r"trace\.path"):
        build(preset("trace"), 0)
    with pytest.raises(InputError, match=r"trace\.path"):
        build(preset("trace"), 0, config.load().trace)


def test_a_request_longer_than_the_server_takes_is_refused() -> None:
    server = config.load(["server.max_model_len=383"]).server
    with pytest.raises(InputError, match=r"256 prompt and 128 output tokens, more than server\.max_model_len=383"):
        fits(build(preset("steady"), 0), server)
    fits(build(preset("steady"), 0), config.load(["server.max_model_len=384"]).server)


def test_prompts_are_repeatable_and_keep_off_the_vocabularys_ends() -> None:
    schedule = build(preset("churn"), 4)
    ids = token_ids(schedule, 3, 1000)
    assert ids == token_ids(schedule, 3, 1000)
    assert ids != token_ids(schedule, 4, 1000)
    assert len(ids) == schedule.prompt_tokens[3]
    assert min(ids) >= 100
    assert max(ids) < 700
    with pytest.raises(InputError, match="vocab_size=400"):
        token_ids(schedule, 0, 400)


def test_warm_up_lengths_are_powers_of_two_and_the_longest() -> None:
    def of(*prompts: int) -> Schedule:
        n = len(prompts)
        ones = np.ones(n, dtype=np.int64)
        return Schedule(np.zeros(n), np.array(prompts), ones, ones - 1, ones > 0, 0)

    assert prompt_buckets([of(3, 448), of(5)]) == [1, 2, 4, 8, 16, 32, 64, 128, 256, 448]
    assert prompt_buckets([of(8)]) == [1, 2, 4, 8]
    assert prompt_buckets([of(1)]) == [1]
    assert prompt_buckets([]) == []

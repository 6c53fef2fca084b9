"""Capture sizes: vLLM's default list, the user's list, speculative rounding, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifact.config import load
from artifact.errors import InputError
from artifact.graphs.sizes import capture_sizes, default_sizes
from artifact.schema import Mode

BASE = load(["server=study"]).server


def sizes(mode=Mode.FULL_AND_PIECEWISE, **changes):
    return capture_sizes(BASE.model_copy(update=changes), mode)


@pytest.mark.parametrize(("max_num_seqs", "count", "largest"), [(64, 19, 128), (128, 35, 256), (256, 51, 512)])
def test_default_list_has_the_known_length(max_num_seqs, count, largest):
    found = sizes(max_num_seqs=max_num_seqs)
    assert (len(found), found[-1]) == (count, largest)


def test_default_list_is_cut_to_what_it_holds():
    assert sizes(max_num_seqs=5) == (1, 2, 4, 8)
    assert sizes(max_num_seqs=1024)[-1] == 512
    assert sizes(max_cudagraph_capture_size=20) == (1, 2, 4, 8, 16)
    assert sizes(max_num_batched_tokens=100)[-2:] == (96, 100)


@pytest.mark.parametrize("mode", [Mode.NONE, Mode.EAGER])
def test_without_graphs_there_are_no_sizes(mode):
    assert sizes(mode) == ()


def test_users_list_is_sorted_deduplicated_and_cut_to_the_token_budget_alone():
    assert sizes(cudagraph_capture_sizes=(16, 1, 16, 600, 9000)) == (1, 16, 600)


@pytest.mark.parametrize("mode", [Mode.FULL_AND_PIECEWISE, Mode.NONE])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cudagraph_capture_sizes": ()}, "at least one size"),
        ({"cudagraph_capture_sizes": (0, 1)}, "0 is not a size"),
        ({"cudagraph_capture_sizes": (-4,)}, "-4 is not a size"),
        ({"cudagraph_capture_sizes": (1.5,)}, r"1\.5 is not a size"),
        ({"cudagraph_capture_sizes": (1, "x")}, "'x' is not a size"),
        ({"cudagraph_capture_sizes": (True,)}, "True is not a size"),
        ({"cudagraph_capture_sizes": (None,)}, "None is not a size"),
        ({"cudagraph_capture_sizes": (9000, 10000)}, "max_num_batched_tokens=8192"),
        ({"cudagraph_capture_sizes": (1, 8), "max_cudagraph_capture_size": 16}, "max_cudagraph_capture_size=16"),
        (
            {"cudagraph_capture_sizes": (1, 3), "tensor_parallel_size": 2, "enable_sequence_parallelism": True},
            r"tensor_parallel_size=2 \(tp\)",
        ),
        (
            {"max_num_seqs": 1, "tensor_parallel_size": 8, "enable_sequence_parallelism": True},
            r"tensor_parallel_size=8 \(tp\)",
        ),
    ],
)
def test_unusable_sizes_are_refused_under_every_mode(changes, message, mode):
    with pytest.raises(InputError, match=message) as caught:
        sizes(mode, **changes)
    assert "server.cudagraph_capture_sizes" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_sequence_parallelism_keeps_multiples_of_tp():
    listed = {"cudagraph_capture_sizes": (1, 2, 4, 6, 8), "enable_sequence_parallelism": True}
    assert sizes(tensor_parallel_size=4, **listed) == (4, 8)
    assert sizes(tensor_parallel_size=1, **listed) == (1, 2, 4, 6, 8)


def test_speculative_sizes_are_rounded_up_for_full_decode_graphs_alone():
    listed = {"cudagraph_capture_sizes": (1, 2, 4, 8, 16, 24, 32, 40), "num_speculative_tokens": 6}
    for mode in (Mode.FULL, Mode.FULL_DECODE_ONLY, Mode.FULL_AND_PIECEWISE):
        assert sizes(mode, **listed) == (7, 14, 21, 28, 35)
    assert sizes(Mode.PIECEWISE, **listed) == (1, 2, 4, 8, 16, 24, 32, 40)


def test_a_size_that_rounds_above_the_largest_is_lost():
    assert sizes(cudagraph_capture_sizes=(4, 5), num_speculative_tokens=1) == (4,)
    assert sizes(cudagraph_capture_sizes=(5,), num_speculative_tokens=1) == (2,)  # vLLM's last resort: 1 + k


def test_speculation_that_leaves_no_size_is_refused():
    with pytest.raises(InputError, match="num_speculative_tokens=6"):
        sizes(cudagraph_capture_sizes=(1, 2, 4), num_speculative_tokens=6)


def test_speculation_and_tp_that_share_no_multiple_are_refused():
    with pytest.raises(InputError, match="one must divide the other"):
        sizes(num_speculative_tokens=2, tensor_parallel_size=4, enable_sequence_parallelism=True)


@given(st.integers(1, 1100), st.integers(1, 9000))
def test_default_list_is_ascending_and_within_the_limit(largest, budget):
    found = default_sizes(largest, budget)
    assert list(found) == sorted(set(found))
    assert found[0] == 1
    assert found[-1] <= largest
    assert max(after - before for before, after in zip(found, (*found[1:], found[-1]), strict=True)) <= 16


@given(st.lists(st.integers(1, 500), min_size=1), st.integers(1, 8))
def test_rounded_sizes_are_multiples_that_cover_no_more_than_before(listed, k):
    try:
        found = sizes(cudagraph_capture_sizes=tuple(listed), num_speculative_tokens=k)
    except InputError:
        assert max(listed) < k + 1
    else:
        assert all(size % (k + 1) == 0 for size in found)
        assert found[-1] <= max(listed)

"""Memory numbers: what graphs cost in KV cache, and which of vLLM's numbers can be believed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifact.metrics.memory import estimate_error, kv_tokens_lost, memory_valid


def test_graph_bytes_as_tokens() -> None:
    assert kv_tokens_lost(360 * 2**20, 114_688) == 3292
    assert kv_tokens_lost(0, 114_688) == 0
    assert kv_tokens_lost(None, 114_688) is None
    assert kv_tokens_lost(-5, 114_688) is None


@given(graph_bytes=st.integers(0, 2**40), per_token=st.integers(1, 2**20))
def test_lost_tokens_hold_the_graphs_and_one_less_does_not(graph_bytes: int, per_token: int) -> None:
    lost = kv_tokens_lost(graph_bytes, per_token)
    assert lost is not None
    assert (lost - 1) * per_token < graph_bytes <= lost * per_token


@pytest.mark.parametrize(
    ("graph_bytes", "estimate", "captures", "others", "expected"),
    [
        (10, 12, 35, (5,), True),
        (0, 12, 35, (), False),
        (10, 0, 35, (), False),
        (-1, None, 35, (), False),
        (-1, None, 0, (), False),
        (0, 0, 0, (5, None), True),
        (0, None, None, (), False),
        (10, 12, 35, (0,), False),
        (None, None, None, (5,), True),
        (None, None, 35, (None,), None),
    ],
)
def test_impossible_numbers_are_invalid_and_absent_ones_unknown(
    graph_bytes: int | None,
    estimate: int | None,
    captures: int | None,
    others: tuple[int | None, ...],
    expected: bool | None,
) -> None:
    assert memory_valid(graph_bytes, estimate, captures, others) is expected


def test_estimate_error_needs_two_measurements() -> None:
    assert estimate_error(300, 360) == pytest.approx(-1 / 6)
    for pair in ((0, 360), (300, 0), (None, 360), (300, None), (-300, 360), (300, -360)):
        assert estimate_error(*pair) is None

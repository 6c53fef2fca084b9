"""Our rules against vLLM's own code; skipped unless its wheel is at hand (make conformance fetches it)."""

import os

import pytest
from conformance.compare import Tally, compare, compare_flash_attention, compare_lora_counts, compare_resolution, server
from conformance.real import PINNED, Real, cached_wheel
from hypothesis import given, settings
from hypothesis import strategies as st

WHEEL = os.environ.get("VLLM_WHEEL") or cached_wheel(PINNED)
pytestmark = pytest.mark.skipif(WHEEL is None, reason=f"no vLLM {PINNED} wheel in .cache/wheels and no VLLM_WHEEL")


@pytest.fixture(scope="module")
def real():
    return Real(WHEEL)


def test_resolution_agrees(real):
    tally = Tally()
    compare_flash_attention(real, tally)
    compare_resolution(real, tally)
    compare_lora_counts(tally, real.lora_counts)
    assert tally.differences == []
    assert tally.resolutions == 2 * 4 * 4 * 5


@pytest.mark.parametrize("max_num_seqs", [1, 100, 256])
def test_dispatch_of_default_sizes_agrees(real, max_num_seqs):
    tally = Tally()
    compare(real, tally, server(max_num_seqs=max_num_seqs))
    assert tally.differences == []
    assert tally.dispatches == 600 * 2 * 5


def test_a_difference_is_seen(real, monkeypatch):
    monkeypatch.setattr("artifact.graphs.dispatch.Dispatcher._decode_sizes", lambda self: list(self.sizes))
    tally = Tally()
    compare(real, tally, server(max_num_seqs=100))
    assert any("97 tokens, uniform=True" in line for line in tally.differences)


SERVERS = st.fixed_dictionaries(
    {
        "cudagraph_capture_sizes": st.none() | st.lists(st.integers(1, 300), min_size=1, max_size=20).map(tuple),
        "max_num_seqs": st.integers(1, 300),
        "max_num_batched_tokens": st.sampled_from([32, 256, 8192]),
        "max_cudagraph_capture_size": st.none() | st.integers(1, 300),
        "num_speculative_tokens": st.integers(0, 8),
        "max_loras": st.integers(0, 5),
        "cudagraph_specialize_lora": st.booleans(),
        "specialize_active_lora": st.booleans(),
        "tensor_parallel_size": st.sampled_from([1, 2, 4, 6]),
        "enable_sequence_parallelism": st.booleans(),
    }
)


@given(SERVERS)
@settings(max_examples=60)
def test_any_server_agrees(real, changes):
    tally = Tally()
    supports = ("ALWAYS", "UNIFORM_BATCH", "UNIFORM_SINGLE_TOKEN_DECODE")
    compare(real, tally, server(**changes), range(1, 320, 3), supports)
    assert tally.differences == []

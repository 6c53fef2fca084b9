"""Dispatch: which graph a step replays, how many graphs there are, which batches fall through."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifact.config import load
from artifact.graphs.dispatch import Dispatcher, FallThrough, dispatcher, lora_counts
from artifact.schema import Mode

BASE = load(["server=study"]).server
GRAPH_MODES = [Mode.PIECEWISE, Mode.FULL, Mode.FULL_DECODE_ONLY, Mode.FULL_AND_PIECEWISE]
SPECULATIVE = {"cudagraph_capture_sizes": (1, 2, 4, 8, 16, 24, 32, 40), "num_speculative_tokens": 6}


def graphs(mode, **changes):
    return dispatcher(BASE.model_copy(update=changes), mode)


@pytest.mark.parametrize(("max_num_seqs", "every", "decode"), [(64, 19, 11), (128, 35, 19), (256, 51, 35)])
def test_key_counts_of_the_default_list(max_num_seqs, every, decode):
    assert graphs(Mode.FULL_AND_PIECEWISE, max_num_seqs=max_num_seqs).keys == {"PIECEWISE": every, "FULL": decode}
    assert graphs(Mode.FULL_DECODE_ONLY, max_num_seqs=max_num_seqs).keys == {"PIECEWISE": 0, "FULL": decode}
    assert graphs(Mode.FULL, max_num_seqs=max_num_seqs).keys == {"PIECEWISE": 0, "FULL": every}
    assert graphs(Mode.NONE, max_num_seqs=max_num_seqs).keys == {"PIECEWISE": 0, "FULL": 0}


def test_captures_as_counted_in_vllm():
    found = graphs(Mode.FULL_AND_PIECEWISE)
    assert found.captures(layers=28) == 51 * 29 + 35 == 1514
    assert found.captures(layers=28, hollow=True) == 35


def test_sizes_above_max_num_seqs_vanish_from_decode_capture_only():
    found = graphs(Mode.FULL_AND_PIECEWISE, max_num_seqs=8, cudagraph_capture_sizes=(1, 2, 4, 8, 16))
    assert found.keys == {"PIECEWISE": 5, "FULL": 4}


@pytest.mark.parametrize(
    ("mode", "runtime", "padded"),
    [(Mode.FULL_AND_PIECEWISE, "PIECEWISE", 104), (Mode.FULL_DECODE_ONLY, "NONE", 97), (Mode.FULL, "FULL", 104)],
)
def test_decode_batches_whose_padded_size_exceeds_max_num_seqs(mode, runtime, padded):
    found = graphs(mode, max_num_seqs=100)
    assert found.dispatch(96, uniform_decode=True) == ("FULL", 96)
    assert found.dispatch(97, uniform_decode=True) == (runtime, padded)
    holes = [hole for hole in found.fallthrough() if hole.kind == "decode"]
    assert holes == ([] if runtime == "FULL" else [FallThrough("decode", 97, 100, runtime)])


def test_speculative_example():
    full = graphs(Mode.FULL_AND_PIECEWISE, **SPECULATIVE)
    assert full.dispatch(35, uniform_decode=True) == ("FULL", 35)
    assert full.dispatch(42, uniform_decode=True) == ("NONE", 42)
    assert full.dispatch(36, uniform_decode=False) == ("NONE", 36)
    assert graphs(Mode.PIECEWISE, **SPECULATIVE).dispatch(36, uniform_decode=False) == ("PIECEWISE", 40)
    assert full.fallthrough() == [FallThrough("decode", 42, 256 * 7, "NONE")]


def test_every_mode_runs_none_above_the_largest_size():
    for mode in GRAPH_MODES:
        for uniform in (True, False):
            assert graphs(mode).dispatch(513, uniform) == ("NONE", 513)


def test_decode_only_lists_its_mixed_batches_and_none_lists_nothing():
    assert graphs(Mode.FULL_DECODE_ONLY).fallthrough() == [FallThrough("mixed", 1, 512, "NONE")]
    assert graphs(Mode.NONE).fallthrough() == []


def test_hollow_lists_what_replays_nothing():
    found = graphs(Mode.FULL_AND_PIECEWISE, max_num_seqs=100)
    assert found.fallthrough(hollow=True) == [
        FallThrough("decode", 97, 100, "PIECEWISE"),
        FallThrough("mixed", 1, 200, "PIECEWISE"),
    ]


def test_decode_holes_end_at_the_token_budget():
    found = graphs(Mode.FULL, cudagraph_capture_sizes=(8,), max_num_batched_tokens=300, num_speculative_tokens=1)
    assert found.fallthrough() == [FallThrough("decode", 10, 300, "NONE")]


@pytest.mark.parametrize(
    ("specialize", "active", "counts"),
    [(True, False, (0, 5)), (True, True, (0, 1, 2, 4, 5)), (False, False, (5,)), (False, True, (5,))],
)
def test_lora_variants(specialize, active, counts):
    changes = {"max_loras": 4, "cudagraph_specialize_lora": specialize, "specialize_active_lora": active}
    server = BASE.model_copy(update=changes)
    assert lora_counts(server) == counts
    found = dispatcher(server, Mode.FULL_AND_PIECEWISE)
    assert found.keys == {"PIECEWISE": 51 * len(counts), "FULL": 35 * len(counts)}
    assert found.dispatch(3, True, has_lora=True, num_active_loras=3) == ("FULL", 4)
    assert found.dispatch(3, True) == (("FULL", 4) if specialize else ("NONE", 3))


def test_without_lora_an_adapter_finds_no_graph():
    assert lora_counts(BASE) == (0,)
    assert graphs(Mode.FULL).dispatch(3, True, has_lora=True, num_active_loras=1) == ("NONE", 3)


def test_sequence_parallelism_pads_first():
    found = graphs(Mode.FULL, tensor_parallel_size=4, enable_sequence_parallelism=True)
    assert found.dispatch(3, uniform_decode=True) == ("FULL", 4)
    assert found.dispatch(513, uniform_decode=False) == ("NONE", 516)


@st.composite
def made(draw):
    k = draw(st.integers(0, 4))
    listed = draw(st.lists(st.integers(1, 80).map(lambda n: n * (1 + k)), min_size=1, max_size=12))
    changes = {"cudagraph_capture_sizes": tuple(listed), "num_speculative_tokens": k}
    changes["max_num_seqs"] = draw(st.integers(1, 100))
    return graphs(draw(st.sampled_from(GRAPH_MODES)), **changes)


@given(made(), st.integers(1, 500), st.booleans())
def test_a_graph_pads_up_to_a_size_and_none_pads_nothing(found: Dispatcher, tokens, uniform):
    runtime, padded = found.dispatch(tokens, uniform)
    if runtime == "NONE":
        assert padded == tokens
    else:
        assert padded == min(size for size in found.sizes if size >= tokens)


@given(made(), st.integers(1, 500), st.booleans())
def test_padded_tokens_never_fall_as_replayed_batches_grow(found: Dispatcher, tokens, uniform):
    first, second = found.dispatch(tokens, uniform), found.dispatch(tokens + 1, uniform)
    if first[0] == second[0]:
        assert first[1] <= second[1]
    if found.mode is not Mode.FULL_DECODE_ONLY and second[0] != "NONE":
        assert first[0] != "NONE"  # no hole below a batch that has a graph


@given(made(), st.integers(1, 500), st.booleans())
def test_modes_with_graphs_for_mixed_batches_cover_all_up_to_the_largest_size(found: Dispatcher, tokens, uniform):
    runtime, _ = found.dispatch(tokens, uniform)
    if found.mode is not Mode.FULL_DECODE_ONLY:
        assert (runtime == "NONE") == (tokens > found.sizes[-1])
    if found.mode is Mode.FULL:
        assert runtime in ("FULL", "NONE")
    elif runtime == "FULL":
        assert uniform


@given(made())
def test_fallthrough_is_what_dispatch_says(found: Dispatcher):
    q = found.query_len
    promised = {"decode": "PIECEWISE" if found.mode is Mode.PIECEWISE else "FULL"}
    promised["mixed"] = "FULL" if found.mode is Mode.FULL else "PIECEWISE"
    batches = {"decode": range(q, found.max_decode_tokens + 1, q), "mixed": range(1, found.sizes[-1] + 1)}
    listed = {
        (hole.kind, tokens): hole.runtime_mode
        for hole in found.fallthrough()
        for tokens in batches[hole.kind]
        if hole.first <= tokens <= hole.last
    }
    for kind, sizes in batches.items():
        for tokens in sizes:
            runtime, _ = found.dispatch(tokens, kind == "decode")
            assert listed.get((kind, tokens), promised[kind]) == runtime

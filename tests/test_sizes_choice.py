"""Which lists may be chosen, by vLLM's own rules, and that none of them is better than the chosen one."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from artifact.analysis.sizes.batches import Batches
from artifact.analysis.sizes.choice import choose, default_server, graph_counts, grid, with_sizes
from artifact.analysis.sizes.costs import StepCosts, replayed
from artifact.analysis.sizes.graphs import Line, Takes
from artifact.config import load
from artifact.errors import InputError
from artifact.graphs.dispatch import Dispatcher
from artifact.graphs.explain import resolve_config
from artifact.graphs.sizes import capture_sizes
from artifact.schema import Config, Mode, ModeConfig
from tests.sim_support import synthetic_calibration

UNKNOWN = Takes(None, None, "nothing measured")
MIB = 2**20
# 10 MiB and 4 MiB a piecewise key, 3 MiB a full one; 1 s and 0.1 s a key of either kind.
KNOWN = Takes(Line(10 * MIB, 4 * MIB, 3 * MIB, MIB, 0, 0, 9), Line(1.0, 0.1, 0.1, 0, 0, 0, 9), "synthetic")
MODES = ["piecewise", "full", "full_decode_only", "full_and_piecewise"]


def batches(rows: list[tuple[int, bool, int]]) -> Batches:
    """Make batches of (tokens, whether decode, steps); a mixed one is a prompt alone."""
    frame = sorted(dict.fromkeys(rows))
    tokens, uniform, steps = (np.array(column) for column in zip(*frame, strict=True))
    return Batches(
        tokens=tokens.astype(np.int64),
        uniform=uniform.astype(bool),
        requests=np.where(uniform, tokens, 1).astype(np.int64),
        prefills=np.where(uniform, 0, 1).astype(np.int64),
        context_tokens=np.zeros(len(frame)),
        square=np.where(uniform, 0, tokens).astype(float) ** 2,
        steps=steps.astype(float),
    )


def costs_of(config: Config, rows: list[tuple[int, bool, int]], noise: float = 0.1) -> StepCosts:
    return StepCosts(synthetic_calibration(noise_sigma=noise), resolve_config(config), batches(rows))


def small(mode: str, speculative: int = 0, **asked: object) -> Config:
    """Few sequences and tokens, so that all lists can be tried; copied, since composing takes long."""
    plain = load()
    server = {"max_num_seqs": 4, "max_num_batched_tokens": 7, "num_speculative_tokens": speculative}
    sizes = {"largest": 7, "guard": (), "margin": 0.0, **asked}
    return plain.model_copy(
        update={
            "mode": ModeConfig(name=Mode(mode.upper())),
            "server": plain.server.model_copy(update=server),
            "sizes": plain.sizes.model_copy(update=sizes),
        }
    )


@settings(max_examples=25)
@given(
    st.sampled_from(MODES),
    st.lists(st.tuples(st.integers(1, 7), st.booleans(), st.integers(1, 50)), min_size=1, max_size=6),
    st.integers(2, 6),
    st.sampled_from([0, 1]),
)
def test_no_list_of_whole_numbers_is_better(mode: str, rows, most: int, speculative: int) -> None:
    config = small(mode, speculative, max_graphs=most)
    q = 1 + speculative
    rows = [(tokens, decode and tokens <= 4 * q and tokens % q == 0, steps) for tokens, decode, steps in rows]
    costs, resolved = costs_of(config, rows), resolve_config(config).resolved
    grid_ = grid(config, resolve_config(config))
    assume(any(-(-tokens // grid_.unit) * grid_.unit <= 7 for tokens, _, _ in rows))  # a size can hold it
    choice = choose(costs, grid_, config.sizes, UNKNOWN)
    chosen = choice.sizes(0.0)

    def step_ms(sizes: tuple[int, ...]) -> float:
        return replayed(costs, Dispatcher(resolved, sizes, config.server)).step_ms

    assert step_ms(chosen) == pytest.approx(choice.best_ms(), rel=1e-9)
    assert 1 <= sum(graph_counts(grid_, chosen).values()) <= most
    multiples = range(grid_.unit, 8, grid_.unit)
    for count in range(1, most + 1):
        for sizes in combinations(multiples, count):
            if 1 <= sum(graph_counts(grid_, sizes).values()) <= most:
                assert step_ms(chosen) <= step_ms(sizes) * (1 + 1e-9), sizes


@pytest.mark.parametrize(
    ("overrides", "kept"),
    [
        (["server.max_num_seqs=100"], [1, 2, 4, 8, 16, 32, 64, 100, 128, 256, 512]),
        (["server.max_num_seqs=1024"], [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]),
        (["server.max_num_seqs=100", "mode=full_decode_only"], [1, 2, 4, 8, 16, 32, 64, 100]),
        (["server.max_num_batched_tokens=128", "server.max_num_seqs=64"], [1, 2, 4, 8, 16, 32, 64, 128]),
        (["sizes.guard=[]"], []),
        (["sizes.guard=[max,3]"], [3, 256]),
        # 1 + k = 3 tokens: multiples of 3, MAX = 3 x 100
        (["server.num_speculative_tokens=2", "server.max_num_seqs=100"], [3, 6, 9, 18, 33, 66, 129, 258, 300, 513]),
        # without full decode graphs vLLM rounds nothing
        (
            ["server.num_speculative_tokens=2", "server.max_num_seqs=5", "mode=piecewise", "sizes.guard=[4,MAX]"],
            [4, 15],
        ),
        # sequence parallelism: multiples of 8; 100 sequences are padded to 104 tokens
        (
            ["server.tensor_parallel_size=8", "server.enable_sequence_parallelism=true", "server.max_num_seqs=100"],
            [8, 16, 32, 64, 96, 104, 128, 256, 512],
        ),
    ],
)
def test_the_guard_is_what_vllm_would_keep(overrides: list[str], kept: list[int]) -> None:
    config = load(overrides)
    resolution = resolve_config(config)
    grid_ = grid(config, resolution)
    assert list(grid_.kept) == kept
    if kept:
        server = with_sizes(config.server, resolution.resolved, kept)
        assert capture_sizes(server, resolution.resolved) == tuple(kept)


def test_with_max_kept_no_decode_batch_falls_through() -> None:
    plain = load()
    for seqs in (1, 5, 97, 100, 256, 1000):
        config = plain.model_copy(update={"server": plain.server.model_copy(update={"max_num_seqs": seqs})})
        grid_ = grid(config, resolve_config(config))
        holes = Dispatcher(grid_.mode, grid_.kept, config.server).fallthrough()
        assert [hole for hole in holes if hole.kind == "decode"] == []
    default = plain.server.model_copy(update={"max_num_seqs": 100})
    own = capture_sizes(default, grid_.mode)
    assert [hole.first for hole in Dispatcher(grid_.mode, own, default).fallthrough() if hole.kind == "decode"] == [97]


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=25)  # a configuration is composed once a mode
@given(sizes=st.sets(st.integers(1, 8), min_size=1))
def test_keys_are_counted_as_the_dispatcher_has_them(mode: str, sizes: set[int]) -> None:
    config = small(mode)
    grid_ = grid(config, resolve_config(config))
    if mode == "full_decode_only":  # larger sizes are listed and never captured
        sizes = {size for size in sizes if size <= 4} or {1}
    low = sum(size <= 4 for size in sizes)
    counts = graph_counts(grid_, sorted(sizes))
    assert grid_.keys.of(low, len(sizes) - low) == (counts["PIECEWISE"], counts["FULL"])


def test_fewest_graphs_within_the_margin() -> None:
    config = small("full")
    rows = [(1, True, 1000), (2, True, 1000), (7, False, 1000)]
    choice = choose(costs_of(config, rows, noise=0.0), grid(config, resolve_config(config)), config.sizes, UNKNOWN)
    assert choice.sizes(0.0) == (1, 2, 7)
    assert choice.sizes(0.004) == (2, 7)  # a token more for a third of the steps is 0.01 ms of 2
    assert choice.sizes(0.9) == (7,)
    fewest, best = choice.outline()[0], choice.outline()[-1]
    assert fewest[0] == 1
    assert best == (3, pytest.approx(choice.best_ms()))


def test_limits_of_memory_and_start_up_are_kept() -> None:
    rows = [(tokens, True, 10) for tokens in range(1, 5)] + [(tokens, False, 10) for tokens in range(1, 8)]

    config = small("full_and_piecewise")
    grid_ = grid(config, resolve_config(config))
    costs = costs_of(config, rows)

    def keys(**limit: float) -> tuple[int, int, int]:
        chosen = choose(costs, grid_, small("full_and_piecewise", **limit).sizes, KNOWN).sizes(0.0)
        counts = graph_counts(grid_, chosen)
        return counts["PIECEWISE"], counts["FULL"], chosen[-1]

    assert keys() == (7, 4, 7)  # every size that a batch fills
    assert KNOWN.graph_bytes is not None
    assert KNOWN.capture_s is not None
    assert KNOWN.graph_bytes.at(*keys(max_graph_mib=30.0)) <= 30 * MIB < KNOWN.graph_bytes.at(*keys())
    assert KNOWN.capture_s.at(*keys(max_capture_s=1.5)) <= 1.5 < KNOWN.capture_s.at(*keys())
    with pytest.raises(InputError, match=r"sizes.max_graph_mib=11: no list keeps it \(the least found is 21\)"):
        keys(max_graph_mib=11.0)
    with pytest.raises(InputError, match=r"sizes.max_capture_s=0.5: no list keeps it"):
        keys(max_capture_s=0.5)


@pytest.mark.parametrize(
    ("overrides", "takes", "said"),
    [
        (["sizes.max_graphs=8"], KNOWN, r"sizes.max_graphs=8: no list keeps it .*sizes.guard, of which 10 sizes"),
        (["sizes.max_graph_mib=50"], UNKNOWN, "what graphs take is not known .nothing measured."),
        (["sizes.max_graph_mib=500", "server.max_num_seqs=1024"], KNOWN, "above 512 tokens was not measured"),
        (["sizes.guard=[]", "sizes.largest=4", "server.max_num_seqs=64"], KNOWN, "no batch of so few tokens"),
    ],
)
def test_what_cannot_be_kept_is_one_line(overrides: list[str], takes: Takes, said: str) -> None:
    config = load(overrides)
    with pytest.raises(InputError, match=said):
        choose(costs_of(config, [(7, True, 1)]), grid(config, resolve_config(config)), config.sizes, takes)


@pytest.mark.parametrize("entry", ["0", "1.5", "true", "most", "[1]"])
def test_a_guard_that_is_no_size_is_one_line(entry: str) -> None:
    with pytest.raises(
        InputError, match=r"sizes\.guard.*is no size: each is a whole number of tokens from 1 on, or MAX"
    ):
        load([f"sizes.guard=[1,{entry}]"])


def test_a_list_that_vllm_would_change_is_a_mistake_of_ours() -> None:
    server = load(["server.num_speculative_tokens=2"]).server
    with pytest.raises(RuntimeError, match="vLLM would make"):
        with_sizes(server, resolve_config(load([])).resolved, (4, 9))
    listed = load(["server.cudagraph_capture_sizes=[1,2]", "server.max_cudagraph_capture_size=2"]).server
    assert default_server(listed).cudagraph_capture_sizes is None

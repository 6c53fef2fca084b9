"""Kind: a list of capture sizes that does not do what it seems to.

Vanishing from decode capture only, batch 513: tests/test_graphs_dispatch.py. Tensor parallel sizes, rounding, [], 0,
negatives, duplicates, unsorted, all above the limit: tests/test_graphs_sizes.py. Before GPU time: tests/test_plan.py.
"""

import pytest

from artifact.config import load
from artifact.errors import InputError
from artifact.graphs.explain import explain
from artifact.schema import Evidence
from artifact.study.plan import plan


def coverage(*overrides: str) -> dict[str, int]:
    found: dict[str, int] = explain(load(list(overrides)))["coverage"]
    return found


def test_graphs_of_a_short_list_under_few_seats() -> None:
    """[1, 2, 4, 8, 16] with eight seats: five PIECEWISE graphs and four FULL ones."""
    found = explain(load(["server.cudagraph_capture_sizes=[1,2,4,8,16]", "server.max_num_seqs=8"]))
    assert found["graphs"] == {"PIECEWISE": 5, "FULL": 4}
    assert found["coverage"] == {
        "decode_sequences": 8, "decode_sequences_schedulable": 8,
        "mixed_tokens": 16, "mixed_tokens_schedulable": 8192,
    }  # fmt: skip


def test_coverage_reaches_to_the_largest_batch_that_can_be_scheduled() -> None:
    """The default list ends at 512 tokens; steps up to max_num_batched_tokens are scheduled, and run without."""
    assert coverage() == {
        "decode_sequences": 256, "decode_sequences_schedulable": 256,
        "mixed_tokens": 512, "mixed_tokens_schedulable": 8192,
    }  # fmt: skip
    assert coverage("mode=full_decode_only")["mixed_tokens"] == 0
    assert coverage("mode=none")["decode_sequences"] == 0
    assert coverage("server.max_num_seqs=1024")["decode_sequences"] == 512


def test_speculative_coverage_is_in_sequences_after_rounding() -> None:
    """k = 6: sizes become multiples of 7 up to 35, so five sequences replay and the sixth does not."""
    listed = "server.cudagraph_capture_sizes=[1,2,4,8,16,24,32,40]"
    found = coverage("server.num_speculative_tokens=6", listed, "server.max_num_seqs=6")
    assert (found["decode_sequences"], found["decode_sequences_schedulable"]) == (5, 6)
    assert found["mixed_tokens"] == 35


@pytest.mark.parametrize("mode", ["full", "none", "eager"])
@pytest.mark.parametrize(
    ("sizes", "says"),
    [("[]", "at least one size"), ("[0,8]", "0 is not a size"), ("[8,-8]", "-8 is not a size"),
     ("[9000,10000]", "all are above server.max_num_batched_tokens=8192"), ("[1.5]", "1.5 is not a size"),
     ("['8']", "'8' is not a size"), ("[null]", "None is not a size"), ("[[8]]", r"\[8\] is not a size")],
)  # fmt: skip
def test_unusable_lists_never_reach_an_engine(mode: str, sizes: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        explain(load([f"mode={mode}", f"server.cudagraph_capture_sizes={sizes}"]))
    with pytest.raises(InputError, match=says):
        plan([f"server.cudagraph_capture_sizes={sizes}"], Evidence.SIMULATED)

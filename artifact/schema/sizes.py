"""What ``sizes`` is asked: what capturing may take, what is kept whatever the load, and how far the load may move."""

from typing import Annotated

from pydantic import AfterValidator, Field

from artifact.schema.terms import Count, Frozen, NonNegative, Positive


def _guard(entries: tuple[object, ...]) -> tuple[object, ...]:
    """Give MAX its case back; by hand, because a union of types would report one mistake once for each of them."""
    checked: list[object] = []
    for entry in entries:
        word = entry.upper() if isinstance(entry, str) else entry
        if word != "MAX" and (isinstance(word, bool) or not isinstance(word, int) or word < 1):
            raise ValueError(f"{entry!r} is no size: each is a whole number of tokens from 1 on, or MAX")
        checked.append(word)
    return tuple(checked)


class SizesConfig(Frozen):
    """conf/config.yaml, ``sizes``; the load is ``workload``, the mode ``mode``.

    A *graph* is a size and a kind: under FULL_AND_PIECEWISE a size up to q x max_num_seqs tokens is captured twice (a
    full graph for decode batches, a piecewise one for the others), a larger one once. ``explain`` counts alike.
    """

    max_graphs: Count | None
    max_graph_mib: NonNegative | None
    max_capture_s: NonNegative | None
    margin: Annotated[float, Field(ge=0, lt=1)]  # the fewest graphs within this share of the least step time
    largest: Count  # tokens of the largest size that is considered, beside the guard
    guard: Annotated[tuple[object, ...], AfterValidator(_guard)]  # tokens, or MAX = q x max_num_seqs
    load_factor: Positive  # of the load that the answer is held against
    other_trace: str | None  # a trace file that the answer is held against
    measured: str | None  # a results folder: its steps take the place of simulated ones
    requests: Count | None  # of a longer schedule, as many are served, in slices spread over it; null: all
    seeds: Count | None  # null: 8, or one where a schedule has more than 2,500 requests

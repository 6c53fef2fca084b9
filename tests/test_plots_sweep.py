"""The figures of the load sweeps: whole, with few blocks, with flagged cells, and with nothing to draw."""

from collections.abc import Callable
from io import BytesIO
from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure

from artifact.plots import FIGURES, load_latency, mode_map, stability
from artifact.plots.data import Data, NothingToDraw
from tests.sweep_support import MODEL, launches, made

FUNCTIONS: list[Callable[[Data], Figure]] = [
    load_latency.load_latency,
    load_latency.pareto,
    mode_map.mode_map,
    mode_map.regret,
    stability.dispatch,
    stability.realised_stability,
]


def data(rows: list[dict[str, Any]]) -> Data:
    cells = pd.DataFrame(rows).assign(padding_ratio=0.05, running_cv=0.3)
    cells = cells.astype({"flags": "string", "realised_mode": "string", "gpu_uuid": "string"})
    return Data(cells, launches(cells), (), f"measured, NVIDIA H200, {MODEL}, vLLM 0.21.0")


def words(figure: Figure) -> str:
    figure.savefig(BytesIO(), dpi=40)
    captions = [] if figure._supxlabel is None else [figure._supxlabel.get_text()]
    return "\n".join([text.get_text() for axes in figure.axes for text in axes.texts] + captions)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
@pytest.mark.parametrize("blocks", [1, 8])
def test_every_figure_is_drawn_and_says_what_it_shows(function: Callable[[Data], Figure], blocks: int) -> None:
    rows = [
        row for name in ("steady", "churn") for load in (0.35, 0.85) for row in made(blocks, workload=name, load=load)
    ]
    rows = [row | ({"flags": "client_bound"} if row["arm"] == "NONE" and row["block"] == "0" else {}) for row in rows]
    text = words(function(data(rows)))
    assert "measured, NVIDIA H200" in text
    assert f"{MODEL}-churn {blocks}/8" in text


def test_a_block_that_lacks_a_mode_is_not_counted() -> None:
    rows = [row for row in made(3) if (row["arm"], row["block"]) != ("NONE", "1")]
    assert f"{MODEL}-churn 2/8" in words(load_latency.load_latency(data(rows)))


def test_the_map_shows_best_mode_interval_and_verdict() -> None:
    text = words(mode_map.mode_map(data(made(8))))
    assert "FULL\n0.80 [0." in text
    assert "better, 8 of 8 blocks" in text
    few = words(mode_map.mode_map(data(made(2))))
    assert "[" not in few
    assert "inconclusive, 2 of 8 blocks" in few


def test_two_models_have_rows_of_their_own() -> None:
    both = made(3) + made(3, model="qwen3-8b", tile="qwen3-8b-churn")
    assert len(load_latency.load_latency(data(both)).axes) == 4
    assert "qwen3-8b-churn 3/5" in words(stability.realised_stability(data(both)))


@pytest.mark.parametrize(
    "function",
    [load_latency.load_latency, load_latency.pareto, mode_map.mode_map, stability.realised_stability],
    ids=lambda function: function.__name__,
)
def test_nothing_to_draw_is_said(function: Callable[[Data], Figure]) -> None:
    with pytest.raises(NothingToDraw, match="no cell at a load"):
        function(data(made(2, workload="closed_loop", load=None)))


def test_regret_needs_the_default() -> None:
    with pytest.raises(NothingToDraw, match="no block with the default"):
        mode_map.regret(data([row for row in made(2) if row["arm"] == "FULL"]))


def test_the_figures_are_registered() -> None:
    drawn = {function for _, function in FIGURES.values()}
    assert set(FUNCTIONS) <= drawn

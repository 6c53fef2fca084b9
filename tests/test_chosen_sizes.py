"""Made-up rows of study=sizes: what figure 18, the table, the claims and the guide make of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from matplotlib.text import Text

from artifact.analysis.claims import check, read_claims
from artifact.analysis.contrasts import chosen_sizes
from artifact.analysis.guide import fewer_sizes
from artifact.analysis.tables_markdown import render
from artifact.plots import FIGURES
from artifact.plots.data import NothingToDraw, load
from tests.launch_support import cell, launch, write

MIB = 2**20
BLOCK = 16 * 114_688
DATA = Path(__file__).parents[1] / "paper_figures" / "data"
LIST = "server.cudagraph_capture_sizes=[1,2,4,8]"
# What both arms take; of CHOSEN's latencies TPOT p99 alone is worse.
ARMS: dict[str, dict[str, Any]] = {
    "DEFAULT": {"graph_bytes": 400 * MIB, "capture_s": 4.0, "kv_available_bytes": 1000 * BLOCK, "capture_sizes": 51},
    "CHOSEN": {"graph_bytes": 100 * MIB, "capture_s": 1.0, "kv_available_bytes": 1010 * BLOCK, "capture_sizes": 10},
}
P99 = {"DEFAULT": 10.0, "CHOSEN": 12.0}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    def made(blocks: int, flags: str = "", **changes: Any) -> Path:
        """Write the blocks of one tile and return the folder of studies; ``flags`` are of CHOSEN in block 0."""
        root = tmp_path_factory.mktemp("made_up")
        launches, cells = [], []
        for block in range(blocks):
            pace = 1 + 0.1 * block
            for arm, takes in ARMS.items():
                mode = {"arm": arm, "study": "sizes", "tile": "qwen3-0.6b-churn", "block": str(block)}
                lists = [LIST] if arm == "CHOSEN" else []
                more = takes | changes.get(arm, {}) if block == 0 else takes
                started = launch(len(launches), "FULL_AND_PIECEWISE", lists, **mode, **more)
                p50 = 5 * pace * (1 + 0.001 * (-1) ** block * (arm == "CHOSEN"))
                tpot = {"tpot_p50_ms": p50, "tpot_p99_ms": P99[arm] * pace, "ttft_p50_ms": 20 * pace}
                flagged = flags if arm == "CHOSEN" and block == 0 else ""
                cells.append(
                    cell(
                        len(launches), started, load=0.6, flags=flagged, n_requests=400, output_tokens_per_s=1.0, **tpot
                    )
                )
                launches.append(started)
        write(root / "sizes", launches, cells, {})
        return root

    return made


def test_latencies_are_paired_and_judged_as_every_contrast_is(made: Callable[..., Path]) -> None:
    found = chosen_sizes.compare(chosen_sizes.folders(made(8)))
    verdicts = {each.metric: each.verdict for each in found.findings}
    assert verdicts == {"tpot_p50_ms": "equivalent", "tpot_p99_ms": "worse", "ttft_p50_ms": "equivalent"}
    assert next(each.ratio for each in found.findings if each.metric == "tpot_p99_ms") == pytest.approx(1.2)
    assert {each.what: each.saved for each in found.taken} == pytest.approx(
        {"graph_bytes": 0.75, "capture_s": 0.75, "tokens": 0.01}
    )
    assert {each.blocks for each in found.taken} == {8}


def test_a_flagged_cell_and_a_cold_start_s_tokens_are_left_out(made: Callable[..., Path]) -> None:
    root = made(4, flags="client_bound", CHOSEN={"compile_cache": "cold", "kv_available_bytes": 1})
    found = chosen_sizes.compare(chosen_sizes.folders(root))
    assert {each.blocks for each in found.findings} == {3}
    assert {each.what: each.blocks for each in found.taken} == {"graph_bytes": 4, "capture_s": 4, "tokens": 3}
    assert {each.what: each.saved for each in found.taken}["tokens"] == pytest.approx(0.01)


def test_a_launch_that_started_twice_counts_once(made: Callable[..., Path]) -> None:
    """With the mean of its starts."""
    root = made(2)
    starts = pd.read_parquet(root / "sizes" / "launches.parquet")
    again = starts[(starts["arm"] == "CHOSEN") & (starts["block"] == "0")].assign(launch_id="again", capture_s=3.0)
    pd.concat([starts, again]).to_parquet(root / "sizes" / "launches.parquet")
    [capture] = [each for each in chosen_sizes.compare([root / "sizes"]).taken if each.what == "capture_s"]
    assert (capture.blocks, capture.chosen) == (2, pytest.approx((2.0 + 1.0) / 2))


def test_the_table_holds_ratios_beside_what_is_saved(made: Callable[..., Path]) -> None:
    table = render("chosen-sizes", made(3))
    [row] = [line for line in table.splitlines() if "churn, load 0.6" in line]
    assert "1.20 [1.20, 1.20] worse (n = 3)" in row
    assert "400 to 100 MiB, 75.0 [75.0, 75.0] % less (n = 3)" in row
    assert "16,000 to 16,160, 1.0 [1.0, 1.0] % more (n = 3)" in row
    assert "10 capture sizes against 51" in table
    assert "exploratory: from 3 of 8 blocks on" in table


@pytest.mark.parametrize("blocks", [1, 8])
def test_the_figure_says_what_it_shows(made: Callable[..., Path], blocks: int) -> None:
    drawn = FIGURES["fig18_chosen_sizes"][1](load(made(blocks) / "sizes"))
    text = "\n".join(each.get_text() for each in drawn.findobj(Text))
    assert "measured, NVIDIA H200, qwen3-0.6b, vLLM 0.21.0; 10 capture sizes against 51" in text
    assert f"n = {2 * blocks} launches, {blocks} blocks a ratio; exploratory below 8" in text
    assert f"75 %: 400 to 100 MiB (n = {blocks})" in text
    assert ("1.20 [1.20, 1.20] (n = 8)" in text) == (blocks == 8)
    thin = DATA.parent / "fig18_chosen_sizes.py"
    assert 'draw("fig18_chosen_sizes"' in thin.read_text(encoding="utf-8")


def test_without_a_pair_there_is_nothing_to_draw(made: Callable[..., Path]) -> None:
    with pytest.raises(NothingToDraw, match="no block with both lists"):
        FIGURES["fig18_chosen_sizes"][1](load(made(1, flags="client_bound") / "sizes"))


@pytest.mark.parametrize(
    ("blocks", "verdicts"),
    [(8, "PASS PASS PASS FAIL"), (7, "PASS PASS NOT MEASURED NOT MEASURED"), (6, "NOT MEASURED " * 4)],
)
def test_the_claims_wait_for_their_blocks(made: Callable[..., Path], blocks: int, verdicts: str) -> None:
    claims = [claim for claim in read_claims() if claim.study == "sizes"]
    root = made(blocks)
    (root / "sizes" / "steps.parquet").write_bytes((DATA / "startup" / "steps.parquet").read_bytes())
    assert " ".join(each.verdict for each in check(claims, root)) == verdicts.strip()


def test_the_guide_s_recipe(made: Callable[..., Path]) -> None:
    shipped = "\n".join(fewer_sizes.text(fewer_sizes.gather(DATA)))
    assert "artifact sizes workload=churn workload.arrival.rate_per_s=50.5\n" in shipped
    assert '"cudagraph_capture_sizes": [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]' in shipped
    assert "| 8 | 240 | 78, 78.3% less | 1.2, " in shipped
    assert "6.00% at 0.05 of the GPU (measured, n = " in shipped
    both = "\n".join(fewer_sizes.text(fewer_sizes.gather(made(8))))
    assert "TPOT p99: worse at churn, load 0.6 (1.20)." in both
    assert "- qwen3-0.6b-churn, capture: 4.00 to 1.00 s, 75.0 [75.0, 75.0] % less (n = 8)" in both
    assert "`artifact run study=startup` makes its rows" in both

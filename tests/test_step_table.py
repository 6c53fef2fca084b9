"""Tables of step studies, from steps whose times are known."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifact.analysis.steps.effects import compile_vs_graph, graph_benefit, mixed_table
from artifact.analysis.steps.table import interval, probe_cost, step_table
from tests.step_support import PER_BATCH, StepStudy


@pytest.fixture
def study(tmp_path: Path) -> StepStudy:
    return StepStudy(tmp_path / "step_latency")


def only(table: pd.DataFrame, **where: object) -> pd.Series:
    for name, value in where.items():
        table = table[table[name] == value]
    assert len(table) == 1, table
    return table.iloc[0]


def test_a_step_takes_what_lies_between_two_of_its_batch(study: StepStudy) -> None:
    study.launch("FULL", light={1: 2.0, 8: 4.0}, mode="FULL")
    table = step_table(*study.frames())
    assert table["batch"].tolist() == [1, 8]  # a prefill of 8192 tokens a step is no batch
    assert table["wall_ms"].tolist() == pytest.approx([2.0, 4.0], rel=1e-6)
    assert table["n_steps"].tolist() == [PER_BATCH - 2] * 2
    assert table["runtime_mode"].tolist() == ["FULL", "FULL"]
    assert table["padding"].tolist() == [0, 0]
    assert table["reason"].tolist() == ["one launch: no interval"] * 2


def test_launches_are_what_is_counted(study: StepStudy) -> None:
    for block, wall in enumerate((1.0, 2.0, 4.0)):
        study.launch("NONE", str(block), light={1: wall})
    row = only(step_table(*study.frames()))
    assert row["n_launches"] == 3
    assert row["wall_ms"] == pytest.approx(2.0)  # geometric
    # t(0.975, 2) = 4.3027, the logarithms' standard deviation is ln 2
    assert np.log(row["wall_high_ms"] / 2.0) == pytest.approx(4.3027 * np.log(2) / np.sqrt(3), rel=1e-4)
    assert row["wall_low_ms"] * row["wall_high_ms"] == pytest.approx(4.0)
    assert row["reason"] is None


def test_one_launch_has_no_interval(study: StepStudy) -> None:
    study.launch("NONE", light={1: 2.0})
    row = only(step_table(*study.frames()))
    assert (row["n_launches"], row["wall_ms"]) == (1, pytest.approx(2.0))
    assert np.isnan([row["wall_low_ms"], row["wall_high_ms"], row["gpu_ms"]]).all()
    assert row["reason"] == "one launch: no interval"


def test_the_heavy_probe_gives_gpu_time_and_no_wall_time(study: StepStudy) -> None:
    study.launch("FULL", light={1: 2.0}, heavy={1: 50.0, 4: 50.0}, mode="FULL", gpu_ms=1.3)
    study.launch("PIECEWISE", light={1: 5.0}, heavy={1: 50.0}, mode="PIECEWISE", gpu_ms=1.3)
    table = step_table(*study.frames())
    full = only(table, arm="FULL", batch=1)
    assert (full["wall_ms"], full["gpu_ms"]) == pytest.approx((2.0, 1.3))
    assert np.isnan(only(table, arm="PIECEWISE")["gpu_ms"])  # no whole graph: the events span launch gaps
    unseen = only(table, arm="FULL", batch=4)
    assert np.isnan(unseen["wall_ms"])
    assert "heavy probe" in unseen["reason"]


def test_a_probed_cell_that_cannot_be_told_from_one_without_takes_both_out(study: StepStudy) -> None:
    study.launch("FULL", light={1: 2.0}, heavy={1: 50.0}, flags="", mode="FULL")
    study.launch("FULL", "1", light={1: 3.0}, heavy={1: 50.0}, mode="FULL")
    row = only(step_table(*study.frames()))
    assert (row["n_launches"], row["wall_ms"]) == (1, pytest.approx(3.0))


def test_cells_that_did_not_end_well_count_for_nothing(study: StepStudy) -> None:
    study.launch("FULL", light={1: 2.0})
    cells, steps, launches = study.frames()
    assert step_table(cells.assign(status="timeout"), steps, launches).empty
    assert compile_vs_graph(cells.assign(status="timeout"), steps).empty


@given(st.lists(st.floats(0.1, 100), min_size=2, max_size=8), st.floats(0.1, 10))
def test_an_interval_holds_its_mean_and_scales(values: list[float], factor: float) -> None:
    found, scaled = interval(values), interval([factor * value for value in values])
    assert found.low <= found.mean * (1 + 1e-9)
    assert found.mean <= found.high * (1 + 1e-9)
    assert min(values) * (1 - 1e-9) <= found.mean <= max(values) * (1 + 1e-9)
    assert scaled == pytest.approx((factor * found.mean, factor * found.low, factor * found.high, found.n), rel=1e-6)


def test_tiles_of_one_model_stay_apart(study: StepStudy) -> None:
    for arm, wall in (("NONE", 10.0), ("FULL", 2.0)):
        study.launch(arm, light={1: wall}, heavy={1: 3 * wall}, mode="FULL" if arm == "FULL" else None)
        own = {"tile": "mpk", "workload": "mpk_grid", "graph_bytes": 2**20}
        study.launch(arm, light={1: 7 * wall if arm == "FULL" else wall}, mode="FULL" if arm == "FULL" else None, **own)
    cells, steps, launches = study.frames()
    table = step_table(cells, steps, launches)
    full = {tile: only(table, tile=tile, arm="FULL") for tile in ("qwen3-0.6b", "mpk")}
    assert [full[tile]["wall_ms"] for tile in full] == pytest.approx([2.0, 14.0])
    assert [full[tile]["n_launches"] for tile in full] == [1, 1]
    # 64 + 1024 / 2 tokens a request against 64 + 33 / 2
    assert full["mpk"]["floor_ms"] > full["qwen3-0.6b"]["floor_ms"]
    both = compile_vs_graph(cells, steps).set_index("tile")
    assert both["speedup"].to_dict() == {"qwen3-0.6b": pytest.approx(5.0), "mpk": pytest.approx(10 / 14)}
    assert both["reason"].tolist() == ["one block: no interval"] * 2
    assert set(probe_cost(cells, steps)["tile"]) == {"qwen3-0.6b"}
    benefit = graph_benefit(cells, steps, launches).set_index("tile")
    assert (benefit["graphs"] * benefit["bytes_per_graph"]).to_dict() == pytest.approx(
        {"qwen3-0.6b": 51 * 2**20, "mpk": 2**20}
    )


def test_what_the_probe_costs_is_paired_by_launch_and_batch(study: StepStudy) -> None:
    for block, pace in enumerate((1.0, 3.0)):  # the host's pace cancels
        light = {1: 2 * pace, 8: 4 * pace, 16: 4 * pace}
        study.launch("FULL", str(block), light=light, heavy={1: 2.5 * pace, 8: 5 * pace}, mode="FULL")
    study.launch("NONE", light={1: 2.0})
    cells, steps, _ = study.frames()
    row = only(probe_cost(cells, steps))
    assert (row["arm"], row["n_launches"], row["n_batches"], row["reason"]) == ("FULL", 2, 2, None)
    assert (row["ratio"], row["low"], row["high"]) == pytest.approx((1.25, 1.25, 1.25))


def test_compilation_and_graphs_are_two_effects(study: StepStudy) -> None:
    for block, pace in enumerate((1.0, 1.5, 2.0)):
        for arm, wall in (("EAGER", 20.0), ("NONE", 10.0), ("PIECEWISE", 8.0), ("FULL", 2.0)):
            study.launch(arm, str(block), light={1: wall * pace})
    cells, steps, _ = study.frames()
    table = compile_vs_graph(cells, steps)
    assert {(row.effect, row.arm): round(row.speedup, 6) for row in table.itertuples()} == {
        ("compile", "NONE"): 2.0,
        ("graphs", "PIECEWISE"): 1.25,
        ("graphs", "FULL"): 5.0,
    }
    full = only(table, arm="FULL")
    assert (full["low"], full["high"], full["n_blocks"]) == (pytest.approx(5.0), pytest.approx(5.0), 3)
    assert full["saved_ms"] == pytest.approx(0.8 * 10.0 * 3.0 ** (1 / 3))  # of NONE's geometric mean


def test_blocks_pair_within_a_machine(study: StepStudy) -> None:
    study.launch("NONE", "0", "one", light={1: 10.0})
    study.launch("FULL", "0", "one", light={1: 5.0})
    study.launch("NONE", "0", "two", light={1: 100.0})
    study.launch("FULL", "1", "one", light={1: 0.1})
    cells, steps, _ = study.frames()
    row = only(compile_vs_graph(cells, steps))
    assert (row["speedup"], row["n_blocks"]) == (pytest.approx(2.0), 1)
    assert np.isnan(row["low"])


def test_a_start_that_was_repeated_is_no_block_of_its_own(study: StepStudy) -> None:
    study.launch("NONE", light={1: 10.0})
    for wall in (4.0, 9.0):
        study.launch("FULL", light={1: wall})
    cells, steps, _ = study.frames()
    row = only(compile_vs_graph(cells, steps))
    assert (row["speedup"], row["n_blocks"]) == (pytest.approx(10 / 6), 1)


@pytest.fixture(scope="module")
def benefits(tmp_path_factory: pytest.TempPathFactory) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    study = StepStudy(tmp_path_factory.mktemp("results") / "step_latency")
    both = {"keys_piecewise": 51, "captures": 1530}
    for block, pace in enumerate((1.0, 1.1, 1.2)):
        at = {"block": str(block), "heavy": {1: 9.0}}
        mixed = {100: 10 * pace, 200: 10 * pace, 700: 12 * pace}
        study.launch("NONE", light={1: 10 * pace, 8: 10 * pace}, mixed=mixed, captures=0, graph_bytes=0, **at)
        mixed = {100: 5 * pace, 200: 20 * pace, 700: 12 * pace}
        light = {1: 5 * pace, 8: 11 * pace}
        study.launch("FULL", light=light, mixed=mixed, mode="FULL", padded=4, gpu_ms=1.2, **at)
        study.launch("FULL_AND_PIECEWISE", light={1: (5 + 30 * block) * pace}, mode="FULL", **at, **both)
    return study.frames()


def test_each_size_helps_hurts_or_is_unclear(benefits: tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]) -> None:
    table = graph_benefit(*benefits)
    full = table[table["arm"] == "FULL"].set_index(["steps", "size"])
    assert full["verdict"].to_dict() == {
        ("decode", 1.0): "helps",
        ("decode", 8.0): "hurts",
        ("mixed", 192.0): "helps",
        ("mixed", 384.0): "hurts",
    }  # and none above the largest captured size
    assert full.loc[("decode", 8.0), "saved_ms"] < 0
    assert full["kind"].unique().tolist() == ["FULL"]
    assert full["gpu_ms"].tolist() == pytest.approx([1.2, np.nan, 1.5, 1.5], nan_ok=True)
    assert full.loc[("mixed", 192.0), "padding"] == pytest.approx(0.04)
    assert only(table, arm="FULL_AND_PIECEWISE")["verdict"] == "unclear"
    assert table["input_copy_ms"].isna().all()
    assert table["input_copy_reason"].str.len().min() > 0


def test_memory_is_told_per_graph_and_per_size_where_it_can_be(
    benefits: tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame],
) -> None:
    table = graph_benefit(*benefits)
    full, both = (table[table["arm"] == arm].iloc[0] for arm in ("FULL", "FULL_AND_PIECEWISE"))
    assert (full["graphs"], full["bytes_per_graph"], full["bytes_per_size"]) == (51, 2**20, 2**20)
    assert (both["graphs"], both["bytes_per_graph"]) == (1530, pytest.approx(51 * 2**20 / 1530))
    assert np.isnan(both["bytes_per_size"])  # of two kinds of graph together
    cells, steps, launches = benefits
    unknown = graph_benefit(cells, steps, launches.assign(memory_valid=False))
    assert unknown["bytes_per_graph"].isna().all()


def test_mixed_steps_lie_in_bins(benefits: tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]) -> None:
    cells, steps, _ = benefits
    table = mixed_table(cells, steps)
    full = table[table["arm"] == "FULL"].set_index("size")
    assert full.index.tolist() == [192.0, 384.0, np.inf]
    assert full["period_ms"].to_numpy() == pytest.approx(np.array([5, 20, 12]) * (1.1 * 1.2) ** (1 / 3))
    assert full["runtime_mode"].tolist() == ["FULL", "FULL", "NONE"]
    assert full["n_launches"].tolist() == [3, 3, 3]
    assert np.isnan(full.loc[np.inf, "gpu_ms"])
    assert set(table["arm"]) == {"NONE", "FULL"}


def test_a_mixed_step_takes_what_the_gpu_takes_where_that_is_more(study: StepStudy) -> None:
    study.launch("FULL", mixed={100: 1.2, 200: 9.0}, mode="FULL")  # 1.5 ms on the GPU
    cells, steps, _ = study.frames()
    table = mixed_table(cells, steps).set_index("size")
    assert table["period_ms"].to_dict() == {192.0: pytest.approx(1.5), 384.0: pytest.approx(9.0)}
    assert table["n_steps"].tolist() == [3, 4]  # the first of all follows nothing
    behind = steps.assign(prefill_tokens=steps["prefill_tokens"].where(steps["prefill_tokens"] > 0, 1))
    assert mixed_table(cells, behind).empty  # behind a prefill, the host waits for that one


def test_nothing_measured_is_an_empty_table(study: StepStudy) -> None:
    study.launch("FULL", mixed={100: 2.0}, mode="FULL")
    cells, steps, launches = study.frames()
    for table in (step_table(cells, steps, launches), probe_cost(cells, steps), compile_vs_graph(cells, steps)):
        assert table.empty
        assert "arm" in table
    assert graph_benefit(cells, steps, launches).empty

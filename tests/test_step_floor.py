"""The floor that memory sets under a decode step, and the bandwidth that it rests on."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from artifact.analysis.claims import Claim, check
from artifact.analysis.steps.floor import copies, copies_below, floor_ms
from artifact.analysis.steps.table import step_table
from artifact.config import load
from artifact.study.store import read_launches
from tests.step_support import WEIGHTS, StepStudy


@pytest.fixture
def study(tmp_path: Path) -> StepStudy:
    return StepStudy(tmp_path / "step_latency")


def of(table: pd.DataFrame, arm: str) -> pd.Series:
    [row] = [row for _, row in table[table["arm"] == arm].iterrows()]
    return row


def test_the_floor_is_bytes_over_bandwidth(study: StepStudy) -> None:
    study.launch("NONE", light={1: 2.0, 16: 2.0})
    table = step_table(*study.frames())
    context = 64 + 33 / 2  # of step_grid
    kv_bytes = 2 * 28 * 8 * 128 * 2 * context
    expected = [(WEIGHTS["qwen3-0.6b"] + batch * kv_bytes) / 4.8e12 * 1e3 for batch in (1, 16)]
    assert table["floor_ms"].tolist() == pytest.approx(expected)


def test_an_embedding_of_its_own_is_not_read() -> None:
    tied, untied, experts = (load([f"model={name}"]).model for name in ("qwen3-0.6b", "qwen3-8b", "qwen3-30b-a3b"))
    assert floor_ms(tied, 4.8e9, 0, 4.8e12) == pytest.approx(1.0)
    assert floor_ms(untied, 4.8e9, 0, 4.8e12) == pytest.approx(1 - 151936 * 4096 * 2 / 4.8e9)
    assert np.isnan(floor_ms(experts, 4.8e9, 0, 4.8e12))


@pytest.mark.parametrize("facts", [{"gpu_name": "another"}, {"gpu_name": None}, {"weights_bytes": None}])
def test_a_floor_that_is_not_known_is_null(facts: dict[str, object], study: StepStudy) -> None:
    study.launch("NONE", light={1: 2.0}, **facts)
    table = step_table(*study.frames())
    assert table[["floor_ms", "floor_bandwidth"]].isna().all(axis=None)


def test_the_floor_takes_the_median_copy_of_the_gpu(tmp_path: Path) -> None:
    study = StepStudy(tmp_path / "step_latency", "measured")
    for block, rate in enumerate((4.0e12, 4.3e12, 4.2e12, None)):
        study.launch("NONE", str(block), light={1: 2.0}, copy_bytes_per_s=rate)
    study.launch("FULL", light={1: 2.0}, gpu_name="another")
    cells, steps, launches = study.frames()
    table = step_table(cells, steps, launches)
    none = of(table, "NONE")
    of_sheet = of(step_table(cells, steps, launches, {}), "NONE")
    assert none["floor_ms"] * 4.2 == pytest.approx(of_sheet["floor_ms"] * 4.8)
    assert none["floor_bandwidth"] == "NVIDIA H200's measured copy bandwidth 4.2 TB/s (data sheet 4.8 TB/s)"
    assert of_sheet["floor_bandwidth"] == "NVIDIA H200's data sheet bandwidth 4.8 TB/s (no launch timed a copy)"
    assert np.isnan(of(table, "FULL")["floor_ms"])
    undescribed = of(step_table(cells, steps, launches, {"another": 2.4e12}), "FULL")
    assert undescribed["floor_ms"] == pytest.approx(2 * of_sheet["floor_ms"])
    assert undescribed["floor_bandwidth"] == "another's measured copy bandwidth 2.4 TB/s (data sheet not known)"


def test_copies_of_every_study_count_and_simulated_ones_do_not(tmp_path: Path) -> None:
    for name, evidence, rate in (("a", "measured", 4e12), ("b", "measured", 4.2e12), ("c", "simulated", 9e12)):
        study = StepStudy(tmp_path / name, evidence)
        study.launch("NONE", light={1: 2.0}, copy_bytes_per_s=rate)
        study.frames()
    assert copies_below(tmp_path) == {"NVIDIA H200": pytest.approx(4.1e12)}
    assert copies_below(tmp_path / "nothing") == {}


def test_rows_from_before_copies_were_timed_have_none(study: StepStudy) -> None:
    study.launch("NONE", light={1: 2.0})
    study.frames()
    file = study.folder / "launches.parquet"
    pq.write_table(pq.read_table(file).drop_columns(["copy_bytes_per_s"]), file)
    launches = read_launches(study.folder)
    assert launches["copy_bytes_per_s"].dtype == "float64"
    assert copies(launches) == {}


def test_a_claim_has_the_same_floor_as_the_figure(tmp_path: Path) -> None:
    for name, rate in (("step_latency", None), ("another", 2.4e12)):
        study = StepStudy(tmp_path / name, "measured")
        study.launch("NONE", light={1: 2.0}, copy_bytes_per_s=rate)
        frames = study.frames()
    twice = 2 * step_table(*frames, {})["floor_ms"].iloc[0]
    left = {"table": "step_table", "where": {"batch": 1}, "column": "floor_ms", "reduce": "max"}
    claim = {"id": "c", "statement": "s", "study": "step_latency", "left": left, "is": "equal", "right": twice}
    [checked] = check([Claim.model_validate(claim | {"tolerance": 1e-9, "figure": None})], tmp_path)
    assert checked.verdict == "PASS", checked

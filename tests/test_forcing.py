"""Teacher forcing: the processor's logic, what comes back as scores, and both through the engine on the stand-in."""

import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from fake_support import fake_vllm
from hypothesis import given
from hypothesis import strategies as st
from sim_support import calibration_file, launch, synthetic_calibration

from artifact.config import load
from artifact.engines.forcing import PROCESSOR, force, scores
from artifact.engines.sim_engine import SimEngine
from artifact.engines.vllm_arguments import engine_arguments
from artifact.engines.vllm_engine import VllmEngine
from artifact.records import SCORE_COLUMNS
from artifact.workloads.build import build, forced_ids

SMALL = (
    "workload=teacher_forced",
    "workload.requests=5",
    "workload.arrival.batches=[1,2,5]",
    "workload.output.mean=4",
    "workload.arrival.gap_ms=0.1",
    "model=qwen3-4-layers",
    "model.architecture.num_hidden_layers=1",
    "model.architecture.hidden_size=8",
    "model.architecture.intermediate_size=8",
    "model.architecture.vocab_size=500",
)


class Row(list[float]):
    def fill_(self, value: float) -> None:
        self[:] = [value] * len(self)


@given(
    logits=st.lists(st.floats(-50, 50), min_size=4, max_size=9),
    forced=st.lists(st.integers(0, 3), max_size=5),
    done=st.integers(0, 6),
)
def test_the_forced_token_is_the_only_one_left(logits: list[float], forced: list[int], done: int) -> None:
    row = Row(logits)
    answered = force(forced, [-1] * done, row)  # placeholders: async scheduling knows the number, not yet the tokens
    assert answered is row
    if done < len(forced):
        assert max(range(len(row)), key=row.__getitem__) == forced[done]
        assert sum(value > -math.inf for value in row) == 1
    else:
        assert row == logits


def test_scores_tell_the_forced_token_from_the_top_one() -> None:
    one, two = SimpleNamespace(logprob=-3.0), SimpleNamespace(logprob=-0.5)
    rows = scores([9, 7, 8], 1, [7, 8], [{7: one, 4: two}, {8: two}])
    assert [list(row.values()) for row in rows] == [[1, 7, -3.0, 4, -0.5], [2, 8, -0.5, 8, -0.5]]
    with pytest.raises(ValueError, match="token 5 at position 1, forced 7"):
        scores([9, 7, 8], 1, [5], [{5: one}])


def test_only_launches_that_score_load_the_processor() -> None:
    config = load(["model=qwen3-4-layers"])
    assert engine_arguments(config, forcing=True)["logits_processors"] == [PROCESSOR]
    plain = engine_arguments(config)
    assert "logits_processors" not in plain
    assert plain["load_format"] == "safetensors"
    assert engine_arguments(load([]))["load_format"] == "dummy"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmEngine]:
    with fake_vllm(tmp_path_factory.mktemp("cache")):
        made = VllmEngine()
        made.start(launch(None, "engine=vllm", "engine.pin_cores=false", *SMALL))
        yield made
        made.close()


def test_every_token_of_every_sequence_is_scored_at_every_batch_shape(engine: VllmEngine) -> None:
    config = load(list(SMALL))
    schedule = build(config.workload, 3)
    measured = engine.measure(schedule, 60.0)
    assert measured.requests["failure"].isna().all()
    found = measured.scores
    assert found is not None
    assert {name: str(dtype) for name, dtype in found.dtypes.items()} == SCORE_COLUMNS
    assert found.groupby(["batch_shape", "sequence"]).size().to_dict() == {
        (shape, sequence): 4 for shape in (1, 2, 5) for sequence in range(5)
    }
    for sequence, rows in found[found["batch_shape"] == 2].groupby("sequence"):
        assert rows["token"].tolist() == forced_ids(schedule, int(str(sequence)), 500)
        assert rows["position"].tolist() == [0, 1, 2, 3]
    forced, top = found["logprob"], found["top_logprob"]
    assert (top > forced).where(found["top_token"] != found["token"], top == forced).all()
    at = [found[found["batch_shape"] == shape].drop(columns="batch_shape").reset_index(drop=True) for shape in (1, 5)]
    pd.testing.assert_frame_equal(*at)


def test_the_simulator_serves_such_a_cell_and_scores_nothing(tmp_path: Path) -> None:
    simulated = SimEngine()
    simulated.start(launch(calibration_file(tmp_path, synthetic_calibration())))
    measured = simulated.measure(build(load(list(SMALL)).workload, 3), 60.0)
    assert measured.scores is None
    assert measured.requests["output_tokens"].tolist() == [4] * 15


def test_other_workloads_of_such_a_launch_are_free_and_not_scored(engine: VllmEngine) -> None:
    free = build(load(["workload=churn", "workload.duration_s=0.5", "workload.warmup_s=0", "workload.cooldown_s=0"])
                 .workload, 3)  # fmt: skip
    measured = engine.measure(free, 60.0)
    assert measured.scores is None
    assert measured.requests["failure"].isna().all()


def test_a_token_that_slips_through_fails_its_request(engine: VllmEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine._engine.engine_core, "processors", [])
    measured = engine.measure(build(load(list(SMALL)).workload, 3), 60.0)
    assert measured.requests["failure"].str.contains("at position 0, forced").all()
    assert measured.scores is not None
    assert measured.scores.empty


def test_the_checkpoint_is_there_before_the_engine(engine: VllmEngine) -> None:
    folder = Path(engine._engine.vllm_config.given.model)
    assert sorted(file.name for file in folder.iterdir()) == ["config.json", "model.safetensors"]

"""Prices, what stands in for what, ranges, and reading calibrations."""

from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError
from sim_support import calibration_file, synthetic_calibration

from artifact.config import load
from artifact.errors import EnvironmentLacks, InputError
from artifact.schema import Mode
from artifact.simulator.clock import Price
from artifact.simulator.cost import Calibration, CostModel, HostPace, StepTable, load_calibration, table_name
from artifact.simulator.scheduler import Batch


def batch(tokens: int, requests: int, prefill: int = 0, context: int = 0) -> Batch:
    decode = tokens - prefill
    return Batch(0, tokens, requests, decode, prefill, context, 0, (), ())


def model(calibration: Calibration, mode: Mode = Mode.FULL, **more: object) -> CostModel:
    given = {"hollow": False, "max_tokens": 8192, "seed": 1, "launch_id": "a", **more}
    return CostModel(calibration, mode, **given)  # type: ignore[arg-type]


def priced(costs: CostModel, now_s: float, step: Batch, runtime_mode: str, padded_tokens: int) -> Price:
    return costs.pricing(step, runtime_mode, padded_tokens)(now_s, step)


def with_table(calibration: Calibration, **changes: object) -> Calibration:
    tables = {name: table.model_copy(update=changes) for name, table in calibration.tables.items()}
    loop = calibration.loop.model_copy(update={"loop_per_request_ms": 0.5, "tail_fixed_ms": 0.25})
    return calibration.model_copy(update={"tables": tables, "loop": loop})


def test_price_is_the_formula() -> None:
    calibration = with_table(
        synthetic_calibration(),
        gpu_per_request_ms=0.05,
        context_ms_per_token=0.001,
        square_ms_per_token2=0.0001,
        launch_per_request_ms=0.1,
        launch_prefill_ms=2.0,
    )
    price = priced(model(calibration), 0.0, batch(64, 6, prefill=60, context=500), "FULL", 72)
    assert price.launch_s == pytest.approx((1 + 0.1 * 6 + 2.0) / 1e3)
    assert price.gpu_s == pytest.approx((2 + 0.72 + 0.05 * 6 + 0.5 + 0.0001 * 60 * 60 / 2) / 1e3)
    assert (price.loop_s, price.tail_s) == pytest.approx((0.003, 0.00025))
    assert price.whole_graph


@pytest.mark.parametrize(
    ("mode", "runtime", "hollow", "expected"),
    [
        (Mode.EAGER, "NONE", False, "EAGER"),
        (Mode.NONE, "NONE", False, "NONE"),
        (Mode.FULL, "FULL", False, "FULL"),
        (Mode.FULL, "NONE", False, "NONE"),
        (Mode.FULL_DECODE_ONLY, "FULL", False, "FULL_DECODE"),
        (Mode.FULL_AND_PIECEWISE, "FULL", True, "FULL_DECODE"),
        (Mode.FULL_AND_PIECEWISE, "PIECEWISE", False, "PIECEWISE"),
        (Mode.FULL_AND_PIECEWISE, "PIECEWISE", True, "NONE"),
    ],
)
def test_table_of_a_step(mode: Mode, runtime: str, hollow: bool, expected: str) -> None:
    assert table_name(mode, runtime, hollow=hollow) == expected


def test_full_graphs_stand_in_for_each_other_and_nothing_else_does() -> None:
    calibration = synthetic_calibration(launch_ms={"FULL_DECODE": 1.0, "NONE": 10.0})
    assert priced(model(calibration), 0.0, batch(4, 4), "FULL", 4).launch_s == pytest.approx(0.001)
    with pytest.raises(EnvironmentLacks, match=r"holds no PIECEWISE steps \(only FULL_DECODE, NONE\)"):
        priced(model(calibration, Mode.PIECEWISE), 0.0, batch(4, 4), "PIECEWISE", 4)


def test_beyond_the_knots_the_last_slope_goes_on_and_is_counted() -> None:
    table = synthetic_calibration().tables["NONE"].model_copy(update={"knots_tokens": (10, 20), "base_ms": (1.0, 2.0)})
    assert table.base(np.array([1, 10, 15, 20, 40])).tolist() == pytest.approx([1, 1, 1.5, 2, 4])
    calibration = with_table(synthetic_calibration(), knots_tokens=(10, 20), base_ms=(1.0, 2.0), max_requests=3)
    costs = model(calibration, Mode.NONE)
    priced(costs, 0.0, batch(40, 2, prefill=39), "NONE", 40)
    priced(costs, 0.0, batch(4, 4), "NONE", 4)
    priced(costs, 0.0, batch(3, 3), "NONE", 3)
    assert costs.outside == {
        "more than 20 tokens in a NONE step": 1,
        "more than 3 requests in a NONE step": 1,
    }


def test_noise_is_lognormal_with_median_one_and_fixed_by_seed_and_launch() -> None:
    calibration = synthetic_calibration(noise_sigma=0.1)

    def drawn(**more: object) -> np.ndarray:
        costs = model(calibration, **more)
        return np.array([priced(costs, 0.0, batch(1, 1), "FULL", 1).launch_s for _ in range(20_000)]) * 1e3

    logs = np.log(drawn())
    assert np.median(logs) == pytest.approx(0, abs=0.01)
    assert logs.std() == pytest.approx(0.1, rel=0.05)
    assert (drawn() == drawn()).all()
    assert (drawn() != drawn(seed=2)).all()
    assert (drawn() != drawn(launch_id="b")).all()


def test_a_slow_host_slows_host_times_alone_and_each_table_in_its_measure() -> None:
    calibration = with_table(synthetic_calibration(), slow_pace=1.4)
    slow_none = calibration.tables["NONE"].model_copy(update={"slow_pace": 2.0})
    calibration = calibration.model_copy(
        update={
            "tables": {**calibration.tables, "NONE": slow_none},
            "host_pace": HostPace(slowness=(0.5,), dwell_s=1.0),
        }
    )
    graph = priced(model(calibration), 0.0, batch(4, 4), "FULL", 4)
    eager = priced(model(calibration), 0.0, batch(4, 4), "NONE", 4)
    quiet = priced(model(with_table(synthetic_calibration())), 0.0, batch(4, 4), "FULL", 4)
    assert graph.launch_s == pytest.approx(0.001 * 1.2)
    assert graph.loop_s == pytest.approx(0.002 * 1.2)
    assert eager.launch_s == pytest.approx(0.010 * 1.5)
    assert (graph.gpu_s, graph.tail_s) == (quiet.gpu_s, quiet.tail_s)


def test_slowness_holds_for_its_dwell_and_takes_its_values_equally_often() -> None:
    calibration = with_table(synthetic_calibration(), slow_pace=2.0)
    calibration = calibration.model_copy(update={"host_pace": HostPace(slowness=(0.0, 1.0), dwell_s=2.0)})
    costs = model(calibration)
    times = np.arange(0, 4000, 0.1)
    paces = np.array([priced(costs, now, batch(1, 1), "FULL", 1).launch_s for now in times]) * 1e3
    assert set(paces.round(6)) == {1.0, 2.0}
    assert paces.mean() == pytest.approx(1.5, abs=0.06)
    changes = (np.diff(paces) != 0).sum()  # half of the draws repeat the value
    assert 4000 / changes == pytest.approx(2 * 2.0, rel=0.15)


def test_a_recorded_pace_is_taken_in_order_and_its_last_value_for_good() -> None:
    pace = HostPace(slowness=(0.0, 1.0, -0.2, -5.0), dwell_s=0.5, recorded=True)
    costs = model(with_table(synthetic_calibration(), slow_pace=2.0).model_copy(update={"host_pace": pace}))
    launches = [priced(costs, now, batch(1, 1), "FULL", 1).launch_s * 1e3 for now in (0.0, 0.49, 0.5, 1.0, 1.6, 9.0)]
    assert launches == pytest.approx([1.0, 1.0, 2.0, 0.8, 0.5, 0.5])  # never less than half of a quiet host's


def test_calibration_survives_its_file(tmp_path: Path) -> None:
    config = load()
    calibration = synthetic_calibration(noise_sigma=0.05)
    file = calibration_file(tmp_path, calibration)
    assert load_calibration(str(file), config.hardware, config.model.name) == calibration


def test_unusable_calibrations_end_in_one_line(tmp_path: Path) -> None:
    config = load()
    file = calibration_file(tmp_path, synthetic_calibration())
    with pytest.raises(InputError, match="no such file"):
        load_calibration(str(tmp_path / "none.json"), config.hardware, config.model.name)
    with pytest.raises(InputError, match=r"is for h200 with qwen3-0\.6b, not h200 with qwen3-4b"):
        load_calibration(str(file), config.hardware, "qwen3-4b")
    file.write_text(file.read_text().replace('"backend":"FLASH_ATTN",', ""))
    with pytest.raises(InputError, match=r"synthetic\.json: backend: Field required"):
        load_calibration(str(file), config.hardware, config.model.name)
    file.write_text("{")
    with pytest.raises(InputError, match="Invalid JSON"):
        load_calibration(str(file), config.hardware, config.model.name)
    with pytest.raises(EnvironmentLacks, match=r"no calibration for l4 with qwen3-0\.6b"):
        load_calibration(None, load(["hardware=l4"]).hardware, "qwen3-0.6b")


def test_tables_that_fall_are_refused() -> None:
    values = synthetic_calibration().tables["NONE"].model_dump()
    with pytest.raises(ValidationError, match="must not fall"):
        StepTable.model_validate({**values, "base_ms": (2.0, 1.0)})

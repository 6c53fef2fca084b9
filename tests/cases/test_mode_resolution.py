"""Kind: the mode that was asked for is taken for the one that ran.

FULL refused by one version and downgraded by another: tests/test_graphs_modes.py (rules), tests/test_isolate.py (the
refusal in the log). No splitting, hollow modes: tests/test_graphs_modes.py.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from artifact.engines.sim_engine import SimEngine
from artifact.errors import CellFailed
from artifact.metrics import stability
from artifact.records import STEP_COLUMNS, Launch, LaunchFacts, Measurement, Schedule, typed
from artifact.schema import Evidence, Mode
from artifact.study.plan import Plan, plan
from artifact.study.run import run
from artifact.study.store import Store, read_cells, read_launches


class Collapsing(SimEngine):
    """An engine that turns every mode with full graphs into PIECEWISE, as vLLM does for a pooling model."""

    def __init__(self, measured: list[str], hollow: bool = False) -> None:
        super().__init__()
        self._measured, self._suffix, self._arm = measured, ":hollow" if hollow else "", ""

    def start(self, launch: Launch) -> LaunchFacts:
        facts = super().start(launch)
        self._arm = launch.arm
        if launch.config.mode.name.value.startswith("FULL"):
            facts = facts.model_copy(
                update={"resolved_mode": Mode.PIECEWISE, "realised_mode": f"PIECEWISE{self._suffix}"}
            )
        return facts

    def measure(self, schedule: Schedule, limit_s: float, heavy_probe: bool = False) -> Measurement:
        self._measured.append(self._arm)
        return super().measure(schedule, limit_s, heavy_probe)


@pytest.fixture(scope="module")
def planned() -> Plan:
    return plan(["workload.duration_s=4", "tracking=off"], Evidence.SIMULATED)


def test_arms_that_vllm_collapses_are_not_measured_twice(planned: Plan, tmp_path: Path) -> None:
    """Whatever made them collapse: it is seen at the start, and no GPU time goes to the copies."""
    measured: list[str] = []
    summary = run(planned, Store(tmp_path), lambda log: Collapsing(measured))
    assert set(measured) == {"EAGER", "NONE", "PIECEWISE", "FULL@FLASHINFER"}  # another backend is no copy
    assert summary["cells"]["duplicate"] == 6
    copies = read_cells(tmp_path).query("status == 'duplicate'")
    assert set(copies["arm"]) == {"FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"}
    assert set(copies["reason"]) == {"realised PIECEWISE, as arm PIECEWISE: not run again"}
    assert copies["tpot_p50_ms"].isna().all()
    # the three modes stay apart
    starts = read_launches(tmp_path).set_index("arm").loc["FULL"]
    assert (starts["requested_mode"], starts["resolved_mode"], starts["status"]) == ("FULL", "PIECEWISE", "duplicate")
    assert run(planned, Store(tmp_path), lambda log: Collapsing(measured))["ran"] == 0


def test_a_hollow_fallback_is_no_copy_of_the_mode_it_is_called(planned: Plan, tmp_path: Path) -> None:
    measured: list[str] = []
    run(planned, Store(tmp_path), lambda log: Collapsing(measured, hollow=True))
    assert set(measured) == {launch.arm for launch in planned.launches}
    assert set(read_cells(tmp_path).query("arm == 'FULL'")["realised_mode"]) == {"PIECEWISE:hollow"}


def test_copies_are_looked_for_in_the_same_block_and_tile_alone(planned: Plan) -> None:
    facts = LaunchFacts(resolved_mode=Mode.PIECEWISE, realised_mode="PIECEWISE")
    [full] = [launch for launch in planned.launches if launch.arm == "FULL"]
    assert planned.arm_that_asks_for(full, facts) == "PIECEWISE"
    assert planned.arm_that_asks_for(replace(full, block="b9"), facts) is None
    assert planned.arm_that_asks_for(replace(full, tile="other"), facts) is None
    assert planned.arm_that_asks_for(full, LaunchFacts()) is None
    assert planned.arm_that_asks_for(full, LaunchFacts(realised_mode="FULL")) is None


def test_a_refusal_is_a_row_and_neither_a_latency_nor_a_failure(planned: Plan, tmp_path: Path) -> None:
    class Refusing(SimEngine):
        def start(self, launch: Launch) -> LaunchFacts:
            if launch.arm == "FULL":
                raise CellFailed("refused", "CUDAGraphMode.FULL is not supported with TritonMLA (support: NEVER)")
            return super().start(launch)

    summary = run(planned, Store(tmp_path), lambda log: Refusing())
    assert (summary["cells"]["refused"], summary["failed"]) == (2, 0)
    rows = read_cells(tmp_path).query("arm == 'FULL'")
    assert rows[["tpot_p50_ms", "ttft_p50_ms", "output_tokens_per_s"]].isna().all().all()


def test_graphs_without_statistics_are_unknown_and_not_none() -> None:
    import pandas as pd

    steps = typed(pd.DataFrame({"step": [0, 1], "t_s": [0.1, 0.2], "num_running": [3, 3]}), STEP_COLUMNS)
    counts = stability.summarise(steps)
    assert {name: counts[name] for name in ("steps_full", "steps_piecewise", "steps_none", "padding_ratio")} == {
        "steps_full": None, "steps_piecewise": None, "steps_none": None, "padding_ratio": None,
    }  # fmt: skip

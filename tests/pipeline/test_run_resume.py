"""A study from plan to store: what fails becomes a row, what was stopped goes on, what is done is not repeated."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from artifact.errors import CellFailed, EnvironmentLacks
from artifact.records import CellRow, Launch, LaunchFacts, LaunchRow, Measurement, Schedule
from artifact.schema import Evidence, Mode
from artifact.study.plan import Plan, plan
from artifact.study.run import run
from artifact.study.store import Store, read_cells, read_launches, read_requests
from tests.served_support import CONDITIONS, OVERRIDES, served


class Scripted:
    """An engine in this process that does what ``acts`` says for an arm: at the start, and for its n-th cell."""

    evidence = Evidence.SIMULATED

    def __init__(self, acts: dict[str, Sequence[Any]], begun: list[str]) -> None:
        self._acts = acts
        self._begun = begun
        self._left: list[Any] = []

    def _act(self) -> Any:
        act = self._left.pop(0) if self._left else None
        if isinstance(act, Exception):
            raise act
        return act

    def start(self, launch: Launch) -> LaunchFacts:
        self._begun.append(launch.arm)
        self._left = list(self._acts.get(launch.arm, ()))
        self._act()
        mode = launch.config.mode.name
        return LaunchFacts(resolved_mode=mode, realised_mode=mode.value, gpu_uuid="GPU-1")

    def measure(self, schedule: Schedule, limit_s: float, heavy_probe: bool = False) -> Measurement:
        change: Callable[[Measurement], Measurement] | None = self._act()
        measured = served(schedule)
        return measured if change is None else change(measured)

    def close(self) -> None:
        self._begun.append("closed")


@pytest.fixture(scope="module")
def planned() -> Plan:
    return plan(OVERRIDES, Evidence.SIMULATED)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "resume")


def go(planned: Plan, store: Store, **acts: Sequence[Any]) -> tuple[dict[str, Any], list[str]]:
    begun: list[str] = []
    return run(planned, store, lambda log: Scripted(acts, begun)), begun


def statuses(store: Store, arm: str) -> list[tuple[str, str | None]]:
    rows = sorted((row for row in store.cells().values() if row.arm == arm), key=lambda row: row.workload)
    return [(row.workload, row.status.value) for row in rows]


def test_rows_carry_metrics_conditions_and_launch(planned: Plan, store: Store) -> None:
    told: list[tuple[LaunchRow | None, Sequence[CellRow]]] = []
    begun: list[str] = []
    summary = run(planned, store, lambda log: Scripted({}, begun), lambda row, cells: told.append((row, cells)))
    assert summary["cells"]["ok"] == summary["ran"] == 14
    assert (summary["evidence"], summary["failed"], summary["results"]) == ("simulated", 0, str(store.folder))
    assert begun.count("closed") == 7
    assert [cells[0].arm for _, cells in told] == [launch.arm for launch in planned.launches]
    cells = read_cells(store.folder)
    assert cells["tpot_p50_ms"].tolist() == pytest.approx([2.0] * 14)
    assert cells["ttft_p50_ms"].tolist() == pytest.approx([10.0] * 14)
    assert set(cells["gpu_uuid"]) == {"GPU-1"}
    for name in ("cpu_jitter_us", "launch_us_before", "launch_us_after"):
        assert set(cells[name]) == {getattr(CONDITIONS, name)}
    assert set(cells["steps_full"]) == {1}
    assert cells["sm_clock_mhz"].isna().all()
    assert set(cells["launch_id"]) == set(read_launches(store.folder)["launch_id"])
    assert set(cells["requested_mode"]) == {mode.value for mode in Mode}
    provenance = json.loads(read_launches(store.folder)["provenance"][0])
    assert provenance["config"]["workload"]["duration_s"] == 4


def test_failures_become_rows_and_are_retried_until_final(planned: Plan, store: Store) -> None:
    summary, _ = go(
        planned,
        store,
        FULL=[CellFailed("oom", "CUDA out of memory")],
        NONE=[CellFailed("timeout", "start did not end")],
        PIECEWISE=[None, CellFailed("engine_error", "gone"), CellFailed("skipped", "the engine had ended")],
        EAGER=[None, CellFailed("timeout", "too slow")],
    )
    assert {name: count for name, count in summary["cells"].items() if count} == {
        "ok": 7, "oom": 2, "timeout": 3, "engine_error": 2,
    }  # fmt: skip
    assert summary["failed"] == 5
    assert statuses(store, "FULL") == [("churn", "oom"), ("steady", "oom")]
    assert statuses(store, "EAGER") == [("churn", "ok"), ("steady", "timeout")]
    assert store.cells()[planned.launches[0].cells[0].cell_id].study == "resume"

    # The second of PIECEWISE's cells ends the engine again, and is the only one that it costs.
    summary, begun = go(planned, store, PIECEWISE=[None, None, CellFailed("engine_error", "gone")])
    assert sorted(set(begun)) == ["EAGER", "NONE", "PIECEWISE", "closed"]
    assert summary["ran"] == 5
    assert sorted(status for _, status in statuses(store, "PIECEWISE")) == ["engine_error", "ok"]
    summary, begun = go(planned, store)
    assert (summary["ran"], summary["failed"]) == (1, 0)
    assert begun == ["PIECEWISE", "closed"]
    starts = read_launches(store.folder).query("arm == 'PIECEWISE'")["launch_id"].tolist()
    assert [name.rsplit("-", 1)[1][8:] for name in starts] == ["", ".2", ".3", ".4"]
    assert go(planned, store)[1] == []


def test_records_without_sense_fail_their_cell_alone(planned: Plan, store: Store) -> None:
    def infinite(measured: Measurement) -> Measurement:
        measured.requests["last_token_s"] = np.inf
        return measured

    def none_finished(measured: Measurement) -> Measurement:
        measured.requests["failure"] = "abort"
        return measured

    summary, _ = go(planned, store, FULL=[None, infinite, none_finished])
    assert summary["cells"]["ok"] == 12
    reasons = sorted(str(row.reason) for row in store.cells().values() if row.arm == "FULL")
    assert reasons[0].startswith("its records cannot be summarised: ValueError")
    assert reasons[1] == "no measured request finished"
    assert len(list((store.folder / "logs").glob("*-FULL-*.log"))) == 1


def test_what_concerns_every_cell_ends_the_run_and_keeps_what_is_done(planned: Plan, store: Store) -> None:
    arm = planned.launches[2].arm
    with pytest.raises(EnvironmentLacks, match="no calibration"):
        go(planned, store, **{arm: [EnvironmentLacks("no calibration")]})
    assert len(read_cells(store.folder)) == 4
    assert len(read_requests(store.folder)["cell_id"].unique()) == 4


def test_limit_stops_before_the_launch_that_would_end_later(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    limited = plan([*OVERRIDES, "executor.limit_minutes=0.042"], Evidence.SIMULATED)
    assert len(limited.pieces()) == 7
    summary, _ = go(limited, store)
    assert summary["cells"]["ok"] == summary["ran"] == 2
    assert summary["cells"]["remaining"] == 12
    assert "stopped at executor.limit_minutes=0.042" in capsys.readouterr().err
    assert go(limited, store)[0]["cells"]["ok"] == 4


def test_duplicate_arm_costs_no_start(planned: Plan, store: Store) -> None:
    launch = planned.launches[0]
    copies = replace(planned, duplicates={launch.launch_id: "OTHER"})
    summary, begun = go(copies, store)
    assert summary["cells"]["duplicate"] == 2
    assert launch.arm not in begun
    assert {row.reason for row in store.cells().values() if row.arm == launch.arm} == {
        "would realise the same mode as arm OTHER: not run again"
    }
    assert go(copies, store)[0]["ran"] == 0

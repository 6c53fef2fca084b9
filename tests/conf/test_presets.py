"""Every preset of every group composes; every study plans on the simulator."""

import pytest

from artifact.config import groups, load
from artifact.schema import Config, Evidence, Mode
from artifact.study.plan import plan

PRESETS = [(group, name) for group, names in groups().items() for name in names]


@pytest.mark.parametrize(("group", "name"), PRESETS)
def test_preset_composes(group: str, name: str) -> None:
    config = load([f"{group}={name}"])
    chosen = getattr(config, group)
    # A preset is known by its file's name wherever the group has a name of that kind.
    label = {"hardware": "gpu", "engine": "kind", "executor": "kind", "tracking": "kind"}.get(group, "name")
    if group != "backend":
        assert str(getattr(chosen, label)).lower() == name


def test_every_group_of_the_schema_has_presets() -> None:
    presets = groups()
    alone = {"explain", "trace", "figures", "recommend"}  # keys of config.yaml, not groups
    assert {name for name in Config.model_fields if name not in alone} <= set(presets)
    assert [Mode(name.upper()) for name in presets["mode"]].__len__() == len(Mode)


@pytest.mark.parametrize("name", groups()["study"])
def test_study_plans_on_the_simulator(name: str) -> None:
    planned = plan([f"study={name}", "engine=sim"], Evidence.SIMULATED)
    ids = [cell.cell_id for launch in planned.launches for cell in launch.cells]
    assert ids
    assert len(ids) == len(set(ids)) == planned.cells
    assert set(planned.seconds) == {launch.launch_id for launch in planned.launches}


@pytest.mark.parametrize("name", groups()["workload"])
def test_open_loops_measure_something(name: str) -> None:
    workload = load([f"workload={name}"]).workload
    if workload.duration_s is not None and workload.arrival.rate_per_s is not None:
        measured = workload.arrival.rate_per_s * (workload.duration_s - workload.warmup_s - workload.cooldown_s)
        assert measured >= 100  # fewer have no 99th percentile


def test_stability_is_the_only_thing_that_differs() -> None:
    steady, churn, bursty = (load([f"workload={name}"]).workload for name in ("steady", "churn", "bursty"))
    for other in (churn, bursty):
        assert other.arrival.rate_per_s == steady.arrival.rate_per_s
        assert (other.duration_s, other.warmup_s) == (steady.duration_s, steady.warmup_s)
        for length in ("prompt", "output"):
            assert getattr(other, length).mean == getattr(steady, length).mean

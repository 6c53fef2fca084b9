"""Every preset of every group composes; every study plans on the simulator."""

from pathlib import Path

import pytest

from artifact.config import groups, load
from artifact.schema import Config, Evidence, Mode
from artifact.study import identity
from artifact.study.plan import plan
from artifact.study.store import read_cells

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
    alone = {"explain", "trace", "figures", "recommend", "record", "report", "sizes"}  # keys of config.yaml, not groups
    assert {name for name in Config.model_fields if name not in alone} <= set(presets)
    assert [Mode(name.upper()) for name in presets["mode"]].__len__() == len(Mode)


@pytest.fixture
def public_traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in for what `make traces` gets: an hour, two requests a second."""
    monkeypatch.chdir(tmp_path)
    identity._file_digest.cache_clear()
    Path("traces").mkdir()
    rows = [f"2023-11-16 18:{s // 60:02}:{s % 60:02}.{half}000000,1000,100\n" for s in range(3600) for half in (0, 5)]
    for name in ("conv", "code"):
        text = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(rows)
        Path(f"traces/AzureLLMInferenceTrace_{name}.csv").write_text(text)


@pytest.mark.parametrize("name", groups()["study"])
@pytest.mark.usefixtures("public_traces")
def test_study_plans_on_the_simulator(name: str) -> None:
    # A study of the user's own trace gets one.
    tiles = load([f"study={name}"]).study.tiles
    has_trace = any("workload=trace" in workload for tile in tiles for workload in tile.workloads)
    names_it = any(each.startswith("trace.path=") for tile in tiles for each in tile.overrides)
    trace = (
        ["trace.path=traces/AzureLLMInferenceTrace_conv.csv", "trace.requests=200"]
        if has_trace and not names_it
        else []
    )
    planned = plan([f"study={name}", "engine=sim", *trace], Evidence.SIMULATED)
    ids = [cell.cell_id for launch in planned.launches for cell in launch.cells]
    assert ids
    assert len(ids) == len(set(ids)) == planned.cells
    assert set(planned.seconds) == {launch.launch_id for launch in planned.launches}


def test_shipped_cells_are_those_that_are_planned() -> None:
    # Else what was measured would be measured again, and new blocks would not pair with it.
    cells = read_cells(Path(__file__).parents[2] / "paper_figures" / "data" / "load_sweep")
    shipped = set(cells[(cells["block"] == "0") & (cells["tile"] == "qwen3-0.6b-churn")]["cell_id"])
    only = ["study=load_sweep", "study.only=[qwen3-0.6b-churn]", "study.blocks=1"]
    planned = plan(only, Evidence.MEASURED, "NVIDIA H200")
    assert shipped <= {cell.cell_id for launch in planned.launches for cell in launch.cells}


def test_a_second_launch_of_the_default_is_no_duplicate() -> None:
    only = ["study=load_sweep_aa", "study.only=[qwen3-0.6b-churn]", "study.blocks=1"]
    planned = plan(only, Evidence.MEASURED, "NVIDIA H200")
    arms = [launch.arm for launch in planned.launches]
    assert sorted(arms).count("FULL_AND_PIECEWISE@AA") == 1
    assert len(arms) == 6
    assert planned.duplicates == {}
    first, again = (
        next(launch for launch in planned.launches if launch.arm == arm)
        for arm in ("FULL_AND_PIECEWISE", "FULL_AND_PIECEWISE@AA")
    )
    assert [cell.seed for cell in first.cells] == [cell.seed for cell in again.cells]
    assert {cell.cell_id for cell in first.cells}.isdisjoint(cell.cell_id for cell in again.cells)


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

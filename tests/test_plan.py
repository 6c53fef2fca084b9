"""Plans: what is refused, what is equal for all arms, and that ids and seeds hold across processes."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from artifact.errors import InputError
from artifact.schema import Evidence, StudyConfig
from artifact.study import grid
from artifact.study.grid import saturation_rate
from artifact.study.identity import id_of, seed_of
from artifact.study.plan import Plan, describe, plan

ROOT = Path(__file__).resolve().parents[1]
SHORT = "workload.duration_s=4"


@pytest.fixture(scope="module")
def smoke() -> Plan:
    return plan([SHORT, "study.blocks=2"], Evidence.SIMULATED)


def tile(values: str) -> str:
    quoted = re.sub(r"[\w.]+=[^,\]]+", r"'\g<0>'", values)
    return f"study.tiles=[{{name: t, {quoted}}}]"


def test_every_arm_once_in_each_block_in_an_order_of_its_own(smoke: Plan) -> None:
    blocks: dict[str, list[str]] = {}
    for launch in smoke.launches:
        assert launch.position == len(blocks.setdefault(launch.block, []))
        blocks[launch.block].append(launch.arm)
    assert list(blocks) == ["0", "1"]
    assert sorted(blocks["0"]) == sorted(blocks["1"]) == sorted(smoke.config.study.arms)
    assert blocks["0"] != blocks["1"]
    assert {cell.replicate for launch in smoke.launches for cell in launch.cells} == {0, 1}


def test_arms_of_a_block_share_their_requests_and_blocks_do_not(smoke: Plan) -> None:
    seeds: dict[tuple[str, str], set[int]] = {}
    for launch in smoke.launches:
        assert [cell.config.workload.name for cell in launch.cells] == ["steady", "churn"]
        for cell in launch.cells:
            seeds.setdefault((launch.block, cell.config.workload.name), set()).add(cell.seed)
    assert all(len(of_block) == 1 for of_block in seeds.values())
    assert len(set.union(*seeds.values())) == 4


def test_cells_are_composed_from_tile_arm_and_override(smoke: Plan) -> None:
    [launch] = [one for one in smoke.launches if one.arm == "FULL@FLASHINFER" and one.block == "0"]
    config = launch.cells[1].config
    assert (config.mode.name, config.backend.name, config.server.name) == ("FULL", "FLASHINFER", "study")
    assert config.workload.duration_s == 4
    assert launch.config == launch.cells[0].config
    wider = plan([SHORT, "server.max_num_seqs=64"], Evidence.SIMULATED)
    assert {one.config.server.max_num_seqs for one in wider.launches} == {64}


def test_ids_are_file_names_and_say_what_defines_the_cell(smoke: Plan) -> None:
    ids = [cell.cell_id for launch in smoke.launches for cell in launch.cells]
    ids += [launch.launch_id for launch in smoke.launches]
    assert len(set(ids)) == len(ids) == 14 * 2 + 7 * 2
    assert all(re.fullmatch(r"[A-Za-z0-9_@][A-Za-z0-9_.@-]*-[0-9a-f]{8}", name) for name in ids)
    assert id_of(["../../etc", "a b/c", "x" * 300], {}).startswith("_.._etc-a_b_c-xxx")
    assert len(id_of(["x" * 300], {})) < 60
    assert id_of(["x" * 300], {}) != id_of(["x" * 301], {})


@pytest.mark.parametrize(
    "change", ["engine.heavy_probe=true", "server.max_num_seqs=64", "study.seed=1", "hardware=h100"]
)
def test_what_changes_the_numbers_changes_the_id(smoke: Plan, change: str) -> None:
    other = plan([SHORT, change], Evidence.SIMULATED)
    assert {c.cell_id for one in other.launches for c in one.cells}.isdisjoint(
        c.cell_id for one in smoke.launches for c in one.cells
    )


def test_evidence_is_part_of_the_id_and_tracking_is_not(smoke: Plan) -> None:
    def first_block(of: Plan) -> set[str]:
        return {cell.cell_id for one in of.launches if one.block == "0" for cell in one.cells}

    assert first_block(plan([SHORT], Evidence.MEASURED)).isdisjoint(first_block(smoke))
    assert first_block(plan([SHORT, "tracking=off", "executor.results=x"], Evidence.SIMULATED)) == first_block(smoke)


def test_same_plan_in_another_process(smoke: Plan) -> None:
    code = (
        "import json; from artifact.study.plan import *; from artifact.schema import Evidence;"
        f"print(json.dumps(describe(plan([{SHORT!r}, 'study.blocks=2'], Evidence.SIMULATED))))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == describe(smoke)


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("mode=full", "mode=full: study smoke sets mode itself, in study.arms"),
        ("mode.name=FULL", "sets mode itself, in study.arms"),
        ("backend=triton_attn", "sets backend itself, in study.arms"),
        ("workload=churn", "sets workload itself, in study.tiles"),
        ("server=small_kv", "sets server itself, in study.tiles"),
        ("model=qwen3-8b", "sets model itself, in study.tiles"),
    ],
)
def test_override_of_what_the_study_sets_is_refused(override: str, says: str) -> None:
    with pytest.raises(InputError, match=re.escape(says)):
        plan([override], Evidence.SIMULATED)


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["server.cudagraph_capture_sizes=[]"], "server.cudagraph_capture_sizes=[]"),
        (["server.cudagraph_capture_sizes=[0,1]"], "0 is not a size"),
        (["server.max_model_len=100"], "server.max_model_len=100"),
        (["workload.warmup_s=11.5"], "workload: warmup_s + cooldown_s must be less than duration_s"),
        (["executor.limit_minutes=0.001"], "executor.limit_minutes=0.001"),
        ([tile("overrides: [], workloads: []")], "needs at least one workload"),
        ([tile("overrides: [], workloads: [[workload=steady], [workload=steady]]")], "planned twice"),
        ([tile("overrides: [mode=none], workloads: [[workload=nope]]")], "no such workload"),
        ([tile("overrides: [], workloads: [[workload=steady]], rates_per_s: [5]"), "workload.arrival.rate_per_s=3"],
         "sets workload.arrival.rate_per_s itself"),
        ([tile("overrides: [], workloads: [[workload=trace]]")], "trace.path"),
        ([tile("overrides: [], workloads: [[workload=trace]]"), "trace.path=no/such.csv"], "no/such.csv"),
    ],
)  # fmt: skip
def test_bad_cells_are_found_before_an_engine_starts(overrides: list[str], says: str) -> None:
    with pytest.raises(InputError, match=re.escape(says)) as caught:
        plan(overrides, Evidence.SIMULATED)
    assert "\n" not in str(caught.value)


def test_cell_longer_than_its_limit_is_refused_where_it_takes_real_time() -> None:
    assert plan(["engine.cell_limit_s=10"], Evidence.SIMULATED).cells == 14
    with pytest.raises(InputError, match=r"engine.cell_limit_s=10: .* needs about 18 s"):
        plan(["engine.cell_limit_s=10"], Evidence.MEASURED)


def test_rates_hold_for_open_loops_alone() -> None:
    planned = plan(
        [tile("overrides: [], rates_per_s: [5, 10.5], workloads: [[workload=churn, workload.duration_s=9],"
              " [workload=closed_loop]]")],
        Evidence.SIMULATED,
    )  # fmt: skip
    cells = planned.launches[0].cells
    assert [(c.config.workload.name, c.config.workload.arrival.rate_per_s) for c in cells] == [
        ("churn", 5.0),
        ("churn", 10.5),
        ("closed_loop", None),
    ]
    assert len({cell.seed for cell in cells}) == 3
    assert all(cell.load is None for cell in cells)


def test_loads_are_fractions_of_saturation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "saturation.yaml").write_text("qwen3-0.6b: {rate_per_s: 80.0, found: by hand}\n")
    monkeypatch.setattr(grid, "CONF_DIR", tmp_path)
    values = "overrides: [model=MODEL], loads: [0.25, 0.5], workloads: [[workload=churn]]"
    planned = plan([tile(values.replace("MODEL", "qwen3-0.6b"))], Evidence.SIMULATED)
    cells = planned.launches[0].cells
    assert [(c.load, c.config.workload.arrival.rate_per_s) for c in cells] == [(0.25, 20.0), (0.5, 40.0)]
    with pytest.raises(InputError, match=r"saturation.yaml: no rate_per_s for model qwen3-8b"):
        plan([tile(values.replace("MODEL", "qwen3-8b"))], Evidence.SIMULATED)


@pytest.mark.parametrize("entry", ["null", "{rate_per_s: 0}", "{rate_per_s: fast}", "{rate_per_s: .inf}", "{}"])
def test_saturation_that_is_no_rate_is_refused(tmp_path: Path, entry: str) -> None:
    (tmp_path / "s.yaml").write_text(f"m: {entry}\n")
    with pytest.raises(InputError, match="no rate_per_s for model m"):
        saturation_rate("m", tmp_path / "s.yaml")


def test_trace_is_known_by_its_content(tmp_path: Path) -> None:
    def ids(name: str, tokens: int) -> list[str]:
        file = tmp_path / name
        file.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
            f"2023-11-16 18:17:{second:02d}.0000000,{tokens},9\n" for second in range(20)
        ))  # fmt: skip
        overrides = [tile("overrides: [], workloads: [[workload=trace]]"), f"trace.path={file}"]
        return [cell.cell_id for one in plan(overrides, Evidence.SIMULATED).launches for cell in one.cells]

    assert ids("a.csv", 50) == ids("b.csv", 50)
    assert ids("c.csv", 51) != ids("b.csv", 50)


def test_estimates_count_caches_and_split_into_pieces() -> None:
    measured = plan([SHORT, "study.blocks=2"], Evidence.MEASURED)
    starts = {(one.block, one.arm): measured.seconds[one.launch_id] for one in measured.launches}
    assert starts["0", "FULL"] > starts["1", "FULL"]  # the compile cache is warm
    assert starts["0", "FULL@FLASHINFER"] > starts["0", "FULL"] + 100
    assert starts["1", "FULL@FLASHINFER"] == starts["1", "FULL"]
    assert starts["0", "EAGER"] == pytest.approx(starts["1", "EAGER"], abs=2)  # it compiles nothing
    assert len(measured.pieces()) == 1
    limited = plan([SHORT, "study.blocks=2", "executor.limit_minutes=5"], Evidence.MEASURED)
    pieces = limited.pieces()
    assert [name for piece in pieces for name in piece] == [one.launch_id for one in limited.launches]
    assert len(pieces) > 2
    assert all(sum(limited.seconds[name] for name in piece) <= 300 for piece in pieces)
    assert describe(limited)["gpu_minutes"] == pytest.approx(limited.minutes, abs=0.01)
    assert describe(plan([SHORT], Evidence.SIMULATED))["gpu_minutes"] == 0


def test_arm_that_realises_another_arms_mode_is_its_duplicate() -> None:
    # FLASHINFER without TRTLLM cannot capture speculative decodes: FULL_AND_PIECEWISE is left with PIECEWISE.
    arms = {"A": "piecewise", "A2": "piecewise", "B": "full_and_piecewise", "C": "full_decode_only", "D": "none"}
    study = StudyConfig.model_validate(
        {
            "name": "s", "seed": 1, "blocks": 1, "first_block": 0, "block_prefix": "",
            "arms": {arm: [f"mode={mode}", "backend=flashinfer"] for arm, mode in arms.items()},
            "tiles": [{"name": "t", "overrides": ["server.num_speculative_tokens=3"],
                       "workloads": [["workload=steady"]]}],
        }
    )  # fmt: skip
    # C is hollow: it reports PIECEWISE and replays nothing, so it is no copy. A2 is an A/A arm: run on purpose.
    assert grid.Grid.of([], study, study.tiles[0]).duplicates() == {"B": "A"}
    assert plan([], Evidence.SIMULATED).duplicates == {}


def test_seeds_depend_on_each_part() -> None:
    assert seed_of(1, "a") != seed_of(1, "b") != seed_of(2, "b")
    assert 0 <= seed_of("x") < 2**32


def test_a_part_of_a_study_keeps_its_cells_and_their_seeds() -> None:
    whole = plan(["study=load_sweep", "study.blocks=1"], Evidence.SIMULATED)
    part = plan(
        ["study=load_sweep", "study.blocks=1", "study.only=[qwen3-0.6b-churn]", "study.loads=[0.35,0.6]"],
        Evidence.SIMULATED,
    )
    cells = {cell.cell_id: cell.seed for launch in whole.launches for cell in launch.cells}
    chosen = {cell.cell_id: cell for launch in part.launches for cell in launch.cells}
    assert len(chosen) == 5 * 2
    assert {launch.tile for launch in part.launches} == {"qwen3-0.6b-churn"}
    assert {cell.load for cell in chosen.values()} == {0.35, 0.6}
    assert all(cells[name] == cell.seed for name, cell in chosen.items())
    order = [launch.arm for launch in whole.launches if launch.tile == "qwen3-0.6b-churn"]
    assert [launch.arm for launch in part.launches] == order


@pytest.mark.parametrize("override", ["study.only=[qwen3-0.6b]", "study.loads=[0.5]"])
def test_a_part_that_does_not_exist_is_refused(override: str) -> None:
    with pytest.raises(InputError, match="known: "):
        plan(["study=load_sweep", override], Evidence.SIMULATED)

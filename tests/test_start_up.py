"""What starting costs: phases, bytes and KV tokens of made-up starts with known answers, and of the shipped ones."""

import json
from pathlib import Path

import pandas as pd
import pytest

from artifact.analysis import every_study
from artifact.analysis.starts import start_up
from artifact.config import load
from artifact.errors import InputError
from artifact.graphs.sizes import capture_sizes
from artifact.records import LaunchRow
from artifact.schema import Mode
from tests.launch_support import cell, frame, launch, write

DATA = Path(__file__).parents[1] / "paper_figures" / "data"
MIB = 2**20
BLOCK_BYTES = 114_688 * 16  # Qwen3-0.6B: bytes of a token's KV cache x tokens of a block


def described(*rows: LaunchRow) -> pd.DataFrame:
    return every_study.described(frame(rows))


def only(table: pd.DataFrame, **where: object) -> "pd.Series":
    for name, value in where.items():
        table = table[table[name] == value]
    assert len(table) == 1, table
    return table.iloc[0]


def test_phases_cold_and_warm_apart() -> None:
    rows = [launch(0, "FULL", compile_cache="cold", start_s=50.0)]
    rows += [launch(number, "FULL", start_s=start, capture_s=start / 4) for number, start in ((1, 10.0), (2, 14.0))]
    table = start_up.phases(described(*rows))
    warm = only(table, state="warm", phase="start_s")
    assert (warm["mean"], warm["n"], warm["machines"]) == (12.0, 2, 1)
    assert warm["high"] - 12.0 == pytest.approx(12.706205 * 2.0, rel=1e-5)  # t of one degree of freedom
    cold = only(table, state="cold", phase="start_s")
    assert (cold["mean"], cold["n"]) == (50.0, 1)
    assert pd.isna(cold["low"])
    assert only(table, state="warm", phase="capture_s")["mean"] == 3.0
    assert only(table, state="cold", phase="unexplained_share")["mean"] == 1.0 / 50.0


def test_an_unready_start_counts_for_nothing() -> None:
    rows = [launch(0, "FULL"), launch(1, "FULL", status="oom", reason="oom", start_s=None, compile_cache=None)]
    assert only(start_up.phases(described(*rows)), phase="start_s")["n"] == 1


def test_the_first_start_of_a_backend_on_a_machine_is_a_state_of_its_own() -> None:
    rows = [
        launch(1, "FULL"),  # nothing was ready yet
        launch(1, "NONE", launch_id="beside", gpu_uuid="GPU-2"),  # at the same time on another GPU of the machine
        launch(2, "FULL", launch_id="next"),
        launch(3, "FULL", ["backend=flashinfer"], launch_id="other_backend"),
        launch(0, "FULL", launch_id="elsewhere", host_id="other", compile_cache="cold"),
        launch(4, "FULL", launch_id="after_cold", host_id="other"),
    ]
    states = described(*rows).set_index("launch_id")["state"].to_dict()
    assert states == {
        "launch-1": "first",
        "beside": "first",
        "next": "warm",
        "other_backend": "first",
        "elsewhere": "cold",
        "after_cold": "warm",
    }


def test_simulated_starts_are_never_first_and_go_by_what_was_asked() -> None:
    row = launch(0, "FULL", ["backend=flashinfer"], evidence="simulated", attention_backend="FLASH_ATTN (FA3)")
    [found] = described(row).itertuples()
    assert (found.state, found.attention) == ("warm", "FLASHINFER")


def test_memory_against_the_estimate_and_impossible_bytes() -> None:
    rows = [
        launch(0, "FULL", graph_bytes=100 * MIB, graph_estimate_bytes=80 * MIB),
        launch(1, "FULL", graph_bytes=102 * MIB, graph_estimate_bytes=80 * MIB),
        launch(2, "FULL", graph_bytes=-5, graph_estimate_bytes=80 * MIB, memory_valid=False),
        launch(3, "NONE", graph_bytes=0, graph_estimate_bytes=0),
    ]
    row = only(start_up.memory(described(*rows)))
    assert (row["graph_bytes"], row["n"], row["invalid"]) == (101 * MIB, 2, 1)
    assert (row["graph_low"], row["graph_high"]) == (100 * MIB, 102 * MIB)
    assert row["error_bytes"] == -21 * MIB
    assert row["error_share"] == pytest.approx((80 / 100 + 80 / 102) / 2 - 1)
    assert row["bytes_per_graph"] == 101 * MIB / 51
    assert row["graph_kind"] == "full, mixed"


def test_memory_that_is_never_known_is_null_with_its_count() -> None:
    row = only(start_up.memory(described(launch(0, "FULL", graph_bytes=-5, memory_valid=False))))
    assert (row["n"], row["invalid"]) == (0, 1)
    assert pd.isna(row["graph_bytes"])


def test_a_hollow_mode_has_decode_graphs_alone() -> None:
    row = launch(
        0,
        "FULL",
        resolved_mode="FULL_AND_PIECEWISE",
        realised_mode="FULL_AND_PIECEWISE:hollow",
        hollow=True,
        graphs_full=35,
        graph_bytes=MIB,
    )
    assert only(start_up.memory(described(row)))["graph_kind"] == "full, decode"


def test_kv_tokens_derived_under_an_override_and_measured_without_one() -> None:
    own = ["server=small_kv"]
    rows = [
        launch(0, "NONE", kv_available_bytes=1000 * BLOCK_BYTES + 5, kv_tokens=262_144),
        launch(1, "FULL", kv_available_bytes=990 * BLOCK_BYTES, kv_tokens=262_144),
        launch(2, "NONE", own, kv_available_bytes=5, kv_tokens=50_000),
        launch(3, "FULL", [*own, "server.max_cudagraph_capture_size=8"], kv_available_bytes=5, kv_tokens=49_000),
    ]
    table = start_up.kv_tokens(described(*rows))
    derived = only(table, how="derived", realised_mode="FULL")
    assert (derived["tokens"], derived["lost"], derived["utilisation"]) == (990 * 16, 160.0, 0.9)
    assert derived["share"] == pytest.approx(0.01)
    measured = only(table, how="measured", realised_mode="FULL")
    assert (measured["lost"], measured["utilisation"]) == (1000.0, 0.05)


@pytest.mark.parametrize("other", [{"gpu_uuid": "GPU-2"}, {"compile_cache": "cold"}])
def test_kv_tokens_lost_need_none_on_the_same_gpu_and_cache(other: dict[str, str]) -> None:
    rows = [
        launch(0, "NONE", kv_available_bytes=1000 * BLOCK_BYTES, **other),
        launch(1, "FULL", kv_available_bytes=990 * BLOCK_BYTES),
    ]
    row = only(start_up.kv_tokens(described(*rows)), realised_mode="FULL")
    assert pd.isna(row["lost"])
    assert "no start of NONE" in row["reason"]


def test_slope_by_number_of_sizes() -> None:
    lists = {1: [1], 8: [40], 51: [512]}
    rows = [
        launch(
            number * 10 + repeat,
            "FULL",
            [f"server.max_cudagraph_capture_size={largest[0]}"],
            capture_sizes=size,
            graphs_full=size,
            graph_bytes=(10 + 5 * size) * MIB,
            capture_s=0.5 + 0.05 * size,
        )
        for number, (size, largest) in enumerate(lists.items())
        for repeat in range(2)
    ]
    given = ["server.cudagraph_capture_sizes=[1,512]"]  # chosen size by size: not on the line of vLLM's own
    chosen = launch(40, "FULL", given, capture_sizes=2, graphs_full=2, graph_bytes=999 * MIB, capture_s=9.0)
    table = start_up.by_sizes(described(*rows, chosen))
    memory = only(table, of="graph_bytes", per="capture_sizes")
    assert memory["slope"] == pytest.approx(5 * MIB)
    assert (memory["n"], memory["numbers"]) == (6, 3)
    assert only(table, of="capture_s", per="graphs")["slope"] == pytest.approx(0.05)
    few = start_up.by_sizes(described(*rows[:4]))
    assert few["slope"].isna().all()
    assert few["reason"].str.contains("2 different").all()


def test_evidence_is_never_mixed(tmp_path: Path) -> None:
    for study, evidence, number in (("one", "simulated", 0), ("two", "measured", 1)):
        row = launch(number, "FULL", study=study, evidence=evidence)
        write(tmp_path / study, [row], [cell(number, row)], {})
    found = every_study.read(every_study.studies(tmp_path))
    assert set(found.launches["evidence"]) == set(found.cells["evidence"]) == {"measured"}
    assert every_study.studies(tmp_path / "nothing") == []
    with pytest.raises(InputError, match="no study"):
        every_study.read([])


def test_a_configuration_that_says_nothing_gives_null() -> None:
    [row] = described(launch(0, "FULL", provenance=json.dumps({"started": None}))).itertuples()
    assert pd.isna(row.kv_bytes_per_token)
    assert pd.isna(row.utilisation)


def test_shipped_graph_memory_and_kv_tokens() -> None:
    launches = every_study.read(every_study.studies(DATA)).launches
    own = launches[(launches["model"] == "qwen3-0.6b") & (launches["attention"] == "FLASH_ATTN (FA3)")]
    row = only(start_up.memory(own), realised_mode="FULL_AND_PIECEWISE", graphs_full=35, capture_sizes=51)
    assert row["graph_bytes"] == pytest.approx(360 * MIB, rel=0.01)
    assert row["error_share"] == pytest.approx(-1 / 6, abs=0.01)
    assert row["invalid"] == 0
    lost = only(
        start_up.kv_tokens(own), realised_mode="FULL_AND_PIECEWISE", graphs_full=35, capture_sizes=51, how="derived"
    )
    assert lost["lost"] == 2816
    cold = start_up.phases(own).query("phase == 'start_s' and state == 'cold'")
    warm = start_up.phases(own).query("phase == 'start_s' and state == 'warm'")
    assert cold["mean"].min() > 2 * warm["mean"].max()


def test_an_arm_of_the_startup_study_captures_as_many_sizes_as_its_name_says() -> None:
    study = load(["study=startup"]).study
    [tile] = study.tiles
    named = {arm: load([*tile.overrides, *overrides]) for arm, overrides in study.arms.items() if "@" in arm}
    assert {config.mode.name for config in named.values()} == {Mode.FULL, Mode.FULL_AND_PIECEWISE}
    for arm, config in named.items():
        assert len(capture_sizes(config.server, config.mode.name)) == int(arm.split("@")[1])

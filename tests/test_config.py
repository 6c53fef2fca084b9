"""A user's mistake in the configuration is one line that names the key and says what would be right."""

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from pydantic import ValidationError

from artifact.config import CONF_DIR, _plain, groups, load, mode_named
from artifact.errors import InputError
from artifact.schema import Mode


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        # unknown names
        (["moed=full"], ["moed", "did you mean mode"]),
        (["mode=fulll"], ["mode", "did you mean full?", "known:"]),
        (["server.max_num_seq=4"], ["server.max_num_seq", "did you mean server.max_num_seqs"]),
        (["workload=nothing_like_it"], ["no such workload", "churn"]),
        (["explain"], ["neither a command nor key=value"]),
        # what Hydra would take as a sweep, an addition or a deletion
        (["mode=full,none"], ["sweep", "[a,b]"]),
        (["server.cudagraph_capture_sizes=1,2"], ["sweep"]),
        (["server.max_num_seqs=range(1,4)"], ["sweep"]),
        (["+server.extra=1"], ["only key=value"]),
        (["~server.name=x"], ["only key=value"]),
        (["defaults=x"], ["only key=value"]),
        (['server.x={"a":"b"}'], ["cannot be read", "quote"]),
        # wrong kinds
        (["server.max_num_seqs=1.5"], ["server.max_num_seqs", "whole number", "1.5"]),
        (["server.max_num_seqs=true"], ["server.max_num_seqs", "whole number"]),
        (["server.max_num_seqs='8'"], ["server.max_num_seqs", "whole number"]),
        (["server.max_num_seqs=None"], ["server.max_num_seqs", "whole number", "'None'"]),
        (["server.max_num_seqs=null"], ["server.max_num_seqs", "whole number"]),
        (["backend.name=XFORMERS"], ["backend.name", "FLASH_ATTN"]),
        # out of range
        (["server.max_num_seqs=0"], ["server.max_num_seqs", "greater than or equal to 1"]),
        (["server.max_num_seqs=-3"], ["server.max_num_seqs", "greater than or equal to 1"]),
        (["server.gpu_memory_utilization=1.1"], ["server.gpu_memory_utilization", "less than or equal to 1"]),
        (["workload.arrival.rate_per_s=-1"], ["workload.arrival.rate_per_s", "greater than 0"]),
        (["workload.arrival.rate_per_s=0"], ["workload.arrival.rate_per_s", "greater than 0"]),
        (["workload.arrival.rate_per_s=inf"], ["workload.arrival.rate_per_s", "finite"]),
        (["workload.arrival.rate_per_s=nan"], ["workload.arrival.rate_per_s", "finite"]),
        (["workload=bursty", "workload.arrival.cv=0"], ["workload.arrival.cv", "greater than 0"]),
        # what does not fit together
        (["workload.arrival.process=gamma"], ["workload.arrival", "needs cv"]),
        (["workload.arrival.cv=2"], ["workload.arrival", "takes no cv"]),
        (["workload.warmup_s=100"], ["workload", "nothing would be measured"]),
        (["workload=steady", "workload.prompt.mean=2.5"], ["workload.prompt", "whole number of tokens"]),
        (["study.name='../up'"], ["study.name", "pattern"]),
        (["engine.cell_limit_s=0"], ["engine.cell_limit_s", "greater than 0"]),
    ],
)
def test_one_line_that_helps(overrides: list[str], said: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        load(overrides)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 400
    for part in said:
        assert part in message
    assert caught.value.__cause__ is None
    assert caught.value.exit_code == 2


KEYS = st.sampled_from(["mode", "server", "server.max_num_seqs", "workload.arrival", "trace.columns.time", "a.b"])


@settings(max_examples=50)
@given(st.text(max_size=30) | st.tuples(KEYS, st.text(max_size=20)).map("=".join))
def test_no_text_whatever_gives_a_traceback(text: str) -> None:
    message = ""
    try:
        load([text])
    except InputError as error:
        message = str(error)
    assert "\n" not in message


def test_a_key_that_the_preset_leaves_out_can_be_set() -> None:
    arrival = load(["workload=churn", "workload.arrival.process=gamma", "workload.arrival.cv=2"]).workload.arrival
    assert (arrival.process, arrival.cv) == ("gamma", 2.0)


def test_case_does_not_matter_for_presets_and_modes() -> None:
    assert load(["mode=FULL_AND_PIECEWISE"]) == load(["mode=full_and_piecewise"])
    assert mode_named("Full") is Mode.FULL
    with pytest.raises(InputError, match="did you mean PIECEWISE"):
        mode_named("piecewize")


def test_lists_and_null_are_single_values() -> None:
    assert load(["server.cudagraph_capture_sizes=[1,2,4]"]).server.cudagraph_capture_sizes == (1, 2, 4)
    assert load(["server.num_gpu_blocks_override=null"]).server.num_gpu_blocks_override is None
    assert load(["mode=none"]).mode.name is Mode.NONE


def test_the_same_overrides_give_the_same_frozen_configuration() -> None:
    config = load(["mode=full"])
    assert config == load(["mode=full"])
    with pytest.raises(ValidationError, match="frozen"):
        config.mode = load(["mode=none"]).mode  # type: ignore[misc]


def test_groups_are_the_folders_of_conf() -> None:
    assert groups()["mode"] == ["eager", "full", "full_and_piecewise", "full_decode_only", "none", "piecewise"]


@pytest.mark.parametrize(
    "overrides",
    [
        ["mode=full", "model=qwen3-8b"],
        ["++server.max_num_seqs=7", "server=small_kv", "++server.max_num_seqs=9"],
        ["++server.cudagraph_capture_sizes=[1,2,4]", "++trace.columns={time: when}", "++trace.window=[0,2.5]"],
        [
            "study=load_sweep_aa",
            "++study.arms.EXTRA=['mode=none']",
            "++study.only=[qwen3-0.6b-churn]",
            "++trace.path=null",
        ],
        ["workload=bursty", "++workload.arrival.cv=2", "++recommend.serve_command='vllm serve X --max-num-seqs 8'"],
        ["++new.key=1"],
    ],
)
def test_values_are_merged_as_hydra_merges_them(overrides: list[str]) -> None:
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONF_DIR), version_base="1.3"):
        hydras = OmegaConf.to_container(compose("config", overrides=overrides), resolve=True)
    assert _plain(overrides) == hydras

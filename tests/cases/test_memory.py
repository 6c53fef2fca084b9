"""Kind: a number of bytes that is no measurement, or that stands for more than it is.

One engine a process, baseline before the next, a sweep that goes on: tests/test_isolate.py, tests/pipeline. The rule
itself: tests/test_metrics_memory.py.
"""

from typing import Any

import pandas as pd
import pytest

from artifact.analysis.compare import overview
from artifact.config import load
from artifact.engines.vllm_records import launch_facts
from artifact.graphs.explain import explain
from artifact.metrics.memory import believed, estimate_error, kv_tokens_lost


def probe(**changed: Any) -> dict[str, Any]:
    return {
        "resolved": "FULL", "sizes": [1, 2], "keys": {"FULL": 2}, "wrappers": {"FULL": 1}, "graphs": {"FULL": 2},
        "captures": 2, "counters": {}, "compiles": 1, "attention": "FLASH_ATTN", "load_s": 1.0, "profile_s": 3.0,
        "compile_s": 2.0, "capture_s": 1.0, "graph_bytes": 300, "estimate_bytes": 280, "activation_bytes": 50,
        "available_bytes": 9000, "weights_bytes": 1000, **changed,
    }  # fmt: skip


@pytest.mark.parametrize(
    "changed",
    [{"graph_bytes": -4}, {"graph_bytes": 0}, {"estimate_bytes": 0}, {"estimate_bytes": -1}, {"weights_bytes": 0},
     {"available_bytes": -9}, {"activation_bytes": 0}],
)  # fmt: skip
def test_impossible_bytes_are_kept_raw_flagged_and_not_used(changed: dict[str, int]) -> None:
    facts = launch_facts(load(), probe(**changed), 30.0, 15.0)
    names = {"available_bytes": "kv_available_bytes", "estimate_bytes": "graph_estimate_bytes"}
    [(name, value)] = changed.items()
    assert getattr(facts, names.get(name, name)) == value
    assert facts.memory_valid is False
    frame = pd.DataFrame([facts.model_dump()]).assign(launch_id="l")
    assert believed(frame)[["graph_bytes", "graph_estimate_bytes", "kv_available_bytes"]].isna().all().all()
    assert frame["graph_bytes"][0] == facts.graph_bytes
    assert kv_tokens_lost(-4, 100) is None
    assert estimate_error(0, 300) is None


def test_no_graphs_take_no_bytes_and_that_is_valid() -> None:
    none = {"resolved": "NONE", "sizes": [], "keys": {}, "graphs": {}, "captures": 0}
    facts = launch_facts(load(["mode=none"]), probe(graph_bytes=0, estimate_bytes=0, **none), 30.0, 15.0)
    assert facts.memory_valid is True
    assert believed(pd.DataFrame([facts.model_dump()]))["graph_bytes"][0] == 0


def test_an_estimate_that_was_not_made_does_not_spoil_the_rest() -> None:
    facts = launch_facts(load(), probe(estimate_bytes=None, available_bytes=None, activation_bytes=None), 30.0, 15.0)
    assert (facts.graph_estimate_bytes, facts.memory_valid, facts.graph_bytes) == (None, True, 300)


def test_pool_delta_and_estimate_are_booked_apart() -> None:
    facts = launch_facts(load(), probe(), 30.0, 15.0)
    assert (facts.graph_bytes, facts.graph_estimate_bytes) == (300, 280)
    assert {"nvml_used_bytes", "nvml_baseline_bytes"} <= set(type(facts).model_fields)  # the device's own delta
    assert estimate_error(280, 300) == pytest.approx(-1 / 15)


def test_a_table_shows_no_bytes_that_are_not_believed() -> None:
    cell = dict.fromkeys(
        ["block", "arm", "workload", "realised_mode", "status", "flags", "tile", "tpot_p50_ms", "tpot_p99_ms",
         "ttft_p50_ms", "ttft_p99_ms"], "x",
    )  # fmt: skip
    cells = pd.DataFrame([{**cell, "launch_id": name, "load": 0.5, "n_requests": 1} for name in ("bad", "good")])
    launches = pd.DataFrame(
        {"launch_id": ["bad", "good"], "graph_bytes": [2**20, 2**20], "capture_s": [1.0, 1.0],
         "memory_valid": pd.array([False, True], dtype="boolean")}
    )  # fmt: skip
    assert overview(cells, launches)["graph_mib"].tolist() == pytest.approx([float("nan"), 1.0], nan_ok=True)


def test_lora_variants_raise_the_number_of_graphs() -> None:
    def captures(*overrides: str) -> int:
        return int(explain(load(["mode=full", *overrides]))["captures"])

    assert captures("server.max_loras=4") == 2 * captures()
    assert captures("server.max_loras=4", "server.specialize_active_lora=true") == 5 * captures()  # 0, 1, 2, 4, 5


@pytest.mark.parametrize("tp", [2, 8])
def test_more_ranks_than_are_read_are_refused_rather_than_booked_as_one(tp: int) -> None:
    from artifact.engines.vllm_engine import VllmEngine
    from artifact.errors import InputError
    from artifact.records import Launch

    config = load([f"server.tensor_parallel_size={tp}"])
    with pytest.raises(InputError, match=rf"server\.tensor_parallel_size={tp}: .* from one worker"):
        VllmEngine().start(Launch("l", "s", "FULL", "t", "0", 0, config, ()))

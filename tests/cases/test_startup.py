"""Kind: start-up that is said to be shorter than what the user waits.

The parts and what they leave unexplained, cold and warm: tests/test_vllm_records.py. LoRA variants that can never be
used: tests/test_graphs_explain.py.
"""

from artifact.config import load
from artifact.engines.vllm_records import launch_facts
from artifact.graphs.explain import explain
from artifact.records import LaunchFacts

from .test_memory import probe


def test_what_the_log_does_not_explain_stays_in_the_sum() -> None:
    """Logged parts of 34 s, ready after 59: the other 25 s are a part of their own."""
    facts = launch_facts(load(), probe(load_s=4.0, profile_s=27.0, compile_s=25.0, capture_s=3.0), 59.0, 15.0)
    parts = [facts.load_s, facts.compile_s, facts.profile_s, facts.capture_s]
    assert sum(part or 0.0 for part in parts) == 34.0
    assert facts.unexplained_s == 25.0
    assert "first_answer_s" in LaunchFacts.model_fields  # beside them: of the first request, after that


def test_cold_and_warm_starts_are_told_apart() -> None:
    cold = launch_facts(load(), probe(), 50.0, 15.0)
    warm = launch_facts(load(), probe(counters={"num_compiled_artifacts_loaded": 3}), 25.0, 15.0)
    off = launch_facts(load(["mode=eager"]), probe(compiles=0), 20.0, 15.0)
    assert [facts.compile_cache for facts in (cold, warm, off)] == ["cold", "warm", "off"]


def test_graphs_that_one_seat_can_never_use_are_named() -> None:
    one_seat = ["server.max_num_seqs=1", "server.max_loras=8", "server.specialize_active_lora=true"]
    text = " ".join(explain(load(one_seat))["warnings"])
    assert "graphs for [2, 4, 8, 9] active adapters are captured and never used" in text

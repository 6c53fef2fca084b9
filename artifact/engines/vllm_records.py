"""What vLLM and the probe said in, rows of the project's own schema out. Imports no vLLM: tested without it."""

from typing import Any

import pandas as pd

from artifact.metrics.memory import memory_valid
from artifact.records import STEP_COLUMNS, LaunchFacts, typed
from artifact.schema import Config, Mode

# Order of a row of heavy_collect; start_s is the worker's time.perf_counter, which all processes of a host share.
HEAVY_FIELDS = (
    "start_s",
    "runtime_mode",
    "num_tokens",
    "padded_tokens",
    "num_reqs",
    "num_decode",
    "prefill_tokens",
    "context_tokens",
    "wall_ms",
    "launch_ms",
    "gpu_ms",
)


def hollow(probe: dict[str, Any]) -> bool:
    """Whether some kind of graph is dispatched to (it has keys) though none was captured."""
    return any(count and not probe["graphs"].get(kind) for kind, count in probe["keys"].items())


def launch_facts(config: Config, probe: dict[str, Any], start_s: float, import_s: float) -> LaunchFacts:
    """Return the launch's facts from ``ProbeWorker.probe``; seconds as measured, bytes as vLLM gave them."""
    resolved, is_hollow = Mode(probe["resolved"]), hollow(probe)
    name = Mode.EAGER if config.mode.enforce_eager else resolved
    compile_s, profile_s = probe["compile_s"], probe["profile_s"] - probe["compile_s"]
    explained = probe["load_s"] + compile_s + profile_s + probe["capture_s"]
    counters = probe["counters"]
    loaded = counters.get("num_aot_artifacts_loaded", 0) + counters.get("num_compiled_artifacts_loaded", 0)
    cache = "off" if not probe["compiles"] else ("warm" if loaded else "cold")
    graphs = {kind: probe["graphs"].get(kind, 0) for kind in ("PIECEWISE", "FULL")}
    other_bytes = tuple(probe[name] for name in ("weights_bytes", "activation_bytes", "available_bytes"))
    return LaunchFacts(
        resolved_mode=resolved,
        realised_mode=f"{name.value}:hollow" if is_hollow else name.value,
        hollow=is_hollow,
        attention_backend=probe["attention"],
        capture_sizes=len(probe["sizes"]),
        compile_cache=cache,
        import_s=import_s,
        start_s=start_s,
        load_s=probe["load_s"],
        compile_s=compile_s,
        profile_s=profile_s,
        capture_s=probe["capture_s"],
        unexplained_s=start_s - explained,
        keys_piecewise=probe["keys"].get("PIECEWISE", 0),
        keys_full=probe["keys"].get("FULL", 0),
        wrappers_piecewise=probe["wrappers"].get("PIECEWISE", 0),
        wrappers_full=probe["wrappers"].get("FULL", 0),
        graphs_piecewise=graphs["PIECEWISE"],
        graphs_full=graphs["FULL"],
        captures=probe["captures"],
        graph_bytes=probe["graph_bytes"],
        graph_estimate_bytes=probe["estimate_bytes"],
        weights_bytes=probe["weights_bytes"],
        activation_bytes=probe["activation_bytes"],
        kv_available_bytes=probe["available_bytes"],
        memory_valid=memory_valid(probe["graph_bytes"], probe["estimate_bytes"], probe["captures"], other_bytes),
    )


def light_steps(records: list[tuple[float, Any]], start: float) -> pd.DataFrame:
    """Return one row per step that ran, from (time.perf_counter, SchedulerStats) pairs; ``start`` is time zero."""
    rows: list[dict[str, Any]] = []
    for moment, stats in records:
        graph = stats.cudagraph_stats
        if graph is None and stats.num_running_reqs == 0 and stats.num_waiting_reqs == 0:
            continue  # nothing ran: the engine reports that it is idle
        rows.append(
            {
                "step": len(rows),
                "t_s": moment - start,
                "runtime_mode": graph.runtime_mode if graph else None,
                "num_tokens": graph.num_unpadded_tokens if graph else None,
                "padded_tokens": graph.num_padded_tokens if graph else None,
                "num_running": stats.num_running_reqs,
                "num_waiting": stats.num_waiting_reqs,
                "kv_usage": stats.kv_cache_usage,
            }
        )
    return typed(pd.DataFrame(rows, columns=[*STEP_COLUMNS]), STEP_COLUMNS)


def join_heavy(steps: pd.DataFrame, rows: list[list[Any]]) -> pd.DataFrame:
    """Put the worker's rows beside the front end's, which saw the same steps in the same order.

    Where the two counts or token numbers disagree the heavy columns stay null rather than be matched by guess.
    """
    heavy = pd.DataFrame(rows, columns=list(HEAVY_FIELDS))
    seen = steps["num_tokens"].notna()
    if int(seen.sum()) != len(heavy) or not (steps.loc[seen, "num_tokens"].to_numpy() == heavy["num_tokens"]).all():
        print(
            f"HEAVY {int(seen.sum())} steps seen by the front end, {len(heavy)} by the worker: not joined", flush=True
        )
        return steps
    joined = steps.copy()
    for name in HEAVY_FIELDS[4:]:
        joined.loc[seen, name] = heavy[name].to_numpy()
    return typed(joined, STEP_COLUMNS)

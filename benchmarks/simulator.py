"""A request trace and a Python that has Vidur in; requests simulated in a second by this artifact and by Vidur out.

    python benchmarks/simulator.py TRACE [--requests 3000] [--rounds 3] [--vidur PYTHON]

In turns within one run, all serve the trace's first requests on one GPU with as many seats, KV blocks and tokens a
step. ``ours`` is one mode, FULL_AND_PIECEWISE. ``vidur`` is Vidur at its fastest: compiled lookup of times, nothing
recorded. ``vidur_default`` looks times up in Python and keeps metrics and a Chrome trace, plots aside. Of these the
simulation is timed, not start-up and reading; ours keeps every request and step. ``recommend`` is the whole command:
five modes, and what it asks about the calibration's error beside them. Values are medians over the rounds.

Vidur 0.0.26 downloads its step times (by default Llama-3-8B on H100); its wheel holds none. Here its tables hold the
mean time of our own steps by their tokens: both simulate Qwen3-0.6B on an H200 in about as many steps, nothing is
fetched or trained, and what Vidur would predict is not judged. Vidur knows no CUDA graph modes.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

DATE = "2023-11-16"  # Vidur's replay takes the rows of one day; times are seconds since the first request
# What Vidur looks up by a step's tokens alone, but for the table that is filled.
BY_TOKENS: tuple[str, ...] = ("attn_pre_proj", "attn_post_proj", "attn_rope", "attn_kv_cache_save", "mlp_act")
BY_TOKENS += ("mlp_down_proj", "input_layernorm", "post_attention_layernorm", "add")
PREDICTOR = "random_forrest_execution_time_predictor_config"  # spelt as Vidur does


def timed(call: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """Return what ``call`` returns, and its wall and CPU seconds, those of processes that ended in it included."""
    begin, before = time.perf_counter(), os.times()
    result = call()
    return result, {"wall_s": time.perf_counter() - begin, "cpu_s": sum(os.times()[:4]) - sum(before[:4])}


def ours(overrides: list[str], folder: Path) -> dict[str, Any]:
    """Serve the trace; leave in ``folder`` what Vidur needs to serve the same requests in the same time a step."""
    import numpy as np
    import pandas as pd

    from artifact.config import load
    from artifact.engines.sim_engine import SimEngine
    from artifact.records import Cell, Launch
    from artifact.workloads.build import build

    config = load(overrides)
    schedule, server, engine = build(config.workload, 0, config.trace), config.server, SimEngine()
    engine.start(Launch("benchmark", "benchmark", "", "", "0", 0, config, (Cell("cell", config, None, 0, 0),)))
    found, seconds = timed(lambda: engine.measure(schedule, float("inf"), heavy_probe=True))
    mean = found.steps["wall_ms"].groupby(-(-found.steps["num_tokens"] // 8) * 8).mean().dropna()  # Vidur's rounding
    step_ms = np.interp(range(server.max_num_batched_tokens + 1), mean.index, mean).tolist()
    limits = (server.max_num_seqs, server.max_num_batched_tokens, server.max_model_len, server.num_gpu_blocks_override)
    (folder / "job.json").write_text(json.dumps([limits, step_ms]))
    lengths = {"PromptTokenCount": schedule.prompt_tokens, "CompletionTokenCount": schedule.output_tokens}
    pd.DataFrame({"Date": DATE, "Time": schedule.arrival_s} | lengths).to_csv(folder / "trace.csv", index=False)
    return seconds | {"requests": len(schedule), "steps": len(found.steps), "simulated_s": found.seconds}


def vidur(folder: Path, fastest: bool) -> dict[str, Any]:
    """Serve the trace in ``folder`` with Vidur, which the Python of this very process has."""
    from vidur.config import SimulationConfig
    from vidur.entities import Batch
    from vidur.execution_time_predictor.sklearn_execution_time_predictor import SklearnExecutionTimePredictor
    from vidur.simulator import Simulator

    (seats, tokens, longest, blocks), step_ms = json.loads((folder / "job.json").read_text())
    contexts, chunks = range(0, longest + 256, 256), range(32, tokens + 32, 32)
    tables = {key: {(size,): 0.0 for size in range(tokens + 1)} for key in BY_TOKENS} | {
        "mlp_up_proj": {(size,): ms / 32 for size, ms in enumerate(step_ms)},  # the layers that Vidur multiplies by
        "attn_decode": {(count, context): 0.0 for count in range(1, seats + 1) for context in contexts},
        "attn_prefill": {(context, chunk): 0.0 for context in contexts for chunk in chunks},
    }
    SklearnExecutionTimePredictor._load_predictions_from_hf = lambda _: tables
    replay, scheduler = "trace_request_generator_config", "sarathi_scheduler_config"
    arguments = f"""--request_generator_config_type trace_replay --{replay}_date {DATE} --{replay}_max_tokens {longest}
        --{replay}_prefill_scale_factor 1 --{replay}_time_scale_factor 1 --replica_config_tensor_parallel_size 1
        --replica_config_num_pipeline_stages 1 --replica_scheduler_config_type sarathi --{scheduler}_chunk_size {tokens}
        --{scheduler}_batch_size_cap {seats} --cache_config_num_blocks {blocks} --no-metrics_config_store_plots"""
    if fastest:
        arguments += f" --{PREDICTOR}_use_native_execution_time_predictor"
        arguments += " --no-metrics_config_write_metrics --no-metrics_config_enable_chrome_trace"
    files = ("--metrics_config_output_dir", str(folder), f"--{PREDICTOR}_cache_dir", str(folder))
    sys.argv = [sys.argv[0], *arguments.split(), *files, f"--{replay}_trace_file", str(folder / "trace.csv")]
    simulator = Simulator(SimulationConfig.create_from_cli_args())
    found = {"version": version("vidur"), "requests": len(simulator._event_queue)}
    return found | timed(simulator.run)[1] | {"steps": Batch.generate_id(), "simulated_s": simulator._time}


def compare(trace: list[str], rounds: int, python: str | None) -> dict[str, Any]:
    """Return the medians of each simulator, and how many times as many requests as Vidur ours serves in a second."""
    command = [sys.executable, "-m", "artifact", "recommend", *trace, "recommend.seeds=1", "--json"]
    runs: dict[str, list[dict[str, Any]]] = {"ours": [], "recommend": [], "vidur": [], "vidur_default": []}
    failure = None if python else "not run: name a Python that has it, --vidur PYTHON"
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds):
            runs["ours"].append(ours(trace, Path(folder)))
            seconds = timed(lambda: subprocess.run(command, stdout=subprocess.DEVNULL, check=True))[1]
            runs["recommend"].append(seconds | {"requests": 5 * runs["ours"][0]["requests"]})  # of five modes
            for what in ("vidur", "vidur_default") if python and not failure else ():
                child = [str(python), __file__, "--child", what, folder]
                done = subprocess.run(child, capture_output=True, text=True, check=False)
                if done.returncode:
                    failure = f"did not run: {(done.stderr.strip() or str(done.returncode)).splitlines()[-1]}"
                else:
                    runs[what].append(json.loads(done.stdout.splitlines()[-1]))
    found: dict[str, Any] = {}
    for what, each in runs.items():
        if what.startswith("vidur") and failure:
            return found | {"vidur": failure}
        found[what] = {key: each[0][key] if key == "version" else median(run[key] for run in each) for key in each[0]}
        for of in ("wall_s", "cpu_s"):
            found[what][f"requests_per_{of}"] = found[what]["requests"] / found[what][of]
            ratio = found["ours"][f"requests_per_{of}"] / found[what][f"requests_per_{of}"]
            found[what] |= {f"ours_times_as_fast_by_{of}": ratio} if what.startswith("vidur") else {}
    return found


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(vidur(Path(sys.argv[3]), sys.argv[2] == "vidur")))
        return
    from artifact.errors import InputError

    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("trace", help="a file that trace.path takes without more said")
    parser.add_argument("--requests", type=int, default=3000, help="the first, of at most 8,192 tokens each")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--vidur", metavar="PYTHON", help="the path of an interpreter that has Vidur")
    asked = parser.parse_args()
    if asked.vidur and not Path(asked.vidur).is_file():
        parser.error(f"--vidur {asked.vidur}: no such file; give the path of a Python interpreter")
    trace = ["engine=sim", "workload=trace", f"trace.path={Path(asked.trace).resolve()}", "trace.max_tokens=8192"]
    trace.append(f"trace.requests={asked.requests}")
    machine = {"cores": os.cpu_count(), "load_average": os.getloadavg()[0]}
    try:
        print(json.dumps(machine | compare(trace, asked.rounds, asked.vidur), indent=1))
    except InputError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()

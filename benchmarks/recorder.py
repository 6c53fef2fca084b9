"""The time of a decode step in; what recording costs a server, in microseconds per step and as a share of it, out.

    python benchmarks/recorder.py [TPOT_MS]

Times ``record()`` of the plugin against one of a stat logger that does nothing, in turns within one run, on the same
statistics: decode steps of 32 requests of 128 tokens, so that every fourth step starts and ends one. vLLM's own classes
are used where vLLM is installed, else stand-ins with the same fields. ``record_us`` and ``empty_us`` are CPU time of
the calling thread, ``cpu_us_per_step`` is all that the process spends, the writing thread included, less the same loop
with the empty logger. TPOT_MS is 2 unless given: about the fastest decode step that was measured.
"""

import importlib.util
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
REAL = importlib.util.find_spec("vllm") is not None
if not REAL:
    sys.path.append(str(ROOT / "tests" / "fake_vllm"))

from vllm.v1.metrics.loggers import StatLoggerBase  # noqa: E402

from artifact.engines.recorder import FOLDER, Recorder  # noqa: E402
from tests.record_support import Finished, Graph, Iteration, Scheduler, vllm_config  # noqa: E402

STEPS, ROUNDS = 20_000, 15
RUNNING, OUTPUT = 32, 128


class Empty(StatLoggerBase):  # type: ignore[misc]
    """A stat logger that does nothing: what vLLM spends on calling one."""

    def __init__(self, vllm_config: Any, engine_index: int = 0) -> None: ...

    def record(
        self, scheduler_stats: Any, iteration_stats: Any, mm_cache_stats: Any = None, engine_idx: int = 0
    ) -> None:
        """Do nothing."""

    def log_engine_initialized(self) -> None:
        """Do nothing."""


def steps() -> list[tuple[Any, Any]]:
    """Return the statistics of STEPS steps."""
    if REAL:
        from vllm.compilation.cuda_graph import CUDAGraphStat
        from vllm.v1.engine import FinishReason
        from vllm.v1.metrics.stats import FinishedRequestStats, IterationStats, SchedulerStats
    made = []
    every = OUTPUT // RUNNING
    for number in range(STEPS):
        first, ended = [0.021] * (number % every == 0), number % every == 0
        if REAL:
            graph = CUDAGraphStat(RUNNING, RUNNING, 0, "FULL")
            scheduler = SchedulerStats(RUNNING, 0, kv_cache_usage=0.3, cudagraph_stats=graph)
            iteration = IterationStats()
            iteration.num_generation_tokens, iteration.time_to_first_tokens_iter = RUNNING, first
            done = FinishedRequestStats(FinishReason.LENGTH, "id", 0.3, 256, OUTPUT, mean_time_per_output_token=0.002)
            iteration.finished_requests = [done] * ended
        else:
            scheduler = Scheduler(RUNNING, 0, 0, 0.3, Graph(RUNNING, RUNNING, "FULL"))
            iteration = Iteration(time.time(), RUNNING, first, [Finished(0.3, 256, OUTPUT, 0.002)] * ended)
        made.append((scheduler, iteration))
    return made


def loop(logger: Any, calls: list[tuple[Any, Any]]) -> tuple[float, float]:
    """Return the thread's and the process's CPU seconds of telling ``logger`` all ``calls``."""
    record, process, thread = logger.record, time.process_time(), time.thread_time()
    for scheduler, iteration in calls:
        record(scheduler, iteration, mm_cache_stats=None, engine_idx=0)
    return time.thread_time() - thread, time.process_time() - process


def main() -> None:
    tpot_us = float(sys.argv[1]) * 1e3 if len(sys.argv) > 1 else 2000.0
    calls, empty = steps(), Empty(None)
    recorder_us, empty_us, cpu_us = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        os.environ[FOLDER] = folder
        for _ in range(ROUNDS):
            bare_own, bare_cpu = loop(empty, calls)
            recorder = Recorder(vllm_config())
            own, cpu = loop(recorder, calls)
            before = time.process_time()
            recorder.close()
            cpu += time.process_time() - before
            recorder_us.append(own / STEPS * 1e6)
            empty_us.append(bare_own / STEPS * 1e6)
            cpu_us.append((cpu - bare_cpu) / STEPS * 1e6)
        size = sum(file.stat().st_size for file in Path(folder).iterdir())
    record, bare = statistics.median(recorder_us), statistics.median(empty_us)
    answer = {
        "statistics": "vLLM's" if REAL else "stand-ins",
        "steps": STEPS * ROUNDS,
        "record_us": record,
        "empty_us": bare,
        "ratio": record / bare,
        "cpu_us_per_step": statistics.median(cpu_us),
        "tpot_us": tpot_us,
        "share_of_tpot": (record - bare) / tpot_us,
        "cpu_share_of_tpot": statistics.median(cpu_us) / tpot_us,
        "bytes_per_step": size / (STEPS * ROUNDS),
    }
    print(json.dumps(answer, indent=1))


if __name__ == "__main__":
    main()

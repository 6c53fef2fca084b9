"""What vLLM tells its stat loggers in, a recording in a folder out. Imports no vLLM: tested and timed without it.

``add`` runs on the front end's event loop and only appends numbers to lists. A thread takes them once a second, packs
and writes them: the work that takes time (zlib, the disk) is done without the interpreter's lock.
"""

import atexit
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from artifact.engines.record_segments import Segments, segment_name
from artifact.workloads.record_format import (
    COLUMNS,
    DONE,
    FIRST,
    LOST,
    META,
    RUNTIME_MODES,
    STEP,
    UNKNOWN,
    pack_json,
    pack_rows,
)

FLUSH_S = 1.0
MIB = 1 << 20
_MODES = {name: place for place, name in enumerate(RUNTIME_MODES)}
_ROWS_A_FRAME = 4096
_MOST_STEPS = 200_000  # kept in memory, about 40 MiB, while the disk does not answer: minutes
_NAN = float("nan")


class RecordWriter:
    """One engine's recording. Raises nothing into its caller: what goes wrong ends the recording, with one line.

    ``server`` returns the settings that every file begins with; it is called on the thread. ``say`` takes the line.
    """

    def __init__(
        self,
        folder: Path,
        limit_bytes: int,
        server: Callable[[], dict[str, Any]],
        say: Callable[[str], None],
        engine: int = 0,
        flush_s: float = FLUSH_S,
    ) -> None:
        self.recording = True
        self._folder = folder
        self._server = server
        self._say = say
        self._pid = os.getpid()
        self._writer = {"pid": self._pid, "engine": engine, "started_s": time.time()}
        self._segments = Segments(folder, segment_name(self._pid, engine), limit_bytes, self._first)
        self._rows: dict[bytes, list[float]] = {kind: [] for kind in COLUMNS}
        self._steps, self._firsts, self._done = self._rows[STEP], self._rows[FIRST], self._rows[DONE]
        self._lost = 0
        self._flush_s = flush_s
        self._stop = threading.Event()
        self._meta: bytes | None = None
        self._thread = threading.Thread(target=self._run, name="artifact-recorder", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def add(self, scheduler_stats: Any, iteration_stats: Any) -> None:
        """Take a step's ``SchedulerStats`` and ``IterationStats``, either of which may be None."""
        if not self.recording:
            return
        try:
            self._take(scheduler_stats, iteration_stats)
        except Exception as error:  # a boundary: a recorder must never end the server that it watches
            self._end(f"vLLM's statistics are not what was expected ({type(error).__name__}: {error})")

    def _take(self, scheduler_stats: Any, iteration_stats: Any) -> None:
        if iteration_stats is None:  # the step gave no token
            now, sampled = time.time(), 0
        else:
            now, sampled = iteration_stats.iteration_timestamp, iteration_stats.num_generation_tokens
            if iteration_stats.time_to_first_tokens_iter or iteration_stats.finished_requests:
                self._take_requests(now, iteration_stats)
        if scheduler_stats is None:  # another front end of this engine was told
            return
        running = scheduler_stats.num_running_reqs
        waiting = scheduler_stats.num_waiting_reqs + scheduler_stats.num_skipped_waiting_reqs
        graph = scheduler_stats.cudagraph_stats
        if graph is not None:
            mode, tokens = _MODES.get(graph.runtime_mode, UNKNOWN), graph.num_unpadded_tokens
            padded = graph.num_padded_tokens
        elif running or waiting or sampled:
            mode = tokens = padded = UNKNOWN
        else:
            return  # nothing ran: the engine reports that it is idle
        if len(self._steps) >= _MOST_STEPS * len(COLUMNS[STEP]):
            self._lost += 1
            return
        self._steps.extend((now, mode, tokens, padded, running, waiting, scheduler_stats.kv_cache_usage, sampled))

    def _take_requests(self, now: float, stats: Any) -> None:
        for latency in stats.time_to_first_tokens_iter:
            self._firsts.extend((now, now - latency))
        for done in stats.finished_requests:
            output = done.num_generation_tokens
            tpot = done.mean_time_per_output_token if output > 1 else _NAN
            cached = done.num_cached_tokens
            arrival = now - done.e2e_latency
            reason = int(done.finish_reason)
            self._done.extend((now, arrival, done.num_prompt_tokens, output, cached, reason, tpot))

    def close(self) -> None:
        """Write what is left and end the recording."""
        atexit.unregister(self.close)
        self._stop.set()
        if os.getpid() == self._pid:  # a forked child has the lists and not the thread
            self._thread.join(timeout=10)

    def _run(self) -> None:
        while not self._stop.wait(self._flush_s) and self.recording:
            self._flush()
        if self.recording:
            self._flush()
        self.recording = False
        self._segments.close()

    def _flush(self) -> None:
        try:
            for kind, rows in self._rows.items():
                # Lists grow at their end alone, by whole rows, and each of these is one step to other threads.
                size = len(COLUMNS[kind]) * _ROWS_A_FRAME
                while rows:
                    part = rows[:size]
                    self._segments.write(pack_rows(kind, part))
                    del rows[: len(part)]
            if self._lost:
                lost, self._lost = self._lost, 0
                self._segments.write(pack_json(LOST, {"rows": lost}))
        except OSError as error:
            self._end(f"{error.filename or self._folder}: {error.strerror or error}")
        except Exception as error:  # a boundary, as in add
            self._end(f"{type(error).__name__}: {error}")

    def _first(self) -> bytes:
        if self._meta is None:
            self._meta = pack_json(META, {"writer": self._writer, "server": self._server()})
        return self._meta

    def _end(self, why: str) -> None:
        if self.recording:
            self.recording = False
            for rows in self._rows.values():
                rows.clear()
            self._say(f"the recording ends here: {why}; the server goes on")

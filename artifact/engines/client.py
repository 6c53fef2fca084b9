"""A schedule and a way to send one request in, request records out: the load generator's own clock discipline.

Open loops are timed from the *intended* arrival, so that a late client shows up as dispatch delay and not as a
shorter latency (coordinated omission). Knows nothing of vLLM.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pandas as pd

from artifact.errors import CellFailed
from artifact.records import REQUEST_COLUMNS, Schedule, typed

# Starts serving request number i and yields the count of new tokens at each arrival.
Send = Callable[[int], AsyncIterator[int]]

# The event loop's timer is no finer than a millisecond: sleep up to here, then yield in a tight loop.
_SPIN_S = 0.0015


async def _until(moment: float) -> None:
    while (left := moment - time.perf_counter()) > 0:
        await asyncio.sleep(left - _SPIN_S if left > _SPIN_S else 0)


class _Recorder:
    """Serves requests one by one and keeps a row for each; times are seconds after ``start``."""

    def __init__(self, schedule: Schedule, send: Send, start: float) -> None:
        self.schedule, self.send, self.start = schedule, send, start
        self.rows: list[dict[str, Any]] = []

    async def serve(self, index: int, intended: float) -> None:
        sent = time.perf_counter()
        first = last = None
        tokens, failure = 0, None
        try:
            async for count in self.send(index):
                last = time.perf_counter()
                first = first or last
                tokens += count
        except Exception as error:
            failure = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        planned = int(self.schedule.output_tokens[index])
        if failure is None and tokens != planned:
            failure = f"{tokens} output tokens, planned {planned}"
        self.rows.append(
            {
                "request": index,
                "intended_s": intended - self.start,
                "sent_s": sent - self.start,
                "first_token_s": first - self.start if first else None,
                "last_token_s": last - self.start if last else None,
                "prompt_tokens": int(self.schedule.prompt_tokens[index]),
                "planned_output_tokens": planned,
                "output_tokens": tokens,
                "measured": bool(self.schedule.measured[index]),
                "failure": failure,
            }
        )


async def _open_group(recorder: _Recorder, indices: list[int]) -> None:
    base = time.perf_counter()
    tasks = []
    for index in indices:
        intended = base + float(recorder.schedule.arrival_s[index])
        await _until(intended)
        tasks.append(asyncio.create_task(recorder.serve(index, intended)))
    await asyncio.gather(*tasks)


async def _closed_group(recorder: _Recorder, indices: list[int], concurrency: int) -> None:
    queue = iter(indices)

    async def seat() -> None:
        for index in queue:  # shared by all seats: each takes the next request when it is free
            await recorder.serve(index, time.perf_counter())

    await asyncio.gather(*(seat() for _ in range(min(concurrency, len(indices)))))


async def drive(schedule: Schedule, send: Send, start: float, limit_s: float) -> pd.DataFrame:
    """Send ``schedule`` and return one row per request (REQUEST_COLUMNS), in order of the schedule.

    ``start`` is the cell's zero on ``time.perf_counter``. Raises CellFailed(timeout) when not all requests have
    finished ``limit_s`` seconds after the call; requests still running are cancelled.
    """
    recorder = _Recorder(schedule, send, start)

    async def groups() -> None:
        for group in range(int(schedule.group[-1]) + 1):
            indices = [int(index) for index in (schedule.group == group).nonzero()[0]]
            if schedule.concurrency is None:
                await _open_group(recorder, indices)
            else:
                await _closed_group(recorder, indices, schedule.concurrency)

    try:
        async with asyncio.timeout(limit_s):
            await groups()
    except TimeoutError:
        done = len(recorder.rows)
        raise CellFailed("timeout", f"{done} of {len(schedule)} requests finished in {limit_s:g} s") from None
    rows = sorted(recorder.rows, key=lambda row: int(row["request"]))
    return typed(pd.DataFrame(rows), REQUEST_COLUMNS)

"""A schedule, a scheduler and the price of a step in; every request's and step's times on a virtual clock out.

The engine core is one thread. In a turn it reads the queue, schedules and issues a step, and, once two steps are in
flight (asynchronous scheduling) or one is (synchronous), waits for the older one and hands its tokens out. So the
host issues step n+1 while the GPU works on step n, and a request that arrives meanwhile joins step n+2 at best.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import pandas as pd

from artifact.errors import CellFailed
from artifact.records import Schedule
from artifact.simulator.scheduler import Batch, Request, Scheduler


class Price(NamedTuple):
    """What a step takes, in seconds."""

    runtime_mode: str
    padded_tokens: int
    loop_s: float  # host: outputs of the step before, scheduling
    launch_s: float  # host: issuing the step
    gpu_s: float  # GPU: forward pass
    tail_s: float  # GPU: logits and sampling, after the forward pass
    whole_graph: bool  # the GPU starts when the host has issued everything; else as it goes


class _Flight(NamedTuple):
    batch: Batch
    price: Price
    launched_s: float
    gpu_end_s: float


class _Client:
    """Sends the schedule's requests group by group.

    A request reaches the engine ``frontend_s`` after it was sent, and ``spacing_s`` after the one before at the least.
    """

    def __init__(self, schedule: Schedule, max_model_len: int, frontend_s: float, spacing_s: float) -> None:
        self.schedule, self.max_model_len = schedule, max_model_len
        self.frontend_s, self.spacing_s = frontend_s, spacing_s
        self._passed_s = -math.inf  # when the request before passed the front end
        count = len(schedule)
        self.arrival = schedule.arrival_s.tolist()
        self.prompt = schedule.prompt_tokens.tolist()
        self.output = schedule.output_tokens.tolist()
        self.group = schedule.group.tolist()
        self.intended: list[float | None] = [None] * count
        self.sent: list[float | None] = [None] * count
        self.first: list[float | None] = [None] * count
        self.last: list[float | None] = [None] * count
        self.tokens = [0] * count
        self.failure: list[str | None] = [None] * count
        self.finished = 0
        self.inbox: deque[tuple[float, Request]] = deque()  # ascending in time
        self._next = self._open = 0  # next request of the group to send; requests of the group not yet finished
        self._group_end = 0
        self._start_group(0.0)

    def _start_group(self, now_s: float) -> None:
        while self._open == 0 and self._group_end < len(self.group):
            begin = self._group_end
            end = begin
            while end < len(self.group) and self.group[end] == self.group[begin]:
                end += 1
            self._next, self._group_end, self._open = begin, end, end - begin
            if self.schedule.concurrency is None:
                while self._next < end:
                    self._send(now_s + self.arrival[self._next])
            else:
                for _ in range(min(self.schedule.concurrency, end - begin)):
                    self._refill(now_s)

    def _send(self, intended_s: float) -> bool:
        """Send the next request; False where vLLM's front end refuses it."""
        index = self._next
        self._next += 1
        self.intended[index] = self.sent[index] = intended_s
        room = self.max_model_len - self.prompt[index]
        if room <= 0:
            self.failure[index] = (
                f"ValueError: prompt of {self.prompt[index]} tokens, server.max_model_len={self.max_model_len}"
            )
            self.finished += 1
            self._open -= 1
            return False
        request = Request(index, self.prompt[index], min(self.output[index], room))
        self.sent[index] = self._passed_s = max(intended_s, self._passed_s + self.spacing_s)
        self.inbox.append((self._passed_s + self.frontend_s, request))
        return True

    def _refill(self, now_s: float) -> None:
        while self._next < self._group_end and not self._send(now_s):
            pass

    def take(self, batch: Batch, now_s: float) -> None:
        """Record the tokens of a step that reached the front end at ``now_s``, and send what waited for them."""
        for request in batch.first:
            self.first[request.index] = now_s
        for request in batch.finished:
            index = request.index
            self.last[index], self.tokens[index] = now_s, request.output
            if request.output != self.output[index]:
                self.failure[index] = f"{request.output} output tokens, planned {self.output[index]}"
            self.finished += 1
            self._open -= 1
            if self.schedule.concurrency is not None:
                self._refill(now_s)
        if self._open == 0:
            self._start_group(now_s)

    def frame(self) -> pd.DataFrame:
        """Return one row per request, in order of the schedule."""
        return pd.DataFrame(
            {
                "request": range(len(self.schedule)),
                "intended_s": self.intended,
                "sent_s": self.sent,
                "first_token_s": self.first,
                "last_token_s": self.last,
                "prompt_tokens": self.prompt,
                "planned_output_tokens": self.output,
                "output_tokens": self.tokens,
                "measured": self.schedule.measured,
                "failure": self.failure,
            }
        )


_STEP_FIELDS = (
    "t_s",
    "runtime_mode",
    "num_tokens",
    "padded_tokens",
    "num_running",
    "num_waiting",
    "kv_usage",
    "num_reqs",
    "num_decode",
    "prefill_tokens",
    "context_tokens",
    "launched_s",
    "launch_ms",
    "gpu_ms",
    "goes_on",  # some request of the step is in the next one
)


def serve(
    schedule: Schedule,
    scheduler: Scheduler,
    pricing: Callable[[Batch], Callable[[float, Batch], Price]],
    *,
    max_model_len: int,
    frontend_s: float,
    spacing_s: float,
    async_scheduling: bool,
    limit_s: float,
) -> tuple[pd.DataFrame, pd.DataFrame, float]:
    """Return requests, steps (all columns of STEP_COLUMNS) and the seconds until the last token.

    ``pricing`` gives what prices a step, and those that differ from it in their context alone: a function of the time
    in seconds at which the host turns to the step, and the step.
    Raises CellFailed(timeout) where the clock passes ``limit_s``, or where a request can never get its blocks:
    vLLM would let it wait for ever.
    """
    client = _Client(schedule, max_model_len, frontend_s, spacing_s)
    depth = 2 if async_scheduling else 1
    flights: deque[_Flight] = deque()
    rows: list[tuple[Any, ...]] = []
    now = gpu_free = 0.0
    inbox = client.inbox
    alike: Iterator[Batch] = iter(())  # nearly all steps only decode the requests of the one before: those come cheap
    price: Callable[[float, Batch], Price] | None = None  # of those
    total = len(schedule)
    while client.finished < total:
        if now > limit_s:
            raise CellFailed("timeout", f"{client.finished} of {total} requests finished in {limit_s:g} s")
        while inbox and inbox[0][0] <= now:
            scheduler.add(inbox.popleft()[1])
            alike = iter(())
        if (batch := next(alike, None)) is not None:
            price = price or pricing(batch)
            cost = price(now, batch)
        elif scheduler.has_requests and (batch := scheduler.schedule()) is not None:
            cost = pricing(batch)(now, batch)
            alike, price = islice(scheduler.decodes(), max(0, scheduler.only_decodes())), None
        if batch is not None:
            start = now + cost.loop_s
            now = start + cost.launch_s
            begun = max(gpu_free, now if cost.whole_graph else start)
            gpu_free = max(begun + cost.gpu_s, now) + cost.tail_s
            flights.append(_Flight(batch, cost, start, gpu_free))
            if len(flights) < depth:  # no step is done by the time its launch returns
                continue
        if flights:
            flight = flights.popleft()
            now = max(now, flight.gpu_end_s)
            if flight.batch.first or flight.batch.finished:
                scheduler.complete(flight.batch)
                client.take(flight.batch, now)
            rows.append(_row(flight, scheduler, now))
        elif scheduler.has_requests:
            stuck = scheduler.waiting[0]
            raise CellFailed(
                "timeout",
                f"request {stuck.index} needs the blocks of {stuck.target} tokens, the KV cache has "
                f"{scheduler.usable_blocks} usable blocks of {scheduler.block_size}: it would wait for ever",
            )
        else:
            now = inbox[0][0]
    return client.frame(), _steps(rows), now


def _row(flight: _Flight, scheduler: Scheduler, now: float) -> tuple[Any, ...]:
    batch, price = flight.batch, flight.price
    return (
        now,
        price.runtime_mode,
        batch.num_tokens,
        price.padded_tokens,
        len(scheduler.running),
        len(scheduler.waiting),
        1 - scheduler.free_blocks / scheduler.usable_blocks,
        batch.num_reqs,
        batch.num_decode,
        batch.prefill_tokens,
        batch.context_tokens,
        flight.launched_s,
        price.launch_s * 1e3,
        # as events would have it: without a whole graph the span holds the host's gaps
        (price.gpu_s if price.whole_graph else max(price.gpu_s, price.launch_s)) * 1e3,
        batch.num_reqs > len(batch.finished),
    )


def _steps(rows: list[tuple[Any, ...]]) -> pd.DataFrame:
    frame = pd.DataFrame.from_records(rows, columns=list(_STEP_FIELDS))
    wall_ms = (frame["launched_s"].shift(-1) - frame["launched_s"]) * 1e3
    frame["wall_ms"] = wall_ms.where(frame["goes_on"])
    return frame.assign(step=range(len(frame))).drop(columns=["launched_s", "goes_on"])

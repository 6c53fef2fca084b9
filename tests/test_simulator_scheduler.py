"""The scheduler against cases worked by hand, and against a plain one that walks over every request in every step."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artifact.errors import InputError
from artifact.simulator.scheduler import Batch, Request, Scheduler


def run(scheduler: Scheduler, lengths: list[tuple[int, int]], depth: int) -> list[Batch]:
    """Serve all requests from the start; ``depth`` steps in flight."""
    for index, (prompt, output) in enumerate(lengths):
        scheduler.add(Request(index, prompt, output))
    batches: list[Batch] = []
    flights: list[Batch] = []
    while scheduler.has_requests or flights:
        batch = scheduler.schedule() if scheduler.has_requests else None
        if batch is not None:
            batches.append(batch)
            flights.append(batch)
            if len(flights) < depth:
                continue
        if not flights:
            break  # stuck
        scheduler.complete(flights.pop(0))
    return batches


def shape(batches: list[Batch]) -> list[tuple[int, int, int]]:
    return [(batch.num_tokens, batch.num_reqs, batch.context_tokens) for batch in batches]


def test_one_request_decodes_output_less_one_steps() -> None:
    scheduler = Scheduler(4, 100, usable_blocks=10, block_size=16)
    assert shape(run(scheduler, [(20, 4)], depth=1)) == [(20, 1, 0), (1, 1, 20), (1, 1, 21), (1, 1, 22)]
    assert scheduler.free_blocks == 10


def test_prompt_is_chunked_to_the_budget_that_decodes_leave() -> None:
    scheduler = Scheduler(4, 10, usable_blocks=100, block_size=16)
    batches = run(scheduler, [(4, 3), (25, 1)], depth=1)
    # 4 + 6 of 25; then 1 decode + 9, 1 decode + 9, the last token of the prompt
    assert shape(batches) == [(10, 2, 0), (10, 2, 4 + 6), (10, 2, 5 + 15), (1, 1, 24)]
    assert [batch.num_decode for batch in batches] == [0, 1, 1, 1]
    assert [batch.prefill_tokens for batch in batches] == [10, 9, 9, 0]
    assert [[request.index for request in batch.first] for batch in batches] == [[0], [], [], [1]]
    assert batches[3].uniform  # a one-token last chunk counts as decode


def test_running_requests_take_budget_and_seats_before_waiting_ones() -> None:
    scheduler = Scheduler(2, 8, usable_blocks=100, block_size=16)
    batches = run(scheduler, [(8, 2), (8, 1), (3, 1)], depth=1)
    # step 2: decode of 0 and 7 of request 1; step 3: its last token, and a seat is free for request 2
    assert shape(batches) == [(8, 1, 0), (8, 2, 8), (4, 2, 7)]


def test_async_scheduling_keeps_a_finished_request_seated_one_step() -> None:
    sync, overlapped = (Scheduler(1, 100, usable_blocks=10, block_size=16) for _ in range(2))
    lengths = [(5, 2), (6, 1)]
    assert [batch.step for batch in run(sync, lengths, depth=1)] == [0, 1, 2]
    # step 2 schedules nothing: request 0 sits there with its last token on the GPU
    batches = run(overlapped, lengths, depth=2)
    assert [batch.step for batch in batches] == [0, 1, 3]
    assert shape(batches) == [(5, 1, 0), (1, 1, 5), (6, 1, 0)]


def test_admission_needs_blocks_for_the_whole_prompt_even_if_chunked() -> None:
    scheduler = Scheduler(4, 16, usable_blocks=5, block_size=16)
    scheduler.add(Request(0, 30, 1))  # 2 blocks
    scheduler.add(Request(1, 64, 1))  # 4 blocks: only 3 are left
    first = scheduler.schedule()
    assert first is not None
    scheduler.complete(first)
    second = scheduler.schedule()  # request 0's last 14 tokens; 2 tokens of budget are left and not given
    assert second is not None
    assert (second.num_tokens, len(scheduler.waiting)) == (14, 1)


def test_out_of_blocks_preempts_the_last_and_computes_it_anew() -> None:
    scheduler = Scheduler(4, 100, usable_blocks=4, block_size=4)
    batches = run(scheduler, [(8, 3), (8, 3)], depth=1)
    # both hold 2 blocks; the first decode needs a third each: request 1 goes, with one token emitted
    assert shape(batches) == [(16, 2, 0), (1, 1, 8), (1, 1, 9), (9, 1, 0), (1, 1, 9)]
    assert [batch.preempted for batch in batches] == [0, 1, 0, 0, 0]
    assert [[request.index for request in batch.first] for batch in batches] == [[0, 1], [], [], [], []]
    assert [[request.index for request in batch.finished] for batch in batches] == [[], [], [0], [], [1]]


def test_nothing_is_admitted_in_a_step_that_preempts() -> None:
    scheduler = Scheduler(4, 100, usable_blocks=5, block_size=4)
    batches = run(scheduler, [(8, 4), (8, 4), (4, 1), (4, 1)], depth=1)
    # step 0: 2 + 2 + 1 blocks; step 1: request 2's block is free again and goes to request 0, request 1 is preempted
    assert shape(batches)[:2] == [(20, 3, 0), (1, 1, 8)]
    # step 2: request 1 heads the queue and needs 3 of the 2 free blocks, so request 3 waits behind it
    assert batches[2].num_reqs == 1


def test_a_sequence_larger_than_the_cache_gets_stuck() -> None:
    scheduler = Scheduler(1, 100, usable_blocks=2, block_size=4)
    batches = run(scheduler, [(6, 10)], depth=2)
    assert scheduler.has_requests
    assert all(not batch.finished for batch in batches)


def test_fewer_tokens_than_seats_is_refused() -> None:
    with pytest.raises(InputError, match=r"max_num_batched_tokens=4 must be at least server\.max_num_seqs=8"):
        Scheduler(8, 4, usable_blocks=10, block_size=16)


class Plain:
    """The rules told per request and per step, with nothing summed ahead: slow and plainly right."""

    def __init__(self, seats: int, budget: int, blocks: int, size: int, lengths: list[tuple[int, int]]) -> None:
        self.seats, self.budget, self.blocks, self.size = seats, budget, blocks, size
        self.requests = [
            {"index": i, "prompt": p, "output": o, "computed": 0, "emitted": 0, "flying": 0, "blocks": 0}
            for i, (p, o) in enumerate(lengths)
        ]
        self.waiting = list(self.requests)
        self.running: list[dict[str, int]] = []

    def free(self) -> int:
        return self.blocks - sum(request["blocks"] for request in self.running)

    def take(self, request: dict[str, int], tokens: int) -> bool:
        wanted = -(-(request["computed"] + tokens) // self.size)
        if wanted - request["blocks"] > self.free():
            return False
        request["blocks"] = wanted
        return True

    def schedule(self) -> list[tuple[dict[str, int], int, int, bool]]:
        """Return (request, tokens, context, emits) for each scheduled request."""
        left, preempted, batch = self.budget, False, []
        position = 0
        while position < len(self.running) and left:
            request = self.running[position]
            known = request["prompt"] + request["emitted"] + request["flying"]
            tokens = min(known - request["computed"], left)
            position += 1
            if request["emitted"] + request["flying"] >= request["output"]:
                continue
            fits = self.take(request, tokens)
            while not fits:
                last = self.running.pop()
                last["blocks"] = last["computed"] = 0
                self.waiting.insert(0, last)
                preempted = True
                if last is request:
                    break
                fits = self.take(request, tokens)
            if not fits:
                break
            batch.append((request, tokens))
            left -= tokens
        while not preempted and self.waiting and left and len(self.running) < self.seats:
            request = self.waiting[0]
            whole = request["prompt"] + request["emitted"]
            if -(-whole // self.size) > self.free():
                break
            self.running.append(self.waiting.pop(0))
            tokens = min(whole, left)
            assert self.take(request, tokens)
            batch.append((request, tokens))
            left -= tokens
        scheduled = []
        for request, tokens in batch:
            context = request["computed"]
            request["computed"] += tokens
            emits = request["computed"] == request["prompt"] + request["emitted"] + request["flying"]
            request["flying"] += emits
            scheduled.append((request, tokens, context, emits))
        return scheduled

    def complete(self, batch: list[tuple[dict[str, int], int, int, bool]]) -> list[int]:
        finished = []
        for request, _, _, emits in batch:
            request["flying"] -= emits
            request["emitted"] += emits
            if emits and request["emitted"] == request["output"]:
                finished.append(request["index"])
                request["blocks"] = 0
                (self.running if request in self.running else self.waiting).remove(request)
        return finished


@settings(max_examples=300)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 30)), min_size=1, max_size=12),
    seats=st.integers(1, 6),
    extra=st.integers(0, 30),
    size=st.sampled_from([1, 4, 16]),
    spare=st.integers(0, 20),
    depth=st.sampled_from([1, 2]),
)
def test_equals_the_plain_scheduler_and_conserves(
    lengths: list[tuple[int, int]], seats: int, extra: int, size: int, spare: int, depth: int
) -> None:
    budget = seats + extra
    blocks = max(-(-(prompt + output - 1) // size) for prompt, output in lengths) + spare
    plain = Plain(seats, budget, blocks, size, lengths)
    scheduler = Scheduler(seats, budget, blocks, size)
    for index, (prompt, output) in enumerate(lengths):
        scheduler.add(Request(index, prompt, output))
    flights: list[tuple[Batch, list[tuple[dict[str, int], int, int, bool]]]] = []
    firsts: list[int] = []
    for _ in range(20_000):
        if not scheduler.has_requests and not flights:
            break
        batch, rows = scheduler.schedule(), plain.schedule()
        assert (batch is None) == (not rows)
        assert len(scheduler.running) == len(plain.running) <= seats
        assert scheduler.free_blocks == plain.free() >= 0
        assert [request.index for request in scheduler.waiting] == [request["index"] for request in plain.waiting]
        if batch is not None:
            tokens = [count for _, count, _, _ in rows]
            assert batch.num_tokens == sum(tokens) <= budget
            assert batch.num_reqs == len(tokens)
            assert batch.num_decode == tokens.count(1)
            assert batch.prefill_tokens == sum(tokens) - tokens.count(1)
            assert batch.context_tokens == sum(context for _, _, context, _ in rows)
            firsts += [request.index for request in batch.first]
            flights.append((batch, rows))
            if len(flights) < depth:
                continue
        assert flights, "stuck"
        done, done_rows = flights.pop(0)
        scheduler.complete(done)
        assert sorted(request.index for request in done.finished) == sorted(plain.complete(done_rows))
    assert [request["emitted"] for request in plain.requests] == [output for _, output in lengths]
    assert sorted(firsts) == list(range(len(lengths)))
    assert scheduler.free_blocks == blocks

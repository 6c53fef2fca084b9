"""Requests in, one batch per step out: vLLM V1's scheduler with first-come-first-served order and chunked prefill.

Follows ``vllm/v1/core/sched/scheduler.py`` and ``async_scheduler.py`` of 0.21.0. Lengths are exact (ignore_eos), so a
decoding request gets one token in every step until its last, and a step costs a few sums over counts rather than a
loop over the batch. Two facts make that exact: only the last running request can be in the middle of its prefill,
because it was cut where the budget ended; and max_num_batched_tokens >= max_num_seqs, so decodes always fit.
Only a step that runs out of blocks walks over the requests one by one.
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from artifact.errors import InputError


class Request:
    """One request. ``done`` output tokens were emitted before its last preemption; ``target`` is what to prefill."""

    __slots__ = ("computed", "done", "end", "index", "output", "prompt", "ready", "target")

    def __init__(self, index: int, prompt: int, output: int) -> None:
        self.index, self.prompt, self.output = index, prompt, output
        self.done = 0
        self.target = prompt
        self.computed = 0  # tokens prefilled so far
        self.ready = -1  # step that finished the prefill; -1 before
        self.end = -1  # step that emits the last token


class Batch(NamedTuple):
    """One step. ``first`` and ``finished`` are requests whose first or last token this step emits."""

    step: int
    num_tokens: int
    num_reqs: int
    num_decode: int  # requests with exactly one scheduled token
    prefill_tokens: int  # tokens of the others
    context_tokens: int  # tokens in the KV cache before the step, over the batch
    preempted: int
    first: tuple[Request, ...]
    finished: tuple[Request, ...]

    @property
    def uniform(self) -> bool:
        """Whether every request has exactly one token, so that a decode graph may be replayed."""
        return self.num_tokens == self.num_reqs


class Scheduler:
    """``add`` requests, then ``schedule`` and ``complete`` steps in order.

    With async scheduling the caller schedules step n+1 before it completes step n: a request that reached its last
    token then keeps its seat and its blocks, unscheduled, for one more step.
    """

    def __init__(self, max_num_seqs: int, max_num_batched_tokens: int, usable_blocks: int, block_size: int) -> None:
        if max_num_batched_tokens < max_num_seqs:
            raise InputError(
                f"server.max_num_batched_tokens={max_num_batched_tokens} must be at least "
                f"server.max_num_seqs={max_num_seqs}: vLLM refuses less"
            )
        self.max_num_seqs, self.budget, self.block_size = max_num_seqs, max_num_batched_tokens, block_size
        self.usable_blocks = self.free_blocks = usable_blocks
        self.waiting: deque[Request] = deque()
        self.running: dict[Request, None] = {}  # in order of admission
        self._step = 0
        self._chunk: Request | None = None  # the running request in the middle of its prefill: the last one
        # Decoding requests: how many, the sum of (tokens in the cache - step), how many start a block in a step
        # of each residue, and who emits the last token when.
        self._decoding = 0
        self._offset = 0
        self._block_starts = [0] * block_size
        self._ends: dict[int, list[Request]] = {}

    @property
    def has_requests(self) -> bool:
        """Whether anything waits or holds a seat."""
        return bool(self.running or self.waiting)

    def add(self, request: Request) -> None:
        """Put a new request at the end of the queue."""
        self.waiting.append(request)

    def blocks_of(self, request: Request) -> int:
        """Return the KV blocks that a running request holds after the step last scheduled."""
        if request.ready < 0:
            tokens = request.computed
        else:
            tokens = request.target + min(self._step - 1, request.end) - request.ready
        return -(-tokens // self.block_size)

    def schedule(self) -> Batch | None:
        """Compose the next step; None where no request can be given a token."""
        step = self._step
        self._retire(step)
        preempted = self._make_room(step)
        decoding, context = self._decoding, self._offset + self._decoding * step
        left = self.budget - decoding
        self.free_blocks -= self._block_starts[step % self.block_size]
        self._step = step + 1

        chunks: list[int] = []
        first: list[Request] = []
        if self._chunk is not None and left:
            context += self._chunk.computed
            chunks.append(self._prefill(self._chunk, step, left, first))
            left -= chunks[-1]
        if not preempted:
            while self.waiting and left and len(self.running) < self.max_num_seqs:
                request = self.waiting[0]
                if -(-request.target // self.block_size) > self.free_blocks:
                    break
                self.waiting.popleft()
                self.running[request] = None
                chunks.append(self._prefill(request, step, left, first))
                left -= chunks[-1]
        if not decoding and not chunks:
            return None
        single = chunks.count(1)
        prefill = sum(chunks) - single
        return Batch(
            step=step,
            num_tokens=decoding + single + prefill,
            num_reqs=decoding + len(chunks),
            num_decode=decoding + single,
            prefill_tokens=prefill,
            context_tokens=context,
            preempted=preempted,
            first=tuple(request for request in first if not request.done),
            finished=tuple(self._ends.get(step, ())),
        )

    def only_decodes(self) -> int:
        """Return for how many steps from the next one on the same requests get one token each, and none its last.

        That is so as long as nothing is added and the blocks last; 0 or less where it is not so.
        """
        if self.waiting or self._chunk is not None or not self._decoding or self._step - 1 in self._ends:
            return 0
        return min(self._ends) - self._step

    def decodes(self) -> Iterator[Batch]:
        """Schedule such steps one after the other, as ``schedule`` would, until a block is lacking."""
        count, starts, size = self._decoding, self._block_starts, self.block_size
        while (needed := starts[self._step % size]) <= self.free_blocks:
            step = self._step
            self.free_blocks -= needed
            self._step = step + 1
            yield Batch(step, count, count, count, 0, self._offset + count * step, 0, (), ())

    def complete(self, batch: Batch) -> None:
        """Take the outputs of a step: requests that emitted their last token give up seat and blocks."""
        for request in batch.finished:
            if request in self.running:
                self.free_blocks += self.blocks_of(request)
                del self.running[request]
            else:  # preempted while its last step was on the GPU
                self.waiting.remove(request)

    def _prefill(self, request: Request, step: int, left: int, first: list[Request]) -> int:
        """Schedule the next chunk of a prefill, take its blocks, and return its tokens."""
        tokens = min(request.target - request.computed, left)
        before = -(-request.computed // self.block_size)
        request.computed += tokens
        self.free_blocks -= -(-request.computed // self.block_size) - before
        if request.computed < request.target:
            self._chunk = request
            return tokens
        if self._chunk is request:
            self._chunk = None
        request.ready, request.end = step, step + request.output - request.done - 1
        first.append(request)
        self._ends.setdefault(request.end, []).append(request)
        if request.end > step:
            self._count(request, 1)
        return tokens

    def _count(self, request: Request, sign: int) -> None:
        """Enter a request among the decoding ones (sign 1) or take it out (-1)."""
        offset = request.target - request.ready - 1
        self._decoding += sign
        self._offset += sign * offset
        self._block_starts[-offset % self.block_size] += sign

    def _retire(self, step: int) -> None:
        """Take requests that emitted their last token in the step before out of the decoding ones."""
        for request in self._ends.pop(step - 1, ()):
            if request.end > request.ready:
                self._count(request, -1)

    def _make_room(self, step: int) -> int:
        """Preempt from the end of the running ones until this step's blocks fit; return how many were preempted.

        Walks in order as vLLM does: a request that finds no free block pushes out the last one, at worst itself.
        """
        needed = self._block_starts[step % self.block_size]
        chunk = self._chunk
        chunk_needs = 0
        if chunk is not None and (left := self.budget - self._decoding):
            tokens = min(chunk.target - chunk.computed, left)
            held = -(-chunk.computed // self.block_size)
            chunk_needs = -(-(chunk.computed + tokens) // self.block_size) - held
        if needed + chunk_needs <= self.free_blocks:
            return 0
        preempted = 0
        taken = 0
        order = list(self.running)
        position = 0
        while position < len(order):
            request = order[position]
            if request is self._chunk:
                wants = chunk_needs
            elif request.ready >= 0 and request.end >= step:
                wants = int((request.target + step - request.ready - 1) % self.block_size == 0)
            else:
                wants = 0  # holds its seat, unscheduled
            while wants > self.free_blocks - taken and len(order) > position:
                self._preempt(order.pop(), step)
                preempted += 1
            if position < len(order):
                taken += wants
            position += 1
        return preempted

    def _preempt(self, request: Request, step: int) -> None:
        """Free a running request's blocks and put it at the head of the queue, to be computed anew."""
        self.free_blocks += self.blocks_of(request)
        del self.running[request]
        if request is self._chunk:
            self._chunk = None
        self.waiting.appendleft(request)
        if request.ready >= 0:
            if request.end >= step:
                self._ends[request.end].remove(request)
                if request.end > request.ready:
                    self._count(request, -1)
            request.done += min(step - 1, request.end) - request.ready + 1
        request.target = request.prompt + request.done
        request.computed, request.ready, request.end = 0, -1, -1

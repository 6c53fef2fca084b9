import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class CUDAGraph:
    kernels = 0

    def replay(self) -> None:
        if not self.kernels:
            raise RuntimeError("a graph is replayed that holds nothing")


class Event:
    """Like CUDA's, it tells a time only if it was asked to, was recorded and has been waited for."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        self.enable_timing, self.complete = enable_timing, False

    def record(self, stream: Any = None) -> None:
        self.at_s, self.complete = time.perf_counter() + 1e-3 * copies, False  # a copy takes a millisecond
        pending.append(self)

    def elapsed_time(self, end_event: "Event") -> float:
        if not all(event.enable_timing and event.complete for event in (self, end_event)):
            raise RuntimeError("both events must be timed, recorded and complete")
        return (end_event.at_s - self.at_s) * 1e3


capturing: list[CUDAGraph] = []
pending: list[Event] = []
copies = 0


def synchronize(device: Any = None) -> None:
    while pending:
        pending.pop().complete = True


def empty_cache() -> None: ...


@contextmanager
def graph(cuda_graph: CUDAGraph) -> Iterator[None]:
    capturing.append(cuda_graph)
    yield
    capturing.remove(cuda_graph)

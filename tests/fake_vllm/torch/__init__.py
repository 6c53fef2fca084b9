"""A stand-in for the few names of torch that the probe uses. See ``vllm`` beside it for what it does not prove."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self


class Tensor:
    """Counts the kernels issued on it."""

    def add_(self, other: float) -> Self:
        if cuda.capturing is not None:
            cuda.capturing.kernels += 1
        return self


def zeros(*size: int, device: Any = None) -> Tensor:
    return Tensor()


class CUDAGraph:
    def __init__(self) -> None:
        self.kernels = 0

    def replay(self) -> None:
        if not self.kernels:
            raise RuntimeError("a graph is replayed that holds nothing")


class Event:
    """Like CUDA's, it tells a time only if it was asked to, was recorded and has been waited for."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        self.enable_timing, self.at_s, self.synchronised = enable_timing, None, False

    def record(self, stream: Any = None) -> None:
        self.at_s, self.synchronised = time.perf_counter(), False
        cuda.pending.append(self)

    def elapsed_time(self, end_event: "Event") -> float:
        for event in (self, end_event):
            if not (event.enable_timing and event.synchronised):
                raise RuntimeError("both events must be timed, recorded and complete")
        return (end_event.at_s - self.at_s) * 1e3


class cuda:
    """torch.cuda."""

    CUDAGraph, Event = CUDAGraph, Event
    capturing: CUDAGraph | None = None
    pending: list[Event] = []

    @classmethod
    def synchronize(cls, device: Any = None) -> None:
        for event in cls.pending:
            event.synchronised = True
        cls.pending.clear()

    @classmethod
    @contextmanager
    def graph(cls, cuda_graph: CUDAGraph) -> Iterator[None]:
        cls.capturing = cuda_graph
        yield
        cls.capturing = None

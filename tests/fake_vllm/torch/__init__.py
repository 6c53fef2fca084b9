"""A stand-in for the few names of torch that the probe uses. See ``vllm`` beside it for what it does not prove."""

from typing import Any, Self

from torch import cuda as cuda


class Tensor:
    def add_(self, other: float) -> Self:
        for graph in cuda.capturing:
            graph.kernels += 1
        return self

    def copy_(self, other: "Tensor") -> Self:
        cuda.copies += 1
        return self


uint8 = "uint8"


class OutOfMemoryError(RuntimeError): ...


def empty(*size: int, dtype: Any = None, device: Any = None) -> Tensor:
    return Tensor()


def zeros(*size: int, device: Any = None) -> Tensor:
    return Tensor()

import enum
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class CUDAGraphMode(enum.Enum):
    NONE = 0
    PIECEWISE = 1
    FULL = 2
    FULL_DECODE_ONLY = (FULL, NONE)
    FULL_AND_PIECEWISE = (FULL, PIECEWISE)

    def kinds(self) -> tuple["CUDAGraphMode", "CUDAGraphMode"]:
        """Of decode batches and of mixed ones."""
        decode, mixed = self.value if isinstance(self.value, tuple) else (self.value, self.value)
        return CUDAGraphMode(decode), CUDAGraphMode(mixed)

    def __str__(self) -> str:
        return self.name


current: Any = None


@contextmanager
def set_current_vllm_config(vllm_config: Any) -> Iterator[None]:
    global current  # noqa: PLW0603
    before, current = current, vllm_config
    try:
        yield
    finally:
        current = before

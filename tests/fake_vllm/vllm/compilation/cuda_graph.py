import weakref
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

from vllm.compilation.counter import compilation_counter


@dataclass(frozen=True)
class CUDAGraphStat:
    num_unpadded_tokens: int
    num_padded_tokens: int
    num_paddings: int
    runtime_mode: str


class CUDAGraphWrapper:
    _all_instances: ClassVar[weakref.WeakSet["CUDAGraphWrapper"]] = weakref.WeakSet()

    def __init__(self, runtime_mode: Any) -> None:
        self.runtime_mode = runtime_mode
        self.concrete_cudagraph_entries: dict[Any, Any] = {}
        CUDAGraphWrapper._all_instances.add(self)

    def capture(self, key: Any) -> None:
        self.concrete_cudagraph_entries[key] = SimpleNamespace(cudagraph=object())
        compilation_counter.num_cudagraph_captured += 1

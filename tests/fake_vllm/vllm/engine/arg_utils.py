import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from vllm.config import CUDAGraphMode

# Every field of EngineArgs and AsyncEngineArgs in vLLM 0.21.0: its dataclass takes no other keyword.
FIELDS = frozenset(Path(__file__).with_name("fields.txt").read_text().split())


class AsyncEngineArgs:
    def __init__(self, **given: Any) -> None:
        if unknown := sorted(given.keys() - FIELDS):
            raise TypeError(f"AsyncEngineArgs got an unexpected keyword argument {unknown[0]!r}")
        self.given = given

    def create_engine_config(self) -> SimpleNamespace:
        given = SimpleNamespace(**self.given)
        eager, asked = given.enforce_eager, given.compilation_config
        mode = CUDAGraphMode.NONE if eager else CUDAGraphMode[asked["cudagraph_mode"]]
        largest = min(2 * given.max_num_seqs, 512)
        sizes = [1, 2, 4, *range(8, min(largest + 1, 256), 8), *range(256, largest + 1, 16)]
        sizes = asked.get("cudagraph_capture_sizes") or sizes
        return SimpleNamespace(
            given=given,
            model=json.loads((Path(given.model) / "config.json").read_text()),
            cache_config=SimpleNamespace(num_gpu_blocks=given.num_gpu_blocks_override, block_size=given.block_size),
            compilation_config=SimpleNamespace(
                mode=0 if eager else 3,
                cudagraph_mode=mode,
                cudagraph_capture_sizes=[] if mode is CUDAGraphMode.NONE else sizes,
                compilation_time=0.0,
            ),
        )

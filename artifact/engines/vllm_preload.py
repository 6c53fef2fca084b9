"""Imported once by the fork server: every launch forks from a process that has vLLM in memory.

The import takes 14 to 30 s and never touches CUDA, so that each child may still choose its own. ``IMPORT_S`` is
what it took.
"""

import importlib.util
import os
import time

# Defaults where the user's environment says nothing: no network, no usage report, no sampler kernels compiled for
# over a minute at the first request.
for _name, _value in {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
}.items():
    os.environ.setdefault(_name, _value)

_start = time.perf_counter()
if importlib.util.find_spec("vllm") is not None:
    import vllm.v1.engine.async_llm
    import vllm.v1.engine.core
    import vllm.v1.worker.gpu_worker  # noqa: F401

IMPORT_S = time.perf_counter() - _start

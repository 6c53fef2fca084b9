"""The stand-ins of tests/fake_vllm as ``vllm`` and ``torch`` for a while; nothing of them is left afterwards."""

import gc
import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import artifact.engines

FOLDER = Path(__file__).parent / "fake_vllm"
OURS = ("vllm_probe", "vllm_preload", "recorder", "forcing_processor")  # import vllm: they hold the stand-in's names


def _theirs(name: str) -> bool:
    return name.partition(".")[0] in ("vllm", "torch") or name in [f"artifact.engines.{module}" for module in OURS]


@contextmanager
def fake_vllm(cache: Path) -> Iterator[None]:
    """Import ``vllm`` and ``torch`` from tests/fake_vllm inside the block; ``cache`` is vLLM's cache folder."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HF_HUB_OFFLINE", "VLLM_NO_USAGE_STATS", "VLLM_USE_FLASHINFER_SAMPLER"):
            patch.setenv(name, os.environ.get(name, "1"))  # vllm_preload's defaults, undone with the rest
        patch.setenv("VLLM_CACHE_ROOT", str(cache))
        patch.syspath_prepend(str(FOLDER))
        kept = {name: module for name, module in sys.modules.items() if _theirs(name)}
        _forget()
        try:
            yield
        finally:
            _forget()
            sys.modules.update(kept)
            for name in OURS:
                if module := kept.get(f"artifact.engines.{name}"):
                    setattr(artifact.engines, name, module)
            gc.unfreeze()  # each cell freezes what there is
    importlib.invalidate_caches()


def _forget() -> None:
    for name in [name for name in sys.modules if _theirs(name)]:
        del sys.modules[name]
    for name in OURS:
        vars(artifact.engines).pop(name, None)

"""The engine group in, the engine to run and a sentence that says so out."""

from dataclasses import dataclass
from importlib import import_module, metadata, util

from artifact.engines.base import Engine
from artifact.engines.nvml import gpu_present
from artifact.errors import EnvironmentLacks, InputError
from artifact.schema import EngineConfig, Evidence


@dataclass(frozen=True)
class Choice:
    """Which engine runs: its class by name (imported in the child), what the fork server imports, and why."""

    kind: str  # vllm or sim
    evidence: Evidence
    module: str
    class_name: str
    preload: tuple[str, ...]
    sentence: str

    def engine_class(self) -> type[Engine]:
        """Import and return the class."""
        found: type[Engine] = getattr(import_module(self.module), self.class_name)
        return found


def choose(engine: EngineConfig, here: bool = True) -> Choice:
    """Return the engine for ``engine.kind``: ``auto`` takes vLLM where NVML sees a GPU, else the simulator.

    Raises EnvironmentLacks for vllm without a GPU, for a GPU without an importable vLLM (never a silent
    simulation), and for a version that was not asked for. Where the engine is to run elsewhere (not ``here``), that
    is for there to say, and InputError is raised for ``auto``.
    """
    if not here and engine.kind == "auto":
        raise InputError("engine=auto: this executor works on other machines; say engine=vllm or engine=sim")
    gpu = gpu_present()
    if engine.kind == "sim" or (engine.kind == "auto" and not gpu):
        why = "engine=sim" if engine.kind == "sim" else "no GPU seen by NVML"
        return Choice(
            "sim",
            Evidence.SIMULATED,
            "artifact.engines.sim_engine",
            "SimEngine",
            ("artifact.engines.sim_engine",),
            f"engine: simulator ({why})",
        )
    if not here:
        return _vllm(f"{engine.vllm_version}, where the work is done")
    if not gpu:
        raise EnvironmentLacks("engine=vllm needs a GPU that NVML sees; engine=sim runs without one")
    if util.find_spec("vllm") is None:
        raise EnvironmentLacks(
            "NVML sees a GPU but vllm is not installed: make setup GPU=1 installs it; engine=sim simulates instead"
        )
    version = metadata.version("vllm")
    if version != engine.vllm_version and not engine.allow_other_version:
        raise EnvironmentLacks(
            f"vllm {version} is installed and {engine.vllm_version} is what this study is about; "
            "engine.allow_other_version=true measures it all the same and records it"
        )
    return _vllm(version)


def _vllm(version: str) -> Choice:
    return Choice(
        "vllm",
        Evidence.MEASURED,
        "artifact.engines.vllm_engine",
        "VllmEngine",
        ("artifact.engines.vllm_preload", "artifact.engines.vllm_engine"),
        f"engine: vLLM {version}",
    )

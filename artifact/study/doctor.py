"""A configuration in; a list of checks out: what this machine has, what it lacks and what to do then."""

import os
import platform
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from artifact.engines import nvml
from artifact.schema import Config
from artifact.study.provenance import version_of

_DRIVER = 580  # the R580 branch is the first that runs CUDA 13
_RESULTS_BYTES = 2 * 2**30
_CACHE_BYTES = 20 * 2**30


class Check(NamedTuple):
    """One line of ``doctor``. ``ok`` is null where it does not matter on this machine; ``remedy`` is empty if ok."""

    check: str
    ok: bool | None
    found: str
    remedy: str = ""


def cache_folder() -> Path:
    """Return where vLLM keeps its compile cache: VLLM_CACHE_ROOT, or ``vllm`` in the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.environ.get("VLLM_CACHE_ROOT") or Path(base) / "vllm").expanduser()


def _python() -> Check:
    found = platform.python_version()
    ok = sys.version_info >= (3, 11)
    return Check("python", ok, found, "" if ok else "install Python 3.11 or newer and run `make setup` again")


# What NVML says, in lower case -> what to do about it; the first that fits.
_NO_GPU = (
    (
        "permission",
        "this user may not open the GPU: add it to the group that owns /dev/nvidia* (video or render) and log in "
        "again; in a container, start it with --gpus all",
    ),
    ("version mismatch", "the driver was updated while its old kernel module runs: reboot the machine"),
    ("driver not loaded", f"load the driver (modprobe nvidia), or install branch {_DRIVER} or newer and reboot"),
    ("hides every gpu", "unset CUDA_VISIBLE_DEVICES, or set it to a GPU's number or UUID"),
    ("no such gpu", "set CUDA_VISIBLE_DEVICES to a number or UUID that `nvidia-smi -L` lists, or unset it"),
    ("not installed", "`make setup` installs it"),
)
_NEEDS_GPU = "engine=vllm needs a GPU and its driver; engine=sim and engine=auto use the simulator without"
_NO_MEMORY = (
    ("permission", "ask for the right to read it, or run outside the MIG slice's container; until then "),
    ("not supported", "a MIG slice or WSL2 may not give it; "),
)


def _remedy(reason: str, remedies: Iterable[tuple[str, str]], otherwise: str) -> str:
    return next((remedy for word, remedy in remedies if word in reason.lower()), otherwise)


def _gpu(gpu: nvml.Gpu, kind: str) -> Iterator[Check]:
    if "gpu" in gpu.reasons:
        reason = gpu.reasons["gpu"]
        remedy = _remedy(reason, _NO_GPU, _NEEDS_GPU)
        # A GPU is there and may not be used: engine=auto would simulate where nobody wants that.
        refused = "permission" in reason.lower() and kind != "sim"
        yield Check("gpu", False if kind == "vllm" or refused else None, reason, remedy)
        return
    memory = "memory unknown" if gpu.total_bytes is None else f"{gpu.total_bytes / 2**30:.0f} GiB"
    yield Check("gpu", True, f"{gpu.name or 'name unknown'}, {memory}")
    number = (gpu.driver or "").split(".")[0]
    ok = int(number) >= _DRIVER if number.isdigit() else None
    remedy = (
        f"CUDA 13 needs driver {_DRIVER} or newer: install that branch and reboot; a container uses the host's, WSL2 "
        "that of Windows"
    )
    yield Check("driver", ok, gpu.driver or gpu.reasons.get("driver", "unknown"), "" if ok else remedy)
    lacks = [reason for key, reason in gpu.reasons.items() if key in ("used_bytes", "total_bytes")]
    remedy = _remedy(" ".join(lacks), _NO_MEMORY, "") + "NVML's memory columns are null; vLLM's own figures remain"
    yield Check("nvml memory", None if lacks else True, "; ".join(lacks) or "readable", remedy if lacks else "")
    if gpu.mig:
        remedy = (
            "other slices disturb timing, and memory or clocks may be unreadable: measure on a whole GPU "
            "(nvidia-smi -mig 0, as root, while nothing runs on it)"
        )
        yield Check("mig", None, "MIG is on", remedy)
    else:
        yield Check("mig", True, "off" if gpu.mig is False else "not supported by this GPU")


def _vllm(config: Config, wanted: bool) -> Iterator[Check]:
    pinned, found = config.engine.vllm_version, version_of("vllm")
    missing = False if wanted else None
    if found is None:
        yield Check("vllm", missing, "not installed", "`make setup GPU=1` installs it")
    elif found.split("+")[0] == pinned:
        yield Check("vllm", True, found)
    else:
        remedy = (
            f"`make setup GPU=1` installs vllm=={pinned}; engine.allow_other_version=true takes the one there, and "
            "records it"
        )
        yield Check("vllm", True if config.engine.allow_other_version else missing, found, remedy)
    torch = version_of("torch")
    if torch is None:
        yield Check("torch", missing, "not installed", "`make setup GPU=1` installs it")
    elif torch.endswith("+cpu"):
        yield Check("torch", missing, f"{torch}: built without CUDA", "install the CUDA build of torch")
    else:
        runtime = version_of("nvidia-cuda-runtime") or version_of("nvidia-cuda-runtime-cu12")
        yield Check("torch", True, torch if runtime is None else f"{torch}, CUDA runtime {runtime}")


def _disk(name: str, folder: Path, needed_bytes: int, setting: str) -> Check:
    """Check that ``folder``, or the nearest one above it that is there, is writable and has room."""
    there = folder.absolute()
    while not there.exists():
        there = there.parent
    try:
        free = shutil.disk_usage(there).free
    except OSError as error:
        return Check(name, None, f"cannot be read: {error.strerror}")
    if not os.access(there, os.W_OK):
        return Check(name, False, f"{there} is not writable", f"change its owner, or choose another: {setting}=FOLDER")
    ok = free >= needed_bytes
    found = f"{free / 2**30:.0f} GiB free for {folder}"
    remedy = f"{needed_bytes / 2**30:.0f} GiB are needed: free some, or choose another folder: {setting}=FOLDER"
    return Check(name, ok, found, "" if ok else remedy)


def _compile_cache(folder: Path) -> Check:
    compiled = folder / "torch_compile_cache"
    warm = compiled.is_dir() and any(compiled.iterdir())
    note = (
        "the first start of each configuration compiles: 45 s where a later one takes 13 s, FLASHINFER's first 153 s "
        "(H200, Qwen3-0.6B); keep this folder between runs, VLLM_CACHE_ROOT names it"
    )
    return Check("compile cache", None, f"{'warm' if warm else 'cold'}: {compiled}", "" if warm else note)


def _tracking(config: Config) -> Check:
    if config.tracking.kind == "off":
        return Check("mlflow", None, "tracking=off")
    found = version_of("mlflow")
    if found is None:
        return Check("mlflow", False, "not installed", "`make setup`, or tracking=off: results do not depend on it")
    return Check("mlflow", True, f"{found}, tracking={config.tracking.kind}")


def _wsl() -> Check:
    if "microsoft" not in platform.release().lower():
        return Check("wsl2", True, "no")
    remedy = (
        "NVML gives no memory per process, so the device's total is used: let nothing else on Windows use the GPU; "
        "the driver is that of Windows, and none is installed inside"
    )
    return Check("wsl2", None, "yes", remedy)


def doctor(config: Config) -> list[Check]:
    """Return every check for ``config``. A GPU and vLLM count as needed if engine.kind is vllm, or auto with a GPU.

    Imports neither vLLM nor torch, writes nothing, and never raises for what the machine lacks.
    """
    gpu = nvml.describe()
    present = "gpu" not in gpu.reasons
    wanted = config.engine.kind == "vllm" or (config.engine.kind == "auto" and present)
    cache = cache_folder()
    checks = [_python(), *_gpu(gpu, config.engine.kind), *_vllm(config, wanted)]
    checks.append(_disk("disk for results", Path(config.executor.results), _RESULTS_BYTES, "executor.results"))
    if wanted:
        checks += [_disk("disk for caches", cache, _CACHE_BYTES, "VLLM_CACHE_ROOT"), _compile_cache(cache)]
    return [*checks, _tracking(config), _wsl()]

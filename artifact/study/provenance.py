"""A launch's configuration in, a JSON-able record of where and with what it ran out.

Environment variables are never copied, and the places of results and tracker are left out: neither made the numbers,
and either could carry a secret or a person's name.
"""

import hashlib
import os
import platform
import subprocess
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import artifact
from artifact.engines import nvml
from artifact.schema import Config

_ROOT = Path(__file__).resolve().parents[2]
_ENGINE = ("vllm", "torch", "transformers", "triton", "flashinfer-python", "nvidia-ml-py")
_PACKAGES = (*_ENGINE, "hydra-core", "omegaconf", "numpy", "pandas", "pyarrow", "pydantic", "scipy", "mlflow")


def version_of(package: str) -> str | None:
    """Return the installed version of ``package`` from its metadata, without importing it; null if it is absent."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _first_line(path: str) -> str | None:
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
    return text.splitlines()[0] if text else None


def cpu_model() -> str | None:
    """Return the CPU's name as the kernel gives it, or null."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or None
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name") and ":" in line]
    return names[0] if names else platform.processor() or None


def host_id() -> str:
    """Return 12 hex digits, the same for every launch of a machine, from which the machine cannot be told.

    A hash of the machine id, or, in a container without one, of the kernel's boot id, together with the CPU's name.
    """
    machine = _first_line("/etc/machine-id") or _first_line("/proc/sys/kernel/random/boot_id") or platform.node()
    return hashlib.sha256(f"cudagraph-mode-artifact:{machine}:{cpu_model()}".encode()).hexdigest()[:12]


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def source(root: Path = _ROOT) -> dict[str, Any]:
    """Return ``{"commit", "dirty"}`` of the checkout at ``root``; a container's are those of its build.

    The build gives them as ARTIFACT_COMMIT, with ``-dirty`` behind the commit of a changed checkout; so can whoever
    copies a checkout to a GPU machine without its history. Both are null for an installed package, even one that lies
    inside somebody else's repository.
    """
    top = _git(root, "rev-parse", "--show-toplevel")
    commit = _git(root, "rev-parse", "--verify", "--quiet", "HEAD")
    if top is None or Path(top).resolve() != root.resolve() or commit is None:
        built = os.environ.get("ARTIFACT_COMMIT") or None
        return {
            "commit": built and built.removesuffix("-dirty"),
            "dirty": None if built is None else built.endswith("-dirty"),
        }
    status = _git(root, "status", "--porcelain")
    return {"commit": commit, "dirty": None if status is None else bool(status)}


def _settings(config: Config) -> dict[str, Any]:
    """Return the configuration that made the numbers; of a file, its name alone."""
    settings = config.model_dump(mode="json", exclude={"tracking", "executor", "report"})
    for group, key in (("trace", "path"), ("engine", "calibration")):
        if settings[group][key] is not None:
            settings[group][key] = Path(settings[group][key]).name
    return settings


def collect(config: Config, started: datetime | None = None) -> dict[str, Any]:
    """Return the provenance of a launch with ``config`` that started at ``started`` (UTC; now if null).

    Keys: artifact, python, packages, git, gpu, cpu, cores, kernel, image_digest, host_id, started, config. What
    is not known is null; ``gpu.reasons`` says why for the GPU.
    """
    gpu = asdict(nvml.describe())
    del gpu["used_bytes"]  # of this moment: the launch's record has it before and after
    return {
        "artifact": artifact.__version__,
        "python": platform.python_version(),
        "packages": {name: version_of(name) for name in _PACKAGES},
        "git": source(),
        "gpu": gpu,
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "image_digest": os.environ.get("ARTIFACT_IMAGE_DIGEST") or None,
        "host_id": host_id(),
        "started": (started or datetime.now(UTC)).isoformat(timespec="seconds"),
        "config": _settings(config),
    }

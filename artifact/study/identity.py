"""A cell's configuration in; its id, its seed and its hash, equal in every process and on every machine, out."""

import hashlib
import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from artifact.errors import InputError
from artifact.schema import Config, Evidence
from artifact.workloads.recordings import segments

_LONGEST_NAME = 40  # characters of a name within an id: ids are file names


def server_hash(config: Config) -> str:
    """Return 8 hex digits over the server's configuration."""
    return digest(config.server.model_dump(mode="json"))[:8]


def identity(config: Config, evidence: Evidence) -> dict[str, object]:
    """Return all that makes a cell's numbers what they are; a change of any of it is another cell.

    Of a trace, its content and not its path. Raises InputError where the trace cannot be read.
    """
    parts: dict[str, object] = config.model_dump(
        mode="json", include={"mode", "backend", "model", "server", "workload"}
    )
    parts |= {"heavy_probe": config.engine.heavy_probe, "evidence": evidence.value}
    if evidence is Evidence.SIMULATED:
        parts |= {"hardware": config.hardware.gpu, "calibration": config.engine.calibration}
    if config.workload.arrival.process == "trace":
        parts["trace"] = config.trace.model_dump(mode="json", exclude={"path"})
        parts["trace_sha256"] = _file_digest(config.trace.path)
    return parts


def id_of(names: Sequence[str], parts: dict[str, object]) -> str:
    """Return ``names`` and 8 hex digits over them and ``parts``: a file name, which cannot leave its folder."""
    readable = "-".join(re.sub(r"[^A-Za-z0-9_.@-]+", "_", name)[:_LONGEST_NAME].lstrip(".-") for name in names)
    return f"{readable}-{digest([*names, parts])[:8]}"


def digest(value: object) -> str:
    """Return the SHA-256 of ``value`` as canonical JSON, in hex."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def seed_of(*parts: object) -> int:
    """Return 32 bits that depend on ``parts`` alone, in every process: Python's own hash does not do that."""
    return int(digest(parts)[:8], 16)


@cache
def _file_digest(path: str | None) -> str:
    if path is None:
        raise InputError("trace.path: workload=trace needs the trace's file, trace.path=FILE")
    files = segments(Path(path)) or [Path(path)]  # of a live server's recording, a folder
    try:
        digests = []
        for each in files:
            with each.open("rb") as file:
                digests.append(hashlib.file_digest(file, "sha256").hexdigest())
        return digests[0] if len(digests) == 1 else digest(digests)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); trace.path names a request trace") from None

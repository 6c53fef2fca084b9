"""Names of public traces in, their files out in a folder: ``python -m artifact.workloads.fetch [FOLDER]``.

Each file is what was published when its SHA-256 was taken, or it is refused. The traces are not part of this project;
each has its own licence, printed beside its name.
"""

import hashlib
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from artifact.errors import ArtifactError, EnvironmentLacks, InputError

FOLDER = "traces"  # of the working directory, where presets look for them
_TIMEOUT_S = 30


@dataclass(frozen=True)
class Source:
    """One public file: where it is, what it hashes to, and whose terms it is under."""

    name: str
    url: str
    sha256: str
    licence: str


_AZURE = "https://raw.githubusercontent.com/Azure/AzurePublicDataset/master/data"
_MOONCAKE = "https://raw.githubusercontent.com/kvcache-ai/Mooncake/main/FAST25-release/traces"

SOURCES = (
    Source(
        "AzureLLMInferenceTrace_conv.csv",
        f"{_AZURE}/AzureLLMInferenceTrace_conv.csv",
        "2f1e5b666d4e3055fdbba98598ce2ec307767b9064e03e2fa46676dbcc7d0bf8",
        "CC-BY-4.0, Microsoft Azure",
    ),
    Source(
        "AzureLLMInferenceTrace_code.csv",
        f"{_AZURE}/AzureLLMInferenceTrace_code.csv",
        "54e9a6d2a4bd06ba1e060304b900abbc74cbea53de96506e60fe5bb4f2277fb6",
        "CC-BY-4.0, Microsoft Azure",
    ),
    Source(
        "conversation_trace.jsonl",
        f"{_MOONCAKE}/conversation_trace.jsonl",
        "b8cbb061a85206d729d91cdc2981f43c9e0d99209dce588d3af5f7934408b9df",
        "Apache-2.0, Mooncake",
    ),
)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fetch(source: Source, folder: Path) -> bool:
    """Put ``source`` into ``folder`` and return whether it was downloaded; a file already there is checked alone.

    The file appears whole or not at all. Raises InputError for another file of that name or a folder that cannot be
    written, EnvironmentLacks where it cannot be downloaded or is no longer the file that was published.
    """
    target = folder / source.name
    if target.exists():
        if target.is_file() and _sha256(target) == source.sha256:
            return False
        raise InputError(f"{target}: is there and is another file than {source.url}; move it away")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as scratch:
            part = Path(scratch) / source.name
            _download(source.url, part)
            found = _sha256(part)
            if found != source.sha256:
                raise EnvironmentLacks(
                    f"{source.url}: SHA-256 {found}, expected {source.sha256}: changed since, or damaged on the way; "
                    "nothing was kept"
                )
            part.replace(target)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror or error}") from None
    return True


def _download(url: str, part: Path) -> None:
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:  # noqa: S310  (the table's own addresses)
            blocks = iter(lambda: answer.read(1 << 20), b"")
            with part.open("wb") as file:
                for block in blocks:
                    file.write(block)
    except (urllib.error.URLError, TimeoutError, ConnectionError, HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise EnvironmentLacks(f"{url}: cannot be downloaded ({reason}); is there a network?") from None


def main(arguments: Sequence[str], sources: Sequence[Source] = SOURCES) -> int:
    """Fetch every trace into the folder named (FOLDER by default) and return the exit code."""
    if len(arguments) > 1 or any(argument.startswith("-") for argument in arguments):
        print("usage: python -m artifact.workloads.fetch [FOLDER]", file=sys.stderr)
        return InputError.exit_code
    folder = Path(arguments[0] if arguments else FOLDER)
    try:
        for source in sources:
            done = "fetched" if fetch(source, folder) else "already there"
            print(f"{folder / source.name}: {done} ({source.licence})")
    except ArtifactError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

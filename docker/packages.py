"""What this Python has installed in; what the build of the container asks about it out, on stdout.

`list`: every package as name==version. `require NAME=VERSION ...`: stops unless these versions are there (an empty
VERSION: unless the package is absent). `missing FILE`: the entries of a hashed list whose package is not there yet, so
that what the base image brought (vLLM, torch, numpy and all they were tested with) is left as it is.

The operating system's own Python packages do not count as there: they are as old as its release and belong to its
tools; what pip installs comes before them on the path and leaves their files alone.
"""

import re
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

SYSTEM = Path("/usr/lib/python3/dist-packages")


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def installed(path: list[str]) -> dict[str, str]:
    """Return name -> version for the folders of ``path``, the first found counting.

    `pip freeze` will not do: it gives no version for a package from a local wheel, as vLLM is in its image.
    """
    folders = [folder for folder in path if Path(folder).resolve() != SYSTEM]
    found: dict[str, str] = {}
    for distribution in metadata.distributions(path=folders):
        found.setdefault(_normal(distribution.metadata["Name"]), distribution.version)
    return found


def differing(present: dict[str, str], wanted: dict[str, str]) -> list[str]:
    """Return one line for each package of ``wanted`` whose version, its build (+cu130) aside, is another."""
    have = {name: present.get(name, "").partition("+")[0] for name in wanted}
    return [
        f"the base image has {name} {have[name] or '(none)'}, wanted: {version or '(none)'}"
        for name, version in wanted.items()
        if have[name] != version
    ]


def missing(text: str, present: Iterable[str]) -> str:
    """Return the entries of ``text`` whose package is not in ``present``, hashes included, comments left out."""
    names = {_normal(name) for name in present}
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    kept: list[str] = []
    keep = False
    for line in lines:
        if not line[0].isspace():
            keep = _normal(re.split(r"[=\[; ]", line, maxsplit=1)[0]) not in names
        if keep:
            kept.append(line)
    return "\n".join(kept) + "\n"


if __name__ == "__main__":
    there = installed(sys.path)
    command, arguments = sys.argv[1], sys.argv[2:]
    if command == "require":
        sys.exit("\n".join(differing(there, dict(pair.split("=", 1) for pair in arguments))) or None)
    elif command == "missing":
        sys.stdout.write(missing(Path(arguments[0]).read_text(encoding="utf-8"), there))
    else:
        sys.stdout.writelines(f"{name}=={version}\n" for name, version in there.items())

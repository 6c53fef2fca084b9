"""A hashed requirements file in; the entries of packages that this Python does not have yet out, on stdout.

What the base image brought (vLLM, torch, numpy and all they were tested with) is thereby left as it is.
"""

import re
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


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
    installed = [distribution.metadata["Name"] for distribution in metadata.distributions()]
    sys.stdout.write(missing(Path(sys.argv[1]).read_text(encoding="utf-8"), installed))

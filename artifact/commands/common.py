"""What several commands need: the type of an answer, a line for people, and where the shipped measurements are."""

import sys
from pathlib import Path
from typing import Any

from artifact.errors import InputError

# JSON-able; ``exit_code`` is taken out before it is shown.
Answer = dict[str, Any]


def say(line: str) -> None:
    """Print ``line`` to stderr at once: stdout is the answer's."""
    print(line, file=sys.stderr, flush=True)


def shipped_folder() -> Path:
    """Return where a checkout holds the shipped measurements; an installed package has no such folder."""
    return Path(__file__).resolve().parents[2] / "paper_figures" / "data"


def shipped() -> Path:
    """Return the folder of the shipped measurements. Raises InputError where there is none."""
    folder = shipped_folder()
    if not folder.is_dir():
        raise InputError(
            "the shipped measurements are in paper_figures/data of a checkout; this is an installed package"
        )
    return folder

"""Every error a user can meet, with the exit code it ends in.

ArtifactError
├── InputError (2)         a bad key, value, file or line: names it and says what would be right
├── EnvironmentLacks (3)   a GPU, a package, a permission, disk: names what and what to do
└── CellFailed (1)         one launch or cell failed; becomes a row, never the end of a sweep
"""

import difflib
from collections.abc import Sequence


class ArtifactError(Exception):
    """Base of every error that is reported as one line on stderr, without a traceback."""

    exit_code = 1


class InputError(ArtifactError):
    """The user's input cannot be used; the message names the key, file or line and what would be right."""

    exit_code = 2


class EnvironmentLacks(ArtifactError):
    """The machine lacks something that the command needs; the message names it and the remedy."""

    exit_code = 3


class CellFailed(ArtifactError):
    """A launch or a cell failed. ``status`` is one of ``oom``, ``timeout``, ``engine_error``, ``refused``."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


def nearest(word: str, known: Sequence[str]) -> str:
    """Return ``"; did you mean X?"`` for the known name most like ``word``, or an empty string."""
    swapped = [name for name in known if sorted(name) == sorted(word)]  # two letters: modle is model, not mode
    close = swapped or difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else ""

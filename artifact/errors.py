"""Every error a user can meet, with the exit code it ends in.

ArtifactError
├── InputError (2)         a bad key, value, file or line: names it and says what would be right
├── EnvironmentLacks (3)   a GPU, a package, a permission, disk: names what and what to do
└── CellFailed (1)         one launch or cell failed; becomes a row, never the end of a sweep
"""


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

"""What ``inspect`` is asked about: the recording of a live server."""

from artifact.schema.terms import Frozen, NonNegative, Positive


class RecordConfig(Frozen):
    """conf/config.yaml, ``record``: a recording and the part of it; see ``artifact.workloads.recordings``."""

    path: str | None  # the folder that ARTIFACT_RECORD named, or one of its files
    window: tuple[NonNegative, Positive] | None  # [from, to) in seconds since the first recorded request arrived

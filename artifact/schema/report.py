"""conf/config.yaml, ``report``, in; which folder becomes a page and where the page goes, out."""

from artifact.schema.terms import Frozen


class ReportConfig(Frozen):
    """``folder``: null is that of the study in ``executor.results``; ``out``: null is ``report.html`` beside the rows.

    The page of shipped measurements, whose folders hold nothing else, goes to ``figures.out`` unless told otherwise.
    """

    folder: str | None
    out: str | None

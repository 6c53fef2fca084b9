"""A results folder in, one self-contained HTML page out: no script, no network, and every value escaped."""

from artifact.report.contents import Contents, gather
from artifact.report.page import render

__all__ = ["Contents", "gather", "render"]

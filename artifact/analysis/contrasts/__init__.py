"""Cells of a sweep in; modes against the default, with intervals and verdicts, out."""

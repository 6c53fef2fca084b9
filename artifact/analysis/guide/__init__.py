"""Contrasts in; the mode-selection guide out."""

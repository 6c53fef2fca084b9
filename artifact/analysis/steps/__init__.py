"""Measured steps in; what a step costs by mode and batch out."""

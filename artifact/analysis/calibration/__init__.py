"""Measured steps in; the simulator's costs, and how well they fit, out."""

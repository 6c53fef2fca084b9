"""A workload, limits and an existing command in; the mode to take out."""

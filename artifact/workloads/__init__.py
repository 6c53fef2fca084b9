"""Arrivals, lengths and traces in, schedules out."""

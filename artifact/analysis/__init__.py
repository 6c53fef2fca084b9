"""Stored rows in, answers out."""

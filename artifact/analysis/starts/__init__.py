"""Launches in; what starting, capturing and falling back cost out."""

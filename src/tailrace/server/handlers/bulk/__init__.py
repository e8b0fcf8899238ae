"""Requests about many streams at once: offsets and rows."""

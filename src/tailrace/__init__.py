"""Durable streams for Python: append-only, replayable, live-tailable streams over HTTP."""

__version__ = "0.1.0"

__all__ = ["__version__"]

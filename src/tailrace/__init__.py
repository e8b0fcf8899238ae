"""
Durable streams for Python: a server of append-only, replayable streams over HTTP, and a client.

`Client` and `AsyncClient` are imported on first use, because a server needs neither.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tailrace.exceptions import TailraceError

if TYPE_CHECKING:
    from tailrace.client import AsyncClient, Client

__all__ = ["AsyncClient", "Client", "TailraceError", "__version__"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name in ("AsyncClient", "Client"):
        return getattr(import_module("tailrace.client"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

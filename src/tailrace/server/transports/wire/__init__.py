"""HTTP/1.1 on uvloop and httptools: what `tailrace serve` speaks."""

from tailrace.server.transports.wire.server import WireServer

__all__ = ["WireServer"]

"""HTTP/1.1 on uvloop and httptools: the transport of `tailrace serve`."""

from tailrace.server.transports.wire.server import WireServer

__all__ = ["WireServer"]

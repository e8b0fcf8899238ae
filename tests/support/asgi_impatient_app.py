"""The app of `asgi_app` with a short deadline for clients that do not read."""

from tailrace.server.transports import asgi
from tests.support.asgi_app import app

__all__ = ["app"]

setattr(asgi, "WRITE_STALL_S", 1.0)  # noqa: B010 - a constant, for everybody else

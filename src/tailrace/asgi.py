"""The ASGI app: `from tailrace.asgi import create_app`."""

from tailrace.server.transports.asgi import create_app

__all__ = ["create_app"]

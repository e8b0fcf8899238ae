"""
What the ASGI app needs from the server that hosts it, beyond ASGI.

uvicorn, when it parses with httptools, adds the trailers of a chunked body to the headers of the
scope. A trailer `Stream-Closed: true` would then close a stream. RFC 9110, 6.5.1, forbids this.
The app cannot tell them apart, so the copy is made in uvicorn, before the trailers arrive.

ASGI tells an app that its server stops only when all requests have ended. A live reader would keep
a server from stopping for a minute. So the app watches for the signals by which servers stop.

uvicorn closes a connection when the client has read what was sent. One that does not read would
stay for ever, and keep the server from stopping.
"""

import asyncio
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, Final

__all__ = ["StopSignals", "cut_connection", "keep_trailers_apart"]

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_MARK: Final = "_tailrace_trailers_apart"


def keep_trailers_apart() -> None:
    """Make uvicorn's httptools protocol keep trailers out of the scope of a request."""
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
    except ImportError:
        # Not installed: another server hosts the app.
        return
    protocol: Any = HttpToolsProtocol
    if hasattr(protocol, _MARK):
        return
    headers_complete = protocol.on_headers_complete

    def on_headers_complete(self: Any) -> None:
        headers_complete(self)
        # The scope keeps the list that it has; trailers are added to this one.
        self.headers = list(self.headers)

    protocol.on_headers_complete = on_headers_complete
    setattr(protocol, _MARK, True)


def cut_connection(receive: object) -> bool:
    """
    Close the connection of a request at once, even if its client does not read.

    False if the server is not uvicorn, or a middleware has wrapped `receive`.
    """
    transport: Any = getattr(getattr(receive, "__self__", None), "transport", None)
    if not hasattr(transport, "abort"):
        return False
    transport.abort()
    return True


class StopSignals:
    """
    Calls `stopping` in the event loop when the process is told to stop.

    The handlers that were there before are called as well. A signal without one ends the process
    at once, and is left alone.
    """

    def __init__(self, stopping: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = stopping
        self._before: dict[int, Callable[[int, FrameType | None], Any]] = {}

    def watch(self) -> None:
        """Install the handlers, if this is the main thread, and the server has its own."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _SIGNALS:
            before = signal.getsignal(number)
            # Compared by equality: each access makes another bound method.
            if callable(before) and before not in (self._handle, signal.default_int_handler):
                self._before[number] = before
                signal.signal(number, self._handle)

    def restore(self) -> None:
        """Remove the handlers; those installed meanwhile may call ours, which stay as they are."""
        for number, before in self._before.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        with suppress(RuntimeError):
            # The loop may be closed already.
            self._loop.call_soon_threadsafe(self._stopping)
        before = self._before.get(number)
        if before is not None:
            before(number, frame)

"""How faults change the responses that pass a `FaultProxy`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.support.fault_plan import Fault, PlannedFault, Request

__all__ = ["Cut", "inject", "own_response"]

PAUSE_S = 0.005
PAUSES_MAX = 10
BYTE_BY_BYTE = 300
# Shorter pieces are chunk sizes and line ends, not events.
EVENT_BYTES_MIN = 16
CONTROL_BYTES = 160


class Cut(Exception):
    """The connection ends here; with `reset` the client may lose bytes that were sent before."""

    def __init__(self, reset: bool = False) -> None:
        super().__init__(reset)
        self.reset = reset


def own_response(request: Request, status: int, retry_after_s: int | None = None) -> bytes:
    """A response that the proxy makes itself."""
    body = b"" if request.method == "HEAD" else b"by the proxy"
    lines = [f"HTTP/1.1 {status} Fault", f"Content-Length: {len(body)}"]
    if retry_after_s is not None:
        lines.append(f"Retry-After: {retry_after_s}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def inject(
    planned: PlannedFault,
    request: Request,
    pieces: Iterator[bytes],
    note: Callable[[PlannedFault], None],
) -> Iterator[bytes]:
    """
    The pieces of a response, its head first, changed by a fault.

    Raises:
        Cut: The connection ends after the last piece.
    """
    if request.is_sse:
        pieces = _some_events(planned, pieces, note)
    match planned.fault:
        case Fault.CUT_HEAD:
            head = next(pieces)
            _finish(request, pieces)
            note(planned)
            yield head[: planned.rng.randrange(len(head))]
            raise Cut(planned.rng.random() < 0.3)
        case Fault.CUT_BODY:
            yield from _cut_body(planned, request, pieces, note)
        case Fault.FAIL_AFTER:
            next(pieces)
            _finish(request, pieces)
            note(planned)
            assert planned.status is not None
            yield own_response(request, planned.status, planned.retry_after_s)
        case Fault.SLOW:
            note(planned)
            yield from _slow(planned, pieces)
        case Fault.CRUMBS:
            note(planned)
            yield from _small_pieces(planned, pieces)
        case _:
            yield from pieces


def _some_events(
    planned: PlannedFault, pieces: Iterator[bytes], note: Callable[[PlannedFault], None]
) -> Iterator[bytes]:
    """End an event stream between two events: a long one would meet few faults."""
    left = planned.rng.randint(10, 30)
    for piece in pieces:
        yield piece
        left -= len(piece) >= EVENT_BYTES_MIN
        if not left:
            note(replace(planned, fault=Fault.HANG_UP))
            raise Cut


def _finish(request: Request, pieces: Iterator[bytes]) -> None:
    """Read the rest, so that the server completes the request (not for an event stream)."""
    if not request.is_sse:
        b"".join(pieces)


def _cut_body(
    planned: PlannedFault,
    request: Request,
    pieces: Iterator[bytes],
    note: Callable[[PlannedFault], None],
) -> Iterator[bytes]:
    yield next(pieces)
    if request.is_sse:
        left = planned.rng.randint(1, 4)
        for piece in pieces:
            left -= len(piece) >= EVENT_BYTES_MIN
            if not left:
                break
            yield piece
        else:
            return
    else:
        piece = b"".join(pieces)
        if not piece:
            return
    note(planned)
    # Half of the cuts are near the end, within the control event.
    last = max(0, len(piece) - CONTROL_BYTES)
    yield piece[: planned.rng.randrange(planned.rng.choice((0, last)), len(piece))]
    raise Cut(planned.rng.random() < 0.3)


def _slow(planned: PlannedFault, pieces: Iterator[bytes]) -> Iterator[bytes]:
    for at, piece in enumerate(pieces):
        middle = planned.rng.randint(0, len(piece))
        yield piece[:middle]
        if at < PAUSES_MAX:
            time.sleep(PAUSE_S)
        yield piece[middle:]


def _small_pieces(planned: PlannedFault, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Single bytes first, then pieces of any size, so that a long response ends soon."""
    single = BYTE_BY_BYTE
    for piece in pieces:
        at = 0
        while at < len(piece):
            size = 1 if single > 0 else planned.rng.randint(1, 1500)
            yield piece[at : at + size]
            at += size
            single -= 1

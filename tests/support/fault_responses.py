"""What faults do to the answers that pass a `FaultProxy`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.support.fault_plan import Card, Fault, Request

__all__ = ["Cut", "disturbed", "own_answer"]

PAUSE_S = 0.005
PAUSES_MAX = 10
BYTE_BY_BYTE = 300
# Shorter pieces are chunk sizes and line ends, not events.
EVENT_BYTES_MIN = 16
CONTROL_BYTES = 160


class Cut(Exception):
    """From here on the client gets nothing more; with `reset` perhaps not even all before it."""

    def __init__(self, reset: bool = False) -> None:
        super().__init__(reset)
        self.reset = reset


def own_answer(request: Request, status: int, retry_after_s: int | None = None) -> bytes:
    """An answer that no server gave."""
    body = b"" if request.method == "HEAD" else b"by the proxy"
    lines = [f"HTTP/1.1 {status} Fault", f"Content-Length: {len(body)}"]
    if retry_after_s is not None:
        lines.append(f"Retry-After: {retry_after_s}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def disturbed(
    card: Card, request: Request, pieces: Iterator[bytes], note: Callable[[Card], None]
) -> Iterator[bytes]:
    """
    The pieces of an answer, its head first, after a fault had its way with them.

    Raises:
        Cut: That was all.
    """
    if request.is_sse:
        pieces = _some_events(card, pieces, note)
    match card.fault:
        case Fault.CUT_HEAD:
            head = next(pieces)
            _finish(request, pieces)
            note(card)
            yield head[: card.chance.randrange(len(head))]
            raise Cut(card.chance.random() < 0.3)
        case Fault.CUT_BODY:
            yield from _cut_body(card, request, pieces, note)
        case Fault.FAIL_AFTER:
            next(pieces)
            _finish(request, pieces)
            note(card)
            assert card.status is not None
            yield own_answer(request, card.status, card.retry_after_s)
        case Fault.SLOW:
            note(card)
            yield from _slow(card, pieces)
        case Fault.CRUMBS:
            note(card)
            yield from _crumbs(card, pieces)
        case _:
            yield from pieces


def _some_events(
    card: Card, pieces: Iterator[bytes], note: Callable[[Card], None]
) -> Iterator[bytes]:
    """An event stream that is lost between two events: one that lasts would meet few faults."""
    left = card.chance.randint(10, 30)
    for piece in pieces:
        yield piece
        left -= len(piece) >= EVENT_BYTES_MIN
        if not left:
            note(replace(card, fault=Fault.HANG_UP))
            raise Cut


def _finish(request: Request, pieces: Iterator[bytes]) -> None:
    """Let the server carry it all out. (An event stream is under way with its head.)"""
    if not request.is_sse:
        b"".join(pieces)


def _cut_body(
    card: Card, request: Request, pieces: Iterator[bytes], note: Callable[[Card], None]
) -> Iterator[bytes]:
    yield next(pieces)
    if request.is_sse:
        left = card.chance.randint(1, 4)
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
    note(card)
    # As often near its end: there stands the control event, which says what the rest is worth.
    last = max(0, len(piece) - CONTROL_BYTES)
    yield piece[: card.chance.randrange(card.chance.choice((0, last)), len(piece))]
    raise Cut(card.chance.random() < 0.3)


def _slow(card: Card, pieces: Iterator[bytes]) -> Iterator[bytes]:
    for at, piece in enumerate(pieces):
        middle = card.chance.randint(0, len(piece))
        yield piece[:middle]
        if at < PAUSES_MAX:
            time.sleep(PAUSE_S)
        yield piece[middle:]


def _crumbs(card: Card, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Single bytes at first, then pieces of any size: a long answer shall not take for ever."""
    single = BYTE_BY_BYTE
    for piece in pieces:
        at = 0
        while at < len(piece):
            size = 1 if single > 0 else card.chance.randint(1, 1500)
            yield piece[at : at + size]
            at += size
            single -= 1

"""
Cursors (§8.1): they give live requests new cache keys over time.

The cursor is the number of the current 20-second interval since 9 October 2024. A client that
already has this or a later one gets a strictly greater one, by a random jitter. The caller draws
the jitter, since nothing in this package is random.
"""

import re
from typing import Final

from tailrace.protocol.errors import QueryInvalid

__all__ = ["JITTER_S_MAX", "JITTER_S_MIN", "current_cursor", "next_cursor", "parse_cursor"]

INTERVAL_MS: Final = 20_000
EPOCH_MS: Final = 1_728_432_000_000
JITTER_S_MIN: Final = 1
JITTER_S_MAX: Final = 3600

_CURSOR: Final = re.compile(r"[0-9]{1,18}", re.ASCII)


def parse_cursor(text: str) -> int | None:
    """The client's cursor; None if it is empty. Raises QueryInvalid if it is not a cursor."""
    if not text:
        return None
    if not _CURSOR.fullmatch(text):
        raise QueryInvalid("cursor", "must be a Stream-Cursor value as the server returned it")
    return int(text)


def current_cursor(now: int) -> int:
    return max(0, (now - EPOCH_MS) // INTERVAL_MS)


def next_cursor(client: int | None, now: int, jitter_s: int) -> int:
    """The cursor for the response: never one that the client has, never a smaller one."""
    current = current_cursor(now)
    if client is None or client < current:
        return current
    return client + max(1, jitter_s * 1000 // INTERVAL_MS)

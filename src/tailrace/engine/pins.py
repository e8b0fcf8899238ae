"""
Pins: data that a long response still reads is not reclaimed until the response is complete.

Stored data never changes, it is only deleted. So a long response, a bootstrap or the download of
a snapshot, sees one consistent view if it pins a state and what the state refers to. It needs no
open iterator or database snapshot.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tailrace.engine.base import Garbage
from tailrace.protocol.state import SnapshotInfo, StreamState

__all__ = ["Pins"]


class Pins:
    """What is being read, by internal id."""

    def __init__(self) -> None:
        # For each id, the byte offsets from which it is being read.
        self._held: dict[int, list[int]] = {}
        self._files_held = 0

    def hold(self, state: StreamState) -> Callable[[], None]:
        """Pin what a state refers to, until the returned function is called."""
        held = [(state.id, state.earliest.byte)]
        if state.fork is not None:
            start = state.earliest.byte
            for segment in state.fork.segments(start):
                held.append((segment.id, start))
                start = segment.end.byte
        if state.snapshot is not None:
            held.append((state.snapshot.id, 0))
        return self._hold(held)

    def hold_snapshot(self, snapshot: SnapshotInfo) -> Callable[[], None]:
        """Pin a snapshot only."""
        return self._hold([(snapshot.id, 0)])

    @contextmanager
    def hold_files(self) -> Iterator[None]:
        """Pin all files of snapshots, while a backup links them."""
        self._files_held += 1
        try:
            yield
        finally:
            self._files_held -= 1

    def _hold(self, held: list[tuple[int, int]]) -> Callable[[], None]:
        for key, start in held:
            self._held.setdefault(key, []).append(start)

        def release() -> None:
            # A second call does nothing.
            for key, start in held:
                starts = self._held[key]
                starts.remove(start)
                if not starts:
                    del self._held[key]
            held.clear()

        return release

    def allow(self, garbage: Garbage) -> bool:
        """Whether garbage is not being read."""
        if garbage.file and self._files_held:
            return False
        starts = self._held.get(garbage.id)
        if not starts:
            return True
        # Readers that started at a later snapshot do not need what is before it.
        return garbage.until is not None and min(starts) >= garbage.until

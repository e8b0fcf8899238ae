"""
What long answers still read: it is not reclaimed until they are done.

What is stored never changes, it only goes. So an answer that takes its time, a bootstrap or the
download of a snapshot, sees one consistent view if it holds on to a state and to what that state
refers to; no iterator or database snapshot has to stay open for it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tailrace.engine.base import Garbage
from tailrace.protocol.state import SnapshotInfo, StreamState

__all__ = ["Pins"]


class Pins:
    """Who reads what, by internal id."""

    def __init__(self) -> None:
        # For each id the byte offsets from which on it is being read.
        self._held: dict[int, list[int]] = {}
        self._files_held = 0

    def hold(self, state: StreamState) -> Callable[[], None]:
        """Keep what a state refers to, until the function that is returned is called."""
        held = [(state.id, state.earliest.byte)]
        if state.snapshot is not None:
            held.append((state.snapshot.id, 0))
        return self._hold(held)

    def hold_snapshot(self, snapshot: SnapshotInfo) -> Callable[[], None]:
        """Keep a snapshot alone, likewise."""
        return self._hold([(snapshot.id, 0)])

    @contextmanager
    def hold_files(self) -> Iterator[None]:
        """Keep all files of snapshots meanwhile: somebody is about to link them."""
        self._files_held += 1
        try:
            yield
        finally:
            self._files_held -= 1

    def _hold(self, held: list[tuple[int, int]]) -> Callable[[], None]:
        for key, start in held:
            self._held.setdefault(key, []).append(start)

        def release() -> None:
            # More than once is as good as once.
            for key, start in held:
                starts = self._held[key]
                starts.remove(start)
                if not starts:
                    del self._held[key]
            held.clear()

        return release

    def allow(self, garbage: Garbage) -> bool:
        """Whether nobody reads this any more."""
        if garbage.file and self._files_held:
            return False
        starts = self._held.get(garbage.id)
        if not starts:
            return True
        # Readers that started at a later snapshot do not need what lies before it.
        return garbage.until is not None and min(starts) >= garbage.until

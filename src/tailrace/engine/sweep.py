"""
Background work: expired streams are deleted, and deleted data gives its disk space back.

Everything goes through the same batches as commands do, in bounded steps, so that no append waits
for more than one step.
"""

import asyncio
import threading
from typing import TYPE_CHECKING, Final

from tailrace.engine.base import Due, Garbage
from tailrace.engine.errors import StorageFailed

if TYPE_CHECKING:
    from tailrace.engine.engine import Engine

__all__ = ["Sweeper"]

SWEEP_S: Final = 0.5
SWEEP_AGAIN_S: Final = 0.01
"""If one step was not enough."""
SWEEP_COUNT_MAX: Final = 512
RECLAIM_COUNT_MAX: Final = 64
COMPACT_BYTES_MIN: Final = 32 << 20
"""A compaction follows after this much was reclaimed."""
NEIGHBOURS: Final = 64
"""Ids this close to each other are compacted together."""
RANGES_MAX: Final = 256


class Sweeper:
    """Checks the expiry index and the garbage every half second."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._stopped = False
        # A step finds the same entries until its batch is written: one step of each at a time.
        self._expiring = self._reclaiming = self._waiting = False
        self._reclaimed_bytes = 0
        # Ids whose files cannot be removed, or whose records cannot be read.
        self._not_reclaimable: set[int] = set()
        # Ranges of reclaimed records, for the next compaction.
        self._ranges: list[tuple[tuple[int, int], tuple[int, int]]] = []
        self._compaction: threading.Thread | None = None
        self._timer = self._loop.call_later(SWEEP_S, self._sweep)

    def stop(self) -> None:
        self._stopped = True
        self._timer.cancel()

    async def close(self) -> None:
        """Interrupt a running compaction, and wait for it."""
        if (compaction := self._compaction) is not None:
            self._engine.store.interrupt()
            await asyncio.to_thread(compaction.join)

    def _sweep(self) -> None:
        engine = self._engine
        if engine.failure is not None or self._stopped:
            return
        more = False
        try:
            engine.measure_room()
            more = self._delete_expired()
            more = engine.forks.sweep() or more
            if engine.commit.syncing is None:
                more = self._reclaim() or more
            elif not self._waiting:
                # Readers may still need what is deleted by a batch that is not published (`pins`).
                self._waiting = True
                engine.commit.when_idle(self._idle)
        finally:
            # The loop reports an exception, and the next sweep comes anyway.
            self._timer = self._loop.call_later(SWEEP_AGAIN_S if more else SWEEP_S, self._sweep)

    def _idle(self, failure: StorageFailed | None) -> None:
        self._waiting = False
        if failure is None and not self._stopped:
            self._reclaim()

    def _delete_expired(self) -> bool:
        engine = self._engine
        if self._expiring:
            return False
        now = engine.clock()
        entries = engine.store.due(now, SWEEP_COUNT_MAX)
        for due in entries:
            try:
                self._check_due(due, now)
            except Exception as error:
                # A stream that cannot be read must not block the others: it is not tried again.
                self._loop.call_exception_handler(
                    {"message": f"cannot expire stream {due.id}", "exception": error}
                )
            engine.commit.open.transaction.unschedule(due)
        if entries:
            self._expiring = True
            engine.commit.when_durable(self._expired)
        return bool(entries)

    def _expired(self, _failure: StorageFailed | None) -> None:
        self._expiring = False

    def _check_due(self, due: Due, now: int) -> None:
        engine = self._engine
        stream = engine.stream(due.key)
        state = stream.state
        if state is None or state.id != due.id or state.deleted:
            return
        if not engine.expire(stream, now):
            # A sliding TTL was extended; the index has the old deadline.
            deadline = engine.deadline(stream, state)
            assert deadline is not None
            engine.commit.open.transaction.schedule(Due(deadline, due.id, due.key))

    def _reclaim(self) -> bool:
        engine = self._engine
        if self._reclaiming:
            return False
        garbage = engine.store.garbage(RECLAIM_COUNT_MAX, self._is_reclaimable)
        if any(entry.file for entry in garbage):
            self._reclaiming = True
            job = self._loop.run_in_executor(engine.blob_threads, self._unlink, garbage)
            job.add_done_callback(self._unlinked)
        elif garbage:
            self._delete(garbage)
        elif self._compaction is None and (
            self._reclaimed_bytes >= COMPACT_BYTES_MIN or (engine.full and self._ranges)
        ):
            self._reclaimed_bytes = 0
            ranges, self._ranges = self._ranges, []
            self._compaction = threading.Thread(target=self._compact, args=(ranges,))
            self._compaction.start()
        return bool(garbage)

    def _is_reclaimable(self, garbage: Garbage) -> bool:
        return garbage.id not in self._not_reclaimable and self._engine.pins.allow(garbage)

    def _unlink(self, garbage: list[Garbage]) -> list[Garbage]:
        """In a thread: remove files; returns the garbage that can be deleted now."""
        gone = []
        for entry in garbage:
            try:
                if entry.file:
                    self._engine.store.unlink(entry)
            except OSError as error:
                self._loop.call_soon_threadsafe(self._give_up, entry, error)
            else:
                gone.append(entry)
        return gone

    def _unlinked(self, done: "asyncio.Future[list[Garbage]]") -> None:
        self._reclaiming = False
        if self._engine.failure is None and not self._stopped:
            self._delete(done.result())

    def _delete(self, garbage: list[Garbage]) -> None:
        for entry in garbage:
            try:
                self._engine.commit.open.transaction.reclaim(entry)
            except Exception as error:
                # Garbage that cannot be read must not block the rest.
                self._give_up(entry, error)
            else:
                self._reclaimed(entry)
        self._reclaiming = True
        self._engine.commit.when_durable(self._deleted)

    def _deleted(self, _failure: StorageFailed | None) -> None:
        self._reclaiming = False

    def _give_up(self, garbage: Garbage, error: Exception) -> None:
        """Leave garbage where it is until a restart."""
        self._not_reclaimable.add(garbage.id)
        self._loop.call_exception_handler(
            {"message": f"cannot reclaim {garbage.id}", "exception": error}
        )

    def _reclaimed(self, garbage: Garbage) -> None:
        """Add to the ranges to compact: neighbours together, and a bounded number of ranges."""
        self._engine.commit.meters.reclaimed_bytes += garbage.bytes
        if garbage.file:
            return
        self._reclaimed_bytes += garbage.bytes
        first = (garbage.id, 0)
        last = (garbage.id + 1, 0) if garbage.until is None else (garbage.id, garbage.until)
        if self._ranges:
            before = self._ranges[-1]
            near = 0 <= first[0] - before[1][0] <= NEIGHBOURS
            if near or len(self._ranges) == RANGES_MAX:
                self._ranges.pop()
                first, last = min(before[0], first), max(before[1], last)
        self._ranges.append((first, last))

    def _compact(self, ranges: list[tuple[tuple[int, int], tuple[int, int]]]) -> None:
        try:
            for first, last in ranges:
                if not self._stopped:
                    self._engine.store.compact(first, last)
        finally:
            self._compaction = None

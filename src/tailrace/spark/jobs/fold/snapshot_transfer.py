"""
Fetches snapshots before their streams are read, and publishes them while later streams are read.

A server fsyncs each snapshot, but those that arrive together share one fsync; a fetch costs two
round trips. With a few requests in flight, a task does not wait for each of them. The snapshots in
memory are bounded by number and by bytes, in both directions.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from tailrace.client import Client, Snapshot
from tailrace.spark.connection import stream_of
from tailrace.spark.jobs.fold.plan import PlanEntry
from tailrace.spark.jobs.fold.results import StreamFold

__all__ = ["SnapshotTransfer"]

AT_ONCE: Final = 8
PENDING_BYTES_MAX: Final = 32 << 20


class SnapshotTransfer:
    """Fetches and publishes the snapshots of one task; results come in the order of `publish`."""

    def __init__(self, client: Client, entries: Sequence[PlanEntry]) -> None:
        self._client = client
        self._entries = entries
        self._threads = ThreadPoolExecutor(AT_ONCE, "snapshots")
        self._fetched: dict[int, Future[Snapshot]] = {}
        self._next = 0
        """The first entry whose snapshot was not requested yet."""
        self._publishing: deque[tuple[int, Future[StreamFold]]] = deque()

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)

    # -- before --------------------------------------------------------------------------------

    def fetch(self, index: int) -> Snapshot | None:
        """
        The snapshot of a stream, if the plan has one; called in the order of the entries.

        Raises:
            TailraceError: It does not exist, or cannot be fetched.
        """
        self._fetched = {at: found for at, found in self._fetched.items() if at >= index}
        self._next = max(self._next, index)
        while self._next < len(self._entries) and (self._next == index or self._has_room()):
            entry = self._entries[self._next]
            if entry.snapshot_bytes is not None:
                stream = stream_of(self._client, entry.bucket, entry.stream)
                self._fetched[self._next] = self._threads.submit(stream.snapshot)
            self._next += 1
        found = self._fetched.pop(index, None)
        return None if found is None else found.result()

    def _has_room(self) -> bool:
        sizes = [self._entries[at].snapshot_bytes or 0 for at in (*self._fetched, self._next)]
        return len(sizes) <= AT_ONCE and sum(sizes) <= PENDING_BYTES_MAX

    # -- after ---------------------------------------------------------------------------------

    def publish(self, publish: Callable[[], StreamFold], size: int) -> Iterator[StreamFold]:
        """Publish in the background; yields finished results, and waits if too many are not."""
        self._publishing.append((size, self._threads.submit(publish)))
        return self._collect(AT_ONCE, PENDING_BYTES_MAX)

    def finish(self) -> Iterator[StreamFold]:
        """The remaining results."""
        return self._collect(0, 0)

    def _collect(self, count_max: int, bytes_max: int) -> Iterator[StreamFold]:
        while self._publishing:
            size = sum(size for size, _ in self._publishing)
            is_over = len(self._publishing) > count_max or size > bytes_max
            if not is_over and not self._publishing[0][1].done():
                return
            yield self._publishing.popleft()[1].result()

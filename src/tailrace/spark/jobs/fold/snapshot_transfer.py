"""
Snapshots fetched before their stream is read, and published while the next ones are.

A server fsyncs each snapshot, and those that arrive together share one fsync; each one that is
fetched costs two round trips. With a few on their way at a time a task waits for neither once a
stream. What is in memory for it is bounded by count and by bytes, in both directions.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Final

from tailrace.client import Client, Snapshot, Stream
from tailrace.spark.jobs.fold.plan import PlanEntry
from tailrace.spark.jobs.fold.results import StreamFold

__all__ = ["Snapshots", "stream_of"]

AT_ONCE: Final = 8
WAITING_BYTES_MAX: Final = 32 << 20


class Snapshots:
    """Those of the streams of one task; results come in the order in which they were put."""

    def __init__(self, client: Client, entries: Sequence[PlanEntry]) -> None:
        self._client = client
        self._entries = entries
        self._threads = ThreadPoolExecutor(AT_ONCE, "snapshots")
        self._fetched: dict[int, Future[Snapshot]] = {}
        self._next = 0
        """The first entry whose snapshot was not asked for yet."""
        self._waiting: deque[tuple[int, Future[StreamFold]]] = deque()

    def __enter__(self) -> "Snapshots":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._threads.shutdown(cancel_futures=True)

    # -- before --------------------------------------------------------------------------------

    def fetch(self, index: int) -> Snapshot | None:
        """
        The snapshot of a stream, if it had one; streams are asked for in their order.

        Raises:
            TailraceError: It is not there, or cannot be fetched.
        """
        self._fetched = {at: found for at, found in self._fetched.items() if at >= index}
        self._next = max(self._next, index)
        while self._next < len(self._entries) and (self._next == index or self._has_room()):
            entry = self._entries[self._next]
            if entry.snapshot_bytes is not None:
                stream = stream_of(self._client, entry)
                self._fetched[self._next] = self._threads.submit(stream.snapshot)
            self._next += 1
        found = self._fetched.pop(index, None)
        return None if found is None else found.result()

    def _has_room(self) -> bool:
        sizes = [self._entries[at].snapshot_bytes or 0 for at in (*self._fetched, self._next)]
        return len(sizes) <= AT_ONCE and sum(sizes) <= WAITING_BYTES_MAX

    # -- after ---------------------------------------------------------------------------------

    def publish(self, publish: Callable[[], StreamFold], size: int) -> Iterator[StreamFold]:
        """Publish soon; returns what is done by now, and waits where too much is not."""
        self._waiting.append((size, self._threads.submit(publish)))
        return self._settle(AT_ONCE, WAITING_BYTES_MAX)

    def finish(self) -> Iterator[StreamFold]:
        """All that is left."""
        return self._settle(0, 0)

    def _settle(self, count_max: int, bytes_max: int) -> Iterator[StreamFold]:
        while self._waiting:
            size = sum(size for size, _ in self._waiting)
            is_over = len(self._waiting) > count_max or size > bytes_max
            if not is_over and not self._waiting[0][1].done():
                return
            yield self._waiting.popleft()[1].result()


def stream_of(client: Client, entry: PlanEntry) -> Stream:
    return client.bucket(entry.bucket).stream(entry.stream)

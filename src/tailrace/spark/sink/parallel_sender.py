"""
Sends several requests of the sink at once, those of one stream one after another.

Rule 1: the requests of a stream are sent by one thread, so they arrive in the order of their
numbers.

The caller prepares the next requests while threads wait for responses. It blocks when the queues
are full. A failure stops all threads and is raised to the caller.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tailrace.client import StreamName
from tailrace.spark.sink.append_requests import AppendRequest

__all__ = ["ParallelSender"]

THREADS_MAX: Final = 4
PENDING_MAX: Final = 256
"""The largest number of requests that are queued or in flight."""
PENDING_BYTES_MAX: Final = 16 << 20
"""The largest sum of their bodies; a larger request is sent when no other is pending."""


class ParallelSender:
    """A few threads that send; see the rule above. Used by one thread, which closes it."""

    def __init__(
        self, send: Callable[[AppendRequest], bool], threads_max: int = THREADS_MAX
    ) -> None:
        self._send = send
        # Each has one thread, which starts with its first request.
        self._threads = [ThreadPoolExecutor(1, "tailrace-sink") for _ in range(threads_max)]
        self._pending = [0] * threads_max
        """The number of requests of each thread that are queued or in flight."""
        self._pending_bytes = 0
        self._changed = threading.Condition()
        self._failures: list[BaseException] = []
        self._stream: StreamName | None = None
        self._thread = 0
        """The thread of this stream."""
        self.requests = 0
        self.duplicates = 0

    def put(self, request: AppendRequest) -> None:
        """
        Queue a request. The requests of one stream must follow each other.

        Raises:
            The failure of an earlier request.
        """
        self._wait_for(lambda: self._has_room(len(request.body)))
        with self._changed:
            if self._stream != request.name:
                # A new stream gets the least loaded thread.
                self._stream = request.name
                self._thread = self._pending.index(min(self._pending))
            self._pending[self._thread] += 1
            self._pending_bytes += len(request.body)
        self._threads[self._thread].submit(self._run, request, self._thread)

    def finish(self) -> None:
        """
        Wait until all requests are stored.

        Raises:
            The first failure.
        """
        self._wait_for(lambda: not any(self._pending))

    def close(self) -> None:
        """End the threads. Queued requests are dropped; those in flight are awaited."""
        for thread in self._threads:
            thread.shutdown(wait=False, cancel_futures=True)
        for thread in self._threads:
            thread.shutdown()

    def _wait_for(self, is_reached: Callable[[], bool]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._failures or is_reached())
            if self._failures:
                raise self._failures[0]

    def _has_room(self, size: int) -> bool:
        pending = sum(self._pending)
        fits = self._pending_bytes + size <= PENDING_BYTES_MAX and pending < PENDING_MAX
        return fits or not pending

    def _run(self, request: AppendRequest, thread: int) -> None:
        if self._failures:
            return
        try:
            duplicate = self._send(request)
        except BaseException as error:
            with self._changed:
                self._failures.append(error)
                self._changed.notify_all()
            return
        with self._changed:
            self._pending[thread] -= 1
            self._pending_bytes -= len(request.body)
            self.requests += 1
            self.duplicates += duplicate
            self._changed.notify_all()

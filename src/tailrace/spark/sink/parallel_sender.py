"""
Sends several requests of the sink at once, those of one stream one after another.

Rule 1: the requests of a stream are sent by one thread, so they arrive in the order of their
numbers.

The caller prepares the next requests while threads wait for responses. It blocks when the queues
are full. A failure stops all threads and is raised to the caller.
"""

import threading
from collections import deque
from collections.abc import Callable
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
        self._threads_max = threads_max
        self._threads: list[_SenderThread] = []
        self._changed = threading.Condition()
        self._pending = 0
        self._pending_bytes = 0
        self._is_closed = False
        self._failure: BaseException | None = None
        self._current: tuple[StreamName, _SenderThread] | None = None
        self.requests = 0
        self.duplicates = 0

    def put(self, request: AppendRequest) -> None:
        """
        Queue a request. The requests of one stream must follow each other.

        Raises:
            The failure of an earlier request.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._failure or self._has_room(len(request.body)))
            self._raise_failure()
            self._pending += 1
            self._pending_bytes += len(request.body)
            self._thread(request.name).queue.append(request)
            self._changed.notify_all()

    def finish(self) -> None:
        """
        Wait until all requests are stored.

        Raises:
            The first failure.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._failure or not self._pending)
            self._raise_failure()

    def close(self) -> None:
        """End the threads. Queued requests are dropped; those in flight are awaited."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _has_room(self, size: int) -> bool:
        fits = self._pending_bytes + size <= PENDING_BYTES_MAX and self._pending < PENDING_MAX
        return fits or not self._pending

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _thread(self, name: StreamName) -> "_SenderThread":
        """The thread of the current stream; a new stream gets the least loaded one."""
        if self._current is None or self._current[0] != name:
            thread = min(self._threads, key=lambda each: each.load, default=None)
            if thread is None or (thread.load and len(self._threads) < self._threads_max):
                thread = _SenderThread(self._run)
                self._threads.append(thread)
            self._current = name, thread
        return self._current[1]

    def _run(self, thread: "_SenderThread") -> None:
        while (request := self._next(thread)) is not None:
            duplicate, failure = False, None
            try:
                duplicate = self._send(request)
            except BaseException as error:
                failure = error
            with self._changed:
                thread.is_sending = False
                self._pending -= 1
                self._pending_bytes -= len(request.body)
                self._failure = self._failure or failure
                self.requests += failure is None
                self.duplicates += duplicate
                self._changed.notify_all()

    def _next(self, thread: "_SenderThread") -> AppendRequest | None:
        """The next request of a thread; None when it must end."""
        with self._changed:
            self._changed.wait_for(lambda: thread.queue or self._is_closed or self._failure)
            if self._is_closed or self._failure is not None:
                return None
            thread.is_sending = True
            return thread.queue.popleft()


class _SenderThread(threading.Thread):
    """A thread and its queue."""

    def __init__(self, run: "Callable[[_SenderThread], None]") -> None:
        super().__init__(target=run, args=(self,), name="tailrace-sink", daemon=True)
        self.queue: deque[AppendRequest] = deque()
        self.is_sending = False
        self.start()

    @property
    def load(self) -> int:
        return len(self.queue) + self.is_sending

"""
Several requests of the sink on their way at once, those of one stream one after another.

Rule 1: a stream's requests go through one lane, so they arrive in the order of their numbers.

While lanes wait for answers, the caller makes the next requests; it is held up when lanes are
full, and Spark with it. What fails in a lane stops all, and is raised to the caller.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from tailrace.client import StreamName
from tailrace.spark.sink.append_requests import Append

__all__ = ["Lanes"]

LANES_MAX: Final = 4
WAITING_MAX: Final = 256
"""Of requests that wait for their lane or their answer."""
WAITING_BYTES_MAX: Final = 16 << 20
"""And of their bytes; a request that is larger goes when no other waits."""


class Lanes:
    """A few threads that send; see the rule above. Used by one thread, which closes it."""

    def __init__(self, send: Callable[[Append], bool], lanes_max: int = LANES_MAX) -> None:
        self._send = send
        self._lanes_max = lanes_max
        self._lanes: list[_Lane] = []
        self._changed = threading.Condition()
        self._waiting = 0
        self._waiting_bytes = 0
        self._is_closed = False
        self._failure: BaseException | None = None
        self._current: tuple[StreamName, _Lane] | None = None
        self.requests = 0
        self.duplicates = 0

    def put(self, append: Append) -> None:
        """
        Send a request when its turn comes. Those of one stream must follow each other.

        Raises:
            What went wrong with one that was put before.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._failure or self._has_room(len(append.body)))
            self._raise_failure()
            self._waiting += 1
            self._waiting_bytes += len(append.body)
            self._lane(append.name).queue.append(append)
            self._changed.notify_all()

    def finish(self) -> None:
        """
        Wait until all is stored.

        Raises:
            What went wrong.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._failure or not self._waiting)
            self._raise_failure()

    def close(self) -> None:
        """End the threads. What waits for its turn is not sent; what is on its way is awaited."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        for lane in self._lanes:
            lane.thread.join()

    def _has_room(self, size: int) -> bool:
        fits = self._waiting_bytes + size <= WAITING_BYTES_MAX and self._waiting < WAITING_MAX
        return fits or not self._waiting

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _lane(self, name: StreamName) -> "_Lane":
        """The lane of the current stream; a new stream gets the one with the least to do."""
        if self._current is None or self._current[0] != name:
            lane = min(self._lanes, key=lambda lane: lane.load, default=None)
            if lane is None or (lane.load and len(self._lanes) < self._lanes_max):
                lane = _Lane(self._run)
                self._lanes.append(lane)
            self._current = name, lane
        return self._current[1]

    def _run(self, lane: "_Lane") -> None:
        while (append := self._next(lane)) is not None:
            try:
                self._settle(lane, append, duplicate=self._send(append))
            except BaseException as error:
                self._settle(lane, append, failure=error)

    def _next(self, lane: "_Lane") -> Append | None:
        """What a lane sends next; nothing when all is over."""
        with self._changed:
            self._changed.wait_for(lambda: lane.queue or self._is_closed or self._failure)
            if self._is_closed or self._failure is not None:
                return None
            lane.is_sending = True
            return lane.queue.popleft()

    def _settle(
        self,
        lane: "_Lane",
        append: Append,
        *,
        duplicate: bool = False,
        failure: BaseException | None = None,
    ) -> None:
        with self._changed:
            lane.is_sending = False
            self._waiting -= 1
            self._waiting_bytes -= len(append.body)
            if self._failure is None:
                self._failure = failure
            self.requests += failure is None
            self.duplicates += duplicate
            self._changed.notify_all()


class _Lane:
    """A thread, and what it has to send."""

    def __init__(self, run: "Callable[[_Lane], None]") -> None:
        self.queue: deque[Append] = deque()
        self.is_sending = False
        self.thread = threading.Thread(target=run, args=(self,), name="tailrace-sink", daemon=True)
        self.thread.start()

    @property
    def load(self) -> int:
        return len(self.queue) + self.is_sending

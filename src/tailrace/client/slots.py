"""The slots of a producer: how many there are, and how they wait for something to do."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from tailrace.client.batch_queue import Batching

__all__ = ["STOP", "Monitor", "Stay"]

T = TypeVar("T")

IDLE_S: Final = 5.0
"""A slot with nothing to do for so long ends: most producers write now and then."""
STOP: Final = object()


class Monitor(Protocol):
    """One change at a time, and waiting for one: by a lock, or by an event loop."""

    def change(self, action: Callable[[], T]) -> T:
        """Do something, and wake all who wait."""

    def wait(self, ready: Callable[[], Any], wait_s: Callable[[], float | None]) -> Any:
        """Wait until something is there, looking again after each change and after some time."""

    def start_slot(self) -> None:
        """Run one more slot."""


class Stay:
    """One slot's presence: counted, so that there are as many as have something to do."""

    def __init__(self, batching: Batching, clock: Callable[[], float]) -> None:
        self._batching = batching
        self._clock = clock
        self._since = clock()
        self._is_idle = False
        self._has_left = False

    def begin_to_wait(self, monitor: Monitor) -> None:
        self._since = self._clock()
        monitor.change(partial(self._set_idle, True))

    def next(self) -> Any:
        """A batch, or the word to stop. Leaves at once then: the next message starts a new slot."""
        batch = self._batching.take()
        if batch is not None:
            self._set_idle(False)
            return batch
        is_idle = not self._batching.has_open and self._clock() - self._since >= IDLE_S
        if is_idle or self._batching.is_done:
            self.leave()
            return STOP
        return None

    def wait_s(self) -> float | None:
        linger = self._batching.linger_left_s()
        # Nothing lingers, and still nothing to take: others must finish first, and will wake us.
        return linger if linger > 0 else max(0.1, self._since + IDLE_S - self._clock())

    def leave(self) -> None:
        if not self._has_left:
            self._has_left = True
            self._set_idle(False)
            self._batching.slots -= 1

    def _set_idle(self, idle: bool) -> None:
        self._batching.idle_slots += int(idle) - int(self._is_idle)
        self._is_idle = idle

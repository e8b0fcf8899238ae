"""What reading methods return: iterators that also tell what they have reached."""

from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from types import TracebackType
from typing import Any, TypeVar

from tailrace.client.flow import Reached

__all__ = ["AsyncReading", "ReadProgress", "Reading"]

T = TypeVar("T")


class ReadProgress:
    """What a reader was given so far."""

    # Written by the driver, which has no reference to the reader: leaving a loop ends both.
    reached: Reached | None = None


class BaseReading:
    """The properties of both kinds of readers."""

    _progress: ReadProgress

    @property
    def next_offset(self) -> str | None:
        """The offset after the last response of which all items were given; at first None."""
        reached = self._progress.reached
        return None if reached is None else reached.next_offset

    @property
    def up_to_date(self) -> bool:
        """There was nothing after them at that moment."""
        reached = self._progress.reached
        return reached is not None and reached.up_to_date

    @property
    def closed(self) -> bool:
        """The stream is closed, and all of it was given."""
        reached = self._progress.reached
        return reached is not None and reached.closed


class Reading(BaseReading, Generator[T, None, None]):
    """The items of a blocking reader."""

    def __init__(
        self,
        items: Generator[T, None, None],
        progress: ReadProgress,
        cancel: Callable[[], None],
    ) -> None:
        self._items = items
        self._progress = progress
        self._cancel = cancel

    def cancel(self) -> None:
        """
        End the iteration, from any thread: a wait for data ends at once, without an error.

        While a connection is being made, it ends after the client's `timeout_s` at the latest.
        """
        self._cancel()

    def __iter__(self) -> Iterator[T]:  # type: ignore[override]
        # The generator itself, which is faster than `__next__` below.
        return self._items

    def __next__(self) -> T:
        return next(self._items)

    def send(self, value: None) -> T:
        return self._items.send(value)

    def throw(self, *raised: Any) -> T:
        return self._items.throw(*raised)

    def close(self) -> None:
        """End the iteration, from the thread that iterates."""
        self._items.close()


class AsyncReading(BaseReading, AsyncGenerator[T, None]):
    """The items of an asynchronous reader; cancel its task to end a wait."""

    def __init__(self, items: AsyncGenerator[T, None], progress: ReadProgress) -> None:
        self._items = items
        self._progress = progress

    def __aiter__(self) -> AsyncGenerator[T, None]:
        return self._items

    async def __anext__(self) -> T:
        return await anext(self._items)

    async def asend(self, value: None) -> T:
        return await self._items.asend(value)

    async def athrow(
        self,
        kind: Any,
        error: BaseException | object = None,
        trace: TracebackType | None = None,
    ) -> T:
        return await self._items.athrow(kind)

    async def aclose(self) -> None:
        await self._items.aclose()

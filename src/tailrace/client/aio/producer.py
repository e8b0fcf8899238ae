"""`AsyncProducer`: exactly-once writing from an event loop, by tasks of its own."""

import asyncio
import time
from collections.abc import Callable, Generator
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

from tailrace.client.aio.driver import AsyncHandle, AsyncShell, runs
from tailrace.client.batch_queue import Batching
from tailrace.client.encoding import as_bytes, check_message, encode_json
from tailrace.client.producer_flows import ProducerFlows, ProducerSetup
from tailrace.client.requests import Options
from tailrace.client.streams import StreamFlows
from tailrace.client.values import Appended

__all__ = ["AsyncProducer", "Delivery", "produces"]

P = ParamSpec("P")
T = TypeVar("T")


class Delivery:
    """What becomes of a message's batch: await it for `Appended`, or what went wrong."""

    __slots__ = ("_future",)

    def __init__(self) -> None:
        self._future: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()

    def __await__(self) -> Generator[Any, None, Appended]:
        # Several messages share it: who stops waiting for it cancels nothing.
        return asyncio.shield(self._future).__await__()

    def done(self) -> bool:
        return self._future.done()

    def result(self) -> Appended:
        """Once it is done."""
        return self._future.result()

    def exception(self) -> BaseException | None:
        """Once it is done."""
        return self._future.exception()

    def set_result(self, result: Appended) -> None:
        self._future.set_result(result)

    def set_exception(self, error: Exception) -> None:
        self._future.set_exception(error)
        # Looked at, so that nobody has to: `flush` and `close` raise it too.
        self._future.exception()


class _Tasks:
    """The monitor of an event loop: one thing at a time by itself."""

    def __init__(self, shell: AsyncShell, flows: ProducerFlows) -> None:
        self._shell = shell
        self._flows = flows
        self._waiters: list[asyncio.Future[None]] = []
        self._slots: set[asyncio.Task[None]] = set()

    def change(self, action: Callable[[], T]) -> T:
        result = action()
        self.wake()
        return result

    def wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, ready: Callable[[], Any], wait_s: Callable[[], float | None]) -> Any:
        while (found := ready()) is None:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await asyncio.wait([waiter], timeout=wait_s())
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
        return found

    def start_slot(self) -> None:
        task = asyncio.create_task(self._shell.run(self._flows.slot()), name="tailrace-producer")
        self._slots.add(task)
        task.add_done_callback(self._slots.discard)

    async def stop(self) -> None:
        """End all slots, whatever they wait for."""
        slots = list(self._slots)
        for slot in slots:
            slot.cancel()
        await asyncio.gather(*slots, return_exceptions=True)


class AsyncProducer(AsyncHandle[ProducerFlows]):
    """
    Appends to one stream in the background: batched, several requests at once, each message stored
    once and in order whatever is lost, refused or restarted on the way.

    Made by `AsyncStream.producer`, for one event loop. An error that does not pass ends it:
    `append`, `flush`, `close` and the deliveries of all that was not stored raise it.
    """

    def __init__(
        self, shell: AsyncShell, flows: ProducerFlows, options: Options, batching: Batching
    ) -> None:
        self._is_closed = False
        super().__init__(shell, flows, options)
        self._batching = batching
        self._tasks = _Tasks(shell, flows)
        self._is_json = flows.is_json
        self._gives_way = False
        flows.monitor = self._tasks

    @property
    def producer_id(self) -> str:
        return self._batching.producer_id

    @property
    def epoch(self) -> int:
        """As given, or as claimed."""
        return self._batching.epoch

    async def append(self, data: bytes | str) -> Delivery:
        """
        Append a message; on a JSON stream, one that is encoded already.

        Returns at once, or when there is room in the queue. The delivery is that of its batch.

        Raises:
            TailraceError: The producer failed.
            ValueError: It is closed; the message is empty, or not JSON on a JSON stream.
        """
        data = as_bytes(data)
        check_message(data, as_json=self._is_json)
        return await self._add(data)

    async def _add(self, data: bytes) -> Delivery:
        batching = self._batching
        if self._gives_way:
            # A loop of appends that never has to wait would keep the slots from running. Before the
            # message is taken, and not after: who is cancelled here has not appended it.
            self._gives_way = False
            await asyncio.sleep(0)
        if batching.failure is None and not batching.has_room(len(data)):
            await self._wait_for_room(len(data))
        delivery, wakes = batching.add(data)
        if wakes:
            if batching.reserve_slot():
                self._tasks.start_slot()
            self._tasks.wake()
            self._gives_way = True
        return delivery  # type: ignore[no-any-return]

    async def append_json(self, value: object) -> Delivery:
        """
        Append a value to a JSON stream.

        Raises:
            As `append` does; TypeError, ValueError: It is not JSON.
        """
        if not self._is_json:
            raise TypeError("append_json is for producers whose content_type is JSON")
        return await self._add(encode_json(value))

    flush = runs(ProducerFlows.flush)
    close_stream = runs(ProducerFlows.close_stream)

    def undelivered(self) -> list[bytes]:
        """What is not acknowledged, in order; after an error, some of it may be stored anyway."""
        return [item for batch in self._batching.undelivered() for item in batch.items]

    async def close(self) -> None:
        """
        Wait until everything is stored, and take no more. The stream stays open.

        Raises:
            TailraceError: It cannot be: whatever ended the producer. Once; later calls do nothing.
        """
        if not self._is_closed:
            self._is_closed = True
            try:
                await self._shell.run(self._flows.close())
            finally:
                await self._tasks.stop()

    async def _wait_for_room(self, size: int) -> None:
        batching = self._batching
        batching.hurry += 1
        try:
            self._tasks.wake()
            await self._tasks.wait(
                lambda: batching.failure is not None or batching.has_room(size) or None,
                lambda: None,
            )
        finally:
            batching.hurry -= 1

    def __del__(self) -> None:
        if not self._is_closed:
            self._flows.abandon()

    async def __aenter__(self) -> "AsyncProducer":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self.close()
        except Exception as failed:
            if error is None:
                raise
            # The error of the block is what the caller looks for; this one is not lost either.
            if failed is not error:
                error.add_note(f"The producer could not deliver everything: {failed}")


def produces(
    setup: Callable[Concatenate[StreamFlows, P], ProducerSetup],
) -> "Callable[Concatenate[AsyncHandle[StreamFlows], P], AsyncProducer]":
    """A method that makes a producer as a setup says."""

    @wraps(setup)
    def method(
        self: AsyncHandle[StreamFlows], /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncProducer:
        made = setup(self._flows, *args, **kwargs)
        flows, batching = made.start(self._options, time.monotonic, Delivery)
        return AsyncProducer(self._shell, flows, self._options, batching)

    return method

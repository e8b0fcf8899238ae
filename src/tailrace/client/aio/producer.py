"""`AsyncProducer`: exactly-once appends from an event loop, by tasks in the background."""

import asyncio
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

from tailrace.client.aio.driver import AsyncDriver
from tailrace.client.handle import BaseHandle, BaseProducer
from tailrace.client.producer_flows import ProducerFlows, ProducerOptions
from tailrace.client.streams import StreamFlows
from tailrace.client.values import Appended

__all__ = ["AsyncProducer", "Delivery"]


class Delivery:
    """The result of a message's batch: await it for `Appended`, or its error."""

    __slots__ = ("_future",)

    def __init__(self) -> None:
        self._future: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()

    def __await__(self) -> Generator[Any, None, Appended]:
        # Several messages share it: cancelling one waiter must not cancel the others.
        return asyncio.shield(self._future).__await__()

    def done(self) -> bool:
        return self._future.done()

    def result(self) -> Appended:
        """The result, once it is done."""
        return self._future.result()

    def exception(self) -> BaseException | None:
        """The error or None, once it is done."""
        return self._future.exception()

    def set_result(self, result: Appended) -> None:
        self._future.set_result(result)

    def set_exception(self, error: Exception) -> None:
        self._future.set_exception(error)
        # Retrieved, so that asyncio does not warn: `flush` and `close` raise it too.
        self._future.exception()


class _TaskFlows(ProducerFlows):
    """A producer whose workers are tasks; the event loop runs one at a time."""

    def __init__(self, driver: AsyncDriver, stream: StreamFlows, options: ProducerOptions) -> None:
        super().__init__(stream.url, stream.options, options)
        self._driver = driver
        self._waiters: list[asyncio.Future[None]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def new_delivery(self) -> Delivery:
        return Delivery()

    @contextmanager
    def changing(self) -> Iterator[None]:
        yield
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, ready: Callable[[], Any], timeout_s: Callable[[], float | None]) -> Any:
        while (found := ready()) is None:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await asyncio.wait([waiter], timeout=timeout_s())
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
        return found

    def start_worker(self, worker: object) -> None:
        task = asyncio.create_task(self._driver.run(self.work(worker)), name="tailrace-producer")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Cancel all workers."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class AsyncProducer(BaseProducer[AsyncDriver, _TaskFlows], driver=AsyncDriver):
    """
    The same as `Producer`, for one event loop; made by `AsyncStream.producer`.

    `append` and `append_json` return a `Delivery` instead of a future.
    """

    def __init__(
        self, stream: BaseHandle[AsyncDriver, StreamFlows], options: ProducerOptions
    ) -> None:
        super().__init__(stream._driver, _TaskFlows(stream._driver, stream._flows, options))
        self._yields = False

    async def append(self, data: bytes | str) -> Delivery:
        """As `Producer.append`: a message; on a JSON stream, an encoded one."""
        return await self._add(self._flows.checked(data))

    async def append_json(self, value: object) -> Delivery:
        """As `Producer.append_json`: a value, to a JSON stream."""
        return await self._add(self._flows.encode(value))

    async def _add(self, data: bytes) -> Delivery:
        flows = self._flows
        queue = flows.queue
        if self._yields:
            # A loop of appends that never waits would keep the workers from running. Yield before
            # the message is added: an append that is cancelled here has added nothing.
            self._yields = False
            await asyncio.sleep(0)
        while queue.failure is None and not queue.has_room(len(data)):
            await self._driver.run(flows.wait_for_room(len(data)))
        delivery: Delivery
        delivery, wakes = queue.add(data)
        if wakes:
            flows.wake_workers()
            self._yields = True
        return delivery

    async def close(self) -> None:
        """As `Producer.close`: wait until everything is stored, and accept no more messages."""
        if not self._is_closed:
            self._is_closed = True
            try:
                await self._driver.run(self._flows.close())
            finally:
                await self._flows.stop()

    async def __aenter__(self) -> "AsyncProducer":
        return self

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        with self._noting(error):
            await self.close()

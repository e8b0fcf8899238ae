"""`Producer`: exactly-once appends from any thread, by threads in the background."""

import atexit
import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from tailrace.client.handle import BaseHandle, BaseProducer
from tailrace.client.producer_flows import ProducerFlows, ProducerOptions
from tailrace.client.streams import StreamFlows
from tailrace.client.sync.driver import Driver
from tailrace.client.values import Appended

__all__ = ["Producer"]

_log = logging.getLogger("tailrace.client")


class _ThreadedFlows(ProducerFlows):
    """A producer whose workers are threads."""

    def __init__(self, driver: Driver, stream: StreamFlows, options: ProducerOptions) -> None:
        self.driver = driver
        self.mutex = threading.RLock()
        self._changed = threading.Condition(self.mutex)
        self._thread = threading.local()
        super().__init__(stream.url, stream.options, options)

    def new_delivery(self) -> "Future[Appended]":
        future: Future[Appended] = Future()
        # Several messages share it: no caller may cancel it.
        future.set_running_or_notify_cancel()
        return future

    @contextmanager
    def changing(self) -> Iterator[None]:
        with self.mutex:
            yield
            self._changed.notify_all()

    def wait(self, ready: Callable[[], Any], timeout_s: Callable[[], float | None]) -> Any:
        with self.mutex:
            while (found := ready()) is None:
                self._changed.wait(timeout_s())
            return found

    def start_worker(self, worker: object) -> None:
        thread = threading.Thread(
            target=self._run_worker, args=(worker,), name="tailrace-producer", daemon=True
        )
        try:
            thread.start()
        except BaseException as error:
            # No more threads, or Ctrl-C: the next caller that waits starts another worker.
            with self.changing():
                self.queue.remove_worker(worker)
            if not isinstance(error, RuntimeError):
                raise
            if not self.queue.workers:
                self.fail(error)

    def _run_worker(self, worker: object) -> None:
        self._thread.is_worker = True
        self.driver.run(self.work(worker))

    def check_may_wait(self) -> None:
        if getattr(self._thread, "is_worker", False):
            raise RuntimeError("a callback in the producer's thread must not wait for the producer")


_running: "weakref.WeakSet[_ThreadedFlows]" = weakref.WeakSet()
"""Kept alive by their threads: a `Producer` may be deleted before its messages are stored."""


class Producer(BaseProducer[Driver, _ThreadedFlows], driver=Driver):
    """
    Appends to one stream in the background, in batches and with several requests at once. Each
    message is stored once and in order, across lost connections, rejections and restarts.

    Made by `Stream.producer`. Safe to share between threads. A permanent error ends it: `append`,
    `flush`, `close` and the futures of all messages that were not stored raise it.
    """

    def __init__(self, stream: BaseHandle[Driver, StreamFlows], options: ProducerOptions) -> None:
        super().__init__(stream._driver, _ThreadedFlows(stream._driver, stream._flows, options))

    def append(self, data: bytes | str) -> "Future[Appended]":
        """
        Append a message; on a JSON stream, an encoded one.

        It waits only while the queue is full. Messages of one batch share the returned future.

        Raises:
            TailraceError: The producer failed.
            ValueError: It is closed; the message is empty, or not JSON on a JSON stream.
        """
        return self._add(self._flows.checked(data))

    def append_json(self, value: object) -> "Future[Appended]":
        """
        Append a value to a JSON stream.

        Raises as `append`; TypeError and ValueError if it cannot be encoded as JSON.
        """
        return self._add(self._flows.encode(value))

    def _add(self, data: bytes) -> "Future[Appended]":
        flows = self._flows
        queue = flows.queue
        future: Future[Appended]
        with flows.mutex:
            while queue.failure is None and not queue.has_room(len(data)):
                self._driver.run(flows.wait_for_room(len(data)))
            future, wakes = queue.add(data)
        if wakes:
            _running.add(flows)
            flows.wake_workers()
        return future

    def close(self) -> None:
        """
        Wait until everything is stored, and accept no more messages. The stream stays open.

        Raises:
            TailraceError: The error that ended the producer; raised once, later calls do nothing.
        """
        if not self._is_closed:
            self._flows.check_may_wait()
            self._is_closed = True
            try:
                self._driver.run(self._flows.close())
            finally:
                _running.discard(self._flows)

    def __enter__(self) -> "Producer":
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        with self._noting(error):
            self.close()


# The threads do not exist in a forked child: it has nothing to finish, and would wait for ever.
os.register_at_fork(after_in_child=_running.clear)


@atexit.register
def _finish() -> None:
    """Send the messages of producers that were not closed."""
    for flows in list(_running):
        if flows.queue.failure is not None:
            flows.abandon()
        else:
            try:
                flows.driver.run(flows.close())
            except Exception as error:
                _log.error("a producer could not deliver everything: %s", error)

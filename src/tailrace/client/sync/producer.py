"""`Producer`: exactly-once writing from any thread, by threads of its own."""

import atexit
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

from tailrace.client.batch_queue import Batching
from tailrace.client.encoding import as_bytes, check_message, encode_json
from tailrace.client.producer_flows import ProducerFlows, ProducerSetup
from tailrace.client.requests import Options
from tailrace.client.streams import StreamFlows
from tailrace.client.sync.driver import Handle, Shell
from tailrace.client.values import Appended

__all__ = ["Producer", "produces"]

P = ParamSpec("P")
T = TypeVar("T")

_log = logging.getLogger("tailrace.client")
_at_work: "weakref.WeakKeyDictionary[ProducerFlows, Shell]" = weakref.WeakKeyDictionary()
"""Held by their threads, and not by the `Producer`: that may be gone, and its messages not."""


class _Threads:
    """The monitor of threads: a lock, and a condition to wait for."""

    def __init__(self, shell: Shell, flows: ProducerFlows, batching: Batching) -> None:
        self._shell = shell
        self._flows = flows
        self._batching = batching
        self.mutex = threading.RLock()
        self.lock = threading.Condition(self.mutex)
        self._here = threading.local()

    def change(self, action: Callable[[], T]) -> T:
        with self.lock:
            result = action()
            self.lock.notify_all()
            return result

    def wait(self, ready: Callable[[], Any], wait_s: Callable[[], float | None]) -> Any:
        with self.lock:
            while (found := ready()) is None:
                self.lock.wait(wait_s())
            return found

    def start_slot(self) -> None:
        thread = threading.Thread(target=self._run_slot, name="tailrace-producer", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            if not self.change(self._without_slot):
                self._flows.fail(error)
        except BaseException:
            # Ctrl-C: another one is started by whoever waits next.
            self.change(self._without_slot)
            raise

    def _run_slot(self) -> None:
        self._here.is_slot = True
        self._shell.run(self._flows.slot())

    def check_may_wait(self) -> None:
        """
        See whether the caller is one of our own threads.

        Raises:
            RuntimeError: It is: it would wait for itself.
        """
        if getattr(self._here, "is_slot", False):
            raise RuntimeError("a callback runs in the producer's thread, and must not wait for it")

    def _without_slot(self) -> int:
        self._batching.slots -= 1
        return self._batching.slots


class Producer(Handle[ProducerFlows]):
    """
    Appends to one stream in the background: batched, several requests at once, each message stored
    once and in order whatever is lost, refused or restarted on the way.

    Made by `Stream.producer`. Safe to share between threads. An error that does not pass ends it:
    `append`, `flush`, `close` and the futures of all that was not stored raise it.
    """

    def __init__(
        self, shell: Shell, flows: ProducerFlows, options: Options, batching: Batching
    ) -> None:
        self._is_closed = False
        super().__init__(shell, flows, options)
        self._batching = batching
        self._threads = _Threads(shell, flows, batching)
        self._lock = self._threads.lock
        # The same without the condition's detours, for what is done for each message.
        self._mutex = self._threads.mutex
        self._is_json = flows.is_json
        flows.monitor = self._threads

    @property
    def producer_id(self) -> str:
        return self._batching.producer_id

    @property
    def epoch(self) -> int:
        """As given, or as claimed."""
        return self._batching.epoch

    def append(self, data: bytes | str) -> "Future[Appended]":
        """
        Append a message; on a JSON stream, one that is encoded already.

        Returns at once, or when there is room in the queue. The future is that of its batch.

        Raises:
            TailraceError: The producer failed.
            ValueError: It is closed; the message is empty, or not JSON on a JSON stream.
        """
        data = as_bytes(data)
        check_message(data, as_json=self._is_json)
        return self._add(data)

    def _add(self, data: bytes) -> "Future[Appended]":
        batching = self._batching
        with self._mutex:
            if batching.failure is None and not batching.has_room(len(data)):
                self._wait_for_room(len(data))
            future, wakes = batching.add(data)
            if not wakes:
                return future  # type: ignore[no-any-return]
            starts = batching.reserve_slot()
            self._lock.notify_all()
        if starts:
            self._start()
        return future  # type: ignore[no-any-return]

    def append_json(self, value: object) -> "Future[Appended]":
        """
        Append a value to a JSON stream.

        Raises:
            As `append` does; TypeError, ValueError: It is not JSON.
        """
        if not self._is_json:
            raise TypeError("append_json is for producers whose content_type is JSON")
        return self._add(encode_json(value))

    def flush(self) -> None:
        """
        Wait until everything that was appended is stored.

        Raises:
            TailraceError: It cannot be: whatever ended the producer.
            RuntimeError: This is a callback, in the producer's own thread.
        """
        self._threads.check_may_wait()
        self._shell.run(self._flows.flush())

    def close_stream(self) -> None:
        """
        Close the stream after all that was appended, in one step with the last of it.

        Exactly once as all else: a retry finds it closed by itself.

        Raises:
            As `flush` does.
        """
        self._threads.check_may_wait()
        self._shell.run(self._flows.close_stream())

    def undelivered(self) -> list[bytes]:
        """What is not acknowledged, in order; after an error, some of it may be stored anyway."""
        with self._lock:
            return [item for batch in self._batching.undelivered() for item in batch.items]

    def close(self) -> None:
        """
        Wait until everything is stored, and take no more. The stream stays open.

        Raises:
            TailraceError: It cannot be: whatever ended the producer. Once; later calls do nothing.
        """
        if not self._is_closed:
            self._threads.check_may_wait()
            self._is_closed = True
            try:
                self._shell.run(self._flows.close())
            finally:
                _at_work.pop(self._flows, None)

    def _wait_for_room(self, size: int) -> None:
        self._threads.check_may_wait()
        batching = self._batching
        batching.hurry += 1
        try:
            self._lock.notify_all()
            while batching.failure is None and not batching.has_room(size):
                self._lock.wait()
        finally:
            batching.hurry -= 1

    def _start(self) -> None:
        _at_work[self._flows] = self._shell
        self._threads.start_slot()

    def __del__(self) -> None:
        if not self._is_closed:
            self._flows.abandon()

    def __enter__(self) -> "Producer":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except Exception as failed:
            if error is None:
                raise
            # The error of the block is what the caller looks for; this one is not lost either.
            if failed is not error:
                error.add_note(f"The producer could not deliver everything: {failed}")


def produces(
    setup: Callable[Concatenate[StreamFlows, P], ProducerSetup],
) -> "Callable[Concatenate[Handle[StreamFlows], P], Producer]":
    """A method that makes a producer as a setup says."""

    @wraps(setup)
    def method(self: Handle[StreamFlows], /, *args: P.args, **kwargs: P.kwargs) -> Producer:
        made = setup(self._flows, *args, **kwargs)
        flows, batching = made.start(self._options, time.monotonic, _future)
        return Producer(self._shell, flows, self._options, batching)

    return method


def _future() -> "Future[Appended]":
    future: Future[Appended] = Future()
    # Several messages share it: none of their callers can cancel it.
    future.set_running_or_notify_cancel()
    return future


# Their threads are not in a child: it has nothing to finish, and would wait for ever.
os.register_at_fork(after_in_child=_at_work.clear)


@atexit.register
def _finish() -> None:
    """What was appended is sent, even if nobody closed the producer."""
    for flows, shell in list(_at_work.items()):
        if flows.failure is not None:
            flows.abandon()
        else:
            try:
                shell.run(flows.close())
            except Exception as error:
                _log.error("a producer could not deliver everything: %s", error)

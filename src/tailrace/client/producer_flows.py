"""
A producer at work, as flows (§5.2.1).

Several workers run concurrently, each in a thread or a task. A worker takes the next batch from the
`BatchQueue` and keeps it until it is stored, or the producer ends. `ProducerFlows` has a subclass
for threads and one for tasks: they make sure that one worker at a time changes the queue
(`changing`), and let others wait for a change (`wait`).

A producer id that the user chose may have been used before. The server would then take the first
batches for retries of earlier ones, acknowledge them, and drop them. A producer with a given id
therefore probes first: it sends its first batch with a sequence number that no server can accept,
and learns from the rejection which epoch is stored and which number is expected. That stores
nothing, so it may be repeated.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from time import monotonic
from typing import Any, Final

from tailrace.client.batch_queue import BatchQueue, ProducerBatch, ProducerOptions
from tailrace.client.decoding import appended
from tailrace.client.encoding import as_bytes, check_message, encode_json, is_json
from tailrace.client.errors import (
    AnswerInvalid,
    ProducerFenced,
    ProducerGap,
    ProducerReused,
    Refused,
    StreamClosed,
    Unreachable,
)
from tailrace.client.flow import (
    TRANSIENT_STATUSES,
    Body,
    Evaluate,
    Flow,
    HttpResponse,
    MakeRequest,
    Send,
    Wait,
    refused,
    send,
)
from tailrace.client.requests import Options, Resource
from tailrace.client.values import Appended, ProducerClaim

__all__ = ["ProducerFlows", "ProducerOptions"]

_log = logging.getLogger("tailrace.client")

IDLE_S: Final = 5.0
"""A worker without work for this long ends: most producers write now and then."""
_SEQ_MAX: Final = 2**53 - 1
_STOP: Final = object()
_STORED_BEFORE: Final = Appended(next_offset=None, closed=False, duplicate=True)
"""The result of a batch that is known to be stored although its own response was lost."""
_CLOSED_BEFORE: Final = Appended(next_offset=None, closed=True, duplicate=True)


class ProducerFlows(Resource, ABC):
    """The operations of a producer on one stream."""

    def __init__(
        self,
        url: str,
        client_options: Options,
        options: ProducerOptions,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        super().__init__(url, client_options)
        self.queue = BatchQueue(options, clock, self.new_delivery)
        self._clock = clock
        self._is_json = is_json(options.content_type)
        self._is_probed = options.producer_id is None
        self._is_reported = False
        """All deliveries have the error that ended the producer."""
        self._is_abandoned = False
        self._is_logged = False

    @abstractmethod
    def new_delivery(self) -> Any:
        """The future of a new batch."""

    @abstractmethod
    def changing(self) -> AbstractContextManager[None]:
        """Change the queue exclusively, and then wake all that wait."""

    @abstractmethod
    def wait(self, ready: Callable[[], Any], timeout_s: Callable[[], float | None]) -> Any:
        """Wait until `ready` returns a value; call it after each change and each timeout."""

    @abstractmethod
    def start_worker(self, worker: object) -> None:
        """Run `work` in the background."""

    def check_may_wait(self) -> None:
        """Raise RuntimeError in a thread of the producer, which would wait for itself."""

    # -- for the user ------------------------------------------------------------------------

    def encode(self, value: object) -> bytes:
        """A value as a message of a JSON stream."""
        if not self._is_json:
            raise TypeError("append_json needs a producer with a JSON content_type")
        return encode_json(value)

    def checked(self, data: bytes | str) -> bytes:
        """An encoded message."""
        data = as_bytes(data)
        check_message(data, as_json=self._is_json)
        return data

    def wake_workers(self) -> None:
        """There is something to send: wake idle workers, or start another one."""
        with self.changing():
            worker = self.queue.reserve_worker()
        if worker is not None:
            self.start_worker(worker)

    def wait_for_room(self, size: int) -> Flow[None]:
        """Wait until the queue has room for a message, or the producer fails."""
        queue = self.queue
        return self._hurry(lambda: queue.failure is not None or queue.has_room(size) or None)

    def flush(self) -> Flow[None]:
        """
        Wait until everything that was appended is stored.

        Raises:
            TailraceError: It cannot be stored: the error that ended the producer.
            RuntimeError: This is a callback in the producer's own thread.
        """
        queue, last = self.queue, self.queue.last_index
        yield from self._hurry(
            lambda: (self._is_reported if queue.failure else queue.is_delivered(last)) or None
        )
        if queue.failure is not None:
            raise queue.failure.with_traceback(None)

    def close(self) -> Flow[None]:
        """Accept no more messages, and flush. The stream stays open."""
        with self.changing():
            self.queue.ended = True
        yield from self.flush()

    def close_stream(self) -> Flow[None]:
        """
        Close the stream after all messages that were appended, in one step with the last of them.

        It happens exactly once: a retry recognizes its own closure, and a second call waits for the
        first. If nothing is left to store, it is no error that the stream is closed already.

        Raises as `flush`.
        """
        self.check_may_wait()
        with self.changing():
            self.queue.add_closure()
        yield from self.flush()

    def undelivered(self) -> list[bytes]:
        with self.changing():
            return [item for batch in self.queue.undelivered() for item in batch.items]

    def _hurry(self, ready: Callable[[], Any]) -> Flow[None]:
        """Wait for something while no batch lingers."""
        self.check_may_wait()
        with self.changing():
            self.queue.flush_waiters += 1
        try:
            # For a closure, and if an interrupt prevented the start of a worker before.
            self.wake_workers()
            yield from self._wait(ready)
        finally:
            with self.changing():
                self.queue.flush_waiters -= 1

    # -- workers -----------------------------------------------------------------------------

    def work(self, worker: object) -> Flow[None]:
        """Deliver batches, one after another, until there are none."""
        try:
            while True:
                with self.changing():
                    self.queue.idle_workers.add(worker)
                since = self._clock()
                next_batch = partial(self._next_batch, worker, since)
                batch = yield from self._wait(next_batch, partial(self._next_timeout_s, since))
                if batch is _STOP:
                    return
                self.wake_workers()
                yield from self._deliver(batch)
        except GeneratorExit:
            # Its task was cancelled: the loop ended, or the producer was closed.
            if self.queue.undelivered():
                self.fail(Unreachable(self.url, "it ended before everything was stored"))
            raise
        except Exception as error:
            # Also the error of a user's callable for a header, not only those of servers.
            self.fail(error)
        finally:
            with self.changing():
                self.queue.remove_worker(worker)

    def _next_batch(self, worker: object, since: float) -> Any:
        """A batch, or the signal to stop."""
        queue = self.queue
        batch = queue.take()
        if batch is not None:
            queue.idle_workers.discard(worker)
            return batch
        is_idle = not queue.has_open and self._clock() - since >= IDLE_S
        if not is_idle and not queue.is_done:
            return None
        # In the same step, so that the next message starts a new worker.
        queue.remove_worker(worker)
        return _STOP

    def _next_timeout_s(self, since: float) -> float:
        linger_s = self.queue.linger_left_s()
        # Without a lingering batch, the change that another worker makes ends the wait.
        return linger_s if linger_s > 0 else max(0.1, since + IDLE_S - self._clock())

    def _deliver(self, batch: ProducerBatch) -> Flow[None]:
        try:
            yield from self._send_batch(batch)
        except StreamClosed:
            if batch.items:
                raise
            # Only the closure was left to do, and another writer has done it.
            self._acknowledge(batch, _CLOSED_BEFORE)

    def _send_batch(self, batch: ProducerBatch) -> Flow[None]:
        if not self._is_probed:
            yield from self._probe(batch)
        queue, retry = self.queue, self.options.retry
        failures = 0
        while queue.failure is None:
            is_next = queue.is_next(batch)
            error = yield from self._attempt(batch)
            if error is None:
                return
            if isinstance(error, ProducerGap):
                if is_next:
                    # The server has lost predecessors that it acknowledged.
                    raise error
                yield from self._wait(
                    lambda: queue.failure is not None or queue.is_next(batch) or None
                )
            elif isinstance(error, ProducerFenced) and queue.is_stored(batch):
                # Its own response was lost, and that of a later batch proves that it is stored.
                self._acknowledge(batch, _STORED_BEFORE)
                return
            else:
                failures += 1
                is_transient = isinstance(error, Unreachable) or error.status in TRANSIENT_STATUSES
                if not is_transient or failures >= retry.attempts_max:
                    raise error
                headers = error.headers if isinstance(error, Refused) else {}
                yield Wait(retry.pause_s(failures, headers))

    def _attempt(self, batch: ProducerBatch) -> Flow[Unreachable | Refused | None]:
        """Send a batch once: None if it is stored, else the error."""
        assert batch.claim is not None
        request = yield from self._batch_request(batch, batch.claim)()
        try:
            response = yield Send(request)
            if response.status not in (200, 204):
                error: Refused = yield from refused(response)
                # After a 5xx it is unknown whether it was stored; a 429 may be from a gateway.
                batch.doubtful = batch.doubtful or response.status in TRANSIENT_STATUSES
                return error
            yield Body()
        except Unreachable as unreachable:
            batch.doubtful = batch.doubtful or unreachable.sent
            return unreachable
        result = appended(response, claimed=True)
        is_named = self.queue.options.producer_id is not None
        if result.duplicate and is_named and self._is_foreign(batch, response):
            raise ProducerReused(response.status, self.url, headers=response.headers)
        self._acknowledge(batch, result)
        return None

    def _acknowledge(self, batch: ProducerBatch, result: Appended) -> None:
        with self.changing():
            # False if another worker has just failed all batches.
            is_first = self.queue.settle(batch)
        if is_first:
            # First the delivery: after a flush it is complete.
            batch.delivery.set_result(result)
            with self.changing():
                self.queue.acknowledge(batch)

    def _is_foreign(self, batch: ProducerBatch, response: HttpResponse) -> bool:
        """
        Whether the stored batch that this one duplicates is from another writer.

        It may be this one, delivered twice by the network. The first batch of an epoch is assumed
        to be foreign: two writers that start together must not both believe to have written.
        """
        assert batch.claim is not None
        stored = response.headers.get("producer-seq", "")
        if stored.isdecimal() and int(stored) >= self.queue.next_seq:
            return True
        # (A closure without content is a 204 the first time, too.)
        return batch.claim.seq == 0 and not batch.doubtful and bool(batch.items)

    def _probe(self, batch: ProducerBatch) -> Flow[None]:
        """Find an epoch in which nothing was written yet."""
        assert batch.claim is not None
        epoch = batch.claim.epoch
        claim = ProducerClaim(batch.claim.producer_id, epoch, _SEQ_MAX)
        response = yield from send(self._batch_request(batch, claim))
        error = yield from refused(response)
        auto_claim = self.queue.options.auto_claim
        if response.status in (200, 204):
            raise AnswerInvalid(self.url, "the server took a batch whose predecessors are missing")
        if isinstance(error, ProducerFenced) and error.epoch is not None:
            if not auto_claim:
                raise error
            epoch = error.epoch + 1
        elif isinstance(error, ProducerGap):
            if error.expected_seq != 0:
                if not auto_claim:
                    raise ProducerReused(error.status, error.url, error.code, headers=error.headers)
                epoch += 1
        elif response.status != 400:
            # §5.2.1: 400 for a new epoch that does not start at 0. The epoch is then unused.
            raise error
        with self.changing():
            self.queue.begin_epoch(batch, epoch)
            self._is_probed = True

    # -- errors ------------------------------------------------------------------------------

    def fail(self, error: Exception) -> None:
        """End the producer: complete all deliveries, then wake the callers of `flush`."""
        with self.changing():
            batches = self.queue.fail(error)
        if batches is None:
            return
        for batch in batches:
            if self.queue.is_stored(batch):
                batch.delivery.set_result(_STORED_BEFORE)
            else:
                batch.delivery.set_exception(error)
        with self.changing():
            self._is_reported = True
        if self.queue.options.on_error is not None:
            self.queue.options.on_error(error)
        if self._is_abandoned:
            self.abandon()

    def abandon(self) -> None:
        """The producer was deleted without `close`: log its failure, which nothing else reports."""
        self._is_abandoned = True
        queue = self.queue
        if queue.failure is not None and queue.options.on_error is None and not self._is_logged:
            self._is_logged = True
            _log.error("%d messages of a producer were not stored: %s", queue.count, queue.failure)

    def _wait(
        self, ready: Callable[[], Any], timeout_s: Callable[[], float | None] = lambda: None
    ) -> Flow[Any]:
        found = yield Evaluate(partial(self.wait, ready, timeout_s))
        return found

    def _batch_request(self, batch: ProducerBatch, claim: ProducerClaim) -> MakeRequest:
        headers = {"content-type": self.queue.options.content_type, **claim.headers()}
        if batch.closes:
            headers["stream-closed"] = "true"
        body = (b"," if self._is_json else b"").join(batch.items)
        if self._is_json and batch.items:
            body = b"[%b]" % body
        return self._request("POST", headers=headers, body=body)

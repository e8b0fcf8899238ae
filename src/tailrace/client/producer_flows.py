"""
A producer at work, as flows (§5.2.1).

Several slots run side by side, a thread or a task each. A slot takes the next batch and does not
let go of it until it is stored, or the producer ends. What is shared is `Batching`; a `Monitor`
makes sure that one slot changes it at a time, and lets others wait for a change.

A producer id that the user chose may have been used before. Then the server would take our first
batches for copies of earlier ones, answer that all is well, and drop them. So a producer with a
given id introduces itself: it sends its first batch with a sequence number that no server can
accept, and learns from the refusal which epoch is stored and which number is expected. Nothing is
stored by that, so it may be repeated.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from tailrace.client.batch_queue import Batch, Batching, Limits
from tailrace.client.encoding import is_json
from tailrace.client.errors import (
    AnswerInvalid,
    ProducerFenced,
    ProducerGap,
    ProducerReused,
    Refused,
    Unreachable,
)
from tailrace.client.flow import PASSING, Answer, Body, Call, Flow, Send, Value, Wait, refused, send
from tailrace.client.requests import Options, make_call
from tailrace.client.responses import appended
from tailrace.client.slots import STOP, Monitor, Stay
from tailrace.client.values import Appended, ProducerClaim

__all__ = ["Plan", "ProducerFlows", "ProducerSetup"]

_log = logging.getLogger("tailrace.client")

_SEQ_MAX: Final = 2**53 - 1
STORED_BEFORE: Final = Appended(next_offset=None, closed=False, duplicate=True)
"""Of a batch whose own answer is lost, though it is known to be stored."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a producer writes."""

    content_type: str
    is_named: bool
    """The user gave the id: it may have been used before."""
    auto_claim: bool
    on_error: Callable[[Exception], object] | None


@dataclass(frozen=True, slots=True)
class ProducerSetup:
    """A producer that a shell is to make."""

    url: str
    producer_id: str
    epoch: int
    plan: Plan
    limits: Limits

    def start(
        self, options: Options, clock: Callable[[], float], make_delivery: Callable[[], Any]
    ) -> "tuple[ProducerFlows, Batching]":
        batching = Batching(self.producer_id, self.epoch, self.limits, clock, make_delivery)
        return ProducerFlows(self.url, options, self.plan, batching, clock), batching


class ProducerFlows:
    """What a producer does, at one stream."""

    def __init__(
        self, url: str, options: Options, plan: Plan, batching: Batching, clock: Callable[[], float]
    ) -> None:
        self.url = url
        self._options = options
        self._plan = plan
        self._batching = batching
        self._clock = clock
        self._is_introduced = not plan.is_named
        self._is_told = False
        self._is_abandoned = False
        self._is_logged = False
        self.is_json = is_json(plan.content_type)
        self.monitor: Monitor

    @property
    def failure(self) -> Exception | None:
        return self._batching.failure

    # -- for the user ------------------------------------------------------------------------

    def flush(self) -> Flow[None]:
        """
        Wait until everything that was appended is stored.

        Raises:
            TailraceError: It cannot be: whatever ended the producer.
        """
        last = self._batching.last_index
        yield from self._delivered(last)

    def close(self) -> Flow[None]:
        """
        Wait until everything is stored, and take no more. The stream stays open.

        Raises:
            TailraceError: It cannot be: whatever ended the producer.
        """
        self.monitor.change(self._end)
        yield from self._delivered(self._batching.last_index)

    def close_stream(self) -> Flow[None]:
        """
        Close the stream after all that was appended, in one step with the last of it.

        Exactly once as all else: a retry finds it closed by itself.

        Raises:
            TailraceError: It cannot be: whatever ended the producer.
        """
        self.monitor.change(self._batching.add_closure)
        yield from self._delivered(self._batching.last_index)

    def _end(self) -> None:
        self._batching.ended = True

    def _delivered(self, index: int) -> Flow[None]:
        self.monitor.change(partial(self._hurry, 1))
        if self.monitor.change(self._batching.reserve_slot):
            # For a closure; and who was interrupted before starting one left none.
            self.monitor.start_slot()
        try:
            yield from self._wait(partial(self._is_settled, index), lambda: None)
        finally:
            self.monitor.change(partial(self._hurry, -1))
        failure = self._batching.failure
        if failure is not None:
            raise failure.with_traceback(None)

    def _hurry(self, by: int) -> None:
        self._batching.hurry += by

    def _is_settled(self, index: int) -> bool | None:
        if self._batching.failure is not None:
            return self._is_told or None
        return self._batching.is_delivered(index) or None

    # -- slots -------------------------------------------------------------------------------

    def slot(self) -> Flow[None]:
        """Deliver batches, one after another, until there are none."""
        stay = Stay(self._batching, self._clock)
        try:
            while True:
                stay.begin_to_wait(self.monitor)
                batch = yield from self._wait(stay.next, stay.wait_s)
                if batch is STOP:
                    return
                if self.monitor.change(self._batching.reserve_slot):
                    self.monitor.start_slot()
                yield from self._deliver(batch)
        except GeneratorExit:
            # Its task was cancelled, by the end of the loop or of the producer.
            if self._batching.undelivered():
                self.fail(Unreachable(self.url, "it ended before everything was stored"))
            raise
        except Exception as error:
            # Not only what servers say: a user's callable for a header may have failed as well.
            self.fail(error)
        finally:
            self.monitor.change(stay.leave)

    def _deliver(self, batch: Batch) -> Flow[None]:
        if not self._is_introduced:
            yield from self._introduce(batch)
        retry = self._options.retry
        failures = 0
        while self._batching.failure is None:
            in_turn = self._batching.in_turn(batch)
            error = yield from self._attempt(batch)
            if error is None:
                return
            if isinstance(error, ProducerGap):
                if in_turn:
                    # Its predecessors were stored, and are not there any more.
                    raise error
                yield from self._wait(partial(self._turn, batch), lambda: None)
            elif isinstance(error, ProducerFenced) and self._batching.is_stored(batch):
                # Its own answer is lost, and that of a later one tells.
                self._acknowledge(batch, STORED_BEFORE)
                return
            else:
                failures += 1
                if not _passes(error) or failures >= retry.attempts_max:
                    raise error
                headers = error.headers if isinstance(error, Refused) else {}
                yield Wait(retry.pause_s(failures, headers))

    def _attempt(self, batch: Batch) -> Flow[Unreachable | Refused | None]:
        """Send a batch once: nothing if it is stored, else why not."""
        assert batch.claim is not None
        call = yield from self._call(batch, batch.claim)
        try:
            answer = yield Send(call)
            if answer.status not in (200, 204):
                error: Refused = yield from refused(answer)
                # Whether an append was stored is unknown after a 5xx; a 429 may be a gateway's.
                batch.doubtful = batch.doubtful or answer.status in PASSING
                return error
            yield Body()
        except Unreachable as unreachable:
            batch.doubtful = batch.doubtful or unreachable.sent
            return unreachable
        done = appended(answer, claimed=True)
        if done.duplicate and self._plan.is_named and self._is_foreign(batch, answer):
            raise ProducerReused(answer.status, self.url, headers=answer.headers)
        self._acknowledge(batch, done)
        return None

    def _acknowledge(self, batch: Batch, done: Appended) -> None:
        # Not if another slot has just failed it together with all the rest.
        if self.monitor.change(partial(self._batching.settle, batch)):
            # First: whoever waits for a flush finds it told.
            batch.delivery.set_result(done)
            self.monitor.change(partial(self._batching.acknowledge, batch))

    def _is_foreign(self, batch: Batch, answer: Answer) -> bool:
        """
        Whether what a batch is taken for a copy of is somebody else's.

        It may be itself, delivered twice by the network. The first of an epoch is not thought to
        be: two who began together must not both believe to have written.
        """
        assert batch.claim is not None
        stored = answer.headers.get("producer-seq", "")
        if stored.isdecimal() and int(stored) >= self._batching.next_seq:
            return True
        # (A closure without content is 204 at the first time, too.)
        return batch.claim.seq == 0 and not batch.doubtful and bool(batch.items)

    def _turn(self, batch: Batch) -> bool | None:
        return self._batching.failure is not None or self._batching.in_turn(batch) or None

    def _introduce(self, batch: Batch) -> Flow[None]:
        """Find an epoch in which nothing was written yet."""
        assert batch.claim is not None
        claim = ProducerClaim(batch.claim.producer_id, batch.claim.epoch, _SEQ_MAX)
        call = yield from self._call(batch, claim)
        answer = yield from send(call, self._options.retry)
        error = yield from refused(answer)
        epoch = batch.claim.epoch
        if answer.status in (200, 204):
            raise AnswerInvalid(self.url, "the server took a batch whose predecessors are missing")
        if isinstance(error, ProducerFenced) and error.epoch is not None:
            if not self._plan.auto_claim:
                raise error
            epoch = error.epoch + 1
        elif isinstance(error, ProducerGap):
            if error.expected_seq != 0:
                if not self._plan.auto_claim:
                    raise ProducerReused(error.status, error.url, error.code, headers=error.headers)
                epoch += 1
        elif answer.status != 400:
            # §5.2.1: 400 if the epoch is a new one and does not begin at 0. So it is ours.
            raise error
        self.monitor.change(partial(self._introduced, batch, epoch))

    def _introduced(self, batch: Batch, epoch: int) -> None:
        self._batching.begin_epoch(batch, epoch)
        self._is_introduced = True

    # -- what both need ----------------------------------------------------------------------

    def fail(self, error: Exception) -> None:
        """Tell everyone who holds something, and then those who wait for all of it."""
        batches = self.monitor.change(partial(self._batching.fail, error))
        if self._batching.failure is not error or self._is_told:
            return
        for batch in batches:
            if self._batching.is_stored(batch):
                batch.delivery.set_result(STORED_BEFORE)
            else:
                batch.delivery.set_exception(error)
        self.monitor.change(self._tell)
        if self._plan.on_error is not None:
            self._plan.on_error(error)
        if self._is_abandoned:
            self.abandon()

    def abandon(self) -> None:
        """Nobody holds the producer any more, and nobody closed it: nobody else would say so."""
        self._is_abandoned = True
        failure = self._batching.failure
        if failure is not None and self._plan.on_error is None and not self._is_logged:
            self._is_logged = True
            count = self._batching.count
            _log.error("%d messages of a producer were not stored: %s", count, failure)

    def _tell(self) -> None:
        self._is_told = True

    def _wait(self, ready: Callable[[], Any], wait_s: Callable[[], float | None]) -> Flow[Any]:
        found = yield Value(partial(self.monitor.wait, ready, wait_s))
        return found

    def _call(self, batch: Batch, claim: ProducerClaim) -> Flow[Call]:
        headers = {"content-type": self._plan.content_type, **claim.headers()}
        if batch.closes:
            headers["stream-closed"] = "true"
        if not batch.items:
            body = b""
        elif self.is_json:
            body = b"[%b]" % b",".join(batch.items)
        else:
            body = b"".join(batch.items)
        return make_call(self._options, "POST", self.url, None, headers, body=body)


def _passes(error: Unreachable | Refused) -> bool:
    return isinstance(error, Unreachable) or error.status in PASSING

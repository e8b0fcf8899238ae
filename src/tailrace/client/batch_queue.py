"""
The batches of a producer, from `append` to acknowledgement: §5.2.1 from the writer's side.

Rule 1: a batch gets its sequence number when it is first sent, and keeps it. Sending it again is
therefore safe: a server stores it once.

Rule 2: several batches are in flight at once, but a server stores them in order only. A batch that
arrives before its predecessor is rejected, and sent again when the predecessor is acknowledged.

Rule 3: the first permanent error ends the producer. Everything that is not acknowledged fails with
it, because no batch may overtake another. Being fenced is such an error: another writer replaced
this one, and claiming the epoch back would make the two take turns.

This module has no clock, thread or socket. A subclass of `ProducerFlows` makes sure that only one
call runs at a time.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from typing import Any
from uuid import uuid4

from tailrace.client.encoding import JSON
from tailrace.client.requests import is_header_text
from tailrace.client.values import ProducerClaim

__all__ = ["BatchQueue", "ProducerBatch", "ProducerOptions"]


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """
    A producer that appends in the background and stores each message once, in order (§5.2.1).

    Messages are sent in batches: when a batch is full, or after `linger_s`. On a stream that is not
    JSON, a batch is one message to the server; `batch_count_max=1` keeps messages apart.

    Args:
        producer_id: The identity of a writer that continues after a restart; a random one if not
            given. To use an id again, give a higher `epoch`, or `auto_claim`.
        auto_claim: If the id was used before, take the next epoch and fence the earlier writer. At
            the start only: a producer that is fenced later ends with `ProducerFenced`.
        in_flight_max: At most this many requests at once.
        queue_bytes_max, queue_count_max: `append` waits while this much is not yet stored.
        on_error: Called once with the error that ends the producer, in its thread or loop.

    Raises:
        ValueError: A limit, the epoch or the id is invalid.
    """

    producer_id: str | None = None
    _: KW_ONLY
    epoch: int = 0
    auto_claim: bool = False
    content_type: str = JSON
    batch_bytes_max: int = 1 << 20
    batch_count_max: int = 10_000
    linger_s: float = 0.005
    in_flight_max: int = 5
    queue_bytes_max: int = 32 << 20
    queue_count_max: int = 100_000
    on_error: Callable[[Exception], object] | None = None

    def __post_init__(self) -> None:
        if self.producer_id is not None and not is_header_text(self.producer_id):
            raise ValueError("producer_id must be printable ASCII, and not empty")
        if not 0 <= self.epoch < 2**53:
            raise ValueError("epoch must be 0 to 2**53 - 1")
        if self.linger_s < 0:
            raise ValueError("linger_s must not be negative")
        limits = ("batch_bytes_max", "batch_count_max", "in_flight_max")
        for name in (*limits, "queue_bytes_max", "queue_count_max"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")


@dataclass(slots=True, eq=False)
class ProducerBatch:
    """Messages that are sent in one request."""

    index: int
    started: float
    delivery: Any
    """The caller's future: it receives the result, or the error."""
    items: list[bytes] = field(default_factory=list)
    size: int = 0
    closes: bool = False
    """Its request also closes the stream."""
    claim: ProducerClaim | None = None
    doubtful: bool = False
    """An attempt may have been carried out although its response is not known."""
    is_settled: bool = False
    """A worker has taken over to complete `delivery`; no other worker may."""


class BatchQueue:
    """The batches of one producer, and the workers that send them."""

    def __init__(
        self,
        options: ProducerOptions,
        clock: Callable[[], float],
        new_delivery: Callable[[], Any],
    ) -> None:
        self.producer_id = options.producer_id or str(uuid4())
        self.epoch = options.epoch
        self.options = options
        self._clock = clock
        self._new_delivery = new_delivery
        self._open: deque[ProducerBatch] = deque()
        self._filling: ProducerBatch | None = None
        """The last open batch, while it accepts messages."""
        self._in_flight: dict[int, ProducerBatch] = {}
        self.last_index = -1
        self.next_seq = 0
        self._stored_seq = -1
        self.bytes = 0
        self.count = 0
        self.flush_waiters = 0
        """The number of callers that wait for delivery; while there are any, nothing lingers."""
        self.workers: set[object] = set()
        self.idle_workers: set[object] = set()
        self.failure: Exception | None = None
        self.ended = False
        """No more messages are accepted."""
        self.closes = False
        """The stream will be closed, or is: a second request to close it adds nothing."""

    # -- messages ----------------------------------------------------------------------------

    def has_room(self, size: int) -> bool:
        """Whether a message fits; into an empty queue, one of any size does."""
        if not self.count:
            return True
        options = self.options
        return self.count < options.queue_count_max and self.bytes + size <= options.queue_bytes_max

    def add(self, data: bytes) -> tuple[Any, bool]:
        """Add a message: its delivery, and whether a worker should look at the queue."""
        if self.failure is not None or self.ended:
            self.check()
        size = len(data) + 1
        self.bytes += size
        self.count += 1
        limits, batch = self.options, self._filling
        begins = batch is None or batch.size + size > limits.batch_bytes_max
        if batch is None or begins:
            batch = self._begin()
        batch.items.append(data)
        batch.size += size
        is_full = batch.size >= limits.batch_bytes_max or len(batch.items) >= limits.batch_count_max
        if is_full:
            self._filling = None
        return batch.delivery, begins or is_full

    def add_closure(self) -> None:
        """Close the stream with the last batch, or with an empty one if none is open."""
        if self.closes:
            return
        self.check()
        self.closes = True
        batch = self._open[-1] if self._open else self._begin()
        batch.closes = True
        self._filling = None
        self.ended = True

    def check(self) -> None:
        if self.failure is not None:
            # It may be raised many times: without the traceback of the last time.
            raise self.failure.with_traceback(None)
        if self.ended:
            raise ValueError("the producer is closed")

    def _begin(self) -> ProducerBatch:
        self.last_index += 1
        batch = ProducerBatch(self.last_index, self._clock(), self._new_delivery())
        self._open.append(batch)
        self._filling = batch
        return batch

    # -- workers -----------------------------------------------------------------------------

    def reserve_worker(self) -> object | None:
        """A worker to start, if there is work for another one; it counts from now on."""
        is_full = len(self.workers) >= self.options.in_flight_max
        if not self._open or self.idle_workers or is_full:
            return None
        worker = object()
        self.workers.add(worker)
        return worker

    def remove_worker(self, worker: object) -> None:
        self.workers.discard(worker)
        self.idle_workers.discard(worker)

    def take(self) -> ProducerBatch | None:
        """The next batch to send, if it is due."""
        if self.failure is not None or not self._open or self.linger_left_s() > 0:
            return None
        # The first batch of an epoch goes alone: a server that does not know the epoch yet rejects
        # the second as an error, and not as too early (§5.2.1).
        if len(self._in_flight) >= self.options.in_flight_max or 0 in self._in_flight:
            return None
        # If the response to an earlier batch were lost, its retry would find the stream closed.
        if self._open[0].closes and self._in_flight:
            return None
        batch = self._open.popleft()
        if batch is self._filling:
            self._filling = None
        batch.claim = ProducerClaim(self.producer_id, self.epoch, self.next_seq)
        self._in_flight[self.next_seq] = batch
        self.next_seq += 1
        return batch

    def linger_left_s(self) -> float:
        """How long the next batch still waits for more messages."""
        if len(self._open) != 1 or self.flush_waiters or self._open[0] is not self._filling:
            return 0.0
        return max(0.0, self._filling.started + self.options.linger_s - self._clock())

    @property
    def has_open(self) -> bool:
        """Whether a batch is waiting to be sent."""
        return bool(self._open)

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to send, and no more messages are accepted."""
        return self.failure is not None or (self.ended and not self._open and not self._in_flight)

    # -- results -----------------------------------------------------------------------------

    def is_next(self, batch: ProducerBatch) -> bool:
        """Whether all batches before it are stored."""
        assert batch.claim is not None
        return batch.claim.seq - 1 not in self._in_flight

    def settle(self, batch: ProducerBatch) -> bool:
        """Whether the caller is the first, and so the one to complete the delivery."""
        is_first, batch.is_settled = not batch.is_settled, True
        return is_first

    def acknowledge(self, batch: ProducerBatch) -> None:
        """It is stored, and its delivery is complete."""
        assert batch.claim is not None
        self._stored_seq = max(self._stored_seq, batch.claim.seq)
        del self._in_flight[batch.claim.seq]
        self.bytes -= batch.size
        self.count -= len(batch.items)

    def is_stored(self, batch: ProducerBatch) -> bool:
        """Whether a batch in flight is known to be stored, because a later one is."""
        claim = batch.claim
        if claim is None or self._in_flight.get(claim.seq) is not batch:
            return False
        return claim.seq < self._stored_seq

    def begin_epoch(self, batch: ProducerBatch, epoch: int) -> None:
        """Send the first batch in another epoch, because the one before was used."""
        self.epoch = epoch
        batch.claim = ProducerClaim(self.producer_id, epoch, 0)

    def is_delivered(self, index: int) -> bool:
        """Whether everything up to a batch is stored."""
        return next((batch.index > index for batch in self._pending()), True)

    def fail(self, error: Exception) -> list[ProducerBatch] | None:
        """End the producer: the deliveries that the caller must complete; None if it had ended."""
        if self.failure is not None:
            return None
        self.failure = error
        return [batch for batch in self._pending() if self.settle(batch)]

    def undelivered(self) -> list[ProducerBatch]:
        """The batches that are not known to be stored, in order."""
        return [batch for batch in self._pending() if not self.is_stored(batch)]

    def _pending(self) -> Iterator[ProducerBatch]:
        """In order: sequence numbers are given in the order of the queue."""
        yield from self._in_flight.values()
        yield from self._open

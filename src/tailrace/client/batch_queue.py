"""
What a producer has yet to deliver: the rules of §5.2.1 from the writer's side.

Rule 1: a batch gets its sequence number when it is first sent and keeps it, whatever happens. To
send it again is then safe: a server stores it once.

Rule 2: several batches are on their way at once, but a server stores them in their order only. One
that arrived before its predecessor is refused, and goes again when that is acknowledged.

Rule 3: the first error that does not pass is the last word. Everything that is not acknowledged
fails with it, since nothing may overtake. A fence is such an error: who is fenced while writing was
replaced, and to claim the epoch back would be two writers in turns.

This file knows no clock, no thread and no socket. A shell makes sure that one call runs at a time.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tailrace.client.values import ProducerClaim

__all__ = ["Batch", "Batching", "Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """How much goes together, and how much may wait."""

    batch_bytes_max: int = 1 << 20
    batch_count_max: int = 10_000
    linger_s: float = 0.005
    """How long a batch that is not full waits for more."""
    in_flight_max: int = 5
    queue_bytes_max: int = 32 << 20
    queue_count_max: int = 100_000

    def __post_init__(self) -> None:
        for name in ("batch_bytes_max", "batch_count_max", "in_flight_max", "queue_bytes_max"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, and is {getattr(self, name)}")
        if self.queue_count_max < 1 or self.linger_s < 0:
            raise ValueError("queue_count_max must be at least 1, and linger_s not below 0")


@dataclass(slots=True, eq=False)
class Batch:
    """Messages that go in one request."""

    index: int
    born: float
    delivery: Any
    """What the caller holds of it: told when it is stored, or cannot be."""
    items: list[bytes] = field(default_factory=list)
    size: int = 0
    closes: bool = False
    claim: ProducerClaim | None = None
    doubtful: bool = False
    """An attempt to send it may have been carried out, though its answer is not known."""
    is_settled: bool = False
    """Whoever set this tells those who hold it what became of it, and nobody else does."""


class Batching:
    """The batches of one producer, from `add` to `acknowledge`."""

    def __init__(
        self,
        producer_id: str,
        epoch: int,
        limits: Limits,
        clock: Callable[[], float],
        make_delivery: Callable[[], Any],
    ) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.limits = limits
        self._clock = clock
        self._make_delivery = make_delivery
        self._open: deque[Batch] = deque()
        self._filling: Batch | None = None
        """The last of those, while it takes more."""
        self._flying: dict[int, Batch] = {}
        self._next_index = 0
        self.next_seq = 0
        self._stored_seq = -1
        self.bytes = 0
        self.count = 0
        self.hurry = 0
        """How many wait for everything to be delivered: while there are any, nothing lingers."""
        self.slots = 0
        self.idle_slots = 0
        self.failure: Exception | None = None
        self.ended = False
        """Nothing more is taken in."""

    # -- in ----------------------------------------------------------------------------------

    def has_room(self, size: int) -> bool:
        """Whether a message fits; one too large for the whole queue does when that is empty."""
        if not self.count:
            return True
        limits = self.limits
        return self.count < limits.queue_count_max and self.bytes + size <= limits.queue_bytes_max

    def add(self, data: bytes) -> tuple[Any, bool]:
        """
        Take in a message: what to hold of it, and whether a slot should look at it.

        Raises:
            TailraceError: The producer failed.
            ValueError: It is closed.
        """
        if self.failure is not None or self.ended:
            self.check()
        size = len(data) + 1
        self.bytes += size
        self.count += 1
        limits, batch = self.limits, self._filling
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
        """The last batch closes the stream, with what is still open or without content."""
        self.check()
        batch = self._open[-1] if self._open else self._begin()
        batch.closes = True
        self._filling = None
        self.ended = True

    def check(self) -> None:
        if self.failure is not None:
            # It may be raised many times: without the trace of the last one.
            raise self.failure.with_traceback(None)
        if self.ended:
            raise ValueError("the producer is closed")

    def _begin(self) -> Batch:
        batch = Batch(self._next_index, self._clock(), self._make_delivery())
        self._next_index += 1
        self._open.append(batch)
        self._filling = batch
        return batch

    # -- out ---------------------------------------------------------------------------------

    def take(self) -> Batch | None:
        """The next batch to send, if it is time."""
        if self.failure is not None or not self._open or self.linger_left_s() > 0:
            return None
        # The first one of an epoch goes alone: to a server that does not know the epoch yet, the
        # second would be an error and not too early (§5.2.1).
        if len(self._flying) >= self.limits.in_flight_max or 0 in self._flying:
            return None
        # One whose answer is lost would find the stream closed, and not itself stored.
        if self._open[0].closes and self._flying:
            return None
        batch = self._open.popleft()
        if batch is self._filling:
            self._filling = None
        batch.claim = ProducerClaim(self.producer_id, self.epoch, self.next_seq)
        self._flying[self.next_seq] = batch
        self.next_seq += 1
        return batch

    def linger_left_s(self) -> float:
        """How long the next batch still waits for more; nothing if another follows it."""
        if not self._open or len(self._open) > 1 or self.hurry:
            return 0.0
        batch = self._open[0]
        if batch is not self._filling:
            return 0.0
        return max(0.0, batch.born + self.limits.linger_s - self._clock())

    @property
    def has_open(self) -> bool:
        """Whether something waits to be sent."""
        return bool(self._open)

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to send, and nothing will come."""
        return self.failure is not None or (self.ended and not any(self._pending()))

    def reserve_slot(self) -> bool:
        """Whether another slot would have something to do: then it counts from now on."""
        if not self._open or self.idle_slots or self.slots >= self.limits.in_flight_max:
            return False
        self.slots += 1
        return True

    # -- what came of it ---------------------------------------------------------------------

    def in_turn(self, batch: Batch) -> bool:
        """Whether all that come before it are stored."""
        assert batch.claim is not None
        return batch.claim.seq - 1 not in self._flying

    def settle(self, batch: Batch) -> bool:
        """Whether the caller is the one to tell what became of it."""
        is_first, batch.is_settled = not batch.is_settled, True
        return is_first

    def acknowledge(self, batch: Batch) -> None:
        """It is stored, and those who hold it know."""
        assert batch.claim is not None
        self._stored_seq = max(self._stored_seq, batch.claim.seq)
        del self._flying[batch.claim.seq]
        self.bytes -= batch.size
        self.count -= len(batch.items)

    def is_stored(self, batch: Batch) -> bool:
        """Whether one on its way is known to be stored: a later one is, and there are no gaps."""
        claim = batch.claim
        return (
            claim is not None
            and self._flying.get(claim.seq) is batch
            and (claim.seq < self._stored_seq)
        )

    def begin_epoch(self, batch: Batch, epoch: int) -> None:
        """The first batch goes in another epoch: the one before was not used by us."""
        self.epoch = epoch
        batch.claim = ProducerClaim(self.producer_id, epoch, 0)

    def is_delivered(self, index: int) -> bool:
        """Whether everything up to a batch is stored."""
        return all(batch.index > index for batch in self._pending())

    @property
    def last_index(self) -> int:
        return self._next_index - 1

    def fail(self, error: Exception) -> list[Batch]:
        """Deliver nothing more: what is left for the caller to tell; nothing at the second time."""
        if self.failure is not None:
            return []
        self.failure = error
        return [batch for batch in self._pending() if self.settle(batch)]

    def undelivered(self) -> list[Batch]:
        """What is not known to be stored, in order."""
        left = (batch for batch in self._pending() if not self.is_stored(batch))
        return sorted(left, key=lambda batch: batch.index)

    def _pending(self) -> Iterator[Batch]:
        yield from self._flying.values()
        yield from self._open

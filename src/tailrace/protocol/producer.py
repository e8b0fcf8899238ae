"""
Producer bookkeeping: the deduplication and fencing rules of §5.2.1.

Rule 1: every decision about a producer's epoch or sequence is made in this file. One rule is
elsewhere: `machine` recognizes a retry of the request that closed a stream.

Rule 2: this file knows no clock, no store and no HTTP. Its functions map (state, claim) to a result
or a refusal, so that every engine and every test runs the same decisions.

    unknown producer      seq == 0          a first batch, at any epoch: accept
                          seq >  0          its predecessors are missing: refuse, 409
    epoch below ours      a zombie          refuse, 403
    epoch above ours      a restart         accept if seq restarts at zero, else refuse, 400
    epoch equal to ours   seq <= last       a retry: acknowledge, append nothing
                          seq == last + 1   the next batch: accept
                          seq >  last + 1   a predecessor is missing: refuse, 409

`decide` calls the two functions at two points, with the check for closure between them:
`is_retry` (stale epoch or retry?) before it, `admit` (in order?) after it.

The caller commits the claim and the payload in one atomic step. A crash between the two would
re-admit a retry, and the stream would hold the batch twice.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from tailrace.protocol.errors import ProducerEpochStart, ProducerFenced, ProducerGap

__all__ = ["NO_PRODUCERS", "ProducerHeaders", "ProducerState", "Producers", "admit", "is_retry"]


class ProducerHeaders(NamedTuple):
    """The producer headers of a request: Producer-Id, Producer-Epoch, Producer-Seq."""

    id: str
    epoch: int
    seq: int


class ProducerState(NamedTuple):
    """The last batch that a stream accepted from a producer."""

    epoch: int
    last_seq: int


def is_retry(state: ProducerState | None, claim: ProducerHeaders) -> bool:
    """Whether the claim is a retry. Raises ProducerFenced if a newer epoch holds the id."""
    if state is None:
        return False
    if claim.epoch < state.epoch:
        raise ProducerFenced(state.epoch, claim.epoch)
    return claim.epoch == state.epoch and claim.seq <= state.last_seq


def admit(state: ProducerState | None, claim: ProducerHeaders) -> None:
    """
    Accept a batch that is not a retry if it is the next one.

    Raises:
        ProducerGap: A predecessor of this batch has not arrived.
        ProducerEpochStart: A new epoch does not start at zero.
    """
    if state is None:
        if claim.seq != 0:
            raise ProducerGap(0, claim.seq)
    elif claim.epoch > state.epoch:
        if claim.seq != 0:
            raise ProducerEpochStart(claim.epoch, claim.seq)
    elif claim.seq != state.last_seq + 1:
        raise ProducerGap(state.last_seq + 1, claim.seq)


_PARTS: Final = 64
_EMPTY: Final[tuple[dict[str, ProducerState], ...]] = ({},) * _PARTS


class Producers:
    """
    A stream's producers: an immutable map, so that states can share it.

    Writing copies one of 64 small dicts instead of all, which keeps an append cheap on a stream
    with a hundred thousand producers. (Ready-made persistent maps lack wheels for every Python that
    we support.) Which dict an id is in differs between processes; nothing observable depends on it.
    """

    __slots__ = ("_parts",)

    def __init__(self, parts: tuple[dict[str, ProducerState], ...] = _EMPTY) -> None:
        self._parts = parts

    @classmethod
    def of(cls, items: dict[str, ProducerState]) -> "Producers":
        parts: list[dict[str, ProducerState]] = [{} for _ in range(_PARTS)]
        for producer_id, state in items.items():
            parts[hash(producer_id) % _PARTS][producer_id] = state
        return cls(tuple(parts))

    def get(self, producer_id: str) -> ProducerState | None:
        return self._parts[hash(producer_id) % _PARTS].get(producer_id)

    def put(self, claim: ProducerHeaders) -> "Producers":
        parts = list(self._parts)
        at = hash(claim.id) % _PARTS
        parts[at] = {**parts[at], claim.id: ProducerState(claim.epoch, claim.seq)}
        return Producers(tuple(parts))

    def items(self) -> Iterator[tuple[str, ProducerState]]:
        for part in self._parts:
            yield from part.items()

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Producers) and dict(self.items()) == dict(other.items())

    def __hash__(self) -> int:
        return hash(frozenset(self.items()))


NO_PRODUCERS: Final = Producers()

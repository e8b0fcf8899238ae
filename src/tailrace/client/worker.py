"""
What the worker loops of both clients share: when a wake is done, lost, or given back.

Rule 1: the end of the loop's body acknowledges the wake. If the body acknowledged nothing itself,
all its streams are acknowledged up to the tails that the wake told.

Rule 2: an exception in the body, or a `break`, gives the wake back. What the body acknowledged
stays acknowledged.

Rule 3: a third of the lease passes between two heartbeats. If the server says that the lease has
ended, the wake is lost: another worker may have it, and nothing more is acknowledged.
"""

import os
import socket
from collections.abc import Mapping
from typing import Final

from tailrace.client.errors import NotFound, Refused, Unauthorized, Unreachable
from tailrace.client.flow import Flow
from tailrace.client.subscription import FENCED, INVALID_OFFSET, SubscriptionFlows
from tailrace.client.subscription_values import ClaimedWake, SubscribedStream

__all__ = ["BaseWake", "default_worker"]

_HEARTBEATS: Final = 3
"""In the time of one lease."""


def default_worker() -> str:
    """The name of a worker: its host and process."""
    return f"{socket.gethostname()}:{os.getpid()}"


class BaseWake:
    """A claimed wake, while the body of a worker loop runs."""

    def __init__(self, flows: SubscriptionFlows, claim: ClaimedWake) -> None:
        self._flows = flows
        self._has_acknowledged = False
        self._heartbeat_s = claim.lease_ttl_ms / 1000 / _HEARTBEATS
        self.claim = claim
        self.lost = False
        """The lease has ended: another worker may have the wake."""

    @property
    def generation(self) -> int:
        return self.claim.generation

    @property
    def streams(self) -> tuple[SubscribedStream, ...]:
        """All streams of the subscription, with their cursors and tails."""
        return self.claim.streams

    @property
    def pending(self) -> tuple[SubscribedStream, ...]:
        """The streams with pending work."""
        return self.claim.pending

    def _acknowledge(self, offsets: Mapping[str, str]) -> Flow[None]:
        """Acknowledge offsets, and extend the lease."""
        self._has_acknowledged = True
        yield from self._flows.ack(self.claim, offsets)

    def _heartbeat(self) -> Flow[None]:
        """Extend the lease. A server that cannot be reached is tried again later."""
        try:
            yield from self._flows.ack(self.claim)
        except Refused as error:
            self.lost = _has_ended(error)
        except Unreachable:
            return

    def _finish(self) -> Flow[None]:
        """The body ran to its end."""
        tails = {stream.path: stream.tail_offset or "" for stream in self.pending}
        try:
            offsets = {} if self._has_acknowledged else tails
            try:
                yield from self._flows.ack(self.claim, offsets, done=True)
            except Refused as error:
                if error.code != INVALID_OFFSET or not offsets:
                    raise
                # A stream was deleted meanwhile: acknowledge the others.
                yield from self._acknowledge_each(offsets)
                yield from self._flows.ack(self.claim, done=True)
        except Refused as error:
            if not _has_ended(error):
                raise
            self.lost = True

    def _acknowledge_each(self, offsets: Mapping[str, str]) -> Flow[None]:
        for path, offset in offsets.items():
            try:
                yield from self._flows.ack(self.claim, {path: offset})
            except Refused as error:
                if error.code != INVALID_OFFSET:
                    raise

    def _give_back(self) -> Flow[None]:
        """The body did not run to its end."""
        yield from self._flows.release(self.claim)


def _has_ended(error: Refused) -> bool:
    return error.code == FENCED or isinstance(error, NotFound | Unauthorized)

"""
Every operation on a stream, as a flow (§5).

Both shells take their methods from here, so their signatures, their docs and what they do are the
same.
"""

from collections.abc import Callable
from typing import Final
from uuid import uuid4

from tailrace.client.batch_queue import Limits
from tailrace.client.encoding import as_bytes, encode_json
from tailrace.client.flow import Body, Flow, expect, expect_gone
from tailrace.client.producer_flows import Plan, ProducerSetup
from tailrace.client.recovery import RecoveryFlows
from tailrace.client.requests import is_header_text
from tailrace.client.responses import appended, is_true, next_offset
from tailrace.client.values import Appended, Created, Head, ProducerClaim

__all__ = ["StreamFlows"]

DEFAULT_CONTENT_TYPE: Final = "application/octet-stream"
_JSON: Final = "application/json"


class StreamFlows(RecoveryFlows):
    """One stream at its URL."""

    def create(
        self,
        content_type: str | None = None,
        *,
        body: bytes | str = b"",
        ttl_s: int | None = None,
        expires_at: str | None = None,
        closed: bool = False,
    ) -> Flow[Created]:
        """
        Create the stream, perhaps with first content; no error if it exists just so.

        Raises:
            Conflict: It exists with another type, life or closure.
            NotFound: Its bucket does not exist.
        """
        headers = {"content-type": content_type} if content_type else {}
        if ttl_s is not None:
            headers["stream-ttl"] = str(ttl_s)
        if expires_at is not None:
            headers["stream-expires-at"] = expires_at
        if closed:
            headers["stream-closed"] = "true"
        call = yield from self._call("PUT", headers=headers, body=as_bytes(body))
        answer = yield from expect(call, self._options.retry, 200, 201)
        yield Body()
        return Created(
            new=answer.status == 201,
            content_type=answer.headers.get("content-type", content_type or DEFAULT_CONTENT_TYPE),
            next_offset=next_offset(answer),
            closed=is_true(answer, "stream-closed"),
        )

    def append(
        self,
        data: bytes | str,
        content_type: str = DEFAULT_CONTENT_TYPE,
        *,
        seq: str | None = None,
        close: bool = False,
        claim: ProducerClaim | None = None,
    ) -> Flow[Appended]:
        """
        Append bytes, or text in UTF-8, in one step with closing the stream if asked.

        Not repeated when it is unknown whether it was stored, unless a `claim` tells the server
        which append this is: then it is stored once. `producer` makes the claims by itself.

        Raises:
            StreamClosed, Conflict, NotFound: It cannot be appended.
            ProducerFenced, ProducerGap: The claim's epoch is stale; a predecessor is missing.
            Unreachable, ServerFailed: It may have been stored, or not.
        """
        headers = {"content-type": content_type}
        if seq is not None:
            headers["stream-seq"] = seq
        if close:
            headers["stream-closed"] = "true"
        if claim is not None:
            headers.update(claim.headers())
        safe = claim is not None
        call = yield from self._call("POST", headers=headers, body=as_bytes(data), safe=safe)
        answer = yield from expect(call, self._options.retry, 200, 204)
        yield Body()
        return appended(answer, claimed=claim is not None)

    def append_json(
        self, *items: object, close: bool = False, claim: ProducerClaim | None = None
    ) -> Flow[Appended]:
        """
        Append values to a stream of JSON, a message each, in one step.

        Raises:
            As `append` does.
        """
        if not items and not close:
            raise ValueError("there is nothing to append")
        body = encode_json(items) if items else b""
        return (yield from self.append(body, _JSON, close=close, claim=claim))

    def producer(
        self,
        producer_id: str | None = None,
        *,
        epoch: int = 0,
        auto_claim: bool = False,
        content_type: str = _JSON,
        batch_bytes_max: int = 1 << 20,
        batch_count_max: int = 10_000,
        linger_s: float = 0.005,
        in_flight_max: int = 5,
        queue_bytes_max: int = 32 << 20,
        queue_count_max: int = 100_000,
        on_error: Callable[[Exception], object] | None = None,
    ) -> ProducerSetup:
        """
        Something to append with in the background, each message stored once and in order (§5.2.1).

        Messages go in batches: when one is full, or after `linger_s`. On a stream that is not of
        JSON a batch is one message to the server; `batch_count_max=1` keeps each its own.

        Args:
            producer_id: Who writes, for writers that go on after a restart; a random one if not
                given. To use one again takes a higher `epoch`, or `auto_claim`.
            auto_claim: Take the next epoch where that id was used before, and end who holds it.
                At the start only: who is fenced later was replaced, and hears `ProducerFenced`.
            in_flight_max: So many requests at once.
            queue_bytes_max, queue_count_max: While so much is not stored, `append` waits.
            on_error: Called once with what ends the producer, in its thread or loop.

        Raises:
            ValueError: A limit, the epoch or the id is none.
        """
        if producer_id is not None and not is_header_text(producer_id):
            raise ValueError("producer_id must be printable ASCII, and not empty")
        if not 0 <= epoch < 2**53:
            raise ValueError("epoch must be 0 to 2**53 - 1")
        limits = Limits(
            batch_bytes_max,
            batch_count_max,
            linger_s,
            in_flight_max,
            queue_bytes_max,
            queue_count_max,
        )
        plan = Plan(content_type, producer_id is not None, auto_claim, on_error)
        return ProducerSetup(self.url, producer_id or str(uuid4()), epoch, plan, limits)

    def close(self) -> Flow[Appended]:
        """Close the stream: nothing more can be appended. No error if it is closed already."""
        call = yield from self._call("POST", headers={"stream-closed": "true"})
        answer = yield from expect(call, self._options.retry, 200, 204)
        yield Body()
        return Appended(next_offset(answer), closed=True)

    def delete(self) -> Flow[None]:
        """
        Delete the stream and all its data.

        Raises:
            NotFound: There is none.
        """
        call = yield from self._call("DELETE")
        yield from expect_gone(call, self._options.retry)

    def head(self) -> Flow[Head]:
        """
        What the stream is, without reading it.

        Raises:
            NotFound: There is none.
        """
        call = yield from self._call("HEAD")
        answer = yield from expect(call, self._options.retry, 200)
        yield Body()
        found = answer.headers
        ttl = found.get("stream-ttl")
        return Head(
            content_type=found.get("content-type", DEFAULT_CONTENT_TYPE),
            next_offset=next_offset(answer),
            closed=is_true(answer, "stream-closed"),
            ttl_s=int(ttl) if ttl and ttl.isdecimal() else None,
            expires_at=found.get("stream-expires-at"),
            snapshot_offset=found.get("stream-snapshot-offset"),
            earliest_offset=found.get("stream-earliest-offset"),
        )

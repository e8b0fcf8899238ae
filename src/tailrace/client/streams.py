"""
Every operation on a stream, as a flow (§5).

Both clients take their methods from here, so that signatures, documentation and behaviour agree.
"""

from collections.abc import Callable

from tailrace.client.encoding import DEFAULT_CONTENT_TYPE, JSON, as_bytes, encode_json
from tailrace.client.flow import Body, Flow, delete, expect
from tailrace.client.producer_flows import ProducerOptions
from tailrace.client.recovery import RecoveryFlows
from tailrace.client.responses import appended, is_true, next_offset
from tailrace.client.values import Appended, Created, Head, ProducerClaim

__all__ = ["DEFAULT_CONTENT_TYPE", "StreamFlows"]


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
        Create the stream, optionally with initial content. No error if it exists with the same
        configuration.

        Raises:
            Conflict: It exists with another content type, expiry or closure.
            NotFound: Its bucket does not exist.
        """
        headers = {"content-type": content_type} if content_type else {}
        if ttl_s is not None:
            headers["stream-ttl"] = str(ttl_s)
        if expires_at is not None:
            headers["stream-expires-at"] = expires_at
        if closed:
            headers["stream-closed"] = "true"
        request = self._request("PUT", headers=headers, body=as_bytes(body))
        response = yield from expect(request, 200, 201)
        yield Body()
        return Created(
            new=response.status == 201,
            content_type=response.headers.get("content-type", content_type or DEFAULT_CONTENT_TYPE),
            next_offset=next_offset(response),
            closed=is_true(response, "stream-closed"),
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
        Append bytes, or text in UTF-8; with `close`, close the stream in the same step.

        It is not retried when it is unknown whether it was stored, unless a `claim` tells the
        server which append this is: then it is stored once. `producer` makes the claims itself.

        Raises:
            StreamClosed, Conflict, NotFound: It cannot be appended.
            ProducerFenced, ProducerGap: The claim's epoch is stale; a predecessor is missing.
            Unreachable, ServerFailed: It is unknown whether it was stored.
        """
        headers = {"content-type": content_type}
        if seq is not None:
            headers["stream-seq"] = seq
        if close:
            headers["stream-closed"] = "true"
        if claim is not None:
            headers.update(claim.headers())
        claimed = claim is not None
        request = self._request("POST", headers=headers, body=as_bytes(data), safe=claimed)
        response = yield from expect(request, 200, 204)
        yield Body()
        return appended(response, claimed=claimed)

    def append_json(
        self, *items: object, close: bool = False, claim: ProducerClaim | None = None
    ) -> Flow[Appended]:
        """
        Append values to a JSON stream in one step, each as a message.

        Raises:
            As `append` does.
        """
        if not items and not close:
            raise ValueError("there is nothing to append")
        body = encode_json(items) if items else b""
        return (yield from self.append(body, JSON, close=close, claim=claim))

    def producer(
        self,
        producer_id: str | None = None,
        *,
        epoch: int = 0,
        auto_claim: bool = False,
        content_type: str = JSON,
        batch_bytes_max: int = 1 << 20,
        batch_count_max: int = 10_000,
        linger_s: float = 0.005,
        in_flight_max: int = 5,
        queue_bytes_max: int = 32 << 20,
        queue_count_max: int = 100_000,
        on_error: Callable[[Exception], object] | None = None,
    ) -> ProducerOptions:
        """
        A producer that appends in the background and stores each message once, in order (§5.2.1).

        Messages are sent in batches: when a batch is full, or after `linger_s`. On a stream that is
        not JSON, a batch is one message to the server; `batch_count_max=1` keeps messages apart.

        Args:
            producer_id: The identity of a writer that continues after a restart; a random one if
                not given. To use an id again, give a higher `epoch`, or `auto_claim`.
            auto_claim: If the id was used before, take the next epoch and fence the earlier writer.
                At the start only: a producer that is fenced later ends with `ProducerFenced`.
            in_flight_max: At most this many requests at once.
            queue_bytes_max, queue_count_max: `append` waits while this much is not yet stored.
            on_error: Called once with the error that ends the producer, in its thread or loop.

        Raises:
            ValueError: A limit, the epoch or the id is invalid.
        """
        return ProducerOptions(
            producer_id,
            epoch,
            auto_claim,
            content_type,
            batch_bytes_max,
            batch_count_max,
            linger_s,
            in_flight_max,
            queue_bytes_max,
            queue_count_max,
            on_error,
        )

    def close(self) -> Flow[Appended]:
        """Close the stream: nothing more can be appended. No error if it is closed already."""
        request = self._request("POST", headers={"stream-closed": "true"})
        response = yield from expect(request, 200, 204)
        yield Body()
        return Appended(next_offset(response), closed=True)

    def delete(self) -> Flow[None]:
        """
        Delete the stream and all its data.

        Raises:
            NotFound: There is no such stream.
        """
        return delete(self._request("DELETE"))

    def head(self) -> Flow[Head]:
        """
        The stream's metadata, without its data.

        Raises:
            NotFound: There is no such stream.
        """
        response = yield from expect(self._request("HEAD"), 200)
        yield Body()
        headers = response.headers
        ttl = headers.get("stream-ttl")
        return Head(
            content_type=headers.get("content-type", DEFAULT_CONTENT_TYPE),
            next_offset=next_offset(response),
            closed=is_true(response, "stream-closed"),
            ttl_s=int(ttl) if ttl and ttl.isdecimal() else None,
            expires_at=headers.get("stream-expires-at"),
            snapshot_offset=headers.get("stream-snapshot-offset"),
            earliest_offset=headers.get("stream-earliest-offset"),
        )

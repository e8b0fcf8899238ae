"""
Every operation on a stream, as a flow (§5).

Both clients take their methods from here, so that signatures, documentation and behaviour agree.
"""

from urllib.parse import urlsplit

from tailrace.client.decoding import appended, is_true, next_offset
from tailrace.client.encoding import DEFAULT_CONTENT_TYPE, JSON, as_bytes, encode_json
from tailrace.client.flow import Body, Flow, delete, expect
from tailrace.client.requests import sibling_url
from tailrace.client.snapshots import SnapshotFlows
from tailrace.client.values import Appended, Created, Head, ProducerClaim

__all__ = ["DEFAULT_CONTENT_TYPE", "StreamFlows"]


class StreamFlows(SnapshotFlows):
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
        headers = _creation_headers(content_type, ttl_s, expires_at, closed)
        return (yield from self._put(headers, as_bytes(body)))

    def fork(
        self,
        target: str,
        *,
        offset: str | None = None,
        sub_offset: int | None = None,
        body: bytes | str = b"",
        ttl_s: int | None = None,
        expires_at: str | None = None,
        closed: bool = False,
    ) -> Flow[Created]:
        """
        Create a stream that begins with what this one has, up to an offset or to the tail.

        `target` names the new stream: a path as for `Client.stream`, or the id of a stream in the
        bucket of this one. It inherits the content type, and the expiry unless it has its own;
        `body` is appended to it. `sub_offset` inherits more past `offset`: messages of a JSON
        stream, otherwise bytes, up to the end of what was appended there. No error if the same fork
        exists.

        Raises:
            NotFound: This stream does not exist.
            Conflict: The target exists and is not this fork, or this stream was deleted.
            OffsetGone: The offset is no longer retained.
            Refused: The offset or sub-offset is not within this stream.
        """
        headers = _creation_headers(None, ttl_s, expires_at, closed)
        headers["stream-forked-from"] = urlsplit(self.url).path
        if offset is not None:
            headers["stream-fork-offset"] = offset
        if sub_offset is not None:
            headers["stream-fork-sub-offset"] = str(sub_offset)
        fork = StreamFlows(sibling_url(self.url, target), self.options)
        return (yield from fork._put(headers, as_bytes(body)))

    def _put(self, headers: dict[str, str], body: bytes) -> Flow[Created]:
        request = self._request("PUT", headers=headers, body=body)
        response = yield from expect(request, 200, 201)
        yield Body()
        self.content_type = response.headers.get("content-type", headers.get("content-type"))
        return Created(
            new=response.status == 201,
            content_type=self.content_type or DEFAULT_CONTENT_TYPE,
            next_offset=next_offset(response),
            closed=is_true(response, "stream-closed"),
        )

    def append(
        self,
        data: bytes | str,
        content_type: str | None = None,
        *,
        seq: str | None = None,
        close: bool = False,
        claim: ProducerClaim | None = None,
    ) -> Flow[Appended]:
        """
        Append bytes, or text in UTF-8; with `close`, close the stream in the same step.

        `content_type` must be that of the stream. It may be omitted if this handle knows it, since
        it has created, read or described the stream; else the default is application/octet-stream.

        It is not retried when it is unknown whether it was stored, unless a `claim` tells the
        server which append this is: then it is stored once. `producer` makes the claims itself.

        Raises:
            StreamClosed, Conflict, NotFound: It cannot be appended.
            SeqConflict: `seq` is not above the last one.
            ProducerFenced, ProducerGap: The claim's epoch is stale; a predecessor is missing.
            Unreachable, ServerFailed: It is unknown whether it was stored.
        """
        headers = {"content-type": content_type or self.content_type or DEFAULT_CONTENT_TYPE}
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
        """Append values to a JSON stream in one step, each as a message. Raises as `append`."""
        if not items and not close:
            raise ValueError("there is nothing to append")
        body = encode_json(items) if items else b""
        return (yield from self.append(body, JSON, close=close, claim=claim))

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
        self._note_type(response)
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


def _creation_headers(
    content_type: str | None, ttl_s: int | None, expires_at: str | None, closed: bool
) -> dict[str, str]:
    headers = {"content-type": content_type} if content_type else {}
    if ttl_s is not None:
        headers["stream-ttl"] = str(ttl_s)
    if expires_at is not None:
        headers["stream-expires-at"] = expires_at
    if closed:
        headers["stream-closed"] = "true"
    return headers

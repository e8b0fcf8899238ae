"""Snapshots and bootstrap of a stream, as flows (X§2, X§3)."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeAlias
from urllib.parse import quote

from tailrace.client.decoding import is_true, json_items, split_offset
from tailrace.client.encoding import DEFAULT_CONTENT_TYPE, as_bytes
from tailrace.client.errors import AnswerInvalid, NotFound, OffsetGone, Unreachable
from tailrace.client.flow import Body, Flow, Give, HttpResponse, Items, Piece, each, expect, fetch
from tailrace.client.multipart import PartParser, RawPart, boundary_of
from tailrace.client.reading import BEGINNING, ReadFlows
from tailrace.client.values import Bootstrap, Chunk, Item, Part, Snapshot

__all__ = ["SnapshotFlows"]


_Decode: TypeAlias = Callable[[str, int], Callable[[Chunk], Iterable[Any]]]
"""Makes the converter of chunks from an offset on, with a number of messages skipped."""


class SnapshotFlows(ReadFlows):
    """Snapshots and bootstrap of a stream in a bucket, and reads that fall back to them."""

    def publish_snapshot(
        self, data: bytes | str, offset: str, content_type: str = DEFAULT_CONTENT_TYPE
    ) -> Flow[None]:
        """
        Publish a snapshot of all messages before an offset; the server may then drop those.

        No error if the same snapshot was published there before.

        Raises:
            Conflict: The offset is past the tail, or another snapshot is there.
            OffsetGone: A snapshot at a later offset was published.
            NotFound, TooLarge: There is no such stream; it is larger than the server accepts.
            AnswerInvalid: The server has no snapshots.
        """
        path = f"/snapshot/{quote(offset, safe='')}"
        headers = {"content-type": content_type}
        request = self._request("PUT", path, headers=headers, body=as_bytes(data))
        response = yield from expect(request, 200, 201, 204)
        yield Body()
        if response.status != 204:
            # X§2.1. A server without snapshots took it as a stream to create.
            reason = "the snapshot was not published; does this server have snapshots?"
            raise AnswerInvalid(self.url + path, reason)

    def snapshot(self) -> Flow[Snapshot]:
        """
        The latest snapshot.

        Raises:
            NotFound: There is no snapshot, or no such stream.
        """
        before = ""
        while True:
            response, _ = yield from self._fetch(self._request("GET", "/snapshot"), 307)
            # Only the last segment of the location: behind a proxy the rest may differ.
            segment = response.headers.get("location", "").partition("?")[0].rpartition("/")[2]
            if not segment:
                raise AnswerInvalid(self.url, "the redirect to the snapshot has no Location")
            request = self._request("GET", f"/snapshot/{segment}")
            try:
                response, data = yield from self._fetch(request, 200)
            except NotFound:
                if segment == before:
                    raise
                # A newer snapshot has just replaced it, or none is left: ask again.
                before = segment
            else:
                return _snapshot(response, data)

    def bootstrap(self) -> Flow[Bootstrap]:
        """
        The snapshot, if there is one, and every message after it, all at once.

        Raises:
            NotFound: There is no such stream.
        """
        request = self._request("GET", "/bootstrap")
        return fetch(request, self.options.retry, self._read_bootstrap, 200)

    def bootstrap_parts(self) -> Items[Part]:
        """
        The same in parts as they arrive: first the snapshot, then each message.

        Raises:
            NotFound: There is no such stream.
            Unreachable: The response broke off; parts are missing.
        """
        response = yield from expect(self._request("GET", "/bootstrap"), 200)
        parser = self._part_parser(response)
        is_first = True
        while not parser.ended:
            for part in parser.feed((yield from self._piece())):
                yield Give((_part(response, part, is_snapshot=is_first),))
                is_first = False

    def _read_bootstrap(self, response: HttpResponse) -> Flow[Bootstrap]:
        parser = self._part_parser(response)
        parts: list[Part] = []
        while not parser.ended:
            for part in parser.feed((yield from self._piece())):
                parts.append(_part(response, part, is_snapshot=not parts))
        yield Body()
        if not parts:
            raise AnswerInvalid(self.url, "the bootstrap has no part for the snapshot")
        first, *messages = parts
        offset = response.headers.get("stream-snapshot-offset", "-1")
        snapshot = Snapshot(first.data, first.content_type, offset, up_to_date=not messages)
        return Bootstrap(
            snapshot=None if offset == "-1" else snapshot,
            messages=[part.data for part in messages],
            content_type=messages[0].content_type if messages else None,
            next_offset=first.next_offset,
        )

    def _part_parser(self, response: HttpResponse) -> PartParser:
        boundary = boundary_of(response.headers.get("content-type", ""))
        if boundary is None or "stream-next-offset" not in response.headers:
            reason = "the response is no bootstrap; does this server have buckets?"
            raise AnswerInvalid(self.url, reason)
        return PartParser(boundary)

    def read_or_bootstrap(
        self, offset: str = BEGINNING, *, live: bool = False
    ) -> Items[Snapshot | Chunk]:
        """
        The content from an offset on; a `Snapshot` replaces what is no longer retained.

        When a snapshot comes, a reader discards its state so far and continues from the snapshot.
        With `live` it then follows the stream as `tail` does, and receives another snapshot if it
        falls behind one.

        Raises:
            NotFound: There is no such stream.
            OffsetGone: The offset is no longer retained, and there is no snapshot.
        """
        return self._recover(offset, 0, live, lambda _, __: lambda chunk: (chunk,))

    def read_json_or_bootstrap(
        self, offset: str = BEGINNING, *, live: bool = False
    ) -> Items[Snapshot | Item]:
        """
        The same for the messages of a JSON stream. The snapshot is bytes, of any type.

        Raises as `read_or_bootstrap`; AnswerInvalid if it is no JSON stream.
        """
        start, skipped = split_offset(offset)
        return self._recover(start, skipped, live, partial(json_items, self.url))

    def _recover(self, offset: str, skipped: int, live: bool, decode: _Decode) -> Flow[None]:
        last: str | None = None
        offset = yield from self._resolved(offset)
        while True:
            flow = self.tail(offset) if live else self.read(offset)
            try:
                yield from each(flow, decode(offset, skipped))
                return
            except OffsetGone as gone:
                try:
                    snapshot = yield from self.snapshot()
                except NotFound:
                    raise gone from None
                if snapshot.offset == last:
                    # The server does not retain what follows its own snapshot.
                    raise
            last, offset, skipped = snapshot.offset, snapshot.offset, 0
            yield Give((snapshot,))

    def _piece(self) -> Flow[bytes]:
        piece: bytes = yield Piece()
        if not piece:
            raise Unreachable(self.url, "the bootstrap broke off")
        return piece


def _part(response: HttpResponse, part: RawPart, *, is_snapshot: bool) -> Part:
    content_type = part.content_type or DEFAULT_CONTENT_TYPE
    return Part(part.data, content_type, is_snapshot, response.headers["stream-next-offset"])


def _snapshot(response: HttpResponse, data: bytes) -> Snapshot:
    headers = response.headers
    offset = headers.get("stream-snapshot-offset") or headers.get("stream-next-offset")
    if offset is None:
        raise AnswerInvalid(response.url, "the snapshot has no Stream-Snapshot-Offset")
    content_type = headers.get("content-type", DEFAULT_CONTENT_TYPE)
    return Snapshot(data, content_type, offset, is_true(response, "stream-up-to-date"))

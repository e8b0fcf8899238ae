"""Snapshots and bootstrap of a stream, as flows (X§2, X§3)."""

from urllib.parse import quote

from tailrace.client.encoding import as_bytes
from tailrace.client.errors import AnswerInvalid, NotFound, Unreachable
from tailrace.client.flow import Answer, Body, Flow, Give, Piece, Wait, expect, fetch
from tailrace.client.items import Items
from tailrace.client.multipart import PartParser, boundary_of
from tailrace.client.reading import ReadFlows
from tailrace.client.requests import make_call
from tailrace.client.values import Bootstrap, Part, Snapshot

__all__ = ["SnapshotFlows"]

DEFAULT_CONTENT_TYPE = "application/octet-stream"


class SnapshotFlows(ReadFlows):
    """What a stream in a bucket can do beyond the base protocol."""

    def publish_snapshot(
        self, data: bytes | str, offset: str, content_type: str = DEFAULT_CONTENT_TYPE
    ) -> Flow[None]:
        """
        Publish what all messages before an offset add up to; the server then drops those.

        No error if the same was published there before.

        Raises:
            Conflict: The offset is past the tail, or another snapshot is there.
            OffsetGone: A later one was published.
            NotFound, TooLarge: There is no such stream; it is larger than the server takes.
            AnswerInvalid: The server has no snapshots.
        """
        url = f"{self.url}/snapshot/{quote(offset, safe='')}"
        headers = {"content-type": content_type}
        call = yield from make_call(self._options, "PUT", url, None, headers, body=as_bytes(data))
        answer = yield from expect(call, self._options.retry, 200, 201, 204)
        yield Body()
        if answer.status != 204:
            # X§2.1. To a server without snapshots that was a stream to be created.
            raise AnswerInvalid(url, "it was not published; has this server snapshots?")

    def snapshot(self) -> Flow[Snapshot]:
        """
        The latest snapshot.

        Raises:
            NotFound: There is none, or no such stream.
        """
        before = ""
        while True:
            call = yield from make_call(self._options, "GET", f"{self.url}/snapshot")
            answer, _ = yield from fetch(call, self._options.retry, 307)
            # The last segment of where we are sent: behind a proxy the rest may not be ours.
            segment = answer.headers.get("location", "").partition("?")[0].rpartition("/")[2]
            if not segment:
                raise AnswerInvalid(self.url, "the redirect to the snapshot has no Location")
            call = yield from make_call(self._options, "GET", f"{self.url}/snapshot/{segment}")
            try:
                answer, data = yield from fetch(call, self._options.retry, 200)
            except NotFound:
                if segment == before:
                    raise
                # A newer one has just replaced it; or there is none, which the next round tells.
                before = segment
            else:
                return _snapshot(answer, data)

    def bootstrap(self) -> Flow[Bootstrap]:
        """
        The snapshot, if there is one, and every message after it, all at once.

        Raises:
            NotFound: There is no such stream.
        """
        retry = self._options.retry
        attempt = 1
        while True:
            try:
                return (yield from self._whole())
            except Unreachable:
                # Nothing was handed out yet: begin again.
                if attempt >= retry.attempts_max:
                    raise
            yield Wait(retry.pause_s(attempt))
            attempt += 1

    def bootstrap_parts(self) -> Items[Part]:
        """
        The same as it arrives: first the snapshot, then each message.

        Raises:
            NotFound: There is no such stream.
            Unreachable: It broke off; what was handed out is not all there is.
        """
        return Items(self._stream_parts())

    def _stream_parts(self) -> Flow[None]:
        answer, parser = yield from self._ask_bootstrap()
        first = True
        while not parser.ended:
            for part in parser.feed((yield from self._piece())):
                made = _part(answer, part.content_type, part.data, is_snapshot=first)
                first = False
                yield Give((made,))

    def _whole(self) -> Flow[Bootstrap]:
        answer, parser = yield from self._ask_bootstrap()
        parts: list[Part] = []
        while not parser.ended:
            for part in parser.feed((yield from self._piece())):
                parts.append(_part(answer, part.content_type, part.data, is_snapshot=not parts))
        yield Body()
        if not parts:
            raise AnswerInvalid(self.url, "a bootstrap without a part for the snapshot")
        first, *messages = parts
        offset = answer.headers.get("stream-snapshot-offset", "-1")
        up_to_date = not messages
        snapshot = Snapshot(first.data, first.content_type, offset, up_to_date)
        return Bootstrap(
            snapshot=None if offset == "-1" else snapshot,
            messages=[part.data for part in messages],
            content_type=messages[0].content_type if messages else None,
            next_offset=first.next_offset,
        )

    def _ask_bootstrap(self) -> Flow[tuple[Answer, PartParser]]:
        call = yield from make_call(self._options, "GET", f"{self.url}/bootstrap")
        answer = yield from expect(call, self._options.retry, 200)
        boundary = boundary_of(answer.headers.get("content-type", ""))
        if boundary is None or "stream-next-offset" not in answer.headers:
            raise AnswerInvalid(self.url, "the answer is no bootstrap; has this server buckets?")
        return answer, PartParser(boundary)

    def _piece(self) -> Flow[bytes]:
        piece: bytes = yield Piece()
        if not piece:
            raise Unreachable(self.url, "the bootstrap was cut off")
        return piece


def _part(answer: Answer, content_type: str | None, data: bytes, *, is_snapshot: bool) -> Part:
    kind = content_type or DEFAULT_CONTENT_TYPE
    return Part(data, kind, is_snapshot, answer.headers["stream-next-offset"])


def _snapshot(answer: Answer, data: bytes) -> Snapshot:
    headers = answer.headers
    offset = headers.get("stream-snapshot-offset") or headers.get("stream-next-offset")
    if offset is None:
        raise AnswerInvalid(answer.url, "the snapshot has no Stream-Snapshot-Offset")
    up_to_date = headers.get("stream-up-to-date", "").lower() == "true"
    return Snapshot(data, headers.get("content-type", DEFAULT_CONTENT_TYPE), offset, up_to_date)

"""
Snapshots (X§2).

A snapshot is uploaded to a file of its own and becomes visible by one record, which also moves the
earliest retained offset to it: at any moment, either the old or the new snapshot is visible.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

from tailrace.engine.base import SNAPSHOT_CHUNK_BYTES
from tailrace.engine.engine import Engine, Outcome
from tailrace.engine.entry import StreamEntry
from tailrace.engine.errors import StorageFailed
from tailrace.protocol.errors import (
    OffsetBeyondTail,
    Refusal,
    SnapshotBeyondTail,
    SnapshotNeeded,
    SnapshotNotFound,
    StreamNotFound,
)
from tailrace.protocol.machine import Effect
from tailrace.protocol.offset import Offset, parse_offset
from tailrace.protocol.state import Publish, SnapshotInfo, StreamState
from tailrace.server import headers as h
from tailrace.server.compress import coding_for
from tailrace.server.errors import SnapshotTooLarge
from tailrace.server.handlers.upload import Upload
from tailrace.server.handlers.writes import stored_type
from tailrace.server.message import Request, Response
from tailrace.server.streaming_body import streaming_response

__all__ = ["SnapshotHandlers", "snapshot_pieces"]


class SnapshotHandlers:
    """PUT, GET and DELETE of snapshots."""

    def __init__(self, engine: Engine, bytes_max: int, *, shared: bool = True) -> None:
        self._engine = engine
        self._bytes_max = bytes_max
        self._shared = shared

    # -- publishing --------------------------------------------------------------------------

    def upload(self, request: Request, *, first: bool) -> Upload:
        """
        Return the sink for the body of a publication.

        `first`: no earlier request of the connection can still replace the stream, so that the
        publication is for the stream that exists now.
        """
        state = self._engine.peek(request.target.key) if first else None
        stream_id = None if state is None else state.id
        return Upload(self._engine, self._bytes_max, stream_id)

    def check(self, request: Request) -> None:
        """Refuse a publication before its body is sent, if its headers are enough to refuse it."""
        length = request.headers.get(b"content-length", b"")
        if length.isdigit():
            if int(length) > self._bytes_max:
                raise SnapshotTooLarge(self._bytes_max)
            # Before the upload fills the disk.
            self._engine.check_room(int(length))
        stored_type(request.headers)
        target = request.target
        stream, offset = self._engine.find(target.key), parse_offset(target.offset)
        self._locate(stream, offset)
        if length.isdigit():
            self._engine.check_snapshot(stream, offset, int(length))

    async def publish(self, request: Request) -> Response:
        """X§2.2."""
        upload = request.sink
        assert isinstance(upload, Upload)
        content_type = stored_type(request.headers)
        key = request.target.key
        offset = parse_offset(request.target.offset)
        stream_id = self._locate(self._engine.find(key), offset)
        if upload.stream_id not in (None, stream_id):
            # Deleted and created again during the upload: another stream.
            raise StreamNotFound
        snapshot, content = await upload.finish(offset, content_type)
        decided: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        # From here on a record may refer to the file, even if this request fails.
        request.sink = None
        command = Publish(stream_id, snapshot, content)
        self._engine.submit(key, command, decided.set_result)
        outcome = await decided
        if isinstance(outcome, Refusal):
            if not isinstance(outcome, StorageFailed):
                upload.cancel()
            raise outcome
        verdict, state = outcome
        assert state is not None
        if verdict.effect is not Effect.PUBLISHED:
            # The same snapshot is already stored.
            upload.cancel()
        return Response(204, [*_about(offset, state), h.NO_STORE])

    def _locate(self, stream: StreamEntry, offset: Offset) -> int:
        """
        Check that an offset is a message boundary; it stays one, since the log only grows.

        Returns the internal id of the stream.
        """
        assert stream.durable is not None
        try:
            self._engine.locate(stream, offset)
        except OffsetBeyondTail as beyond:
            # X§2.2: for a snapshot this is a conflict and not a malformed request.
            raise SnapshotBeyondTail(beyond.token, beyond.tail) from None
        return stream.durable.id

    # -- reading -----------------------------------------------------------------------------

    def latest(self, request: Request) -> Response:
        """X§2.3: redirect to the latest snapshot."""
        _, snapshot = self._visible(request)
        token = snapshot.offset.encoded()
        headers = [
            (h.LOCATION, request.url + b"/" + token),
            (h.STREAM_SNAPSHOT_OFFSET, token),
            h.caching(b"no-store", shared=self._shared),
        ]
        if not self._shared:
            headers.append(h.vary(shared=False))
        return Response(307, headers)

    def read(self, request: Request) -> Response:
        """X§2.5."""
        state, snapshot = self._visible(request)
        if snapshot.offset.token() != request.target.offset:
            raise SnapshotNotFound(snapshot.offset.token())
        coding = coding_for(request.headers, snapshot.size)
        stream = f"{self._engine.store.store_id}.{state.id}"
        etag = f'"{stream}:{snapshot.id}{":" + coding if coding else ""}"'.encode()
        headers = [
            (h.CONTENT_TYPE, snapshot.content_type.encode("latin-1")),
            h.SANDBOX,
            *_about(snapshot.offset, state),
            # Its bytes never change, but it may no longer be the latest: revalidate.
            h.caching(b"no-cache", shared=self._shared),
            (h.ETAG, etag),
            h.vary(shared=self._shared),
        ]
        if h.matches(request.headers.get(b"if-none-match"), etag):
            return Response(304, headers)
        if request.method == "HEAD":
            return Response(200, headers)
        pieces = snapshot_pieces(self._engine, snapshot)
        release = self._engine.pins.hold_snapshot(snapshot)
        return streaming_response(headers, pieces, release, coding, snapshot.size)

    def delete(self, request: Request) -> Response:
        """X§2.6: the latest cannot be deleted, and no other one is visible."""
        _, snapshot = self._visible(request)
        if snapshot.offset.token() == request.target.offset:
            raise SnapshotNeeded
        raise SnapshotNotFound(snapshot.offset.token())

    def _visible(self, request: Request) -> tuple[StreamState, SnapshotInfo]:
        """Return the state of a stream, and its snapshot."""
        stream = self._engine.find(request.target.key)
        state = stream.durable
        assert state is not None
        if request.method == "GET":
            # A read extends a sliding TTL; HEAD does not.
            self._engine.touch(stream)
        if state.snapshot is None:
            raise SnapshotNotFound
        return state, state.snapshot


async def snapshot_pieces(engine: Engine, snapshot: SnapshotInfo) -> AsyncIterator[bytes]:
    """Read a snapshot, chunk by chunk; the caller has pinned it."""
    if snapshot.inline:
        yield engine.store.read_snapshot(snapshot, 0)
        return
    loop = asyncio.get_running_loop()
    read: Callable[[SnapshotInfo, int], bytes] = engine.store.read_snapshot
    for index in range(-(-snapshot.size // SNAPSHOT_CHUNK_BYTES)):
        yield await loop.run_in_executor(engine.blob_threads, read, snapshot, index)


def _about(offset: Offset, state: StreamState) -> list[tuple[bytes, bytes]]:
    """X§2.5: headers of every response about a snapshot."""
    return [
        (h.STREAM_SNAPSHOT_OFFSET, offset.encoded()),
        (h.STREAM_NEXT_OFFSET, offset.encoded()),
        (h.STREAM_UP_TO_DATE, h.TRUE if state.tail == offset else h.FALSE),
    ]

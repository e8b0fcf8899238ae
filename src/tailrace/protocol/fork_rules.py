"""
The rules of forks (forks, today.md). A PUT with `Stream-Forked-From` is refused in this order:

    the target exists                409, or 200 if it is the same fork
    the source exists                404
    it is not soft-deleted           409
    a Content-Type is the source's   409
    the offset is retained           410; past the tail, or no boundary: 400
    the sub-offset is within data    400
"""

from typing import NamedTuple

from tailrace.protocol.content_type import essence
from tailrace.protocol.errors import (
    ContentTypeMismatch,
    ForkSourceGone,
    ForkSourceNotFound,
    ForkSubOffsetBeyond,
    OffsetBeyondTail,
    OffsetGone,
    OffsetMisaligned,
    Refusal,
    StreamExists,
)
from tailrace.protocol.fork import ForkOrigin, Segment, pack_segments
from tailrace.protocol.offset import Offset
from tailrace.protocol.state import Create, ForkRequest, StreamState

__all__ = ["Inheritance", "check_same_fork", "inherit", "life"]


class Inheritance(NamedTuple):
    """What a new fork has from its source."""

    origin: ForkOrigin
    source: StreamState
    piece: bytes
    """With which the first own message begins: part of a message of the source."""


def inherit(command: Create, request: ForkRequest) -> Inheritance:
    """Decide what a new fork inherits. Raises the refusals above, from the second on."""
    source = request.source
    if source is None:
        raise ForkSourceNotFound
    if source.deleted:
        raise ForkSourceGone
    if command.content_type is not None and (
        essence(command.content_type) != essence(source.content_type)
    ):
        raise ContentTypeMismatch(source.content_type, command.content_type)
    offset = source.tail if request.offset is None else request.offset
    token = offset.token()
    if offset.byte > source.tail.byte or offset.message > source.tail.message:
        raise OffsetBeyondTail(token, source.tail.token())
    if offset.byte < source.earliest.byte:
        raise OffsetGone(token, source.earliest.token())
    for known in (source.tail, source.earliest):
        if offset.byte == known.byte and offset != known:
            raise OffsetMisaligned(token)
    point, piece = offset, b""
    if isinstance(request.point, Refusal):
        raise request.point
    if request.point is not None:
        point, piece = request.point.offset, request.point.piece
    elif request.sub_offset:
        # Only the tail needs no look at the records: nothing follows it.
        unit = "messages" if source.json else "bytes"
        raise ForkSubOffsetBeyond(request.sub_offset, token, 0, unit)
    origin = ForkOrigin(
        key=request.key,
        id=source.id,
        offset=offset,
        sub_offset=request.sub_offset,
        point=point,
        # The earliest retained offset is that of the snapshot, so it is never past the point.
        snapshot_id=None if source.snapshot is None else source.snapshot.id,
        inherited=_segments(source, point),
    )
    return Inheritance(origin, source, piece)


def _segments(source: StreamState, point: Offset) -> bytes:
    """What the source inherits itself is inherited from where it is stored."""
    packed = b"" if source.fork is None else source.fork.inherited_until(source.earliest, point)
    if point > max(source.begins, source.earliest):
        packed += pack_segments([Segment(source.id, point)])
    return packed


def life(command: Create) -> tuple[int | None, int | None]:
    """The TTL and the expiry time of a new stream: its own, or those of the source."""
    source = None if command.fork is None else command.fork.source
    if source is None or command.ttl_s is not None or command.expires_at is not None:
        return command.ttl_s, command.expires_at
    return source.ttl_s, source.expires_at


def check_same_fork(origin: ForkOrigin | None, request: ForkRequest | None) -> None:
    """Compare a request with an existing stream. Raises StreamExists if they differ."""
    if origin is None and request is None:
        return
    if origin is None or request is None or origin.key != request.key:
        raise StreamExists("Stream-Forked-From")
    # An omitted offset is the tail of the source, which may have grown since.
    if request.offset is not None and request.offset != origin.offset:
        raise StreamExists(f"Stream-Fork-Offset: it is {origin.offset.token()}")
    if request.sub_offset != origin.sub_offset:
        raise StreamExists(f"Stream-Fork-Sub-Offset: it is {origin.sub_offset}")

"""Forks (today.md): what decides about a fork, and what it inherits."""

import pytest
from msgspec.structs import replace

from tailrace.protocol.fork import ForkOrigin, Segment, pack_segments
from tailrace.protocol.machine import Effect, apply, decide
from tailrace.protocol.offset import START, Offset
from tailrace.protocol.producer import ProducerHeaders
from tailrace.protocol.state import (
    Append,
    Create,
    CreateRecord,
    Delete,
    DeleteRecord,
    Expire,
    ForkPoint,
    ForkRequest,
    Publish,
    ReferenceRecord,
    SnapshotInfo,
    SoftDeleteRecord,
    StreamState,
    Touch,
)
from tests.protocol.model import JSON, TEXT
from tests.protocol.streams import NOW_MS, appended, closed_stream, code, run, text_stream

KEY = b"\0source"
PAST = Offset(10**15, 10**15)


@pytest.fixture
def source() -> StreamState:
    """Two messages: boundaries at 0, 3 and 5 bytes."""
    return appended(appended(text_stream(), b"abc"), b"de")


def fork(
    source: StreamState | None,
    offset: Offset | None = None,
    sub: int = 0,
    point: ForkPoint | None = None,
    **changes: object,
) -> Create:
    request = ForkRequest(KEY, offset, sub, source, point)
    options: dict[str, object] = {"id": 2, "content_type": None, "fork": request, **changes}
    return Create(**options)  # type: ignore[arg-type]


def forked(source: StreamState, number: int = 2, **changes: object) -> StreamState:
    return run(None, replace(fork(source, **changes), id=number))[1]  # type: ignore[arg-type]


def segments(state: StreamState) -> list[Segment]:
    assert state.fork is not None
    return list(state.fork.segments())


def test_a_fork_inherits_type_tail_and_data_and_no_writer_state(source: StreamState) -> None:
    claim = ProducerHeaders("p", 0, 0)
    source = appended(source, b"x", claim=claim, seq="1")
    effect, state = run(None, fork(source))
    assert effect is Effect.CREATED
    assert (state.content_type, state.tail, state.begins) == (TEXT, source.tail, source.tail)
    assert segments(state) == [Segment(source.id, source.tail)]
    assert (len(state.producers), state.stream_seq, state.closed) == (0, None, False)
    # The same claim as on the source is new data.
    assert decide(state, Append(b"y", TEXT, producer=claim, stream_seq="1"), NOW_MS).effect is (
        Effect.APPENDED
    )


def test_a_closed_source_may_be_forked_and_the_fork_is_open(source: StreamState) -> None:
    assert not forked(closed_stream()).closed
    assert forked(closed_stream(), closed=True).closed


def test_the_checks_have_an_order(source: StreamState) -> None:
    """Each request is wrong in every later way too."""
    gone = replace(source, deleted=True, forks=1)
    bad = {"offset": PAST, "sub": 9, "content_type": JSON}
    assert code(text_stream(), fork(None, **bad)) == (409, "stream-exists")  # type: ignore[arg-type]
    assert code(gone, fork(None, **bad)) == (409, "stream-held")  # type: ignore[arg-type]
    assert code(None, fork(None, **bad)) == (404, "fork-source-not-found")  # type: ignore[arg-type]
    assert code(None, fork(gone, **bad)) == (409, "fork-source-gone")  # type: ignore[arg-type]
    assert code(None, fork(source, **bad)) == (409, "content-type-mismatch")  # type: ignore[arg-type]
    assert code(None, fork(source, PAST, 9)) == (400, "offset-beyond-tail")
    assert code(None, fork(source, source.tail, 9)) == (400, "fork-sub-offset-beyond")
    assert code(None, fork(source, None, 1)) == (400, "fork-sub-offset-beyond")
    assert code(None, fork(source, Offset(1, 5))) == (400, "offset-misaligned")
    assert code(None, fork(source, Offset(1, 0))) == (400, "offset-misaligned")


def test_a_fork_before_what_is_retained_is_gone(source: StreamState) -> None:
    at = Offset(1, 3)
    source = run(source, Publish(1, SnapshotInfo(at, 90, 1, TEXT, b"", inline=True), b"s"))[1]
    assert code(None, fork(source, START)) == (410, "offset-gone")
    state = forked(source, offset=at)
    # It inherits the snapshot, which is not its own.
    assert (state.snapshot, state.earliest, state.own_snapshot) == (source.snapshot, at, None)
    assert segments(state) == []


def test_a_piece_of_a_message_is_the_beginning_of_the_first_own_message(
    source: StreamState,
) -> None:
    point = ForkPoint(START, b"ab")
    state = forked(source, offset=START, sub=2, point=point)
    assert (state.begins, state.tail) == (START, Offset(1, 2))
    verdict = decide(None, fork(source, START, 2, point, body=b"XY"), NOW_MS)
    assert isinstance(verdict.record, CreateRecord) and verdict.record.content is not None
    assert verdict.record.content.payload == b"abXY"


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ({}, (60, None)),
        ({"ttl_s": 5}, (5, None)),
        ({"ttl_s": 900}, (900, None)),
        ({"expires_at": NOW_MS + 9}, (None, NOW_MS + 9)),
    ],
)
def test_life_is_its_own_or_that_of_the_source(
    sent: dict[str, int], expected: tuple[int | None, int | None]
) -> None:
    source = text_stream(ttl_s=60)
    _, state = run(None, fork(source, **sent), NOW_MS + 30_000)  # type: ignore[arg-type]
    assert (state.ttl_s, state.expires_at) == expected
    # Its window is its own.
    assert state.created_at == NOW_MS + 30_000
    # And the same request again is the same stream.
    assert decide(state, fork(source, **sent), NOW_MS).effect is Effect.EXISTED  # type: ignore[arg-type]


def test_the_same_fork_again_is_the_same_stream(source: StreamState) -> None:
    state = forked(source, offset=Offset(1, 3), point=ForkPoint(Offset(1, 3)))
    for same in (Offset(1, 3), None):
        assert decide(state, fork(source, same), NOW_MS).effect is Effect.EXISTED
        assert decide(state, fork(source, same, content_type=TEXT), NOW_MS).effect is Effect.EXISTED
    assert code(state, fork(source, START)) == (409, "stream-exists")
    assert code(state, fork(source, None, 1)) == (409, "stream-exists")
    assert code(state, fork(source, None, closed=True)) == (409, "stream-exists")
    assert code(state, fork(source, None, ttl_s=5)) == (409, "stream-exists")
    other = Create(id=9, content_type=None, fork=ForkRequest(b"\0other", source=source))
    assert code(state, other) == (409, "stream-exists")
    # Neither is an ordinary PUT the same as a fork, nor the other way round.
    assert code(state, Create(id=9, content_type=TEXT)) == (409, "stream-exists")
    assert code(source, fork(source)) == (409, "stream-exists")


def test_deletion_of_a_source_is_soft(source: StreamState) -> None:
    source = apply(source, ReferenceRecord(1)) or source
    verdict = decide(source, Delete(), NOW_MS)
    assert verdict.record == SoftDeleteRecord(NOW_MS)
    gone = apply(source, verdict.record)
    assert gone is not None and gone.deleted and gone.tail == source.tail
    assert code(gone, Delete()) == (410, "stream-gone")
    assert code(gone, Append(b"x", TEXT)) == (410, "stream-gone")
    assert code(gone, Create(id=9, content_type=TEXT)) == (409, "stream-held")
    snapshot = SnapshotInfo(START, 90, 1, TEXT, b"", inline=True)
    assert code(gone, Publish(1, snapshot, b"s")) == (410, "stream-gone")
    # It neither expires again nor is touched.
    gone = replace(gone, ttl_s=1)
    for command in (Expire(sliding=False), Touch()):
        assert decide(gone, command, NOW_MS + 10**9).record is None


def test_expiry_of_a_source_is_soft(source: StreamState) -> None:
    source = replace(source, ttl_s=1, forks=1)
    assert decide(source, Expire(sliding=False), NOW_MS + 1000).record == (
        SoftDeleteRecord(NOW_MS + 1000)
    )
    alone = replace(source, forks=0)
    assert isinstance(decide(alone, Expire(sliding=False), NOW_MS + 1000).record, DeleteRecord)


def test_what_a_snapshot_supersedes_is_kept_while_there_are_forks(source: StreamState) -> None:
    source = replace(source, forks=2)
    snapshot = SnapshotInfo(Offset(1, 3), 90, 7, TEXT, b"", inline=True)
    source = run(source, Publish(1, snapshot, b"s"))[1]
    assert source.held == 3
    later = SnapshotInfo(Offset(2, 5), 91, 7, TEXT, b"", inline=True)
    source = run(source, Publish(1, later, b"s"))[1]
    assert source.held == 3 + 2 + 7
    source = apply(source, ReferenceRecord(-1)) or source
    assert (source.forks, source.held) == (1, 12)
    source = apply(source, ReferenceRecord(-1)) or source
    assert (source.forks, source.held) == (0, 0)


def test_a_fork_of_a_fork_refers_to_where_the_data_is_stored(source: StreamState) -> None:
    second = appended(forked(source, number=2), b"fgh")
    third = appended(forked(second, number=3), b"i")
    assert segments(third) == [Segment(1, Offset(2, 5)), Segment(2, Offset(3, 8))]
    # Below the fork point of its source it needs nothing of that.
    low = forked(third, number=4, offset=Offset(1, 3), point=ForkPoint(Offset(1, 3)))
    assert segments(low) == [Segment(1, Offset(1, 3))]
    assert segments(forked(third, number=5, offset=Offset(2, 5))) == [Segment(1, Offset(2, 5))]
    assert segments(forked(third, number=6, offset=START)) == []
    # A source that stores nothing of its own is not mentioned.
    bare = forked(forked(source, number=7), number=8)
    assert segments(bare) == [Segment(1, Offset(2, 5))]


def test_segments_are_found_by_their_bytes() -> None:
    many = [Segment(number, Offset(number, 10 * number)) for number in range(1, 1001)]
    origin = ForkOrigin(KEY, 1000, many[-1].end, 0, many[-1].end, None, pack_segments(many))
    assert list(origin.segments()) == many
    for byte in (0, 1, 9, 10, 11, 4999, 5000, 9999, 10_000):
        assert list(origin.segments(byte)) == [item for item in many if item.end.byte > byte]
    cut = origin.inherited_until(Offset(2, 20), Offset(5, 50))
    assert cut == pack_segments(many[2:5])
    # A boundary inside of a segment.
    cut = origin.inherited_until(Offset(2, 20), Offset(4, 44))
    assert cut == pack_segments([*many[2:4], Segment(5, Offset(4, 44))])

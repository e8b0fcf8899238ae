"""X§2.2: what decides whether a snapshot becomes the visible one, and what it changes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tailrace.protocol.errors import OffsetGone, SnapshotBeyondTail, SnapshotConflict
from tailrace.protocol.machine import Effect, Verdict, apply, decide
from tailrace.protocol.offset import START, Offset
from tailrace.protocol.producer import ProducerHeaders
from tailrace.protocol.state import (
    Append,
    Delete,
    DeleteRecord,
    Expire,
    Publish,
    PublishRecord,
    Record,
    SnapshotInfo,
    StreamState,
    Touch,
)
from tests.protocol.model import JSON, TEXT
from tests.protocol.streams import (
    NOW_MS,
    appended,
    closed_stream,
    code,
    json_stream,
    run,
    text_stream,
)

LATER_MS = NOW_MS + 5000


def snapshot(at: Offset, content: bytes = b"state", number: int = 90) -> SnapshotInfo:
    """A snapshot as its upload leaves it: when it was published is not known yet."""
    return SnapshotInfo(
        offset=at, id=number, size=len(content), content_type=TEXT, digest=content, inline=True
    )


def publish(at: Offset, content: bytes = b"state", *, number: int = 90, of: int = 1) -> Publish:
    return Publish(of, snapshot(at, content, number), content)


@pytest.fixture
def stream() -> StreamState:
    """Three messages: boundaries at 0, 3, 5 and 6 bytes."""
    state = text_stream()
    for body in (b"abc", b"de", b"f"):
        state = appended(state, body)
    return state


BOUNDARIES = [START, Offset(1, 3), Offset(2, 5), Offset(3, 6)]


@pytest.mark.parametrize("at", BOUNDARIES)
def test_publishing_makes_it_visible_and_the_earliest_retained_offset(
    stream: StreamState, at: Offset
) -> None:
    effect, after = run(stream, publish(at), LATER_MS)
    assert effect is Effect.PUBLISHED
    assert after.snapshot == replace(snapshot(at), time=LATER_MS)
    assert after.earliest == at
    assert after.touched_at == LATER_MS


def test_publishing_changes_nothing_else() -> None:
    """Tail, closure, producers, Stream-Seq and the moment of the last write are as they were."""
    claim = ProducerHeaders("p", 0, 0)
    stream = appended(text_stream(ttl_s=60), b"abc", claim=claim, seq="7", closes=True)
    _, after = run(stream, publish(stream.tail), LATER_MS)
    unchanged = replace(
        after, snapshot=None, earliest=stream.earliest, touched_at=stream.touched_at
    )
    assert unchanged == stream


def test_the_record_has_the_bytes_of_an_inline_snapshot(stream: StreamState) -> None:
    verdict = decide(stream, publish(Offset(1, 3), b"bytes"), NOW_MS)
    assert isinstance(verdict.record, PublishRecord)
    assert verdict.record.content == b"bytes"
    elsewhere = replace(publish(Offset(1, 3)), content=None)
    verdict = decide(stream, elsewhere, NOW_MS)
    assert isinstance(verdict.record, PublishRecord)
    assert verdict.record.content is None


def test_a_stream_that_does_not_exist_is_404() -> None:
    assert code(None, publish(START)) == (404, "stream-not-found")


def test_another_stream_of_the_same_name_is_404(stream: StreamState) -> None:
    """The upload was of a stream that is gone, whatever this one's offsets look like."""
    assert code(stream, publish(Offset(1, 3), of=2)) == (404, "stream-not-found")


@pytest.mark.parametrize("at", [Offset(3, 7), Offset(4, 6), Offset(4, 7), Offset(9, 99)])
def test_past_the_tail_is_409(stream: StreamState, at: Offset) -> None:
    with pytest.raises(SnapshotBeyondTail) as caught:
        decide(stream, publish(at), NOW_MS)
    assert caught.value.status == 409
    assert (caught.value.token, caught.value.tail) == (at.token(), Offset(3, 6).token())


@pytest.mark.parametrize("at", [START, Offset(1, 3)])
def test_before_the_earliest_retained_offset_is_410(stream: StreamState, at: Offset) -> None:
    _, after = run(stream, publish(Offset(2, 5)))
    with pytest.raises(OffsetGone) as caught:
        decide(after, publish(at), NOW_MS)
    assert caught.value.status == 410
    assert (caught.value.token, caught.value.earliest) == (at.token(), Offset(2, 5).token())


def test_the_same_again_is_a_success_that_changes_nothing(stream: StreamState) -> None:
    """The second upload has an id of its own, and a moment of its own; neither counts."""
    _, after = run(stream, publish(Offset(1, 3)))
    again = publish(Offset(1, 3), number=91)
    assert decide(after, again, LATER_MS) == Verdict(Effect.EXISTED)


@pytest.mark.parametrize(
    "other",
    [
        publish(Offset(1, 3), b"other"),
        Publish(1, replace(snapshot(Offset(1, 3)), content_type=JSON), b"state"),
        Publish(1, replace(snapshot(Offset(1, 3)), content_type="TEXT/plain"), b"state"),
        Publish(1, replace(snapshot(Offset(1, 3)), size=6), b"state"),
    ],
    ids=["bytes", "type", "spelling", "size"],
)
def test_another_one_at_the_same_offset_is_409(stream: StreamState, other: Publish) -> None:
    """Its type is returned exactly, so another spelling is another type."""
    _, after = run(stream, publish(Offset(1, 3)))
    with pytest.raises(SnapshotConflict) as caught:
        decide(after, other, NOW_MS)
    assert (caught.value.status, caught.value.token) == (409, Offset(1, 3).token())


def test_the_same_bytes_at_a_later_offset_are_a_new_snapshot(stream: StreamState) -> None:
    _, after = run(stream, publish(Offset(1, 3)))
    effect, after = run(after, publish(Offset(2, 5), number=91))
    assert effect is Effect.PUBLISHED
    assert after.snapshot is not None
    assert (after.snapshot.id, after.earliest) == (91, Offset(2, 5))


def test_the_order_of_the_checks(stream: StreamState) -> None:
    """Another stream, then the tail, then retention, then what is published there."""
    _, after = run(stream, publish(Offset(1, 3)))
    assert code(after, publish(Offset(9, 9), of=2)) == (404, "stream-not-found")
    assert code(after, publish(START, of=2)) == (404, "stream-not-found")
    assert code(after, publish(START, b"other")) == (410, "offset-gone")
    assert code(after, publish(Offset(1, 3), b"other")) == (409, "snapshot-conflict")


def test_a_closed_stream_takes_snapshots() -> None:
    stream = closed_stream()
    effect, after = run(stream, publish(stream.tail))
    assert (effect, after.closed) == (Effect.PUBLISHED, True)


def test_an_empty_stream_takes_one_at_its_start() -> None:
    """After which another one can come only at a later offset."""
    stream = json_stream()
    effect, after = run(stream, publish(START))
    assert (effect, after.earliest) == (Effect.PUBLISHED, START)
    assert after.snapshot is not None
    assert code(after, publish(START, b"other")) == (409, "snapshot-conflict")


def test_an_append_goes_on_from_the_same_tail(stream: StreamState) -> None:
    _, published = run(stream, publish(Offset(3, 6)))
    after = appended(published, b"ghi")
    assert (after.tail, after.earliest, after.snapshot) == (
        Offset(4, 9),
        Offset(3, 6),
        published.snapshot,
    )


def test_a_sliding_ttl_starts_again_with_a_publication() -> None:
    stream = appended(text_stream(ttl_s=10))
    _, after = run(stream, publish(stream.tail), LATER_MS)
    assert after.deadline(sliding=True) == LATER_MS + 10_000
    assert after.deadline(sliding=False) == NOW_MS + 10_000
    assert decide(after, Expire(sliding=True), NOW_MS + 10_000).record is None
    assert decide(after, Expire(sliding=False), NOW_MS + 10_000).effect is Effect.DELETED


def test_a_clock_that_goes_back_takes_no_life_away() -> None:
    stream = appended(text_stream(ttl_s=10))
    _, after = run(stream, publish(stream.tail), NOW_MS - 5000)
    assert after.touched_at == NOW_MS


def test_touching_and_deleting_are_as_ever(stream: StreamState) -> None:
    _, published = run(stream, publish(Offset(1, 3)))
    verdict = decide(published, Delete(), NOW_MS)
    assert verdict.record == DeleteRecord(NOW_MS)
    assert apply(published, DeleteRecord(NOW_MS)) is None
    assert decide(published, Touch(), NOW_MS).record is None


@given(
    steps=st.lists(
        st.one_of(
            st.binary(min_size=1, max_size=5),
            st.tuples(st.integers(0, 12), st.sampled_from([b"a", b"b"])),
        ),
        max_size=30,
    )
)
def test_publishing_only_moves_the_earliest_offset_forward(
    steps: list[bytes | tuple[int, bytes]],
) -> None:
    """
    Appends and publications in any order, at any boundary there ever was or may be.

    Goal: the earliest retained offset is that of the visible snapshot, never moves back and never
    passes the tail; a refusal is exactly what X§2.2 says. Then fold the records alone: the same.
    """
    state = text_stream()
    boundaries = [START]
    visible: tuple[Offset, bytes] | None = None
    records: list[Record] = []
    for step in steps:
        if isinstance(step, bytes):
            verdict = decide(state, Append(step, TEXT), NOW_MS)
            boundaries.append(Offset(len(boundaries), boundaries[-1].byte + len(step)))
        else:
            number, content = step
            beyond = number - len(boundaries) + 1
            at = boundaries[number] if beyond <= 0 else Offset(number, state.tail.byte + beyond)
            if beyond > 0:
                assert code(state, publish(at, content)) == (409, "snapshot-beyond-tail")
                continue
            if visible is not None and at < visible[0]:
                assert code(state, publish(at, content)) == (410, "offset-gone")
                continue
            if visible is not None and at == visible[0] and content != visible[1]:
                assert code(state, publish(at, content)) == (409, "snapshot-conflict")
                continue
            verdict = decide(state, publish(at, content), NOW_MS)
            assert (verdict.effect is Effect.EXISTED) == (visible == (at, content))
            visible = (at, content)
        if verdict.record is not None:
            records.append(verdict.record)
            state = applied(state, verdict.record)
        assert state.tail == boundaries[-1]
        assert state.earliest == (START if visible is None else visible[0])
        assert (state.snapshot and (state.snapshot.offset, state.snapshot.digest)) == visible
    folded = text_stream()
    for record in records:
        folded = applied(folded, record)
    assert folded == state


def applied(state: StreamState, record: Record) -> StreamState:
    after = apply(state, record)
    assert after is not None
    return after

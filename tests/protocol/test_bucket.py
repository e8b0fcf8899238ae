"""X§1.2, X§1.5: the rules of buckets, on their states alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tailrace.protocol.bucket import (
    BucketState,
    admit_stream,
    create_bucket,
    delete_bucket,
    grow,
    growth,
    stream_bytes,
)
from tailrace.protocol.errors import BucketExists, BucketNotEmpty, BucketNotFound, Refusal
from tailrace.protocol.machine import apply
from tailrace.protocol.offset import Offset
from tailrace.protocol.state import (
    AppendRecord,
    CreateRecord,
    DeleteRecord,
    PublishRecord,
    Record,
    SnapshotInfo,
    StreamState,
    TouchRecord,
)

EMPTY = BucketState(created_at=5)
FULL = BucketState(created_at=5, streams=3)


def snapshot_at(byte: int, size: int) -> SnapshotInfo:
    return SnapshotInfo(Offset(0, byte), 7, size, "a/b", b"", inline=True)


def test_a_new_bucket_is_empty_and_knows_when_it_came_to_be() -> None:
    assert create_bucket(None, 7) == BucketState(created_at=7, streams=0)


def test_a_bucket_that_exists_is_not_created_again() -> None:
    """X§1.2: 409 Conflict."""
    for state in [EMPTY, FULL]:
        with pytest.raises(BucketExists) as caught:
            create_bucket(state, 7)
        assert caught.value.status == 409


def test_an_empty_bucket_is_deleted() -> None:
    """X§1.5; one that has become empty too."""
    delete_bucket(EMPTY)
    delete_bucket(grow(grow(EMPTY, 1, 9), -1, -9))


def test_a_bucket_must_be_empty_before_deletion() -> None:
    """X§1.5: 409 Conflict, and the detail says how many are in the way."""
    for streams in [1, 2, 10**9]:
        with pytest.raises(BucketNotEmpty) as caught:
            delete_bucket(BucketState(1, streams))
        assert (caught.value.status, caught.value.streams) == (409, streams)
        assert str(streams) in caught.value.detail


def test_a_bucket_that_does_not_exist_is_not_deleted() -> None:
    """X§1.5: 404 Not Found."""
    with pytest.raises(BucketNotFound) as caught:
        delete_bucket(None)
    assert caught.value.status == 404


def test_a_stream_must_not_create_its_bucket() -> None:
    """X§1.2, X§1.6: 404 Not Found."""
    with pytest.raises(BucketNotFound) as caught:
        admit_stream(None)
    assert caught.value.status == 404
    admit_stream(EMPTY)
    admit_stream(FULL)


def test_counting_changes_nothing_but_the_counts() -> None:
    for difference, streams in [(1, 4), (-1, 2), (-3, 0), (0, 3)]:
        assert grow(FULL, difference, 8) == BucketState(created_at=5, streams=streams, bytes=8)
        assert FULL.streams == 3


@given(steps=st.lists(st.sampled_from(["create", "delete", "add", "remove"]), max_size=40))
def test_any_history_keeps_streams_and_buckets_together(steps: list[str]) -> None:
    """
    Rule 1 of the module: no stream is ever left without its bucket.

    Method: arbitrary steps, each taken only as far as it is admitted; a bucket exists whenever it
    has streams, and its count is that of a plain set.
    """
    state: BucketState | None = None
    streams: set[int] = set()
    for at, step in enumerate(steps):
        try:
            if step == "create":
                state = create_bucket(state, at)
            elif step == "delete":
                delete_bucket(state)
                state = None
            elif step == "add":
                admit_stream(state)
                assert state is not None
                streams.add(at)
                state = grow(state, 1, 0)
            elif streams:
                assert state is not None
                streams.pop()
                state = grow(state, -1, 0)
        except Refusal:
            pass
        assert len(streams) == (0 if state is None else state.streams)


RECORDS = st.one_of(
    st.builds(
        AppendRecord,
        time=st.just(3),
        payload=st.binary(min_size=1, max_size=9),
        closes=st.booleans(),
    ),
    st.just(AppendRecord(3, b"", closes=True)),
    st.just(AppendRecord(3, b"1,22,", (2, 3))),
    st.builds(
        PublishRecord, st.builds(snapshot_at, st.integers(0, 9), st.integers(0, 99)), st.none()
    ),
    st.just(TouchRecord(4)),
    st.just(DeleteRecord(5)),
    st.builds(
        CreateRecord,
        time=st.just(1),
        id=st.just(1),
        content_type=st.just("a/b"),
        content=st.one_of(
            st.none(), st.just(AppendRecord(1, b"abc")), st.just(AppendRecord(1, b"", closes=True))
        ),
    ),
)


@given(records=st.lists(RECORDS, max_size=30))
def test_the_growth_of_every_record_sums_up_to_what_is_there(records: list[Record]) -> None:
    """Rule 3: whatever the history, the sum of `growth` is what the stream retains."""
    state: StreamState | None = None
    streams = size = 0
    for record in records:
        if isinstance(record, CreateRecord) == (state is not None):
            continue
        if isinstance(record, PublishRecord):
            assert state is not None
            # At some retained offset, wherever that is by now.
            room = state.tail.byte - state.earliest.byte
            byte = state.earliest.byte + record.snapshot.offset.byte * room // 9
            offset = Offset(state.earliest.message, byte)
            record = PublishRecord(replace(record.snapshot, offset=offset), None)
        change = growth(state, record)
        before = 0 if state is None else state.tail.message
        state = apply(state, record)
        streams, size = streams + change.streams, size + change.bytes
        assert streams == (state is not None)
        assert size == (0 if state is None else stream_bytes(state))
        if state is not None:
            assert change.messages == state.tail.message - before

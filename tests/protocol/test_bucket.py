"""X§1.2, X§1.5: the rules of buckets, on their states alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.protocol.bucket import (
    BucketState,
    admit_stream,
    count_streams,
    create_bucket,
    delete_bucket,
)
from tailrace.protocol.errors import BucketExists, BucketNotEmpty, BucketNotFound, Refusal

EMPTY = BucketState(created_at=5)
FULL = BucketState(created_at=5, streams=3)


def test_a_new_bucket_is_empty_and_knows_when_it_came_to_be() -> None:
    assert create_bucket(None, 7) == BucketState(created_at=7, streams=0)


@pytest.mark.parametrize("state", [EMPTY, FULL])
def test_a_bucket_that_exists_is_not_created_again(state: BucketState) -> None:
    """X§1.2: 409 Conflict."""
    with pytest.raises(BucketExists) as caught:
        create_bucket(state, 7)
    assert caught.value.status == 409


def test_an_empty_bucket_is_deleted() -> None:
    """X§1.5; one that has become empty too."""
    delete_bucket(EMPTY)
    delete_bucket(count_streams(count_streams(EMPTY, 1), -1))


@pytest.mark.parametrize("streams", [1, 2, 10**9])
def test_a_bucket_must_be_empty_before_deletion(streams: int) -> None:
    """X§1.5: 409 Conflict, and the detail says how many are in the way."""
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


@pytest.mark.parametrize(("difference", "streams"), [(1, 4), (-1, 2), (-3, 0), (0, 3)])
def test_counting_changes_nothing_but_the_count(difference: int, streams: int) -> None:
    assert count_streams(FULL, difference) == BucketState(created_at=5, streams=streams)
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
                state = count_streams(state, 1)
            elif streams:
                assert state is not None
                streams.pop()
                state = count_streams(state, -1)
        except Refusal:
            pass
        assert len(streams) == (0 if state is None else state.streams)

"""The changes of buckets that are remembered, without an engine."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.engine.changes import Changes
from tailrace.protocol.errors import PositionGone, QueryInvalid

BUCKETS = (b"bucket", b"other", b"third")
BUCKET, OTHER, THIRD = BUCKETS


def key(name: int, bucket: bytes = BUCKET) -> bytes:
    return b"%b\0%d" % (bucket, name)


def note(changes: Changes, name: int, bucket: bytes = BUCKET) -> None:
    changes.note(bucket, key(name, bucket))


def test_each_stream_once_by_its_last_change() -> None:
    changes = Changes()
    start, elsewhere = changes.position(BUCKET), changes.position(OTHER)
    for name in (1, 2, 1, 3, 2):
        note(changes, name)
    assert [name for name, _ in changes.since(BUCKET, start)] == [key(1), key(3), key(2)]
    assert changes.since(BUCKET, changes.position(BUCKET)) == []
    assert changes.since(OTHER, elsewhere) == []


def test_reading_can_continue_at_each_change() -> None:
    changes = Changes()
    start = changes.position(BUCKET)
    for name in (1, 2, 3):
        note(changes, name)
    numbers = [number for _, number in changes.since(BUCKET, start)]
    after_first = changes.at(BUCKET, numbers[0])
    assert [name for name, _ in changes.since(BUCKET, after_first)] == [key(2), key(3)]


def test_a_text_that_is_not_a_position_is_refused() -> None:
    for position in ("", "x", "0-1", "é", "-", "0" * 16 + "-", "0" * 16 + "-x"):
        with pytest.raises(QueryInvalid):
            Changes().since(BUCKET, position)


def test_a_position_of_another_run_or_bucket_is_gone() -> None:
    changes = Changes()
    note(changes, 1)
    note(changes, 1, OTHER)
    for position in (Changes().position(BUCKET), changes.position(OTHER), "0" * 16 + "-0"):
        with pytest.raises(PositionGone):
            changes.since(BUCKET, position)


def test_a_position_that_was_never_issued_is_gone() -> None:
    changes = Changes()
    log_id, _, number = changes.position(BUCKET).partition("-")
    for wrong in (f"{log_id}-{int(number, 16) + 1:x}", f"{log_id}-{'f' * 48}"):
        with pytest.raises(PositionGone):
            changes.since(BUCKET, wrong)


def test_a_position_says_nothing_about_other_buckets() -> None:
    changes = Changes()
    idle = changes.position(BUCKET)
    for number in range(10_000):
        note(changes, number, OTHER)
    assert changes.position(BUCKET) == idle
    assert changes.since(BUCKET, idle) == []


def test_a_forgotten_bucket_starts_a_new_log() -> None:
    changes = Changes(count_max=2)
    start = changes.position(BUCKET)
    note(changes, 1)
    note(changes, 1, OTHER)
    note(changes, 2, OTHER)
    with pytest.raises(PositionGone):
        changes.since(BUCKET, start)
    again = changes.position(BUCKET)
    assert again.partition("-")[0] != start.partition("-")[0]
    assert changes.since(BUCKET, again) == []


NOTES = st.lists(st.tuples(st.sampled_from(BUCKETS), st.integers(0, 8)))


@given(notes=NOTES, count_max=st.integers(1, 30))
def test_the_changes_since_a_position_are_complete_or_refused(
    notes: list[tuple[bytes, int]], count_max: int
) -> None:
    """With any limit of memory: never a part of the changes, and never more than the limit."""
    changes = Changes(count_max)
    log: list[bytes] = []
    positions = [{bucket: changes.position(bucket) for bucket in BUCKETS}]
    for bucket, name in notes:
        note(changes, name, bucket)
        log.append(key(name, bucket))
        positions.append({bucket: changes.position(bucket) for bucket in BUCKETS})
        held = sum(len(item.numbers) + 1 for item in changes._buckets.values())
        assert held == changes._count <= count_max
    for at, issued in enumerate(positions):
        for bucket in BUCKETS:
            mine = [item for item in log[at:] if item.startswith(bucket + b"\0")]
            by_last = sorted(set(mine), key=lambda item: len(mine) - mine[::-1].index(item))
            try:
                found = changes.since(bucket, issued[bucket])
            except PositionGone:
                assert len(set(log)) + len(BUCKETS) > count_max, "there was room for all"
            else:
                assert [name for name, _ in found] == by_last

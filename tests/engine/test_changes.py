"""What is remembered of changes, without an engine."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.engine.changes import Changes
from tailrace.protocol.errors import PositionGone, QueryInvalid

BUCKET = b"bucket"
OTHER = b"other"


def key(name: int, bucket: bytes = BUCKET) -> bytes:
    return b"%b\0%d" % (bucket, name)


def test_each_stream_once_by_its_last_change() -> None:
    changes = Changes()
    start = changes.position
    for name in (1, 2, 1, 3, 2):
        changes.note(key(name))
    assert [name for name, _ in changes.since(BUCKET, start)] == [key(1), key(3), key(2)]
    assert changes.since(BUCKET, changes.position) == []
    assert changes.since(OTHER, start) == []


def test_streams_without_a_bucket_are_not_remembered() -> None:
    changes = Changes(count_max=1)
    start = changes.position
    for number in range(9):
        changes.note(b"\0path%d" % number)
        changes.note(b"name%d" % number)
    assert changes.since(BUCKET, start) == []


@pytest.mark.parametrize("position", ["", "x", "0-1", "é", "-", "0" * 16 + "-", "0" * 16 + "-x"])
def test_what_is_no_position_is_refused(position: str) -> None:
    with pytest.raises(QueryInvalid):
        Changes().since(BUCKET, position)


def test_a_position_of_another_run_is_gone() -> None:
    with pytest.raises(PositionGone):
        Changes().since(BUCKET, Changes().position)


def test_a_position_from_the_future_is_gone() -> None:
    changes = Changes()
    with pytest.raises(PositionGone):
        changes.since(BUCKET, changes.at(1))


def test_a_position_tells_nothing_of_how_much_is_written() -> None:
    """Not by its digits, not by its length, and not by being another one or the same."""
    changes = Changes()
    idle = [changes.position for _ in range(100)]
    for number in range(10_000):
        changes.note(key(number, OTHER))
    busy = [changes.position for _ in range(100)]
    assert len({*idle, *busy}) == 200
    assert len({len(position) for position in (*idle, *busy)}) == 1
    # No byte of them is that of a counter: in each place there are many values, before and after.
    for texts in (idle, busy):
        sealed = [bytes.fromhex(text.partition("-")[2]) for text in texts]
        assert all(len(set(values)) > 30 for values in zip(*sealed, strict=True))


def test_a_position_that_was_tampered_with_is_gone() -> None:
    """Whoever could try numbers near a known one would find out where the count is."""
    changes = Changes()
    changes.note(key(1))
    run, _, sealed = changes.position.partition("-")
    for at in range(len(sealed)):
        digit = f"{int(sealed[at], 16) ^ 1:x}"
        with pytest.raises(PositionGone):
            changes.since(BUCKET, f"{run}-{sealed[:at]}{digit}{sealed[at + 1 :]}")
    for other in (sealed[:-1], sealed[:-2], "0", "1", "0" * len(sealed)):
        with pytest.raises(PositionGone):
            changes.since(BUCKET, f"{run}-{other}")


def test_a_forgotten_bucket_leaves_its_floor() -> None:
    changes = Changes(count_max=1)
    start = changes.position
    changes.note(key(1))
    changes.note(key(1, OTHER))
    assert changes.since(OTHER, start) == [(key(1, OTHER), 2)]
    for bucket in (BUCKET, b"third"):
        with pytest.raises(PositionGone):
            changes.since(bucket, start)
        assert changes.since(bucket, changes.position) == []


NOTES = st.lists(st.tuples(st.sampled_from((BUCKET, OTHER, b"third")), st.integers(0, 8)))


@given(notes=NOTES, count_max=st.integers(1, 30))
def test_what_is_told_is_complete_or_refused(
    notes: list[tuple[bytes, int]], count_max: int
) -> None:
    """However little is remembered: never a part of what changed, and never more than allowed."""
    changes = Changes(count_max)
    log: list[bytes] = []
    positions = [changes.position]
    for bucket, name in notes:
        changes.note(key(name, bucket))
        log.append(key(name, bucket))
        positions.append(changes.position)
        assert sum(len(item.numbers) for item in changes._buckets.values()) <= count_max
    for at, position in enumerate(positions):
        for bucket in (BUCKET, OTHER, b"third"):
            mine = [item for item in log[at:] if item.startswith(bucket + b"\0")]
            by_last = sorted(set(mine), key=lambda item: len(mine) - mine[::-1].index(item))
            try:
                found = changes.since(bucket, position)
            except PositionGone:
                assert len(set(log)) > count_max, "there was room for all"
            else:
                assert [name for name, _ in found] == by_last

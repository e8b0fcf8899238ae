"""Ranges of offsets: the content of a micro-batch, and its partitions."""

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.protocol.offset import Offset, parse_offset
from tailrace.spark.source.offset_ranges import OffsetRange, admit, assign, split_points


def token(message: int, byte: int) -> str:
    return Offset(message, byte).token()


@st.composite
def ranges(draw: st.DrawFn, count_max: int = 5000) -> list[OffsetRange]:
    found = []
    for number in range(draw(st.integers(1, 12))):
        first = draw(st.integers(0, 1000))
        count = draw(st.integers(1, count_max))
        size = draw(st.integers(1, 300))
        found.append(
            OffsetRange(
                f"s{number}",
                token(first, first * size),
                token(first + count, (first + count) * size),
            )
        )
    return found


@settings(deadline=None)
@given(ranges(), st.integers(1, 20_000))
def test_the_message_limit_is_kept_and_there_is_always_progress(
    found: list[OffsetRange], limit: int
) -> None:
    whole, partial = admit(found, limit, None)
    taken = sum(each.messages for each in whole) + sum(part.messages for part in partial)
    assert taken == min(limit, sum(each.messages for each in found))
    assert all(0 < part.messages < part.whole.messages for part in partial)


@settings(deadline=None)
@given(ranges(), st.integers(1, 500_000))
def test_the_byte_limit_is_kept_and_there_is_always_progress(
    found: list[OffsetRange], limit: int
) -> None:
    whole, partial = admit(found, None, limit)
    taken: float = sum(each.bytes for each in whole)
    taken += sum(part.messages * part.whole.bytes / part.whole.messages for part in partial)
    assert taken > 0
    assert taken <= limit or len(whole) + len(partial) == 1


@settings(deadline=None)
@given(ranges(40), st.integers(3, 200))
def test_every_stream_is_read_after_enough_batches(found: list[OffsetRange], limit: int) -> None:
    """No stream starves: by the largest remainder, each is read to its end after enough batches."""
    left = {each.stream: each for each in found}
    total = sum(each.messages for each in found)
    for _ in range(total // limit + 1):
        whole, partial = admit(list(left.values()), limit, None)
        for each in whole:
            del left[each.stream]
        for part in partial:
            start = part.whole.first_message + part.messages
            size = part.whole.bytes // part.whole.messages
            left[part.whole.stream] = OffsetRange(
                part.whole.stream, token(start, start * size), part.whole.end
            )
        if not left:
            break
    assert not left


def boundaries_of(found: Sequence[OffsetRange], target: int, count: int) -> dict[int, list[str]]:
    """A server's response: the last message boundary at or before each byte."""
    boundaries = {}
    for index, points in split_points(found, target, count).items():
        size = found[index].bytes // found[index].messages
        boundaries[index] = [token(point // size, point // size * size) for point in points]
    return boundaries


@settings(deadline=None)
@given(ranges(400), st.integers(500, 200_000), st.integers(1, 40))
def test_partitions_hold_every_message_once_and_in_order(
    found: list[OffsetRange], target: int, count: int
) -> None:
    boundaries = boundaries_of(found, target, count)
    tasks = assign(found, target, count, boundaries)
    assert all(tasks)
    for each in found:
        pieces = [piece for task in tasks for piece in task if piece.stream == each.stream]
        assert pieces[0].start == each.start and pieces[-1].end == each.end
        for one, next_one in pairwise(pieces):
            assert one.end == next_one.start
        assert all(parse_offset(piece.start) < parse_offset(piece.end) for piece in pieces)


def test_many_small_streams_share_few_partitions_and_a_large_one_is_split() -> None:
    small = [OffsetRange(f"s{n:05}", token(0, 0), token(10, 2000)) for n in range(10_000)]
    assert len(assign(small, 32 << 20, 1, {})) <= 3
    large = [OffsetRange("large", token(0, 0), token(4_000_000, 920_000_000))]
    boundaries = boundaries_of(large, 32 << 20, 1)
    tasks = assign(large, 32 << 20, 1, boundaries)
    assert 20 <= len(tasks) <= 40
    sizes = [sum(piece.bytes for piece in task) for task in tasks]
    assert max(sizes) < 2 * min(sizes)


def test_the_number_of_partitions_of_one_stream() -> None:
    ranges = [OffsetRange("one", token(0, 0), token(100, 10_000))]
    boundaries = boundaries_of(ranges, 32 << 20, 8)
    assert len(assign(ranges, 32 << 20, 8, boundaries)) == 8


def test_a_small_stream_does_not_wait_for_a_large_one() -> None:
    large = OffsetRange("large", token(0, 0), token(1_000_000, 100_000_000))
    small = OffsetRange("small", token(0, 0), token(5, 500))
    for limits in ((1000, None), (None, 1_000_000)):
        whole, partial = admit([large, small], *limits)
        assert "small" in {each.stream for each in whole} | {part.whole.stream for part in partial}


def test_the_smallest_number_of_partitions_is_kept() -> None:
    for streams, wanted in ((2, 3), (3, 4), (5, 7), (10, 12), (1, 16)):
        ranges = [
            OffsetRange(f"s{n}", token(0, 0), token(100_000, 10_000_000)) for n in range(streams)
        ]
        boundaries = boundaries_of(ranges, 128 << 20, wanted)
        tasks = assign(ranges, 128 << 20, wanted, boundaries)
        assert len(tasks) >= wanted

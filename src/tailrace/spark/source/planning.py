"""
The driver's part of a read: from read positions to partitions.

Rule 1: the partitions of a batch are a function of its read positions and of history, which does
not change. They are the same whenever they are planned.

Rule 2: missing data is detected and obeys `failOnDataLoss`: a stream that does not exist any more,
one that was replaced, and (while reading) messages that a snapshot covers.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pyspark.sql.datasource import InputPartition

from tailrace.client import NotFound, Place, Refused
from tailrace.protocol.offset import START
from tailrace.spark.options import LATEST, OptionInvalid, ReadOptions
from tailrace.spark.source.catalog import BEGINNING, Catalog, StreamInfo
from tailrace.spark.source.errors import DataLost, StreamGone, StreamReplaced, report_loss
from tailrace.spark.source.offset_ranges import (
    OffsetRange,
    PartialRange,
    admit,
    assign,
    split_points,
)
from tailrace.spark.source.read_positions import ReadPosition, ReadPositions, parse_position

__all__ = ["Planner", "SourcePartition"]

_START: Final = START.token()


class SourcePartition(InputPartition):
    """The ranges that one task reads."""

    def __init__(self, ranges: tuple[OffsetRange, ...], is_tailrace: bool) -> None:
        super().__init__(None)
        self.ranges = ranges
        self.is_tailrace = is_tailrace


class Planner:
    """Plans the reads of one query from the catalog of its streams."""

    def __init__(self, catalog: Catalog, options: ReadOptions) -> None:
        self.catalog = catalog
        self._options = options
        # Another server's offsets do not count messages, and it cannot find them by time.
        for name, value in (
            ("maxMessagesPerTrigger", options.max_messages),
            ("maxBytesPerTrigger", options.max_bytes),
            ("startingTimestamp", options.starting_ms),
            ("endingTimestamp", options.ending_ms),
            ("bootstrap", options.bootstrap or None),
        ):
            if value is not None and not catalog.is_tailrace:
                raise OptionInvalid(name, "needs a Tailrace server")

    def check_found(self) -> None:
        """Streams that are named one by one must exist when a query starts."""
        for name in self._options.names:
            if name not in self.catalog.streams:
                raise OptionInvalid("stream", f"names {name!r}, which does not exist: create it")

    @property
    def _beginning(self) -> str:
        return BEGINNING if self._options.bootstrap or not self.catalog.is_tailrace else _START

    # -- the first and last offsets of a read ---------------------------------------------------

    def starts(self) -> dict[str, str]:
        """The first offset of each stream, by `startingOffsets` or `startingTimestamp`."""
        options, streams = self._options, self.catalog.streams
        if options.starting_ms is not None:
            return self._at_time(options.starting_ms)
        if options.starting == LATEST:
            return {name: info.tail for name, info in streams.items()}
        given = self._given("startingOffsets", options.starting)
        return {
            name: self._named(given[name], info) if name in given else self._earliest(info)
            for name, info in streams.items()
        }

    def ends(self) -> dict[str, str]:
        """The end of each stream, by `endingOffsets` or `endingTimestamp`."""
        options, streams = self._options, self.catalog.streams
        if options.ending_ms is not None:
            return self._at_time(options.ending_ms)
        given = self._given("endingOffsets", options.ending)
        return {
            name: self._named(given[name], info) if name in given else info.tail
            for name, info in streams.items()
        }

    def _given(self, option: str, offsets: str | Mapping[str, str]) -> Mapping[str, str]:
        """The offsets by stream. An unknown name is an error: it may be misspelt."""
        given = {} if isinstance(offsets, str) else offsets
        for name in given:
            if name not in self.catalog.streams:
                raise OptionInvalid(option, f"names {name!r}, which is not among the streams")
        return given

    def _earliest(self, info: StreamInfo) -> str:
        return BEGINNING if self._options.bootstrap else info.earliest

    def _named(self, given: str, info: StreamInfo) -> str:
        """An offset as the user wrote it: a token, -1, `earliest` or `latest`."""
        if given == LATEST:
            return info.tail
        return self._earliest(info) if given in (BEGINNING, "earliest") else given

    def _at_time(self, time_ms: int) -> dict[str, str]:
        names = list(self.catalog.streams)
        places = [Place(self.catalog.name(name), time_ms=time_ms) for name in names]
        found = {}
        for name, offset in zip(names, self.catalog.client.offsets(places), strict=True):
            if isinstance(offset, Refused):
                raise offset
            found[name] = offset
        return found

    def first_positions(self) -> ReadPositions:
        """The positions of a new streaming query."""
        return {name: self._position(name, start) for name, start in self.starts().items()}

    def _position(self, name: str, offset: str) -> str:
        info = self.catalog.streams[name]
        done = info.closed and offset == info.tail
        return ReadPosition(offset, info.created_ms, done).text()

    # -- the next micro-batch --------------------------------------------------------------------

    def unread(
        self, positions: ReadPositions, names: Iterable[str]
    ) -> tuple[list[OffsetRange], ReadPositions]:
        """The unread ranges of some streams, and the positions without missing streams."""
        ranges, kept = [], dict(positions)
        for name in sorted(names):
            info = self.catalog.streams.get(name)
            text = positions.get(name)
            position = None if text is None else parse_position(text)
            if info is None:
                if position is not None:
                    self._report(StreamGone(name, position.offset), done=position.done)
                    del kept[name]
                continue
            start = self._beginning
            if position is not None:
                if self._is_same(position, info):
                    start = position.offset
                else:
                    self._report(StreamReplaced(name, position.offset), done=position.done)
                    del kept[name]
            if start == info.tail:
                kept[name] = self._position(name, start)
            else:
                ranges.append(self._range(name, start, info.tail))
                kept.setdefault(name, self._position(name, start))
        return ranges, kept

    def _report(self, lost: DataLost, *, done: bool = False) -> None:
        """Report missing data, unless it was all read."""
        if not done:
            report_loss(self._options, lost)

    def _is_same(self, position: ReadPosition, info: StreamInfo) -> bool:
        # Offsets sort as text (§6).
        is_within = position.offset == BEGINNING or position.offset <= info.tail
        return is_within and not _differ(position.created_ms, info.created_ms)

    def _range(self, name: str, start: str, end: str) -> OffsetRange:
        bootstrap = self._options.bootstrap and start == BEGINNING
        return OffsetRange(name, start, end, self.catalog.is_tailrace, bootstrap)

    def advance(
        self, positions: ReadPositions, ranges: Sequence[OffsetRange], *, limited: bool
    ) -> ReadPositions:
        """The positions at the end of a micro-batch that reads the ranges within the limits."""
        whole, partial = list(ranges), list[PartialRange]()
        if limited:
            whole, partial = admit(ranges, self._options.max_messages, self._options.max_bytes)
        end = dict(positions)
        for each in whole:
            end[each.stream] = self._position(each.stream, each.end)
        places = [
            Place(
                self.catalog.name(part.whole.stream),
                message=part.whole.first_message + part.messages,
            )
            for part in partial
        ]
        for part, offset in zip(partial, self.catalog.client.offsets(places), strict=True):
            name = part.whole.stream
            if isinstance(offset, NotFound):
                # It was deleted since the catalog was refreshed.
                done = parse_position(positions[name]).done
                self._report(StreamGone(name, part.whole.start), done=done)
                del end[name]
            elif isinstance(offset, Refused):
                raise offset
            else:
                end[name] = self._position(name, offset)
        return end

    def check_same(self, end: ReadPositions, ranges: Sequence[OffsetRange]) -> None:
        """Check that the streams of a batch that is planned again are still the same."""
        for each in ranges:
            info = self.catalog.streams.get(each.stream)
            if info is None:
                self._report(StreamGone(each.stream, each.start))
            elif not self._is_same(parse_position(end[each.stream]), info):
                self._report(StreamReplaced(each.stream, each.start))

    def remaining(self, ranges: Sequence[OffsetRange], end: ReadPositions) -> list[OffsetRange]:
        """The parts of ranges beyond the end of a micro-batch."""
        rests = [
            self._range(each.stream, parse_position(end[each.stream]).offset, each.end)
            for each in ranges
            if each.stream in end
        ]
        return [rest for rest in rests if rest.start != rest.end]

    # -- partitions --------------------------------------------------------------------------

    def between(self, start: ReadPositions, end: ReadPositions) -> list[OffsetRange]:
        """The ranges between the positions before and after a batch; a pure function."""
        ranges = []
        for name, text in end.items():
            before = start.get(name)
            if before == text:
                continue
            last = parse_position(text)
            first = ReadPosition(self._beginning) if before is None else parse_position(before)
            if _differ(first.created_ms, last.created_ms) or first.offset > last.offset:
                # Another stream of this name. (`-1` sorts before all tokens.)
                first = ReadPosition(self._beginning)
            if first.offset != last.offset:
                ranges.append(self._range(name, first.offset, last.offset))
        return ranges

    def ranges(self, starts: dict[str, str], ends: dict[str, str]) -> list[OffsetRange]:
        """The ranges of a batch read that are not empty."""
        return [
            self._range(name, starts[name], ends[name])
            for name in sorted(starts)
            if starts[name] != ends[name]
            and (starts[name] == BEGINNING or starts[name] < ends[name])
        ]

    def partitions(self, ranges: Sequence[OffsetRange]) -> list[SourcePartition]:
        """Ranges as few partitions of about the same size."""
        target, count_min = self._options.partition_bytes, self._options.min_partitions or 1
        points = split_points(ranges, target, count_min)
        places = [
            Place(self.catalog.name(ranges[index].stream), byte=byte)
            for index, bytes_ in points.items()
            for byte in bytes_
        ]
        offsets = self.catalog.client.offsets(places) if places else []
        # A missing stream is not split; its reader reports it.
        found = iter([BEGINNING if isinstance(each, Refused) else each for each in offsets])
        boundaries = {index: [next(found) for _ in bytes_] for index, bytes_ in points.items()}
        tasks = assign(ranges, target, count_min, boundaries)
        return [SourcePartition(task, self.catalog.is_tailrace) for task in tasks]


def _differ(one: int | None, other: int | None) -> bool:
    """Whether two creation times are known and differ."""
    return one is not None and other is not None and one != other

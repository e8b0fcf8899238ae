"""
From marks to partitions: what the driver decides of a read.

Rule 1: `partitions` of the same marks are the same partitions, whenever it is asked. It looks at
nothing but the marks and at history, which does not change.

Rule 2: what is gone is noticed, and obeys `failOnDataLoss`: a stream that is not there any more,
one that was replaced, and (while reading) messages that a snapshot covers.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pyspark.sql.datasource import InputPartition

from tailrace.client import NotFound, Place, Refused
from tailrace.protocol.offset import START
from tailrace.spark.options import LATEST, OptionInvalid, ReadOptions
from tailrace.spark.source.catalog import BEGINNING, Catalog, Seen, resolve
from tailrace.spark.source.errors import DataLost, StreamGone, StreamReplaced
from tailrace.spark.source.offset_ranges import Cut, Span, admit, assign, split_points
from tailrace.spark.source.read_positions import Mark, Marks, parse_mark

__all__ = ["Partition", "Planner"]

_START: Final = START.token()


class Partition(InputPartition):
    """What one task reads."""

    def __init__(self, spans: tuple[Span, ...], ours: bool) -> None:
        super().__init__(None)
        self.spans = spans
        self.ours = ours


class Planner:
    """Plans of one query, over a catalog of its streams."""

    def __init__(self, catalog: Catalog, options: ReadOptions) -> None:
        self.catalog = catalog
        self._options = options
        if not catalog.ours:
            self._check_others()

    def _check_others(self) -> None:
        """Another server's offsets do not count messages, and it cannot find them by time."""
        options = self._options
        for name, value in (
            ("maxMessagesPerTrigger", options.max_messages),
            ("maxBytesPerTrigger", options.max_bytes),
            ("startingTimestamp", options.starting_ms),
            ("endingTimestamp", options.ending_ms),
            ("bootstrap", options.bootstrap or None),
        ):
            if value is not None:
                raise OptionInvalid(name, "needs a Tailrace server")

    def check_found(self) -> None:
        """Streams that are named one by one must be there when a query starts."""
        for name in self._options.names:
            if name not in self.catalog.seen:
                raise OptionInvalid(
                    "stream", f"names {name!r}, which is not there: create it first"
                )

    @property
    def _beginning(self) -> str:
        return BEGINNING if self._options.bootstrap or not self.catalog.ours else _START

    # -- where a read starts and ends -----------------------------------------------------------

    def starts(self) -> dict[str, str]:
        """Where each stream that is there starts, by `startingOffsets` and the like."""
        options, seen = self._options, self.catalog.seen
        if options.starting_ms is not None:
            return self._at_time(options.starting_ms)
        if options.starting == LATEST:
            return {name: item.tail for name, item in seen.items()}
        given = self._given("startingOffsets", options.starting)
        return {
            name: self._named(given[name], item) if name in given else self._earliest(item)
            for name, item in seen.items()
        }

    def ends(self) -> dict[str, str]:
        """Where each stream ends, by `endingOffsets` and the like."""
        options, seen = self._options, self.catalog.seen
        if options.ending_ms is not None:
            return self._at_time(options.ending_ms)
        given = self._given("endingOffsets", options.ending)
        return {
            name: self._named(given[name], item) if name in given else item.tail
            for name, item in seen.items()
        }

    def _given(self, option: str, offsets: str | Mapping[str, str]) -> Mapping[str, str]:
        """The offsets by name; a name that is misspelt would be read from elsewhere."""
        given = {} if isinstance(offsets, str) else offsets
        for name in given:
            if name not in self.catalog.seen:
                raise OptionInvalid(option, f"names {name!r}, which is not among the streams")
        return given

    def _earliest(self, item: Seen) -> str:
        return BEGINNING if self._options.bootstrap else item.earliest

    def _named(self, given: str, item: Seen) -> str:
        """An offset as the user wrote it: a token, -1, or a word."""
        if given == LATEST:
            return item.tail
        return self._earliest(item) if given in (BEGINNING, "earliest") else given

    def _at_time(self, time_ms: int) -> dict[str, str]:
        names = list(self.catalog.seen)
        places = [Place(self.catalog.name(name), time_ms=time_ms) for name in names]
        return dict(zip(names, resolve(self.catalog.client, places), strict=True))

    def first_marks(self) -> Marks:
        """Where a new streaming query stands."""
        starts = self.starts()
        return {name: self._mark(name, start) for name, start in starts.items()}

    def _mark(self, name: str, offset: str) -> str:
        seen = self.catalog.seen[name]
        done = seen.closed and offset == seen.tail
        return Mark(offset, seen.created_ms, done).text()

    # -- the next micro-batch --------------------------------------------------------------------

    def behind(self, marks: Marks, names: Iterable[str]) -> tuple[list[Span], Marks]:
        """What can be read of some streams, and the marks without those that are gone."""
        spans, kept = [], dict(marks)
        for name in sorted(names):
            seen = self.catalog.seen.get(name)
            text = marks.get(name)
            if seen is None:
                if text is not None:
                    self._tell(parse_mark(text), StreamGone(name, parse_mark(text).offset))
                    del kept[name]
                continue
            start = self._beginning
            if text is not None:
                mark = parse_mark(text)
                if self._is_same(mark, seen):
                    start = mark.offset
                else:
                    self._tell(mark, StreamReplaced(name, mark.offset))
                    del kept[name]
            if start != seen.tail:
                spans.append(self._span(name, start, seen.tail))
            kept.setdefault(name, self._mark(name, start))
            if start == seen.tail:
                kept[name] = self._mark(name, start)
        return spans, kept

    def _tell(self, mark: Mark, lost: DataLost) -> None:
        if self._options.fail_on_data_loss and not mark.done:
            raise lost

    def _is_same(self, mark: Mark, seen: Seen) -> bool:
        # Offsets sort as text (§6).
        is_within = mark.offset == BEGINNING or mark.offset <= seen.tail
        return is_within and not _differ(mark.created_ms, seen.created_ms)

    def _span(self, name: str, start: str, end: str) -> Span:
        is_first = start == BEGINNING
        return Span(name, start, end, self.catalog.ours, self._options.bootstrap and is_first)

    def advance(self, marks: Marks, spans: Sequence[Span], *, limited: bool) -> Marks:
        """The marks at the end of a micro-batch that reads of spans what it may."""
        whole, cuts = list(spans), list[Cut]()
        if limited:
            whole, cuts = admit(spans, self._options.max_messages, self._options.max_bytes)
        end = dict(marks)
        for span in whole:
            end[span.stream] = self._mark(span.stream, span.end)
        places = [
            Place(self.catalog.name(cut.span.stream), message=cut.span.first_message + cut.messages)
            for cut in cuts
        ]
        for cut, offset in zip(cuts, self.catalog.client.offsets(places), strict=True):
            name = cut.span.stream
            if isinstance(offset, NotFound):
                # Gone since it was looked for.
                self._tell(parse_mark(marks[name]), StreamGone(name, cut.span.start))
                del end[name]
            elif isinstance(offset, Refused):
                raise offset
            else:
                end[name] = self._mark(name, offset)
        return end

    def check_same(self, end: Marks, spans: Sequence[Span]) -> None:
        """A micro-batch that is planned again reads the streams that it was planned for."""
        for span in spans:
            mark = parse_mark(end[span.stream])
            seen = self.catalog.seen.get(span.stream)
            if seen is None:
                self._tell(mark._replace(done=False), StreamGone(span.stream, span.start))
            elif not self._is_same(mark, seen):
                self._tell(mark._replace(done=False), StreamReplaced(span.stream, span.start))

    def left(self, spans: Sequence[Span], end: Marks) -> list[Span]:
        """What of some spans lies beyond the end of a micro-batch."""
        rests = [
            self._span(span.stream, parse_mark(end[span.stream]).offset, span.end)
            for span in spans
            if span.stream in end
        ]
        return [rest for rest in rests if rest.start != rest.end]

    # -- partitions --------------------------------------------------------------------------

    def between(self, start: Marks, end: Marks) -> list[Span]:
        """What lies between two marks of a query: a function of these alone."""
        spans = []
        for name, text in end.items():
            before = start.get(name)
            if before == text:
                continue
            last = parse_mark(text)
            first = Mark(self._beginning) if before is None else parse_mark(before)
            if _differ(first.created_ms, last.created_ms) or first.offset > last.offset:
                # Another stream of this name. (`-1` sorts before all tokens.)
                first = Mark(self._beginning)
            if first.offset != last.offset:
                spans.append(self._span(name, first.offset, last.offset))
        return spans

    def spans(self, starts: dict[str, str], ends: dict[str, str]) -> list[Span]:
        """What lies between two sets of offsets, of each stream that has any."""
        return [
            self._span(name, starts[name], ends[name])
            for name in sorted(starts)
            if starts[name] != ends[name]
            and (starts[name] == BEGINNING or starts[name] < ends[name])
        ]

    def partitions(self, spans: Sequence[Span]) -> list[Partition]:
        """Spans as tasks: few, and none much larger than another."""
        target, count_min = self._options.partition_bytes, self._options.min_partitions or 1
        points = split_points(spans, target, count_min)
        places = [
            Place(self.catalog.name(spans[index].stream), byte=byte)
            for index, bytes_ in points
            for byte in bytes_
        ]
        found = iter(self._boundaries(places))
        boundaries = {index: [next(found) for _ in bytes_] for index, bytes_ in points}
        tasks = assign(spans, target, count_min, lambda index: boundaries.get(index, ()))
        return [Partition(task, self.catalog.ours) for task in tasks]

    def _boundaries(self, places: list[Place]) -> list[str]:
        """Offsets to split at; a stream that is gone is not split, and its reader says so."""
        found = self.catalog.client.offsets(places) if places else []
        return [BEGINNING if isinstance(offset, Refused) else offset for offset in found]


def _differ(one: int | None, other: int | None) -> bool:
    """Whether two times of creation are known to be of two streams."""
    return one is not None and other is not None and one != other

"""
What one task of a fold does: read its streams one after the other, fold each, publish.

Rule 1: what is published at an offset is the fold of everything before it. It is made of the
snapshot that the plan saw and of the messages from there to the plan's tail, all of them: they are
counted. If another snapshot is there meanwhile, nothing is published: that one holds.

Rule 2: nothing here has to be done exactly once. The server takes the same snapshot twice, refuses
an older one (410) and another one at the same offset (409); so a task may be killed anywhere, run
again, or run beside its like.

Rule 3: one stream's failure does not stop the others; a server that is out of reach does.

In memory there are the state of one stream, a piece of its messages, and a few snapshots that are
on their way, from the server or to it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any

import pyarrow.compute as pc

from tailrace.client import Client, Place, Refused, Snapshot, StreamName, TailraceError
from tailrace.spark.folds import Fold, FoldSpec, MessageRefused
from tailrace.spark.jobs.fold.outcome import (
    FOLD_ERRORS,
    SnapshotForeign,
    SnapshotReplaced,
    StreamIncomplete,
    judge,
)
from tailrace.spark.jobs.fold.plan import PlanEntry
from tailrace.spark.jobs.fold.results import FOLDED, StreamFold, unfolded
from tailrace.spark.jobs.fold.snapshot_transfer import Snapshots, stream_of
from tailrace.spark.rows import Range, RangeError, read_rows

__all__ = ["FoldTask"]

Count = Callable[[int], object]
Run = tuple[int, Any]
"""The index of a stream, and some of its messages as an Arrow array."""


@dataclass(frozen=True)
class FoldTask:
    """How streams are folded; the streams come one task's share at a time."""

    spec: FoldSpec
    adopt: bool = False

    def fold_streams(
        self, client: Client, entries: Sequence[PlanEntry], count: Count = lambda messages: None
    ) -> Iterator[StreamFold]:
        """
        Fold and publish; one result for each entry, as they are done.

        Args:
            count: Told how many messages more were read, now and then.
        """
        reading = _Reading(client, entries, count)
        left = set(range(len(entries)))
        with Snapshots(client, entries) as snapshots:
            for index, runs in groupby(reading.runs(), itemgetter(0)):
                entry = entries[index]
                try:
                    data = self._state(entry, partial(snapshots.fetch, index), runs)
                except StreamIncomplete:
                    # Why is told later: what cut it off comes after the messages of other streams.
                    continue
                except FOLD_ERRORS as error:
                    yield _ended(client, entry, error)
                else:
                    publish = partial(self._publish, client, entry, data)
                    yield from snapshots.publish(publish, len(data))
                left.discard(index)
            yield from snapshots.finish()
        for index in sorted(left):
            yield _ended(client, entries[index], reading.error(index))

    def _state(
        self, entry: PlanEntry, fetch: Callable[[], Snapshot | None], runs: Iterable[Run]
    ) -> bytes:
        """
        The state of a stream after the messages of the plan.

        Raises:
            FOLD_ERRORS: There is none.
        """
        fold = self.spec.new(entry.content_type)
        fold.start(self._begin(entry, fetch()))
        messages = 0
        for _, values in runs:
            messages += _take(fold, values, messages)
        if messages != entry.messages:
            raise StreamIncomplete(entry.messages, messages)
        return fold.finish()

    def _begin(self, entry: PlanEntry, found: Snapshot | None) -> bytes | None:
        """Rule 1: the state of the snapshot that the plan saw, and which never changes."""
        if found is None:
            return None
        if found.offset != entry.start:
            raise SnapshotReplaced(entry.start, found.offset)
        if not self.adopt and not self.spec.made(found.content_type, entry.content_type):
            wanted = self.spec.snapshot_type(entry.content_type)
            raise SnapshotForeign(found.content_type, wanted)
        return found.data

    def _publish(self, client: Client, entry: PlanEntry, data: bytes) -> StreamFold:
        kind = self.spec.snapshot_type(entry.content_type)
        try:
            stream_of(client, entry).publish_snapshot(data, entry.until, kind)
        except TailraceError as error:
            return _ended(client, entry, error)
        return StreamFold(
            bucket=entry.bucket,
            stream=entry.stream,
            outcome=FOLDED,
            messages=entry.messages,
            bytes_before=entry.bytes_before,
            bytes_after=len(data),
            offset=entry.until,
        )


class _Reading:
    """The messages of all streams of a share, and why some did not come."""

    def __init__(self, client: Client, entries: Sequence[PlanEntry], count: Count) -> None:
        self._client = client
        self._entries = entries
        self._count = count
        self._errors: dict[int, Exception] = {}
        self._failure: Exception | None = None

    def runs(self) -> Iterator[Run]:
        """Messages, stream by stream in the order of the entries."""
        ranges = [Range(_name(entry), entry.start, entry.until) for entry in self._entries]
        try:
            for found in read_rows(self._client, ranges, ("range", "value")):
                if isinstance(found, RangeError):
                    name = str(ranges[found.index].name)
                    refused = Refused(found.status, name, found.code, found.detail)
                    self._errors[found.index] = refused
                else:
                    yield from _cut(found)
                    self._count(found.num_rows)
        except TailraceError as error:
            # Rule 3.
            self._failure = error

    def error(self, index: int) -> Exception:
        """Why a stream did not come whole."""
        found = self._errors.get(index, self._failure)
        return found or StreamIncomplete(self._entries[index].messages, 0)


def _cut(batch: Any) -> Iterator[Run]:
    """A record batch by its streams."""
    indexes, values = batch.column("range"), batch.column("value")
    changes = pc.not_equal(indexes.slice(1), indexes.slice(0, max(0, len(indexes) - 1)))
    begins = [0, *(at + 1 for at in pc.indices_nonzero(changes).to_pylist()), len(indexes)]
    for begin, end in pairwise(begins):
        if begin < end:
            yield indexes[begin].as_py(), values.slice(begin, end - begin)


def _take(fold: Fold, values: Any, before: int) -> int:
    """Fold some messages, before which there were others; returns how many."""
    taken: list[bytes] = values.to_pylist()
    try:
        fold.take(taken)
    except MessageRefused as refused:
        raise MessageRefused(before + refused.index, refused.reason) from refused
    return len(taken)


def _ended(client: Client, entry: PlanEntry, error: Exception) -> StreamFold:
    """The result of a stream that was not folded."""
    outcome, code, text = judge(error)
    offset = None
    if isinstance(error, MessageRefused):
        offset = _offset(client, entry, error.index)
    return unfolded(entry, outcome, code, text, offset)


def _offset(client: Client, entry: PlanEntry, index: int) -> str | None:
    """Where a message is, if that can be told: it does not matter enough to fail for."""
    place = Place(_name(entry), message=entry.first_message + index)
    with suppress(TailraceError):
        (found,) = client.offsets([place])
        return found if isinstance(found, str) else None
    return None


def _name(entry: PlanEntry) -> StreamName:
    return StreamName(entry.bucket, entry.stream)

"""
One task of a fold: reads its streams one after another, folds each, and publishes its state.

Rule 1: the snapshot published at an offset is the fold of all messages before it. It is made from
the snapshot in the plan and all messages from there to the planned tail, which are counted. If the
stream has another snapshot by now, nothing is published.

Rule 2: no step needs to be done exactly once. The server accepts the same snapshot twice, and
refuses an older one (410) and another one at the same offset (409). So a task may be killed at any
time, repeated, or run twice at once.

Rule 3: the failure of one stream does not stop the others; an unreachable server does.

Memory holds the state of one stream, some of its messages, and a few snapshots in transfer.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any

import pyarrow.compute as pc

from tailrace.client import Client, Place, Refused, Snapshot, StreamName, TailraceError
from tailrace.spark.connection import stream_of
from tailrace.spark.folds import Fold, FoldSpec, MessageRefused
from tailrace.spark.jobs.fold.plan import PlanEntry
from tailrace.spark.jobs.fold.results import (
    FOLDED,
    SnapshotForeign,
    SnapshotReplaced,
    StreamFold,
    StreamIncomplete,
    outcome_of,
    unfolded,
)
from tailrace.spark.jobs.fold.snapshot_transfer import SnapshotTransfer
from tailrace.spark.rows import Range, RangeError, read_rows

__all__ = ["FoldTask"]

Count = Callable[[int], object]
Piece = tuple[int, Any]
"""The index of a stream, and some of its messages as an Arrow array."""


@dataclass(frozen=True)
class FoldTask:
    """The parameters of all tasks of a fold."""

    spec: FoldSpec
    adopt: bool = False

    def fold_streams(
        self, client: Client, entries: Sequence[PlanEntry], count: Count = lambda messages: None
    ) -> Iterator[StreamFold]:
        """
        Fold and publish streams; yields one result for each.

        Args:
            count: Called with the number of messages of each record batch.
        """
        reader = _MessageReader(client, entries, count)
        left = set(range(len(entries)))
        with closing(SnapshotTransfer(client, entries)) as snapshots:
            for index, pieces in groupby(reader.pieces(), itemgetter(0)):
                entry = entries[index]
                try:
                    data = self._state(entry, partial(snapshots.fetch, index), pieces)
                except StreamIncomplete:
                    # The reason is reported later, after the messages of other streams.
                    continue
                except TailraceError as error:
                    yield _ended(client, entry, error)
                else:
                    publish = partial(self._publish, client, entry, data)
                    yield from snapshots.publish(publish, len(data))
                left.discard(index)
            yield from snapshots.finish()
        for index in sorted(left):
            yield _ended(client, entries[index], reader.error(index))

    def _state(
        self, entry: PlanEntry, fetch: Callable[[], Snapshot | None], pieces: Iterable[Piece]
    ) -> bytes:
        """The state of a stream at the planned tail."""
        fold = self.spec.new(entry.content_type, self._initial_state(entry, fetch()))
        messages = 0
        for _, values in pieces:
            messages += _take(fold, values, messages)
        if messages != entry.messages:
            raise StreamIncomplete(entry.messages, messages)
        return fold.finish()

    def _initial_state(self, entry: PlanEntry, found: Snapshot | None) -> bytes | None:
        """Rule 1: the state in the planned snapshot."""
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
            stream_of(client, entry.bucket, entry.stream).publish_snapshot(data, entry.until, kind)
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


class _MessageReader:
    """Reads the messages of all streams of a task, and keeps the errors."""

    def __init__(self, client: Client, entries: Sequence[PlanEntry], count: Count) -> None:
        self._client = client
        self._entries = entries
        self._count = count
        self._errors: dict[int, Exception] = {}
        self._failure: Exception | None = None

    def pieces(self) -> Iterator[Piece]:
        """Messages, stream by stream in the order of the entries."""
        ranges = [Range(_name(entry), entry.start, entry.until) for entry in self._entries]
        try:
            for found in read_rows(self._client, ranges, ("range", "value")):
                if isinstance(found, RangeError):
                    name = str(ranges[found.index].name)
                    refused = Refused(found.status, name, found.code, found.detail)
                    self._errors[found.index] = refused
                else:
                    yield from _by_stream(found)
                    self._count(found.num_rows)
        except TailraceError as error:
            # Rule 3.
            self._failure = error

    def error(self, index: int) -> Exception:
        """Why messages of a stream are missing."""
        found = self._errors.get(index, self._failure)
        return found or StreamIncomplete(self._entries[index].messages, 0)


def _by_stream(batch: Any) -> Iterator[Piece]:
    indexes, values = batch.column("range"), batch.column("value")
    changes = pc.not_equal(indexes.slice(1), indexes.slice(0, max(0, len(indexes) - 1)))
    begins = [0, *(at + 1 for at in pc.indices_nonzero(changes).to_pylist()), len(indexes)]
    for begin, end in pairwise(begins):
        if begin < end:
            yield indexes[begin].as_py(), values.slice(begin, end - begin)


def _take(fold: Fold, values: Any, before: int) -> int:
    """Fold messages after `before` others; returns their number."""
    taken: list[bytes] = values.to_pylist()
    try:
        fold.take(taken)
    except MessageRefused as refused:
        raise MessageRefused(before + refused.index, refused.reason) from refused
    return len(taken)


def _ended(client: Client, entry: PlanEntry, error: Exception) -> StreamFold:
    """The result of a stream whose fold failed."""
    outcome, code, text = outcome_of(error)
    offset = None
    if isinstance(error, MessageRefused):
        offset = _offset(client, entry, error.index)
    return unfolded(entry, outcome, code, text, offset)


def _offset(client: Client, entry: PlanEntry, index: int) -> str | None:
    """The offset of a message, or None if it cannot be found."""
    with suppress(TailraceError):
        (found,) = client.offsets([Place(_name(entry), message=entry.first_message + index)])
        return found if isinstance(found, str) else None
    return None


def _name(entry: PlanEntry) -> StreamName:
    return StreamName(entry.bucket, entry.stream)

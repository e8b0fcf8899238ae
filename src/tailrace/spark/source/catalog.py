"""
The streams that a query reads, and their current tails.

On a Tailrace server a bucket is listed once, a thousand streams per request; later requests return
only changes. Streams that are named one by one are looked up together. On other servers each
stream needs a HEAD request, unless the listing contains its tail.
"""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from tailrace.client import (
    Client,
    Listed,
    NotFound,
    OffsetGone,
    Place,
    PositionGone,
    Refused,
    StreamName,
)
from tailrace.spark.connection import is_tailrace_server, stream_of
from tailrace.spark.options import ReadOptions

__all__ = ["Catalog", "StreamInfo"]

HEADS_AT_ONCE: Final = 8
BYTE_MAX: Final = 10**15
"""Larger than any stream: looking up this byte finds the tail."""
BEGINNING: Final = "-1"


class StreamInfo(NamedTuple):
    """What the catalog knows of a stream."""

    tail: str
    earliest: str
    created_ms: int | None = None
    closed: bool = False


class Catalog:
    """The streams that the options select, as of the last `refresh`."""

    def __init__(self, client: Client, options: ReadOptions) -> None:
        self.client = client
        self._options = options
        self._listing_position: str | None = None
        # A stream that is named by its URL may be on any server.
        by_url = any("://" in name for name in options.names)
        self.is_tailrace = not by_url and is_tailrace_server(client)
        self.streams: dict[str, StreamInfo] = {}

    def name(self, stream: str) -> StreamName:
        return StreamName(self._options.bucket, stream)

    def refresh(self) -> set[str]:
        """Update the catalog; returns the streams that changed, appeared or disappeared."""
        if self._options.names:
            names = list(self._options.names)
            found = self._find(names) if self.is_tailrace else self._heads(names)
            return self._update(found, self.streams.keys() - found.keys())
        assert self._options.bucket is not None
        bucket = self.client.bucket(self._options.bucket)
        since = self._listing_position
        try:
            survey = bucket.survey(self._options.prefix, since=since)
        except PositionGone:
            since = None
            survey = bucket.survey(self._options.prefix)
        self._listing_position = survey.position
        found = self._selected(survey.streams)
        if since is not None:
            return self._update(found, self.streams.keys() & set(survey.deleted))
        if not self.is_tailrace:
            found = self._with_tails(found)
        return self._update(found, self.streams.keys() - found.keys())

    def _update(self, found: dict[str, StreamInfo], gone: Iterable[str]) -> set[str]:
        changed = {name for name, info in found.items() if self.streams.get(name) != info}
        gone = set(gone)
        self.streams.update(found)
        for name in gone:
            del self.streams[name]
        return changed | gone

    def _selected(self, listed: Iterable[Listed]) -> dict[str, StreamInfo]:
        pattern = self._options.pattern
        return {
            item.stream_id: StreamInfo(
                item.next_offset or "",
                item.earliest_offset or BEGINNING,
                item.created_at_ms,
                item.closed,
            )
            for item in listed
            if pattern is None or fnmatchcase(item.stream_id, pattern)
        }

    # -- streams by name ---------------------------------------------------------------------

    def _find(self, names: list[str]) -> dict[str, StreamInfo]:
        tails = self.client.find([Place(self.name(name), byte=BYTE_MAX) for name in names])
        starts = self.client.find([Place(self.name(name), byte=0) for name in names])
        found = {}
        for name, tail, start in zip(names, tails, starts, strict=True):
            if isinstance(tail, NotFound) or isinstance(start, NotFound):
                continue
            if isinstance(tail, Refused):
                raise tail
            if isinstance(start, Refused):
                raise start
            found[name] = StreamInfo(tail.offset, start.offset, tail.created_at_ms, tail.closed)
        return found

    def _heads(self, names: list[str]) -> dict[str, StreamInfo]:
        with ThreadPoolExecutor(HEADS_AT_ONCE) as threads:
            found = zip(names, threads.map(self._head, names), strict=True)
            return {name: info for name, info in found if info is not None}

    def _head(self, name: str) -> StreamInfo | None:
        try:
            head = stream_of(self.client, self._options.bucket, name).head()
        except (NotFound, OffsetGone):
            return None
        return StreamInfo(head.next_offset, head.earliest_offset or BEGINNING, None, head.closed)

    def _with_tails(self, found: dict[str, StreamInfo]) -> dict[str, StreamInfo]:
        """Add tails: the listing of another server may not contain them."""
        heads = self._heads([name for name, info in found.items() if not info.tail])
        return {
            name: info if info.tail else heads[name]._replace(created_ms=info.created_ms)
            for name, info in found.items()
            if info.tail or name in heads
        }

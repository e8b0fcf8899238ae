"""
Which streams a query reads, and where each of them ends now.

On a Tailrace server a bucket is listed once, a thousand streams a request; then only what changed
is asked for. Streams that are named one by one are asked for together. Other servers of the
protocol get a HEAD for each stream, or their listing, where it says where streams end.
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
    RateLimited,
    Refused,
    Retry,
    ServerFailed,
    Stream,
    StreamName,
    TailraceError,
    Unauthorized,
    Unreachable,
)
from tailrace.spark.options import Connection, ReadOptions

__all__ = ["Catalog", "Seen", "connect", "is_tailrace", "resolve", "stream_of"]

HEADS_AT_ONCE: Final = 8
ATTEMPTS_MAX: Final = 14
"""A query ends by a request that fails, and a server may take a minute to restart."""
BYTE_MAX: Final = 10**15
"""Beyond every tail: asked for the boundary before it, a server answers with the tail."""
BEGINNING: Final = "-1"


class Seen(NamedTuple):
    """A stream as it was found."""

    tail: str
    earliest: str
    created_ms: int | None = None
    closed: bool = False


def connect(options: Connection) -> Client:
    """A client for a server as the options name it."""
    headers = dict(options.headers)
    if options.token is not None:
        headers["Authorization"] = f"Bearer {options.token}"
    return Client(
        options.url,
        headers=headers,
        timeout_s=options.timeout_s,
        retry=Retry(attempts_max=ATTEMPTS_MAX),
    )


def stream_of(client: Client, bucket: str | None, name: str) -> Stream:
    """A stream by its name in a bucket, or by its path or URL."""
    return client.stream(name) if bucket is None else client.bucket(bucket).stream(name)


def is_tailrace(client: Client) -> bool:
    """Whether a server answers what only ours does."""
    try:
        # Of no stream in particular: what counts is whether the question is understood.
        client.offsets([Place(StreamName(None, "-"), byte=0)])
    except (Unreachable, Unauthorized, RateLimited, ServerFailed):
        # Whatever it is, it cannot be asked.
        raise
    except TailraceError:
        return False
    return True


def resolve(client: Client, places: Iterable[Place]) -> list[str]:
    """
    Offsets by their message, byte or time.

    Raises:
        Refused: One cannot be found.
    """
    found = []
    for offset in client.offsets(list(places)):
        if isinstance(offset, Refused):
            raise offset
        found.append(offset)
    return found


class Catalog:
    """The streams that the options select, as of the last `refresh`."""

    def __init__(self, client: Client, options: ReadOptions) -> None:
        self.client = client
        self._options = options
        self._position: str | None = None
        # A stream that is named by its URL lies elsewhere.
        self.ours = not any("://" in name for name in options.names) and is_tailrace(client)
        self.seen: dict[str, Seen] = {}

    def name(self, stream: str) -> StreamName:
        return StreamName(self._options.bucket, stream)

    def refresh(self) -> set[str]:
        """Look again; returns the streams that changed, came or went."""
        if self._options.names:
            return self._look_at(self._options.names)
        assert self._options.bucket is not None
        bucket = self.client.bucket(self._options.bucket)
        if self._position is not None:
            try:
                survey = bucket.survey(self._options.prefix, since=self._position)
            except PositionGone:
                pass
            else:
                self._position = survey.position
                found = self._selected(survey.streams)
                return self._update(found, [name for name in survey.deleted if name in self.seen])
        survey = bucket.survey(self._options.prefix)
        self._position = survey.position
        found = self._selected(survey.streams)
        if not self.ours:
            found = self._with_tails(found)
        return self._update(found, self.seen.keys() - found.keys())

    def _update(self, found: dict[str, Seen], gone: Iterable[str]) -> set[str]:
        changed = {name for name, seen in found.items() if self.seen.get(name) != seen}
        gone = set(gone)
        self.seen.update(found)
        for name in gone:
            del self.seen[name]
        return changed | gone

    def _selected(self, listed: Iterable[Listed]) -> dict[str, Seen]:
        pattern = self._options.pattern
        return {
            item.stream_id: Seen(
                item.next_offset or "",
                item.earliest_offset or BEGINNING,
                item.created_at_ms,
                item.closed,
            )
            for item in listed
            if pattern is None or fnmatchcase(item.stream_id, pattern)
        }

    # -- streams by name ---------------------------------------------------------------------

    def _look_at(self, names: Iterable[str]) -> set[str]:
        names = list(names)
        found = self._asked_together(names) if self.ours else self._heads(names)
        return self._update(found, self.seen.keys() - found.keys())

    def _asked_together(self, names: list[str]) -> dict[str, Seen]:
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
            found[name] = Seen(tail.offset, start.offset, tail.created_at_ms, tail.closed)
        return found

    def _heads(self, names: list[str]) -> dict[str, Seen]:
        with ThreadPoolExecutor(HEADS_AT_ONCE) as threads:
            found = zip(names, threads.map(self._head, names), strict=True)
            return {name: seen for name, seen in found if seen is not None}

    def _head(self, name: str) -> Seen | None:
        try:
            head = stream_of(self.client, self._options.bucket, name).head()
        except (NotFound, OffsetGone):
            return None
        return Seen(head.next_offset, head.earliest_offset or BEGINNING, None, head.closed)

    def _with_tails(self, found: dict[str, Seen]) -> dict[str, Seen]:
        """Another server's listing may not say where streams end."""
        unknown = [name for name, seen in found.items() if not seen.tail]
        heads = self._heads(unknown)
        return {
            name: heads[name]._replace(created_ms=seen.created_ms) if not seen.tail else seen
            for name, seen in found.items()
            if seen.tail or name in heads
        }

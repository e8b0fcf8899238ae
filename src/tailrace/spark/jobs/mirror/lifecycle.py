"""
What rows cannot carry from one server to the other: that a stream is empty, and that it is closed.

Rule 1: a stream is closed at the target only when the query stands at its end, after the batch that
brought it there was committed: a batch that is sent again never meets a closed stream.

Rule 2: all of it can be done again at any time. Creating and closing are no errors where it was
done before, so a run that was killed in between completes it the next time.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase

from tailrace.client import Client, Listed, NotFound, PositionGone, Stream
from tailrace.protocol.offset import START
from tailrace.spark.options import ReadOptions
from tailrace.spark.source.read_positions import parse_mark

__all__ = ["Settling"]


class Settling:
    """Creates what is empty and closes what is complete, at the target."""

    def __init__(
        self, source: Client, target: Client, options: ReadOptions, target_bucket: str | None
    ) -> None:
        self.created = 0
        self.closed = 0
        self._source = source
        self._target = target
        self._options = options
        self._target_bucket = target_bucket
        self._position: str | None = None
        # Whether streams that are there, at the target, are closed; found at the first settling.
        self._there: dict[str, bool] | None = None
        # Streams that have nothing, or are closed, and are not yet so at the target.
        self._pending: dict[str, Listed] = {}

    def settle(self, marks: Mapping[str, str]) -> None:
        """
        Bring the target to where the query stands.

        Args:
            marks: Where a batch ended that is committed; nothing if there was none yet.
        """
        for listed in self._changed():
            if listed.closed or not _has_messages(listed):
                self._pending[listed.stream_id] = listed
            else:
                self._pending.pop(listed.stream_id, None)
        if self._pending and self._there is None:
            self._there = self._look()
        for listed in list(self._pending.values()):
            if self._settle(listed, marks.get(listed.stream_id)):
                del self._pending[listed.stream_id]

    def _settle(self, listed: Listed, mark: str | None) -> bool:
        """Whether nothing is left to be done for a stream."""
        assert self._there is not None
        name, is_closed = listed.stream_id, self._there.get(listed.stream_id)
        is_empty = listed.next_offset == START.token()
        complete = is_empty or (mark is not None and parse_mark(mark).offset == listed.next_offset)
        if is_closed:
            return True
        if is_closed is None and (complete or not _has_messages(listed)):
            self._create(listed)
        if listed.closed and complete:
            self._stream(name).close()
            self._there[name] = True
            self.closed += 1
        return complete or not listed.closed

    def _create(self, listed: Listed) -> None:
        """No error if the sink has made it meanwhile."""
        assert self._there is not None
        made = self._stream(listed.stream_id).create(listed.content_type)
        self._there[listed.stream_id] = False
        self.created += made.new

    def _look(self) -> dict[str, bool]:
        if self._target_bucket is not None:
            listed = self._target.bucket(self._target_bucket).streams(prefix=self._options.prefix)
            return {each.stream_id: each.closed for each in listed}
        found = {}
        for name in self._pending:
            with suppress(NotFound):
                found[name] = self._stream(name).head().closed
        return found

    def _stream(self, name: str) -> Stream:
        if self._target_bucket is None:
            return self._target.stream(name)
        return self._target.bucket(self._target_bucket).stream(name)

    def _changed(self) -> Iterable[Listed]:
        """Streams of the source that may have to be settled."""
        if self._options.bucket is None:
            return [self._listed(name) for name in self._options.names]
        bucket = self._source.bucket(self._options.bucket)
        try:
            found = bucket.survey(self._options.prefix, since=self._position)
        except PositionGone:
            found = bucket.survey(self._options.prefix)
        self._position = found.position
        return [listed for listed in found.streams if self._is_selected(listed.stream_id)]

    def _is_selected(self, name: str) -> bool:
        if self._options.names:
            return name in self._options.names
        return self._options.pattern is None or fnmatchcase(name, self._options.pattern)

    def _listed(self, name: str) -> Listed:
        """A stream by its path, as a listing would have it."""
        head = self._source.stream(name).head()
        return Listed(
            stream_id=name,
            closed=head.closed,
            content_type=head.content_type,
            size=0,
            next_offset=head.next_offset,
            created_at_ms=0,
            last_write_at_ms=0,
        )


def _has_messages(listed: Listed) -> bool:
    """Whether it retains any: one that a snapshot covers whole has none to read."""
    return listed.next_offset not in (START.token(), listed.earliest_offset)

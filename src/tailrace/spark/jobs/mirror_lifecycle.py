"""
Mirrors what rows cannot carry: that a stream is empty, and that it is closed.

Rule 1: a stream is closed at the target only after the batch that read it to its end is committed.
A batch that is sent again never finds its stream closed.

Rule 2: everything can be repeated at any time. Creating and closing a stream again is no error, so
the next run completes what a killed run left.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase

from tailrace.client import Client, Listed, NotFound, PositionGone, Stream
from tailrace.protocol.offset import START
from tailrace.spark.connection import stream_of
from tailrace.spark.options import ReadOptions
from tailrace.spark.source.read_positions import parse_position

__all__ = ["LifecycleMirror"]


class LifecycleMirror:
    """Creates empty streams and closes complete ones at the target."""

    def __init__(
        self, source: Client, target: Client, options: ReadOptions, target_bucket: str | None
    ) -> None:
        self.created = 0
        self.closed = 0
        self._source = source
        self._target = target
        self._options = options
        self._target_bucket = target_bucket
        self._listing_position: str | None = None
        # Whether each existing stream of the target is closed; read at the first update.
        self._is_closed: dict[str, bool] | None = None
        # Streams of the source that are empty or closed, and not yet so at the target.
        self._pending: dict[str, Listed] = {}

    def update(self, positions: Mapping[str, str]) -> None:
        """Bring the target up to the read positions of the last committed batch."""
        for listed in self._changed():
            if listed.closed or not _has_messages(listed):
                self._pending[listed.stream_id] = listed
            else:
                self._pending.pop(listed.stream_id, None)
        if self._pending and self._is_closed is None:
            self._is_closed = self._existing()
        for listed in list(self._pending.values()):
            if self._update(listed, positions.get(listed.stream_id)):
                del self._pending[listed.stream_id]

    def _update(self, listed: Listed, position: str | None) -> bool:
        """Create and close one stream if it is time; returns whether nothing is left to do."""
        assert self._is_closed is not None
        name, is_closed = listed.stream_id, self._is_closed.get(listed.stream_id)
        is_complete = listed.next_offset == START.token() or (
            position is not None and parse_position(position).offset == listed.next_offset
        )
        if is_closed:
            return True
        if is_closed is None and (is_complete or not _has_messages(listed)):
            # No error if the sink has created it meanwhile.
            self.created += self._stream(name).create(listed.content_type).new
            self._is_closed[name] = False
        if listed.closed and is_complete:
            self._stream(name).close()
            self._is_closed[name] = True
            self.closed += 1
        return is_complete or not listed.closed

    def _existing(self) -> dict[str, bool]:
        if self._target_bucket is not None:
            listed = self._target.bucket(self._target_bucket).streams(prefix=self._options.prefix)
            return {each.stream_id: each.closed for each in listed}
        found = {}
        for name in self._pending:
            with suppress(NotFound):
                found[name] = self._stream(name).head().closed
        return found

    def _stream(self, name: str) -> Stream:
        return stream_of(self._target, self._target_bucket, name)

    def _changed(self) -> Iterable[Listed]:
        """Streams of the source that changed since the last update."""
        if self._options.bucket is None:
            return [self._listed(name) for name in self._options.names]
        bucket = self._source.bucket(self._options.bucket)
        try:
            found = bucket.survey(self._options.prefix, since=self._listing_position)
        except PositionGone:
            found = bucket.survey(self._options.prefix)
        self._listing_position = found.position
        return [listed for listed in found.streams if self._is_selected(listed.stream_id)]

    def _is_selected(self, name: str) -> bool:
        if self._options.names:
            return name in self._options.names
        return self._options.pattern is None or fnmatchcase(name, self._options.pattern)

    def _listed(self, name: str) -> Listed:
        """A stream by its path, in the form of a listing."""
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
    """Whether it retains messages: there are none if a snapshot covers all of them."""
    return listed.next_offset not in (START.token(), listed.earliest_offset)

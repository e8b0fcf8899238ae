"""
Checks what streams say about forks: each about its own source and forks, compared at the end.

    references   a stream has as many as it has forks
    inherited    the streams that store it exist, and still have its records
    removal      a soft-deleted stream has forks, or is queued to be removed
    held         what a stream keeps for its forks is what its checkpoint counts

Memory: one entry for each stream that has forks.
"""

from array import array
from collections import Counter
from typing import NamedTuple

from tailrace.engine.forks import HELD, QUEUED, decode_held, held_key, held_stream
from tailrace.engine.rocks.findings import Finding, Report, stream_name
from tailrace.engine.rocks.keys import ID
from tailrace.engine.rocks.salvage_reader import SalvageReader
from tailrace.protocol.state import StreamState

__all__ = ["ForkCheck"]


class _Forked(NamedTuple):
    """A stream that has forks, or is soft-deleted; what is stored of it begins and ends there."""

    name: str
    forks: int
    deleted: bool
    held: int
    first: int
    end: int


class _Inherited(NamedTuple):
    """The bytes of one stream that forks inherit, and one of these forks."""

    first: int
    end: int
    fork: str


class ForkCheck:
    def __init__(self, reader: SalvageReader, report: Report) -> None:
        self._reader = reader
        self._report = report
        self._forks: Counter[int] = Counter()
        self._forked: dict[int, _Forked] = {}
        self._inherited: dict[int, _Inherited] = {}
        self.held_snapshots = array("Q")
        """Snapshots that are kept for forks; in order after `check`."""

    def add(self, key: bytes, state: StreamState, first: int | None) -> None:
        """Note a stream; its first record is at byte `first`, if it has one."""
        name = stream_name(key)
        if state.forks or state.deleted:
            begin = state.tail.byte if first is None else first
            self._forked[state.id] = _Forked(
                name, state.forks, state.deleted, state.held, begin, state.tail.byte
            )
        if (fork := state.fork) is None:
            return
        self._forks[fork.id] += 1
        if self._reader.get("names", fork.key) != ID.pack(fork.id):
            problem = f"its source {stream_name(fork.key)} is missing"
            self._report(Finding(problem, stream=name))
        begin = state.earliest.byte
        for segment in fork.segments(begin):
            end = segment.end.byte
            known = self._inherited.get(segment.id, _Inherited(begin, end, name))
            self._inherited[segment.id] = known._replace(
                first=min(known.first, begin), end=max(known.end, end)
            )
            begin = end

    def check(self) -> None:
        """Compare; streams that cannot be read may be missing here."""
        queued = self._check_held()
        if self._reader.partial:
            return
        for stream_id, stream in self._forked.items():
            count = self._forks.pop(stream_id, 0)
            if count != stream.forks:
                problem = f"it has {count} forks, and {stream.forks} references of forks"
                self._report(Finding(problem, stream=stream.name))
            if stream.deleted and not stream.forks and stream_id not in queued:
                problem = "it is deleted, has no forks, and would never be removed"
                self._report(Finding(problem, stream=stream.name))
        for stream_id, count in self._forks.items():
            self._reader.report(f"stream {stream_id} has {count} forks, and no references of forks")
        for stream_id, inherited in self._inherited.items():
            source = self._forked.get(stream_id)
            if source is None or source.first > inherited.first or source.end < inherited.end:
                problem = f"what it inherits from stream {stream_id} is missing"
                self._report(Finding(problem, stream=inherited.fork, offset=inherited.first))

    def needs(self, stream_id: int, until: int) -> bool:
        """Whether forks inherit records of a stream that begin before a byte."""
        inherited = self._inherited.get(stream_id)
        return inherited is not None and inherited.first < until

    def _check_held(self) -> dict[int, bytes]:
        """Returns the queued streams, each with its last entry."""
        queued: dict[int, bytes] = {}
        held: list[tuple[bytes, int]] = []
        for key, value in self._reader.walk("held"):
            if key[:1] == QUEUED:
                queued[held_stream(key)] = key
            elif key[:1] == HELD:
                garbage = decode_held(value)
                held.append((key, garbage.bytes))
                if garbage.until is None:
                    self.held_snapshots.append(garbage.id)
        self.held_snapshots = array("Q", sorted(self.held_snapshots))
        counted: Counter[int] = Counter()
        for key, size in held:
            stream_id = held_stream(key)
            end = queued.get(stream_id, held_key(QUEUED, stream_id, 0))
            # What is before the number of the queued entry is to become garbage.
            if key[1:] >= end[1:]:
                counted[stream_id] += size
        for stream_id, stream in self._forked.items():
            if (size := counted.pop(stream_id, 0)) != stream.held:
                problem = f"it keeps {size} bytes for its forks, and counts {stream.held}"
                self._report(Finding(problem, stream=stream.name))
        for stream_id in counted if not self._reader.partial else ():
            self._reader.report(f"data of stream {stream_id} is kept for forks, and it has none")
        return queued

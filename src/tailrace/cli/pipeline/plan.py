"""
What a job would read and write, from listings and its checkpoint alone: nothing is touched.

Offsets count messages and bytes, so that listings say how much there is; the marks of a checkpoint
say how much of it was done before. A listing without offsets, of another server, leaves the
numbers open.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from tailrace.cli.connection import Server
from tailrace.cli.output import Output, counted, human_bytes
from tailrace.client import Listed
from tailrace.protocol.errors import OffsetInvalid
from tailrace.protocol.offset import START, Offset, parse_offset
from tailrace.spark.source.read_positions import load_positions, parse_position

__all__ = [
    "Backlog",
    "backlog",
    "marks_of",
    "show_plan",
    "survey",
]

_OFFSETS_LINE: Final = 2
"""Of a file of Spark's offset log: the version, metadata, then the source's own."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """What there is to read of a bucket."""

    bucket: str
    streams: int = 0
    messages: int | None = 0
    """None where a server does not say."""
    bytes: int | None = 0
    compacted: int = 0
    """Streams that begin after a snapshot: what it covers cannot be read."""


def survey(
    server: Server,
    bucket: str,
    prefix: str = "",
    pattern: str | None = None,
    marks: Mapping[str, str] | None = None,
) -> Backlog:
    """
    Look what there is to read.

    Raises:
        Failure: There is no such bucket, or no server.
    """
    with server.bucket(bucket) as found:
        listed = [
            each
            for each in found.streams(prefix=prefix)
            if pattern is None or fnmatchcase(each.stream_id, pattern)
        ]
    return backlog(bucket, listed, marks or {})


def backlog(bucket: str, listed: Iterable[Listed], marks: Mapping[str, str]) -> Backlog:
    """What is not done yet of streams, by the marks of those that were begun."""
    found = Backlog(bucket)
    messages: int | None = 0
    size: int | None = 0
    for each in listed:
        start, tail = _place(each.earliest_offset or START.token()), _place(each.next_offset)
        begun = marks.get(each.stream_id)
        if begun is not None:
            start = _place(parse_position(begun).offset)
        elif start is not None and start > START:
            found = replace(found, compacted=found.compacted + 1)
        if start is None or tail is None or messages is None or size is None:
            found, messages, size = replace(found, streams=found.streams + 1), None, None
        elif tail > start:
            found = replace(found, streams=found.streams + 1)
            messages += tail.message - start.message
            size += tail.byte - start.byte
    return replace(found, messages=messages, bytes=size)


def _place(token: str | None) -> Offset | None:
    if token == "-1":
        return START
    try:
        return parse_offset(token or "")
    except OffsetInvalid:
        return None


def marks_of(checkpoint: Path) -> dict[str, str]:
    """How far a query is, by its checkpoint on this machine; nothing if it never ran."""
    try:
        done = [
            int(file.name) for file in (checkpoint / "commits").iterdir() if file.name.isdecimal()
        ]
        lines = (checkpoint / "offsets" / str(max(done))).read_text().splitlines()
        return load_positions(json.loads(lines[_OFFSETS_LINE]))
    except (OSError, ValueError, LookupError, TypeError):
        return {}


def show_plan(
    reads: Sequence[Backlog], writes: str, *, is_json: bool = False, note: str = ""
) -> None:
    """Print what would be read and written."""
    output = Output()
    if is_json:
        output.json({"reads": [asdict(each) for each in reads], "writes": writes})
    else:
        for each in reads:
            output.line(f"would read {_told(each)}".encode())
        output.line(f"would write {writes}".encode())
        if note:
            output.line(note.encode())
    output.flush()


def _told(each: Backlog) -> str:
    if each.messages is None or each.bytes is None:
        return f"{each.bucket}: {counted(each.streams, 'stream')}, how many messages is not known"
    how_much = f"{counted(each.messages)}, {human_bytes(each.bytes)}"
    return f"{each.bucket}: {counted(each.streams, 'stream')}, {how_much}"

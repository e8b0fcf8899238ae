"""
How much a job has to read, from listings and its checkpoint.

Offsets count messages and bytes, so that a listing says how much a stream has, and the checkpoint
how much of it is done. Other servers' listings have no offsets: the numbers are then unknown.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from tailrace.cli.output import counted, human_bytes, print_lines
from tailrace.cli.pipeline.options import Job
from tailrace.client import Listed
from tailrace.protocol.errors import OffsetInvalid
from tailrace.protocol.offset import START, Offset, parse_offset
from tailrace.spark.source.read_positions import load_positions, parse_position

__all__ = [
    "Backlog",
    "backlog",
    "checkpoint_positions",
    "job_backlog",
    "print_plan",
    "table_backlog",
]

_OFFSETS_LINE: Final = 2
"""In a file of Spark's offset log, after the version and the metadata."""


@dataclass(slots=True)
class Backlog:
    """What a job has to read of a bucket, or of a table."""

    name: str
    streams: int = 0
    messages: int | None = 0
    """None if it is unknown."""
    bytes: int | None = 0
    compacted: int = 0
    """Streams that begin after a snapshot: the messages that it covers cannot be read."""

    def __str__(self) -> str:
        streams = f"{self.name}: {counted(self.streams, 'stream')}"
        if self.messages is None or self.bytes is None:
            return f"{streams}, unknown number of messages"
        return f"{streams}, {counted(self.messages)}, {human_bytes(self.bytes)}"


def job_backlog(job: Job, bucket: str, checkpoint: Path) -> Backlog:
    """What a job has not read yet of a bucket."""
    pattern = job.arguments.get("pattern", "*")
    with job.server.bucket(bucket) as found:
        listed = found.streams(prefix=job.arguments["prefix"])
        chosen = [each for each in listed if fnmatchcase(each.stream_id, pattern)]
    return backlog(bucket, chosen, checkpoint_positions(checkpoint))


def table_backlog(job: Job, bucket: str, table: Path) -> Backlog:
    """As `job_backlog`, for a job that writes a table, whose directory has the checkpoint."""
    from tailrace.spark.jobs.parameters import StreamSelection
    from tailrace.spark.jobs.stream_to_table import default_checkpoint

    if checkpoint := job.arguments.get("checkpoint"):
        return job_backlog(job, bucket, Path(checkpoint))
    selection = StreamSelection(
        url=job.server.url,
        bucket=bucket,
        prefix=job.arguments["prefix"],
        pattern=job.arguments.get("pattern"),
    )
    return job_backlog(job, bucket, default_checkpoint(table, selection))


def backlog(bucket: str, listed: Iterable[Listed], positions: Mapping[str, str]) -> Backlog:
    """The unread part of streams; `positions` has the position in each that the job has read."""
    found = Backlog(bucket)
    for each in listed:
        start, tail = _offset(each.earliest_offset or START.token()), _offset(each.next_offset)
        position = positions.get(each.stream_id)
        if position is not None:
            start = _offset(parse_position(position).offset)
        elif start is not None and start > START:
            found.compacted += 1
        if start is None or tail is None:
            found.streams += 1
            found.messages = found.bytes = None
        elif tail > start:
            found.streams += 1
            if found.messages is not None and found.bytes is not None:
                found.messages += tail.message - start.message
                found.bytes += tail.byte - start.byte
    return found


def _offset(token: str | None) -> Offset | None:
    if token == "-1":
        return START
    try:
        return parse_offset(token or "")
    except OffsetInvalid:
        return None


def checkpoint_positions(checkpoint: Path) -> dict[str, str]:
    """The position in each stream that a checkpoint on this machine has; empty if there is none."""
    try:
        done = [
            int(file.name) for file in (checkpoint / "commits").iterdir() if file.name.isdecimal()
        ]
        lines = (checkpoint / "offsets" / str(max(done))).read_text().splitlines()
        return load_positions(json.loads(lines[_OFFSETS_LINE]))
    except (OSError, ValueError, LookupError, TypeError):
        return {}


def print_plan(reads: Backlog, writes: str, *, note: str = "") -> None:
    """Print what `--dry-run` promises."""
    print_lines(*filter(None, (f"would read {reads}", f"would write {writes}", note)))

"""What a replay sends and where to, kept beside the table: no run may do it otherwise."""

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tailrace.client import TailraceError
from tailrace.spark.tables.files import read_json, write_json

__all__ = [
    "PARTITIONS",
    "ReplayAmbiguous",
    "ReplayChanged",
    "ReplayPlan",
    "ReplayUnsupported",
    "agree",
    "safe_name",
]

PARTITIONS: Final = 8


class ReplayChanged(TailraceError):
    """A replay id was used for another replay."""

    def __init__(self, replay_id: str, name: str, before: object, now: object) -> None:
        super().__init__(replay_id, name, before, now)
        self.replay_id = replay_id
        self.name = name
        self.before = before
        self.now = now

    def __str__(self) -> str:
        return (
            f"replay {self.replay_id!r} has {self.name} {self.before!r}, not {self.now!r}:"
            " go on with that, or give another replay id"
        )


class ReplayAmbiguous(TailraceError):
    """
    Two streams of the table would become one.

    One was deleted and made again, or they are of these buckets and are to go to a single one.
    """

    def __init__(self, stream: str, buckets: tuple[str | None, ...] = ()) -> None:
        super().__init__(stream, buckets)
        self.stream = stream
        self.buckets = buckets

    def __str__(self) -> str:
        if self.buckets:
            names = ", ".join("none" if name is None else repr(name) for name in self.buckets)
            return (
                f"the table has a stream {self.stream!r} of several buckets ({names}), which would"
                " become one: replay each bucket by itself, as where=\"bucket = 'orders'\""
            )
        return (
            f"the table has messages of two streams called {self.stream!r}, one of which was"
            " deleted: choose by time, as where=\"time >= '2026-01-31 12:00:00'\""
        )


class ReplayUnsupported(TailraceError):
    """Messages without numbers: in which order they were is not known."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.stream = stream

    def __str__(self) -> str:
        return (
            f"the table has messages of stream {self.stream!r} without numbers, from a server that"
            ' is not Tailrace: leave them out, as where="message is not null"'
        )


@dataclass(frozen=True)
class ReplayPlan:
    """What must not change between two runs."""

    replay_id: str
    url: str
    bucket: str | None
    where: str | None
    partitions: int


def agree(directory: Path, asked: ReplayPlan, partitions: int | None) -> ReplayPlan:
    """The plan that the replay has, or from now on has."""
    file = directory / "replay.json"
    found = read_json(file)
    if found is None:
        write_json(file, asdict(asked))
        return asked
    for name, before in found.items():
        now = getattr(asked, name)
        if now != before and not (name == "partitions" and partitions is None):
            raise ReplayChanged(asked.replay_id, name, before, now)
    return ReplayPlan(**found)


def safe_name(replay_id: str) -> str:
    """A name for a directory; not two ids have the same."""
    readable = "".join(c if (c.isascii() and c.isalnum()) or c in "-_" else "-" for c in replay_id)
    return f"{readable[:40]}-{hashlib.sha256(replay_id.encode()).hexdigest()[:12]}"

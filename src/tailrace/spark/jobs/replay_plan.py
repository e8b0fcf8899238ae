"""The parameters of a replay, stored beside the table: all its runs must use the same."""

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tailrace.exceptions import ExitCode, TailraceError
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
    """The replay id was used for another replay."""

    message = (
        "replay {replay_id!r} has {name} {before!r}, not {now!r}:"
        " keep that, or give another replay id"
    )
    exit_code = ExitCode.CONFLICT
    replay_id: str
    name: str
    before: object
    now: object


class ReplayAmbiguous(TailraceError):
    """
    Two streams of the table would become one.

    Either a stream was deleted and created again, or `buckets` have streams of the same name and
    are replayed into one bucket.
    """

    exit_code = ExitCode.CONFLICT
    stream: str
    buckets: tuple[str | None, ...] = ()

    def __str__(self) -> str:
        if self.buckets:
            names = ", ".join("none" if name is None else repr(name) for name in self.buckets)
            return (
                f"the table has a stream {self.stream!r} in several buckets ({names}), which would"
                " become one: replay each bucket separately, as where=\"bucket = 'orders'\""
            )
        return (
            f"the table has messages of two streams called {self.stream!r}, one of which was"
            " deleted: choose by time, as where=\"time >= '2026-01-31 12:00:00'\""
        )


class ReplayUnsupported(TailraceError):
    """Messages of the table have no numbers, so their order is not known."""

    message = (
        "the table has messages of stream {stream!r} without numbers, from a server that"
        ' is not Tailrace: leave them out, as where="message is not null"'
    )
    stream: str


@dataclass(frozen=True)
class ReplayPlan:
    """Parameters that must not change between runs."""

    replay_id: str
    url: str
    bucket: str | None
    where: str | None
    partitions: int


def agree(directory: Path, given: ReplayPlan, partitions: int | None) -> ReplayPlan:
    """The stored plan of the replay, which the first run stores."""
    file = directory / "replay.json"
    found = read_json(file)
    if found is None:
        write_json(file, asdict(given))
        return given
    for name, before in found.items():
        now = getattr(given, name)
        if now != before and not (name == "partitions" and partitions is None):
            raise ReplayChanged(given.replay_id, name, before, now)
    return ReplayPlan(**found)


def safe_name(replay_id: str) -> str:
    """A directory name that is unique to the id."""
    readable = "".join(c if (c.isascii() and c.isalnum()) or c in "-_" else "-" for c in replay_id)
    return f"{readable[:40]}-{hashlib.sha256(replay_id.encode()).hexdigest()[:12]}"

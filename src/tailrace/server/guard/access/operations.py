"""
Which operation a request is, and what it needs.

    what               GET, HEAD     PUT         POST      DELETE
    a stream           read          create      append    delete       closing is appending
    a snapshot         read          snapshot              snapshot
    latest, bootstrap  read
    a bucket           read          create                delete
    a listing          read on the bucket, or on all names that begin with ?prefix=
    /-/offsets, rows                             (1)
    /-/buckets, paths, about         (1)
    /-/metrics         admin on /-/metrics
    /-/backup                                    admin on /-/backup
    the rest           nothing: /-/health, /-/ready, /-/ui/, OPTIONS, and what is not served

(1) Somebody must be identified. The handler asks `may` and `may_all` for each stream that is named,
and leaves out what may not be read.
"""

from enum import Enum
from typing import Final

from tailrace.server.guard.access.grants import Operation
from tailrace.server.target import Resource

__all__ = ["IDENTIFIED", "STREAM_OPERATIONS", "kind", "needed"]


class _Identified(Enum):
    IDENTIFIED = "identified"


IDENTIFIED: Final = _Identified.IDENTIFIED
"""Needs a principal, whose rights the handler looks at."""

_Need = Operation | _Identified

STREAM_OPERATIONS: Final[dict[str, Operation]] = {
    "GET": Operation.READ,
    "HEAD": Operation.READ,
    "POST": Operation.APPEND,
    "PUT": Operation.CREATE,
    "DELETE": Operation.DELETE,
}
_READ: Final[dict[str, _Need]] = {"GET": Operation.READ, "HEAD": Operation.READ}
_ASKED: Final[dict[str, _Need]] = {"GET": IDENTIFIED, "HEAD": IDENTIFIED}
_OPERATIONS: Final[dict[Resource, dict[str, _Need]]] = {
    Resource.STREAM: {**STREAM_OPERATIONS},
    Resource.BUCKET: {**_READ, "PUT": Operation.CREATE, "DELETE": Operation.DELETE},
    Resource.LISTING: _READ,
    Resource.LATEST: _READ,
    Resource.SNAPSHOT: {**_READ, "PUT": Operation.SNAPSHOT, "DELETE": Operation.SNAPSHOT},
    Resource.BOOTSTRAP: _READ,
    Resource.OFFSETS: {"POST": IDENTIFIED},
    Resource.ROWS: {"POST": IDENTIFIED},
    Resource.BUCKETS: _ASKED,
    Resource.PATHS: _ASKED,
    Resource.ABOUT: _ASKED,
    Resource.METRICS: {"GET": Operation.ADMIN, "HEAD": Operation.ADMIN},
    Resource.BACKUP: {"POST": Operation.ADMIN},
    Resource.UI: {},
    Resource.OWN: {},
}
_KINDS: Final = {
    Resource.BUCKET: "the bucket",
    Resource.LISTING: "all streams listed by",
    Resource.METRICS: "the route",
    Resource.BACKUP: "the route",
}


def needed(resource: Resource, method: str) -> _Need | None:
    """What a request needs; None: nothing, and nobody need be identified."""
    return _OPERATIONS[resource].get(method)


def kind(resource: Resource) -> str:
    """What a request is about, in words that its path can follow."""
    return _KINDS.get(resource, "the stream of")

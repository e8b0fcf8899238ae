"""
Grants: what may be done where, and whether that covers a key.

Rule 1: a grant is a text, `operations:place`. Operations have commas between them; `*` is all.

Rule 2: a place is written as in a URL, and read by the very code that reads the path of a request
(`target.resolve`), so that no two spellings of a name are told apart here and not there.

    /                          everything there is, our own routes too
    /chat-rooms                a bucket and all that is in it
    /chat-rooms/user-42        one stream of it, its snapshots and its bootstrap
    /chat-rooms/*              all streams of it, and not the bucket itself
    /chat-rooms/user-*         those streams of it whose ids begin like this
    /logs-*                    buckets whose ids begin like this, and all that is in them
    /v1/stream                 all of the base surface
    /v1/stream/team-a          that stream and all below it: whole segments, never team-ab
    /v1/stream/team-*          what begins like this, team-ab/c too
    /-/metrics                 a route of our own

Rule 3: a place is compiled, once, to one storage key and to one prefix of keys, of which it may
have either or both. Keys are `bucket NUL stream` and `NUL path`, and neither half can hold a NUL,
so a prefix that ends in NUL or in `/` cannot run on into another bucket's or segment's name.

What cannot be a place is refused and not taken to match nothing: a grant that is silently void
is noticed by whoever it should have let in, and late.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tailrace.protocol.errors import Refusal
from tailrace.protocol.names import NO_BUCKET, RESERVED
from tailrace.server.target import STREAM_PREFIX, Resource, resolve

__all__ = ["Grant", "GrantInvalid", "Operation", "Rules", "compile_grants", "parse_grant"]


class Operation(StrEnum):
    """What can be granted."""

    READ = "read"
    APPEND = "append"
    CREATE = "create"
    DELETE = "delete"
    SNAPSHOT = "snapshot"
    ADMIN = "admin"


class GrantInvalid(Exception):
    """A text that is no grant; the message says why."""


Rules = Mapping[str, tuple[frozenset[bytes], tuple[bytes, ...]]]
"""For each operation: the keys, and the prefixes of keys, that it is granted on."""

_ALL: Final = "*"
_BUCKETS: Final = re.compile(rb"/[a-z0-9_-]{1,64}")
_OWN: Final = re.compile(rb"/-/[a-z0-9-]{1,32}")
_GRANT_CHARS_MAX: Final = 8192
# Put after a prefix to see whether a name that begins so can exist at all.
_SOME: Final = b"x"


@dataclass(frozen=True, slots=True)
class Grant:
    """Operations, and the keys that they are granted on."""

    text: str
    operations: frozenset[Operation]
    key: bytes | None
    prefix: bytes | None


def parse_grant(text: str) -> Grant:
    """
    Read a grant.

    Raises:
        GrantInvalid: It is none.
    """
    if len(text) > _GRANT_CHARS_MAX:
        raise GrantInvalid(f"a grant may have {_GRANT_CHARS_MAX} characters at most")
    operations, colon, place = text.partition(":")
    if not colon:
        raise GrantInvalid(f"{text!r} is not of the form operations:place, as in read:/chat-rooms")
    key, prefix = _place(place)
    return Grant(text, _operations(operations), key, prefix)


def _operations(text: str) -> frozenset[Operation]:
    if text == _ALL:
        return frozenset(Operation)
    try:
        return frozenset(Operation(name) for name in text.split(","))
    except ValueError:
        known = ", ".join(Operation)
        raise GrantInvalid(f"{text!r} are not operations: name some of {known}, or *") from None


def _place(text: str) -> tuple[bytes | None, bytes | None]:
    """The key that a place is, and the prefix of the keys that lie in it."""
    try:
        place = text.encode()
    except UnicodeEncodeError:
        raise GrantInvalid(f"{text!r} is not UTF-8") from None
    if not place.startswith(b"/"):
        raise GrantInvalid(f"{text!r} is not a place: it must begin with /")
    if b"?" in place or b"*" in place[:-1]:
        raise GrantInvalid(
            f"{text!r} is not a place: * can only be its last character, and ? no part of it; "
            "write %2A and %3F for those that are part of a name"
        )
    try:
        return _beginning(place[:-1]) if place.endswith(b"*") else _whole(place)
    except Refusal as refusal:
        raise GrantInvalid(f"{text!r} is not a place: {refusal.detail}") from None


def _whole(place: bytes) -> tuple[bytes | None, bytes | None]:
    """A place of whole segments."""
    if place == b"/":
        return None, b""
    if place in (b"/v1/stream", STREAM_PREFIX):
        return None, NO_BUCKET
    if place in (b"/-", b"/-/"):
        return None, b"/-/"
    if place.startswith(b"/-/"):
        if not _OWN.fullmatch(place):
            raise GrantInvalid(f"{place.decode()!r} is none of the server's own routes")
        return place, None
    target = resolve(place)
    if target.resource is Resource.BUCKET:
        return target.key, target.key + b"\0"
    if target.resource is Resource.LISTING:
        raise GrantInvalid(f"{RESERVED}: grant read on the bucket, or on names that begin alike")
    if target.resource is not Resource.STREAM:
        raise GrantInvalid(
            f"{place.decode()!r} lies below a stream: its snapshots and its bootstrap are granted "
            "with the stream"
        )
    # Only on the base surface is there anything below a stream.
    return target.key, target.key + b"/" if target.key.startswith(NO_BUCKET) else None


def _beginning(place: bytes) -> tuple[None, bytes]:
    """A place that ends in `*`."""
    if place == b"/":
        raise GrantInvalid("'/*' is not a place: / alone is everything")
    if _BUCKETS.fullmatch(place):
        return None, place[1:]
    if place == b"/-/":
        return None, place
    target = resolve(place + _SOME)
    if target.resource is not Resource.STREAM:
        raise GrantInvalid(f"{place.decode() + _ALL!r} is not how names of streams begin")
    return None, target.key.removesuffix(_SOME)


def compile_grants(grants: Iterable[Grant]) -> Rules:
    """What grants allow together, in the form that `Principal.may` looks at."""
    keys: dict[str, set[bytes]] = {}
    prefixes: dict[str, set[bytes]] = {}
    for grant in grants:
        for operation in grant.operations:
            if grant.key is not None:
                keys.setdefault(operation.value, set()).add(grant.key)
            if grant.prefix is not None:
                prefixes.setdefault(operation.value, set()).add(grant.prefix)
    return {
        name: (frozenset(keys.get(name, ())), tuple(sorted(prefixes.get(name, ()))))
        for name in {*keys, *prefixes}
    }

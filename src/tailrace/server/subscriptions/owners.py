"""
The owner of a subscription: the principal that created it, and the rights that it has now.

Rule 1: a subscription tells only of streams that its owner may read and subscribe to now. For a
token of the access file, and for requests without credentials, the rights are those of the file as
it was last loaded. A JWT brings its rights along: they are stored with the subscription, and end
with the JWT. A PUT of the same configuration by the same owner renews them.

Rule 2: a principal needs `subscribe` on everything that a subscription can match, and `append` on
its wake stream, also when an event is written. The names of streams beyond its pattern's literal
prefix cannot be known before.
"""

from collections.abc import Callable
from typing import Final

import msgspec
from msgspec.structs import replace

from tailrace.server.guard.access import Access, Operation, Principal
from tailrace.server.guard.access.grants import GrantInvalid, parse_grants

__all__ = ["NO_OWNER", "Owners", "check_covers", "check_may_append", "covers", "may_know"]

NO_OWNER: Final = (
    "the owner of the subscription has no rights any more, or its token has expired: PUT the "
    "subscription again with a valid token"
)
"""The error of a subscription whose wakes are not sent."""

_CACHED_COUNT_MAX: Final = 10_000


class _Owner(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is stored with a subscription; `grants` and what follows only for a JWT."""

    origin: str = ""
    """The base URL of the server as its creator knows it, for the URLs in webhooks."""
    id: str = ""
    grants: tuple[str, ...] = ()
    expires_at: int | None = None
    issuer: str = ""


_decode: Final = msgspec.json.Decoder(_Owner).decode


def _parsed(owner: bytes | None) -> _Owner:
    return _decode(owner) if owner else _Owner()


class Owners:
    """Finds the present rights of owners."""

    def __init__(self, access: Access | None, clock: Callable[[], int]) -> None:
        self._access = access
        self._clock = clock
        self._cache: dict[bytes, Principal | None] = {}

    @property
    def guarded(self) -> bool:
        """Whether there is access control: without it every stream may be read."""
        return self._access is not None

    def encode(self, principal: Principal | None, origin: str, previous: bytes) -> bytes:
        """
        The owner of a subscription that this principal creates, or confirms.

        A subscription that another owner with rights has already keeps it.
        """
        before = _parsed(previous)
        if self._access is None or principal is None:
            return msgspec.json.encode(replace(before, origin=origin))
        if before.id not in ("", principal.id) and self.principal(previous) is not None:
            return previous
        owner = _Owner(origin=origin, id=principal.id)
        if principal.id.startswith("jwt:"):
            owner = replace(
                owner,
                grants=tuple(grant.text for grant in principal.grants),
                expires_at=principal.expires_at,
                issuer=self._access.issuer,
            )
        return msgspec.json.encode(owner)

    def owns(self, principal: Principal, owner: bytes | None) -> bool:
        """Whether this principal is the owner."""
        return principal.id == _parsed(owner).id

    def origin(self, owner: bytes | None) -> str:
        """The base URL of the server, as the creator of a subscription knows it."""
        return _parsed(owner).origin

    def principal(self, owner: bytes | None) -> Principal | None:
        """The owner with its present rights, or None if it has none any more."""
        found = self._known(owner)
        if found is None or found.expires_at is None or found.expires_at > self._clock():
            return found
        return None

    def readable(self, owner: bytes | None, key: bytes) -> bool:
        """
        Whether a stream can be pending for an owner.

        Also after its JWT has expired: then nothing is sent, and with the next one nothing was
        missed.
        """
        return may_know(self._known(owner), key)

    def may_append(self, owner: bytes | None, key: bytes) -> bool:
        """Whether wake events of an owner may be appended to a stream now."""
        principal = self.principal(owner)
        return principal is not None and principal.may(Operation.APPEND, key)

    def _known(self, owner: bytes | None) -> Principal | None:
        if not owner or self._access is None:
            return None
        if owner not in self._cache:
            if len(self._cache) >= _CACHED_COUNT_MAX:
                self._cache.clear()
            self._cache[owner] = self._find(_parsed(owner))
        return self._cache[owner]

    def changed(self) -> None:
        """The access file was read again."""
        self._cache.clear()

    def _find(self, owner: _Owner) -> Principal | None:
        access = self._access
        assert access is not None
        if not owner.issuer:
            return access.current(owner.id)
        if owner.issuer != access.issuer:
            return None
        try:
            grants = parse_grants(owner.grants)
        except GrantInvalid:
            return None
        return Principal(owner.id, grants, expires_at=owner.expires_at)


def may_know(principal: Principal | None, key: bytes) -> bool:
    """Whether a subscription of this principal may tell of a stream."""
    return (
        principal is not None
        and principal.may(Operation.READ, key)
        and principal.may(Operation.SUBSCRIBE, key)
    )


def check_covers(
    principal: Principal | None, scope: bytes, pattern: str | None, streams: tuple[str, ...]
) -> None:
    """
    Require that a principal's grants cover all streams that a subscription can match.

    `scope` is the prefix of the keys of its streams.

    Raises:
        Forbidden, Unauthenticated: They do not.
    """
    if principal is None:
        return
    for path in streams:
        if not principal.may(Operation.SUBSCRIBE, scope + path.encode()):
            raise principal.refusal(Operation.SUBSCRIBE, f"the stream {path[:200]}")
    if pattern is not None and not covers(principal, scope, pattern):
        raise principal.refusal(
            Operation.SUBSCRIBE, f"all streams that the pattern {pattern[:200]} can match"
        )


def covers(principal: Principal, scope: bytes, pattern: str) -> bool:
    """Whether the principal may subscribe to all streams that a pattern can match."""
    segments = pattern.split("/")
    literals = []
    for segment in segments:
        if segment in ("*", "**"):
            break
        literals.append(segment)
    rest = segments[len(literals) :]
    key = scope + "/".join(literals).encode()
    if not rest:
        return principal.may(Operation.SUBSCRIBE, key)
    below = key + b"/" if literals else key
    # `a/**` matches `a` as well.
    itself = not literals or any(segment != "**" for segment in rest)
    return principal.may_all(Operation.SUBSCRIBE, below) and (
        itself or principal.may(Operation.SUBSCRIBE, key)
    )


def check_may_append(principal: Principal | None, scope: bytes, wake_stream: str) -> None:
    """
    Require `append` on the wake stream, which the server appends to for the owner.

    Raises:
        Forbidden, Unauthenticated: It is not granted.
    """
    if principal is not None and not principal.may(Operation.APPEND, scope + wake_stream.encode()):
        raise principal.refusal(Operation.APPEND, f"the wake stream {wake_stream[:200]}")

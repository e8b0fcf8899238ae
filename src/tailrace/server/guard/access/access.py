"""
Who a request comes from, and whether that one may.

Rule 1: `admit` runs before anything is looked up. What it answers depends on the file of access, on
the credentials and on what the request names, and on nothing that is stored (§10.2).

Rule 2: credentials are read and verified once and then found by their digest. What is found is
still looked at for its end, each time; a reload, or other keys, start with an empty cache. So a
request costs a hash and two look-ups, and no secret lies about in memory.

Rule 3: bad credentials are never treated like none, even where none would do.
"""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

from tailrace.server.guard.access.access_file import AccessFile, read_access_file
from tailrace.server.guard.access.credentials import read_credentials, sent
from tailrace.server.guard.access.errors import CredentialsRefused, Forbidden, Unauthenticated
from tailrace.server.guard.access.grants import Operation
from tailrace.server.guard.access.jwt_verifier import JwtBasis, Jwts
from tailrace.server.guard.access.operations import IDENTIFIED, STREAM_OPERATIONS, kind, needed
from tailrace.server.guard.access.principal import ANONYMOUS_ID, NOBODY, Principal
from tailrace.server.guard.access.tokens import TOKEN_PREFIX, Token, Tokens
from tailrace.server.message import Request
from tailrace.server.target import Resource, Target, parse_query

__all__ = ["CACHED_COUNT_MAX", "Access", "admit"]

CACHED_COUNT_MAX: Final = 10_000
"""Principals that are remembered; one more, and the one not seen for longest is forgotten."""

_STREAM: Final = Resource.STREAM
_PLACE_CHARS_MAX: Final = 200
_UNKNOWN: Final = "the token is not known here"
_EXPIRED: Final = "the token has expired"


class Access:
    """Everybody who is known to a server."""

    def __init__(self, path: Path, file: AccessFile) -> None:
        self.path = path
        self.on_change: Callable[[], None] | None = None
        """Called, from a thread, when keys of JWTs have changed: see who is still valid."""
        self.before_look: Callable[[Request], None] | None = None
        """Asked before credentials are looked into that were not seen before; may refuse."""
        self._tokens = Tokens()
        self._jwts: Jwts | None = None
        self._anonymous: Principal | None = None
        self._cache: OrderedDict[bytes, Principal] = OrderedDict()
        self._take(file)

    @classmethod
    def load(cls, path: Path) -> Self:
        """
        Read an access file.

        Raises:
            AccessFileInvalid: It is not there, or has a mistake in it.
        """
        return cls(path, read_access_file(path))

    def reload(self) -> None:
        """
        Read the file anew.

        Raises:
            AccessFileInvalid: It cannot be used; everything is as it was.
        """
        self._take(read_access_file(self.path))

    def _take(self, file: AccessFile) -> None:
        jwts = self._jwts
        if file.jwt is None:
            self._jwts = None
        elif jwts is None or not jwts.take(file.jwt):
            self._jwts = Jwts(file.jwt, self._keys_changed)
        if jwts is not None and jwts is not self._jwts:
            jwts.close()
        self._tokens = Tokens(file.tokens)
        self._anonymous = None
        if file.anonymous is not None:
            self._anonymous = Principal(ANONYMOUS_ID, file.anonymous, basis=file.anonymous)
        self._cache = OrderedDict()

    def _keys_changed(self) -> None:
        self._cache = OrderedDict()
        if self.on_change is not None:
            self.on_change()

    def close(self) -> None:
        """Fetch no more keys."""
        if self._jwts is not None:
            self._jwts.close()

    def identify(self, request: Request) -> Principal:
        """
        Who a request comes from.

        Raises:
            Unauthenticated: It has no credentials, and needs them.
            CredentialsRefused: It has some that are not good.
            CredentialsRepeated: It has some in several places.
            KeysNotReady: It cannot be told yet.
        """
        found = sent(request)
        if found is None:
            return self._without_credentials()
        digest = hashlib.sha256(found).digest()
        # Held on to: what is found with these keys must not get into the cache of the next.
        cache = self._cache
        principal = cache.get(digest)
        if principal is None:
            if self.before_look is not None:
                self.before_look(request)
            principal = self._find(found)
            cache[digest] = principal
            if len(cache) > CACHED_COUNT_MAX:
                cache.popitem(last=False)
        else:
            cache.move_to_end(digest)
        if principal.expires_at is not None and principal.expires_at <= _now_ms():
            raise CredentialsRefused(_EXPIRED)
        return principal

    def is_valid(self, principal: Principal) -> bool:
        """Whether somebody who was identified before would still be, with the same rights."""
        if principal.expires_at is not None and principal.expires_at <= _now_ms():
            return False
        basis = principal.basis
        if isinstance(basis, Token):
            return basis in self._tokens
        if isinstance(basis, JwtBasis):
            return self._jwts is not None and self._jwts.holds(basis)
        anonymous = self._anonymous
        return principal is NOBODY or (anonymous is not None and anonymous.basis == basis)

    def _without_credentials(self) -> Principal:
        if self._anonymous is None:
            raise Unauthenticated
        return self._anonymous

    def _find(self, found: bytes) -> Principal:
        credentials = read_credentials(found)
        text = credentials.text
        if text.startswith(TOKEN_PREFIX):
            token = self._tokens.find(text)
            if token is None:
                raise CredentialsRefused(_UNKNOWN)
            principal = token.principal()
        elif self._jwts is not None:
            principal = self._jwts.verify(text)
        else:
            raise CredentialsRefused(_UNKNOWN)
        return principal.reading() if credentials.in_query else principal


def admit(access: Access, request: Request, target: Target) -> Principal:
    """
    Who a request comes from, if that one may make it.

    Raises:
        Unauthenticated: It needs credentials.
        CredentialsRefused: Its credentials are not good.
        CredentialsRepeated: Its credentials are in several places.
        KeysNotReady: It cannot be told yet.
        Forbidden: What it needs is not granted.
    """
    resource = target.resource
    if resource is _STREAM:
        operation = STREAM_OPERATIONS.get(request.method)
        if operation is None:
            return NOBODY
        principal = access.identify(request)
        if principal.may(operation, target.key):
            return principal
        raise _refusal(principal, operation, request, "the stream")
    need = needed(resource, request.method)
    if need is None:
        return NOBODY
    principal = access.identify(request)
    if need is IDENTIFIED or _may(principal, need, request, target):
        return principal
    raise _refusal(principal, need, request, kind(resource))


def _may(principal: Principal, operation: Operation, request: Request, target: Target) -> bool:
    if target.resource is Resource.LISTING:
        names = target.key + b"\0"
        if principal.may_all(operation, names):
            return True
        prefix = parse_query(request.query, ("prefix",)).get("prefix", "")
        return principal.may_all(operation, names + prefix.encode())
    if target.resource in (Resource.METRICS, Resource.BACKUP):
        return principal.may(operation, request.path)
    return principal.may(operation, target.key)


def _refusal(
    principal: Principal, operation: Operation, request: Request, what: str
) -> Unauthenticated | Forbidden:
    if principal.id == ANONYMOUS_ID:
        # Nobody in particular: with credentials it may be another matter.
        return Unauthenticated()
    place = request.path.decode("latin-1")
    return Forbidden(principal.id, operation.value, f"{what} {place[:_PLACE_CHARS_MAX]}")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

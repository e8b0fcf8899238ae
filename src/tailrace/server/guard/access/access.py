"""
The principal of a request, and whether it may make the request.

Rule 1: `admit` runs before any lookup of stored data. Its result depends on the access file, the
credentials and the resource that the request names, not on whether that resource exists (§10.2).

Rule 2: verified credentials are cached by their digest. Expiry is checked at every use; a reload or
a change of keys empties the cache. So a request costs a hash and two lookups, and no secret is kept
in memory.

Rule 3: invalid credentials are rejected even where none are needed.
"""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tailrace.server.guard.access.access_file import load_access_file
from tailrace.server.guard.access.credentials import (
    find_credentials,
    is_in_query,
    parse_credentials,
)
from tailrace.server.guard.access.errors import CredentialsRefused, Unauthenticated
from tailrace.server.guard.access.grants import Operation, parse_grants
from tailrace.server.guard.access.jwt_verifier import JwtBasis, JwtVerifier
from tailrace.server.guard.access.principal import ANONYMOUS_ID, NOBODY, Principal
from tailrace.server.guard.access.tokens import TOKEN_PREFIX, find_token
from tailrace.server.message import Request
from tailrace.server.routing.query import parse_query
from tailrace.server.routing.routes import IDENTIFIED, STREAM, GrantedOn
from tailrace.server.routing.target import Target

__all__ = ["CACHED_COUNT_MAX", "Access", "admit"]

CACHED_COUNT_MAX: Final = 10_000
"""Maximum of cached principals; the least recently used one is evicted."""

_PATH_CHARS_MAX: Final = 200


class Access:
    """Identifies the principals of an access file."""

    def __init__(self, path: Path) -> None:
        """
        Read the access file.

        Raises:
            AccessFileInvalid: It is missing or invalid.
        """
        self.path = path
        self.on_change: Callable[[], object] | None = None
        """Called from a thread when the keys of JWTs changed: principals may be invalid now."""
        self.before_verify: Callable[[Request], None] | None = None
        """Called before credentials are verified that are not cached; may raise a refusal."""
        self._verifier: JwtVerifier | None = None
        self.reload()

    def reload(self) -> None:
        """
        Read the file again.

        Raises:
            AccessFileInvalid: It is missing or invalid; nothing is changed.
        """
        file, jwks = load_access_file(self.path)
        verifier = self._verifier
        if file.jwt is None:
            self._verifier = None
        elif verifier is None or not verifier.update(file.jwt, jwks):
            self._verifier = JwtVerifier(file.jwt, jwks, self._keys_changed)
        if verifier is not None and verifier is not self._verifier:
            verifier.close()
        self._tokens = {token.id: token for token in file.token}
        # The bases of principals without a JWT that are valid now.
        self._bases = {NOBODY.basis, file.anonymous, *(token.basis for token in file.token)}
        self._anonymous: Principal | None = None
        if file.anonymous is not None:
            grants = parse_grants(file.anonymous.grants)
            self._anonymous = Principal(ANONYMOUS_ID, grants, basis=file.anonymous)
        self._cache: OrderedDict[bytes, Principal] = OrderedDict()

    def _keys_changed(self) -> None:
        self._cache = OrderedDict()
        if self.on_change is not None:
            self.on_change()

    def close(self) -> None:
        """Stop fetching keys."""
        if self._verifier is not None:
            self._verifier.close()

    def identify(self, request: Request) -> Principal:
        """
        The principal of a request.

        Raises:
            Unauthenticated: It has no credentials and needs them.
            CredentialsRefused: Its credentials are invalid.
            CredentialsRepeated: It has more than one credential.
            KeysNotReady: The key of its token is being fetched.
        """
        found = find_credentials(request)
        if found is None:
            if self._anonymous is None:
                raise Unauthenticated
            return self._anonymous
        digest = hashlib.sha256(found).digest()
        # A local reference: what is verified with old keys must not get into a new cache.
        cache = self._cache
        principal = cache.get(digest)
        if principal is None:
            if self.before_verify is not None:
                self.before_verify(request)
            principal = self._verify(found)
            cache[digest] = principal
            if len(cache) > CACHED_COUNT_MAX:
                cache.popitem(last=False)
        else:
            cache.move_to_end(digest)
        if principal.expires_at is not None and principal.expires_at <= _now_ms():
            raise CredentialsRefused("the token has expired")
        return principal

    def is_valid(self, principal: Principal) -> bool:
        """Whether a principal that was identified before still is, with the same grants."""
        if principal.expires_at is not None and principal.expires_at <= _now_ms():
            return False
        basis = principal.basis
        if isinstance(basis, JwtBasis):
            return self._verifier is not None and self._verifier.is_current(basis)
        return basis in self._bases

    @property
    def issuer(self) -> str:
        """The issuer of accepted JWTs; empty if none are."""
        return "" if self._verifier is None else self._verifier.issuer

    def current(self, id_: str) -> Principal | None:
        """The principal of a token, or of requests without credentials, if it is still valid."""
        if id_ == ANONYMOUS_ID:
            return self._anonymous
        kind, _, token_id = id_.partition(":")
        token = self._tokens.get(token_id) if kind == "token" else None
        return None if token is None else token.principal()

    def _verify(self, found: bytes) -> Principal:
        text = parse_credentials(found)
        is_static = text.startswith(TOKEN_PREFIX)
        if is_static and (token := find_token(self._tokens, text)) is not None:
            principal = token.principal()
        elif not is_static and self._verifier is not None:
            principal = self._verifier.verify(text)
        else:
            raise CredentialsRefused("the token is unknown")
        return principal.read_only() if is_in_query(found) else principal


def admit(access: Access, request: Request, target: Target) -> Principal:
    """
    The principal of a request, if it may make the request.

    Raises:
        Unauthenticated: The request needs credentials.
        CredentialsRefused: Its credentials are invalid.
        CredentialsRepeated: It has more than one credential.
        KeysNotReady: The key of its token is being fetched.
        Forbidden: The principal lacks the grant.
    """
    route = target.route
    endpoint = route.endpoints.get(request.method)
    if endpoint is None or (need := endpoint.operation) is None:
        return NOBODY
    principal = access.identify(request)
    if need is IDENTIFIED or (
        principal.may(need, target.key)
        if route is STREAM
        else _may(principal, need, request, target)
    ):
        return principal
    path = request.path.decode("latin-1")[:_PATH_CHARS_MAX]
    raise principal.refusal(need, f"{route.granted_on.value} {path}")


def _may(principal: Principal, operation: Operation, request: Request, target: Target) -> bool:
    granted_on = target.route.granted_on
    if granted_on is GrantedOn.LISTED_STREAMS:
        names = target.key + b"\0"
        if principal.may_all(operation, names):
            return True
        prefix = parse_query(request.query, ("prefix",)).get("prefix", "")
        return principal.may_all(operation, names + prefix.encode())
    if granted_on is GrantedOn.ANY_STREAM:
        return bool(principal.granted(operation, target.key))
    return principal.may(operation, request.path if granted_on is GrantedOn.ROUTE else target.key)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

"""
JWTs: verified, and what they grant.

Rule 1: the header of a token chooses among what the file allows, and adds nothing: `alg` must be
one of the file's, `kid` one of the JWKS. By `jwk`, `jku`, `x5c` and `x5u` a token brings its own
key: they are not looked at. Anything critical (`crit`) is not understood, and so refused.

Rule 2: signature, issuer, audience, `exp`, `nbf` and `iat` are PyJWT's to verify. Issuer, audience
and `exp` must be there.

Rule 3: what is granted stands in a claim, as a text with spaces between grants or as a list. What
is not a grant there is somebody else's scope, and ignored.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tailrace.server.guard.access.errors import CredentialsRefused
from tailrace.server.guard.access.grants import Grant, GrantInvalid, parse_grant
from tailrace.server.guard.access.jwks import UNKNOWN_KEY, Key
from tailrace.server.guard.access.jwks_fetcher import FetchedKeys
from tailrace.server.guard.access.jwt_rules import JwtChecks, JwtRules
from tailrace.server.guard.access.principal import Principal

__all__ = ["JwtBasis", "Jwts"]

_SUBJECT_CHARS_MAX: Final = 200
# Milliseconds that are still exact as a float, as timers have it: the year 287396.
_MS_MAX: Final = 1 << 53
_MALFORMED: Final = "the token is not a JWT"


@dataclass(frozen=True, slots=True)
class JwtBasis:
    """What a principal's identification rests on."""

    checks: JwtChecks
    thumbprint: str


class Jwts:
    """Verifies the JWTs of one issuer."""

    def __init__(self, rules: JwtRules, changed: Callable[[], None]) -> None:
        self._checks = rules.checks
        self._fixed = rules.keys
        self._fetched = FetchedKeys(rules.checks.jwks, changed) if rules.keys is None else None

    def take(self, rules: JwtRules) -> bool:
        """Go on with other rules; false if the keys are now from somewhere else."""
        if (
            self._fetched is None
            or rules.keys is not None
            or rules.checks.jwks != self._fetched.url
        ):
            return False
        self._checks = rules.checks
        self._fetched.refresh()
        return True

    def close(self) -> None:
        if self._fetched is not None:
            self._fetched.close()

    def holds(self, basis: JwtBasis) -> bool:
        """Whether a token that was verified before would be verified by the same rules now."""
        keys = self._fixed if self._fetched is None else self._fetched.current
        return (
            basis.checks == self._checks
            and keys is not None
            and basis.thumbprint in keys.thumbprints
        )

    def verify(self, text: str) -> Principal:
        """
        Who a JWT is of.

        Raises:
            CredentialsRefused: It is not good.
            KeysNotReady: Its key is being looked for.
        """
        checks = self._checks
        algorithm, kid = _head(text, checks.algorithms)
        key = self._key(kid, algorithm)
        claims = _claims(text, key, algorithm, checks)
        return Principal(
            _principal_id(claims.get("sub")),
            _granted(claims.get(checks.scope_claim)),
            expires_at=min(int((int(claims["exp"]) + checks.leeway_s) * 1000), _MS_MAX),
            basis=JwtBasis(checks, key.thumbprint),
        )

    def _key(self, kid: str | None, algorithm: str) -> Key:
        if self._fetched is not None:
            return self._fetched.find(kid, algorithm)
        assert self._fixed is not None
        key = self._fixed.find(kid, algorithm)
        if key is None:
            raise CredentialsRefused(UNKNOWN_KEY)
        return key


def _head(text: str, algorithms: tuple[str, ...]) -> tuple[str, str | None]:
    """Which algorithm and key a token claims; its form, but nothing of what it says, is checked."""
    parts = text.split(".")
    if len(parts) != 3:
        raise CredentialsRefused(_MALFORMED)
    header = _json_object(parts[0])
    _json_object(parts[1])
    algorithm, kid = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in algorithms:
        raise CredentialsRefused("the token is signed by an algorithm that is not taken here")
    if kid is not None and not isinstance(kid, str):
        raise CredentialsRefused(_MALFORMED)
    if "crit" in header or "b64" in header:
        raise CredentialsRefused("the token asks for extensions that are not known here")
    return algorithm, kid


def _json_object(part: str) -> dict[str, Any]:
    """What a part of a token says; two values of one name are refused, as RFC 7519 §4 has it."""
    try:
        raw = base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
        content = json.loads(raw, object_pairs_hook=_unique)
    except (binascii.Error, ValueError, RecursionError):
        raise CredentialsRefused(_MALFORMED) from None
    if not isinstance(content, dict):
        raise CredentialsRefused(_MALFORMED)
    return content


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("a name is there twice")
    return content


def _claims(text: str, key: Key, algorithm: str, checks: JwtChecks) -> dict[str, Any]:
    import jwt

    try:
        return jwt.decode(
            text,
            key.value,
            algorithms=[algorithm],
            audience=checks.audience,
            issuer=checks.issuer,
            leeway=checks.leeway_s,
            options={"require": ["exp", "iss", "aud"]},
        )
    except jwt.ExpiredSignatureError:
        reason = "the token has expired"
    except jwt.ImmatureSignatureError:
        reason = "the token is not valid yet"
    except jwt.MissingRequiredClaimError as error:
        reason = f"the token has no {error.claim}"
    except jwt.InvalidAudienceError:
        reason = "the token is for another audience"
    except jwt.InvalidIssuerError:
        reason = "the token is of another issuer"
    except jwt.InvalidSignatureError:
        reason = "the signature of the token is not good"
    except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError):
        reason = _MALFORMED
    raise CredentialsRefused(reason)


def _principal_id(subject: object) -> str:
    text = subject if isinstance(subject, str) else ""
    if len(text) > _SUBJECT_CHARS_MAX or not text.isprintable():
        # An id is a key of counters and a word in logs.
        text = "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"jwt:{text}"


def _granted(claim: object) -> list[Grant]:
    scopes = claim.split() if isinstance(claim, str) else claim
    if not isinstance(scopes, list):
        return []
    grants = []
    for scope in scopes:
        try:
            grants.append(parse_grant(scope if isinstance(scope, str) else ""))
        except GrantInvalid:
            continue
    return grants

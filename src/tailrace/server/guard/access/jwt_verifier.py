"""
Verification of JWTs, and the grants in their claims.

Rule 1: the header of a token selects among what the access file allows: `alg` must be one of its
algorithms, `kid` a key of the JWK set. `jwk`, `jku`, `x5c` and `x5u`, by which a token brings its
own key, are ignored. Tokens with critical extensions (`crit`) are rejected.

Rule 2: PyJWT verifies signature, issuer, audience, `exp`, `nbf` and `iat`. Issuer, audience and
`exp` are required.

Rule 3: one claim holds the grants, as text separated by spaces or as a list. Scopes of other
services in it are ignored.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tailrace.server.guard.access.access_file import JwtSettings
from tailrace.server.guard.access.errors import CredentialsRefused
from tailrace.server.guard.access.grants import Grant, GrantInvalid, parse_grant
from tailrace.server.guard.access.jwks import Jwks
from tailrace.server.guard.access.jwks_fetcher import JwksFetcher
from tailrace.server.guard.access.principal import Principal

if TYPE_CHECKING:
    from jwt import PyJWK

__all__ = ["JwtBasis", "JwtVerifier"]

_SUBJECT_CHARS_MAX: Final = 200
# The largest number of milliseconds that a timer's float represents exactly: the year 287396.
_MS_MAX: Final = 1 << 53
_MALFORMED: Final = "the token is not a JWT"


@dataclass(frozen=True, slots=True)
class JwtBasis:
    """The settings and the key by which a principal was identified."""

    settings: JwtSettings
    thumbprint: str


class JwtVerifier:
    """Verifies the JWTs of one issuer."""

    def __init__(
        self, settings: JwtSettings, jwks: Jwks | None, on_change: Callable[[], None]
    ) -> None:
        self._settings = settings
        self._keys = JwksFetcher(settings.jwks, on_change) if jwks is None else jwks

    def update(self, settings: JwtSettings, jwks: Jwks | None) -> bool:
        """Use other settings with the same URL of keys; false if the keys come from elsewhere."""
        keys = self._keys
        if jwks is not None or not isinstance(keys, JwksFetcher) or keys.url != settings.jwks:
            return False
        self._settings = settings
        keys.refresh()
        return True

    @property
    def issuer(self) -> str:
        return self._settings.issuer

    def close(self) -> None:
        if isinstance(self._keys, JwksFetcher):
            self._keys.close()

    def is_current(self, basis: JwtBasis) -> bool:
        """Whether a token that was verified before would be verified in the same way now."""
        keys = self._keys.current
        return (
            basis.settings == self._settings
            and keys is not None
            and basis.thumbprint in keys.thumbprints
        )

    def verify(self, text: str) -> Principal:
        """
        The principal of a JWT.

        Raises:
            CredentialsRefused: The token is invalid.
            KeysNotReady: Its key is being fetched.
        """
        settings = self._settings
        algorithm, kid = _parse_header(text, settings.algorithms)
        key = self._keys.find(kid, algorithm)
        if key is None:
            raise CredentialsRefused("the token was signed with an unknown key")
        claims = _verify(text, key.algorithms[algorithm], settings)
        return Principal(
            _principal_id(claims.get("sub")),
            _grants(claims.get(settings.scope_claim)),
            expires_at=min(int(claims["exp"]) * 1000 + int(settings.leeway_s * 1000), _MS_MAX),
            basis=JwtBasis(settings, key.thumbprint),
        )


def _parse_header(text: str, algorithms: tuple[str, ...]) -> tuple[str, str | None]:
    """The algorithm and key id of a token. Checks the form of its header and payload."""
    parts = text.split(".")
    if len(parts) != 3:
        raise CredentialsRefused(_MALFORMED)
    header = _json_object(parts[0])
    _json_object(parts[1])
    algorithm, kid = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in algorithms:
        raise CredentialsRefused("the algorithm of the token is not allowed")
    if kid is not None and not isinstance(kid, str):
        raise CredentialsRefused(_MALFORMED)
    if "crit" in header or "b64" in header:
        raise CredentialsRefused("the token uses unsupported extensions")
    return algorithm, kid


def _json_object(part: str) -> dict[str, Any]:
    """Decode a part of a token. RFC 7519 §4: duplicate names are rejected."""
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
        raise ValueError("duplicate name")
    return content


def _verify(text: str, key: "PyJWK", settings: JwtSettings) -> dict[str, Any]:
    import jwt

    try:
        return jwt.decode(
            text,
            key,
            algorithms=[key.algorithm_name],
            audience=settings.audience,
            issuer=settings.issuer,
            leeway=settings.leeway_s,
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
        reason = "the signature of the token is invalid"
    except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError):
        reason = _MALFORMED
    raise CredentialsRefused(reason)


def _principal_id(subject: object) -> str:
    text = subject if isinstance(subject, str) else ""
    if len(text) > _SUBJECT_CHARS_MAX or not text.isprintable():
        # The id is a key of counters and appears in logs.
        text = "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"jwt:{text}"


def _grants(claim: object) -> list[Grant]:
    scopes = claim.split() if isinstance(claim, str) else claim
    if not isinstance(scopes, list):
        return []
    grants = []
    for scope in scopes:
        with suppress(GrantInvalid):
            grants.append(parse_grant(scope if isinstance(scope, str) else ""))
    return grants

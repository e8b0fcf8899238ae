"""
The keys that verify JWTs: a JWK set (RFC 7517), parsed by PyJWT.

Rule 1: a key verifies the algorithms of its type, and no others. So a public RSA key is never used
as the shared secret of an HMAC, whatever the header of a token says.

Rule 2: keys that are invalid, too short or not for signatures are skipped.

`PyJWKSet` is not used: it assigns one algorithm to each key, where an RSA key without `alg` fits
six, and it skips keys without a reason for the log.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

import structlog

from tailrace.exceptions import TailraceError
from tailrace.server.guard.access.errors import CredentialsRefused

if TYPE_CHECKING:
    from jwt import PyJWK

__all__ = [
    "JWKS_KEYS_MAX", "AsymmetricAlgorithm", "Jwk", "Jwks", "JwksInvalid", "SymmetricAlgorithm",
    "parse_jwks",
]  # fmt: skip

AsymmetricAlgorithm: TypeAlias = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"
]
SymmetricAlgorithm: TypeAlias = Literal["HS256", "HS384", "HS512"]
JWKS_KEYS_MAX: Final = 1000
_KEY_TYPES: Final = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP", "HS": "oct"}
# RFC 7638: the members that define a key. The private half of a key is ignored.
_MEMBERS: Final = ("crv", "e", "k", "kty", "n", "x", "y")

log = structlog.get_logger("tailrace")


class JwksInvalid(TailraceError):
    """The text is not a JWK set, or has no usable key."""

    message = "{reason}"
    reason: str


@dataclass(frozen=True, slots=True)
class Jwk:
    """A key that verifies signatures."""

    kid: str | None
    thumbprint: str
    """Equal for equal keys."""
    algorithms: Mapping[str, "PyJWK"]


@dataclass(frozen=True, slots=True)
class Jwks:
    """The usable keys of a JWK set."""

    keys: tuple[Jwk, ...]

    @property
    def current(self) -> "Jwks":
        """As `JwksFetcher.current`; a file's keys do not change."""
        return self

    @property
    def thumbprints(self) -> frozenset[str]:
        return frozenset(key.thumbprint for key in self.keys)

    def find(self, kid: str | None, algorithm: str) -> Jwk | None:
        """
        The key that a token names, or the only key that fits its algorithm.

        Raises:
            CredentialsRefused: Several keys fit.
        """
        fitting = [
            key
            for key in self.keys
            if algorithm in key.algorithms and (kid is None or key.kid == kid)
        ]
        if len(fitting) > 1:
            raise CredentialsRefused("several keys fit the token, and it does not name one")
        return fitting[0] if fitting else None


def parse_jwks(text: bytes) -> Jwks:
    """
    Parse a JWK set. Unusable keys are skipped and logged.

    Raises:
        JwksInvalid: There is no usable key.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        raise JwksInvalid("is not JSON") from None
    items = content.get("keys") if isinstance(content, dict) else None
    if not isinstance(items, list):
        raise JwksInvalid('is not a JWK set: an object with a list "keys"')
    if len(items) > JWKS_KEYS_MAX:
        raise JwksInvalid(f"has more than {JWKS_KEYS_MAX} keys")
    keys = []
    for number, item in enumerate(items, 1):
        try:
            keys.append(_parse_key(item))
        except JwksInvalid as error:
            log.warning("key of the JWK set is skipped", number=number, reason=str(error))
    if not keys:
        raise JwksInvalid("has no usable key")
    return Jwks(tuple(keys))


def _parse_key(item: object) -> Jwk:
    # Imported here: servers without JWTs need not load cryptography.
    from cryptography.exceptions import UnsupportedAlgorithm
    from jwt import PyJWK, PyJWTError

    if not isinstance(item, dict):
        raise JwksInvalid("not an object")
    operations = item.get("key_ops", ["verify"])
    if item.get("use", "sig") != "sig" or not (
        isinstance(operations, list) and "verify" in operations
    ):
        raise JwksInvalid("not for signatures")
    kid = item.get("kid")
    if kid is not None and not isinstance(kid, str):
        raise JwksInvalid("kid is not a string")
    public = {name: item[name] for name in _MEMBERS if name in item}
    algorithms: dict[str, PyJWK] = {}
    reason: str | None = "kty or alg is not supported"
    for name in (*get_args(AsymmetricAlgorithm), *get_args(SymmetricAlgorithm)):
        if _KEY_TYPES[name[:2]] != item.get("kty") or item.get("alg", name) != name:
            continue
        try:
            key = PyJWK(public, name)
            # Fails if the curve is not the algorithm's.
            key.Algorithm.prepare_key(key.key)
            reason = key.Algorithm.check_key_length(key.key)
        except (
            PyJWTError, UnsupportedAlgorithm, LookupError, OverflowError, TypeError, ValueError
        ) as error:  # fmt: skip
            reason = str(error)
        else:
            if reason is None:
                algorithms[name] = key
    if not algorithms:
        raise JwksInvalid(str(reason)[:200])
    thumbprint = hashlib.sha256(json.dumps(public, sort_keys=True).encode()).hexdigest()
    return Jwk(kid, thumbprint, algorithms)

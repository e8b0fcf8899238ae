"""
The keys that JWTs are verified with: a JWKS (RFC 7517).

Rule 1: a key is used for the algorithms that its type fits, and no others. So a public RSA key is
never taken for the shared secret of an HMAC, whatever a token's header says.

Rule 2: what cannot be used, is too short or not for signatures is left out; the rest is taken.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import structlog

from tailrace.server.guard.access.errors import CredentialsRefused

__all__ = ["ALGORITHMS", "UNKNOWN_KEY", "Key", "KeySet", "KeysInvalid", "parse_keys"]

ALGORITHMS: Final[Mapping[str, tuple[str, ...]]] = {
    "RS256": ("RSA",),
    "RS384": ("RSA",),
    "RS512": ("RSA",),
    "PS256": ("RSA",),
    "PS384": ("RSA",),
    "PS512": ("RSA",),
    "ES256": ("EC P-256",),
    "ES384": ("EC P-384",),
    "ES512": ("EC P-521",),
    "EdDSA": ("OKP Ed25519", "OKP Ed448"),
    "HS256": ("oct",),
    "HS384": ("oct",),
    "HS512": ("oct",),
}
"""Each algorithm and the types of key that fit it. `none` is no algorithm."""

KEYS_COUNT_MAX: Final = 1000
_RSA_BITS_MIN: Final = 2048
# RFC 7518 §3.2: as long as the hash, at least.
_OCT_BYTES_MIN: Final = {"HS256": 32, "HS384": 48, "HS512": 64}
# What the public half of a key is made of; the rest of a private one is not looked at.
_MEMBERS: Final = {
    "RSA": ("kty", "n", "e"),
    "EC": ("kty", "crv", "x", "y"),
    "OKP": ("kty", "crv", "x"),
    "oct": ("kty", "k"),
}
UNKNOWN_KEY: Final = "the token was signed with a key that is not known here"

log = structlog.get_logger("tailrace")


class KeysInvalid(Exception):
    """A text that is no JWKS, or has no key that could be used; the message says why."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key, and what it may be used for."""

    kid: str | None
    algorithms: frozenset[str]
    thumbprint: str
    value: Any
    """As PyJWT takes it. Two keys are the same if their thumbprints are."""


@dataclass(frozen=True, slots=True)
class KeySet:
    """All keys of a JWKS that can be used."""

    keys: tuple[Key, ...]

    @property
    def thumbprints(self) -> frozenset[str]:
        return frozenset(key.thumbprint for key in self.keys)

    def find(self, kid: str | None, algorithm: str) -> Key | None:
        """
        The key that a token names, or the only one that it can mean.

        Raises:
            CredentialsRefused: It names none, and several fit.
        """
        fitting = [
            key
            for key in self.keys
            if algorithm in key.algorithms and (kid is None or key.kid == kid)
        ]
        if len(fitting) > 1:
            raise CredentialsRefused("the token does not say which of several keys it is for")
        return fitting[0] if fitting else None


def parse_keys(text: bytes) -> KeySet:
    """
    The keys of a JWKS; what cannot be used is left out, and logged.

    Raises:
        KeysInvalid: Nothing can be used.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        raise KeysInvalid("is not JSON") from None
    listed = content.get("keys") if isinstance(content, dict) else None
    if not isinstance(listed, list):
        raise KeysInvalid('is not a JWKS: an object with a list "keys"')
    if len(listed) > KEYS_COUNT_MAX:
        raise KeysInvalid(f"has more than {KEYS_COUNT_MAX} keys")
    keys = []
    for number, item in enumerate(listed, 1):
        try:
            keys.append(_key(item))
        except KeysInvalid as error:
            log.warning("a key of the JWKS is not used", number=number, reason=str(error))
    if not keys:
        raise KeysInvalid("has no key that can be used")
    return KeySet(tuple(keys))


def _key(item: object) -> Key:
    if not isinstance(item, dict):
        raise KeysInvalid("it is not an object")
    operations = item.get("key_ops", ["verify"])
    if item.get("use", "sig") != "sig" or not (
        isinstance(operations, list) and "verify" in operations
    ):
        raise KeysInvalid("it is not for signatures")
    kid = item.get("kid")
    if kid is not None and not isinstance(kid, str):
        raise KeysInvalid("its kid is not a text")
    kind = str(item.get("kty"))
    kind_of = f"{kind} {item.get('crv')}" if kind in ("EC", "OKP") else kind
    algorithms = {name for name, kinds in ALGORITHMS.items() if kind_of in kinds}
    if not algorithms:
        raise KeysInvalid(f"its type is not supported: {kind_of[:40]!r}")
    public = {name: item.get(name) for name in _MEMBERS[kind]}
    value = _value(public, next(iter(algorithms)))
    if kind == "oct":
        algorithms = {name for name in algorithms if len(value) >= _OCT_BYTES_MIN[name]}
    if "alg" in item:
        algorithms &= {item["alg"]} if isinstance(item["alg"], str) else set()
    if not algorithms:
        raise KeysInvalid("its alg does not fit its type, or it is too short")
    thumbprint = hashlib.sha256(json.dumps(public, sort_keys=True).encode()).hexdigest()
    return Key(kid, frozenset(algorithms), thumbprint, value)


def _value(public: dict[str, Any], algorithm: str) -> Any:
    # Here, not above: most servers take no JWTs, and need not load a library of cryptography.
    from cryptography.exceptions import UnsupportedAlgorithm
    from jwt import PyJWTError
    from jwt.algorithms import get_default_algorithms

    try:
        value = get_default_algorithms()[algorithm].from_jwk(public)
    except (PyJWTError, UnsupportedAlgorithm, ValueError, TypeError, OverflowError) as error:
        raise KeysInvalid(f"it cannot be read: {str(error)[:200]}") from None
    if public["kty"] == "RSA" and value.key_size < _RSA_BITS_MIN:
        raise KeysInvalid(f"it has {value.key_size} bits, and RSA needs {_RSA_BITS_MIN}")
    return value

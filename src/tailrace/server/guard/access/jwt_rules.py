"""
What `[jwt]` of the access file says: whose tokens are taken, and which keys they are verified with.

    [jwt]
    issuer = "https://login.example.org/"
    audience = "tailrace"                or several, any of which will do
    jwks = "keys.json"                   a file beside this one, or https://…; http:// to loopback
    algorithms = ["RS256", "ES256"]      optional; all that are asymmetric
    scope_claim = "scope"                optional
    leeway_s = 0                         optional: how far clocks may be apart
"""

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from tailrace.server.guard.access.jwks import ALGORITHMS, KeySet, KeysInvalid, parse_keys

__all__ = ["JwtChecks", "JwtRules", "JwtRulesInvalid", "jwt_rules"]

_KEYS: Final = ("issuer", "audience", "jwks", "algorithms", "scope_claim", "leeway_s")
_DEFAULT_ALGORITHMS: Final = tuple(name for name in ALGORITHMS if not name.startswith("HS"))
_LEEWAY_S_MAX: Final = 600


class JwtRulesInvalid(Exception):
    """What [jwt] says cannot be; the message says where and why."""


@dataclass(frozen=True, slots=True)
class JwtChecks:
    """What is asked of a token."""

    issuer: str
    audience: tuple[str, ...]
    jwks: str
    algorithms: tuple[str, ...] = _DEFAULT_ALGORITHMS
    scope_claim: str = "scope"
    leeway_s: float = 0


@dataclass(frozen=True, slots=True)
class JwtRules:
    """What the file says: the checks, and the keys if they are in a file."""

    checks: JwtChecks
    keys: KeySet | None


def jwt_rules(table: dict[str, Any], folder: Path) -> JwtRules:
    """
    Read `[jwt]` of a file in this folder, and the keys that it names, if they are in a file.

    Raises:
        JwtRulesInvalid: It has a mistake in it.
    """
    for key in table:
        if key not in _KEYS:
            raise JwtRulesInvalid(f"[jwt]: unknown key {key!r}; known: {', '.join(_KEYS)}")
    jwks, keys = _jwks(_text(table, "jwks"), folder)
    checks = JwtChecks(
        issuer=_text(table, "issuer"),
        audience=_texts(table, "audience"),
        jwks=jwks,
        algorithms=_algorithms(table),
        scope_claim=_text(table, "scope_claim") if "scope_claim" in table else "scope",
        leeway_s=_leeway(table),
    )
    return JwtRules(checks, keys)


def _text(table: dict[str, Any], key: str) -> str:
    value = table.get(key)
    if not isinstance(value, str) or not value:
        raise JwtRulesInvalid(f"[jwt]: {key} must be a text that is not empty")
    return value


def _texts(table: dict[str, Any], key: str) -> tuple[str, ...]:
    value = table.get(key)
    values = [value] if isinstance(value, str) else value
    if (
        not isinstance(values, list)
        or not values
        or not all(isinstance(item, str) and item for item in values)
    ):
        raise JwtRulesInvalid(f"[jwt]: {key} must be a text, or a list of texts")
    return tuple(values)


def _algorithms(table: dict[str, Any]) -> tuple[str, ...]:
    if "algorithms" not in table:
        return _DEFAULT_ALGORITHMS
    names = _texts(table, "algorithms")
    for name in names:
        if name not in ALGORITHMS:
            raise JwtRulesInvalid(
                f"[jwt]: {name!r} is not one of the algorithms {', '.join(ALGORITHMS)}"
            )
    return names


def _leeway(table: dict[str, Any]) -> float:
    value = table.get("leeway_s", 0)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise JwtRulesInvalid("[jwt]: leeway_s must be a number")
    if not 0 <= value <= _LEEWAY_S_MAX:
        raise JwtRulesInvalid(f"[jwt]: leeway_s must be from 0 to {_LEEWAY_S_MAX}")
    return value


def _jwks(value: str, folder: Path) -> tuple[str, KeySet | None]:
    if "://" not in value:
        path = folder / value
        try:
            return str(path), parse_keys(path.read_bytes())
        except (OSError, KeysInvalid) as error:
            raise JwtRulesInvalid(f"[jwt]: jwks: {path}: {error}") from None
    try:
        url = urlsplit(value)
        host = url.hostname or ""
    except ValueError:
        host = ""
    if not host or not (url.scheme == "https" or (url.scheme == "http" and _is_loopback(host))):
        raise JwtRulesInvalid(
            "[jwt]: jwks must be the path of a file or an address with https:// "
            "(http:// to this machine alone): whoever can change it on its way chooses the keys"
        )
    return value, None


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

"""
The access file: TOML, read whole and taken whole or not at all.

    [[token]]                                   made by `tailrace token new`
    id = "k3v9x2mpqa"
    name = "chat backend"                       for people
    hash = "sha256:…"                           of the token's whole text
    grants = ["read,append:/chat-rooms"]
    created = 2026-01-01T00:00:00Z
    expires = 2027-01-01T00:00:00Z              optional

    [anonymous]                                 optional: what needs no credentials
    grants = ["read:/public-feeds"]

    [jwt]                                       optional: whose JWTs are taken, see `jwt_rules`
    issuer = "https://login.example.org/"
    audience = "tailrace"
    jwks = "keys.json"                          beside this file, or https://…
"""

import stat
import tomllib
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any, Final

import structlog

from tailrace.server.guard.access.grants import Grant, GrantInvalid, parse_grant
from tailrace.server.guard.access.jwt_rules import JwtRules, JwtRulesInvalid, jwt_rules
from tailrace.server.guard.access.tokens import HASH, TOKEN_ID, Token

__all__ = ["AccessFile", "AccessFileInvalid", "parse_access_file", "read_access_file"]

_FILE_KEYS: Final = ("token", "anonymous", "jwt")
_TOKEN_KEYS: Final = ("id", "name", "hash", "grants", "created", "expires")
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO

log = structlog.get_logger("tailrace")


class AccessFileInvalid(Exception):
    """The access file cannot be used; the message says where and why."""


@dataclass(frozen=True, slots=True)
class AccessFile:
    """What an access file says."""

    tokens: tuple[Token, ...] = ()
    anonymous: tuple[Grant, ...] | None = None
    jwt: JwtRules | None = None


def read_access_file(path: Path) -> AccessFile:
    """
    Read the file.

    Raises:
        AccessFileInvalid: There is none, or it has a mistake in it.
    """
    try:
        mode = path.stat().st_mode
        text = path.read_text("utf-8")
    except FileNotFoundError:
        raise AccessFileInvalid(
            f"{path}: no such file; make one with: "
            f"tailrace token new --file {path} --name NAME --grant 'read,append:/BUCKET'"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise AccessFileInvalid(f"{path}: cannot be read: {error}") from None
    if mode & _OTHERS:
        log.warning(
            "others than its owner have rights on the access file: chmod 600",
            file=str(path),
            mode=f"{stat.S_IMODE(mode):o}",
        )
    return parse_access_file(text, path)


def parse_access_file(text: str, path: Path, *, keys: bool = True) -> AccessFile:
    """
    The same, of its text; `path` is where it stands, and without `keys` JWTs are left aside.

    Raises:
        AccessFileInvalid: It has a mistake in it.
    """
    try:
        content = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise AccessFileInvalid(f"{path}: {error}") from None
    try:
        return _access_file(content, path.parent if keys else None)
    except (_Mistake, JwtRulesInvalid) as mistake:
        raise AccessFileInvalid(f"{path}: {mistake}") from None


class _Mistake(Exception):
    """Where it is, and what."""


def _access_file(content: dict[str, Any], folder: Path | None) -> AccessFile:
    _check_keys(content, _FILE_KEYS, "the file")
    tables = content.get("token", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise _Mistake("tokens are written as [[token]], with double brackets")
    tokens = tuple(_token(table, number) for number, table in enumerate(tables, 1))
    seen: set[str] = set()
    for token in tokens:
        if token.id in seen:
            raise _Mistake(f"the token {token.id} is there twice")
        seen.add(token.id)
    anonymous = None
    if "anonymous" in content:
        anonymous = _anonymous(content["anonymous"])
    jwt = None
    if "jwt" in content and folder is not None:
        jwt = jwt_rules(_table(content["jwt"], "[jwt]"), folder)
    return AccessFile(tokens, anonymous, jwt)


def _anonymous(value: object) -> tuple[Grant, ...]:
    table = _table(value, "[anonymous]")
    _check_keys(table, ("grants",), "[anonymous]")
    return _grants(table, "[anonymous]")


def _token(table: dict[str, Any], number: int) -> Token:
    where = f"[[token]] number {number}"
    id_ = table.get("id")
    if not isinstance(id_, str) or not TOKEN_ID.fullmatch(id_):
        raise _Mistake(f"{where}: id must be 4 to 32 of a-z and 0-9")
    where = f"[[token]] {id_}"
    _check_keys(table, _TOKEN_KEYS, where)
    hash_ = table.get("hash")
    if not isinstance(hash_, str) or not HASH.fullmatch(hash_):
        raise _Mistake(f"{where}: hash must be sha256: and 64 hexadecimal digits in lower case")
    if not isinstance(table.get("name", ""), str):
        raise _Mistake(f"{where}: name must be a text")
    _time(table, "created", where)
    return Token(id_, hash_, _grants(table, where), _time(table, "expires", where))


def _grants(table: dict[str, Any], where: str) -> tuple[Grant, ...]:
    texts = table.get("grants")
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise _Mistake(f'{where}: grants must be a list of texts, as in ["read:/chat-rooms"]')
    try:
        return tuple(parse_grant(text) for text in texts)
    except GrantInvalid as error:
        raise _Mistake(f"{where}: {error}") from None


def _time(table: dict[str, Any], key: str, where: str) -> int | None:
    """In milliseconds; a time without an offset is UTC, and a date its first moment."""
    value = table.get(key)
    if value is None:
        return None
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time())
    if not isinstance(value, datetime):
        raise _Mistake(f"{where}: {key} must be a time, as in 2027-01-01T00:00:00Z without quotes")
    if value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
    return int(value.timestamp() * 1000)


def _table(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Mistake(f"{where} must be a table, with single brackets")
    return value


def _check_keys(table: dict[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in known:
            raise _Mistake(f"{where}: unknown key {key!r}; known: {', '.join(known)}")

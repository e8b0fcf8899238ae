"""
The access file: TOML, which is accepted as a whole or not at all.

    [[token]]                                   made by `tailrace token new`
    id = "k3v9x2mpqa"
    name = "chat backend"                       a note
    hash = "sha256:…"                           of the token's text
    grants = ["read,append:/chat-rooms"]
    created = 2026-01-01T00:00:00Z
    expires = 2027-01-01T00:00:00Z              optional

    [anonymous]                                 optional: grants without credentials
    grants = ["read:/public-feeds"]

    [jwt]                                       optional: the issuer of accepted JWTs
    issuer = "https://login.example.org/"
    audience = "tailrace"                       or a list, any of which is accepted
    jwks = "keys.json"                          a file beside this one, or https://…
    algorithms = ["RS256", "ES256"]             optional; by default, all asymmetric ones
    scope_claim = "scope"                       optional
    leeway_s = 0                                optional: tolerated clock difference
"""

import stat
import tomllib
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Final, TypeAlias, get_args
from urllib.parse import urlsplit

import msgspec
import structlog
from msgspec import Meta

from tailrace.server.config import convert
from tailrace.server.guard.access.grants import parse_grants
from tailrace.server.guard.access.jwks import (
    AsymmetricAlgorithm,
    Jwks,
    JwksInvalid,
    SymmetricAlgorithm,
    parse_jwks,
)
from tailrace.server.guard.access.tokens import Token, parse_timestamp
from tailrace.server.settings import SettingsError

__all__ = [
    "AccessFile", "AccessFileInvalid", "JwtSettings", "load_access_file", "parse_access_file",
    "read_access_file",
]  # fmt: skip

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_Text: TypeAlias = Annotated[str, Meta(min_length=1)]
_Algorithm: TypeAlias = AsymmetricAlgorithm | SymmetricAlgorithm

log = structlog.get_logger("tailrace")


class AccessFileInvalid(SettingsError):
    """The access file cannot be used; the text names the key and says why."""


class Anonymous(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table `[anonymous]`."""

    grants: tuple[str, ...]

    def __post_init__(self) -> None:
        parse_grants(self.grants)


class JwtSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table `[jwt]`."""

    issuer: _Text
    audience: _Text | Annotated[tuple[_Text, ...], Meta(min_length=1)]
    jwks: _Text
    algorithms: Annotated[tuple[_Algorithm, ...], Meta(min_length=1)] = get_args(
        AsymmetricAlgorithm
    )
    scope_claim: _Text = "scope"
    leeway_s: Annotated[float, Meta(ge=0, le=600)] = 0.0

    def __post_init__(self) -> None:
        if "://" in self.jwks and not _is_trusted(self.jwks):
            raise ValueError(
                "jwks must be the path of a file or an https:// URL (http:// only to loopback): "
                "an attacker who can change the response chooses the keys"
            )


class AccessFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of an access file."""

    token: tuple[Token, ...] = ()
    anonymous: Anonymous | None = None
    jwt: JwtSettings | None = None

    def __post_init__(self) -> None:
        ids = [token.id for token in self.token]
        for id_ in ids:
            if ids.count(id_) > 1:
                raise ValueError(f"[[token]] {id_}: the id is not unique")


def read_access_file(path: Path) -> str:
    """
    The text of an access file.

    Raises:
        AccessFileInvalid: The file is missing, or is not UTF-8.
        OSError: It cannot be read.
    """
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        raise AccessFileInvalid(
            f"{path}: no such file; make one with: "
            f"tailrace token new --file {path} --name NAME --grant 'read,append:/BUCKET'"
        ) from None
    except UnicodeDecodeError as error:
        raise AccessFileInvalid(f"{path}: cannot be read: {error}") from None


def load_access_file(path: Path) -> tuple[AccessFile, Jwks | None]:
    """
    Read the file, and the JWK set that it names if that is a file, too.

    Raises:
        AccessFileInvalid: One of them is missing or invalid.
    """
    try:
        text = read_access_file(path)
        mode = path.stat().st_mode
    except OSError as error:
        raise AccessFileInvalid(f"{path}: cannot be read: {error}") from None
    if mode & _OTHERS:
        log.warning(
            "the access file is accessible to other users: chmod 600",
            file=str(path),
            mode=f"{stat.S_IMODE(mode):o}",
        )
    file = parse_access_file(text, path)
    if file.jwt is None or "://" in file.jwt.jwks:
        return file, None
    jwks = path.parent / file.jwt.jwks
    try:
        return file, parse_jwks(jwks.read_bytes())
    except (OSError, JwksInvalid) as error:
        raise AccessFileInvalid(f"{path}: [jwt]: jwks: {jwks}: {error}") from None


def parse_access_file(text: str, path: Path) -> AccessFile:
    """
    Parse the text of an access file; `path` is for messages.

    Raises:
        AccessFileInvalid: A key or value is invalid.
    """
    try:
        return convert(tomllib.loads(text), AccessFile, dec_hook=parse_timestamp)
    except (ValueError, RecursionError) as error:
        raise AccessFileInvalid(f"{path}: {error}") from None


def _is_trusted(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        return bool(host) and (
            parts.scheme == "https"
            or (parts.scheme == "http" and (host == "localhost" or ip_address(host).is_loopback))
        )
    except ValueError:
        return False

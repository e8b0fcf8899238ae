"""
Static tokens: `trt_<id>_<secret>`.

Rule 1: only the id of a token and the SHA-256 of its text are stored. The secret has 256 random
bits, so it cannot be guessed. A slow hash, which passwords need because people choose them, would
only make requests slow.

Rule 2: a token is found by its id, which is not secret, and compared by `hmac.compare_digest`; an
unknown id is compared as well. So neither the response nor its time differs between an
unknown id and a wrong secret.
"""

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from tailrace.server.guard.access.grants import parse_grants
from tailrace.server.guard.access.principal import Principal

__all__ = [
    "TOKEN_PREFIX", "Timestamp", "Token", "find_token", "hash_of", "new_token", "parse_timestamp",
]  # fmt: skip

TOKEN_PREFIX: Final = "trt_"

_ID_ALPHABET: Final = "abcdefghijkmnpqrstuvwxyz23456789"
_ID_CHARS: Final = 10
_SECRET_BYTES: Final = 32
# As long as a hash, and equal to none.
_NO_HASH: Final = "sha256:" + "-" * 64


class Timestamp(datetime):
    """A time or date of TOML, in UTC. Without an offset it is UTC; a date is its first moment."""


def parse_timestamp(type_: type, value: Any) -> Timestamp:
    """
    Convert a value of TOML; a `dec_hook` of msgspec.

    Raises:
        ValueError: It is neither a date nor a time with a date.
    """
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time())
    if not isinstance(value, datetime):
        raise ValueError("must be a time, as in 2027-01-01T00:00:00Z without quotation marks")
    utc = value if value.tzinfo else value.replace(tzinfo=UTC)
    return Timestamp.fromtimestamp(utc.timestamp(), UTC)


class Token(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table `[[token]]` of the access file."""

    id: Annotated[
        str, Meta(pattern=r"\A[a-z0-9]{4,32}\Z", description="4 to 32 characters of a-z and 0-9")
    ]
    hash: Annotated[
        str,
        Meta(
            pattern=r"\Asha256:[0-9a-f]{64}\Z",
            description="sha256: and 64 hexadecimal digits in lower case",
        ),
    ]
    grants: tuple[str, ...]
    name: str = ""
    created: Timestamp | None = None
    expires: Timestamp | None = None

    def __post_init__(self) -> None:
        parse_grants(self.grants)

    @property
    def basis(self) -> object:
        """Equal if it identifies the same principal with the same grants; notes may differ."""
        return self.id, self.hash, self.grants, self.expires

    def principal(self) -> Principal:
        expires_at = None if self.expires is None else int(self.expires.timestamp() * 1000)
        grants = parse_grants(self.grants)
        return Principal(f"token:{self.id}", grants, expires_at=expires_at, basis=self.basis)


def find_token(tokens: Mapping[str, Token], text: str) -> Token | None:
    """The token of this text, if there is one. Does not check its expiry."""
    found = tokens.get(text.removeprefix(TOKEN_PREFIX).partition("_")[0])
    expected = _NO_HASH if found is None else found.hash
    return found if hmac.compare_digest(expected, hash_of(text)) else None


def hash_of(text: str) -> str:
    """The stored hash of a token's text."""
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def new_token() -> tuple[str, str]:
    """The id and the text of a new token."""
    id_ = "".join(secrets.choice(_ID_ALPHABET) for _ in range(_ID_CHARS))
    return id_, f"{TOKEN_PREFIX}{id_}_{secrets.token_urlsafe(_SECRET_BYTES)}"

"""
Static tokens: `trt_<id>_<secret>`.

Rule 1: what is kept of a token is its id and the SHA-256 of its whole text. The secret is 256
random bits, so there is nothing to guess: a slow hash, which passwords need because people choose
them, would only make each request slow.

Rule 2: a token is found by its id, which is no secret, and compared by `hmac.compare_digest`; an
unknown id is compared as well, with what nothing hashes to. So neither what is answered nor how
long that took tells an unknown id from a wrong secret.
"""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from typing import Final

from tailrace.server.guard.access.grants import Grant
from tailrace.server.guard.access.principal import Principal

__all__ = ["HASH", "TOKEN_ID", "TOKEN_PREFIX", "Token", "Tokens", "hash_of", "new_token"]

TOKEN_PREFIX: Final = "trt_"
TOKEN_ID: Final = re.compile(r"[a-z0-9]{4,32}")
HASH: Final = re.compile(r"sha256:[0-9a-f]{64}")

_ID_ALPHABET: Final = "abcdefghijkmnpqrstuvwxyz23456789"
_ID_CHARS: Final = 10
_SECRET_BYTES: Final = 32
# As long as every other one, and no digest in hexadecimal.
_NO_HASH: Final = b"sha256:" + b"-" * 64


@dataclass(frozen=True, slots=True)
class Token:
    """What is kept of a token."""

    id: str
    hash: str
    grants: tuple[Grant, ...]
    expires_at: int | None = None

    def principal(self) -> Principal:
        return Principal(f"token:{self.id}", self.grants, expires_at=self.expires_at, basis=self)


class Tokens:
    """All tokens of a file."""

    def __init__(self, tokens: tuple[Token, ...] = ()) -> None:
        self._by_id = {token.id: token for token in tokens}

    def __contains__(self, token: Token) -> bool:
        return self._by_id.get(token.id) == token

    def find(self, text: str) -> Token | None:
        """Whose text this is, if it is one's; whether it has expired is not looked at."""
        found = self._by_id.get(text.removeprefix(TOKEN_PREFIX).partition("_")[0])
        kept = _NO_HASH if found is None else found.hash.encode()
        return found if hmac.compare_digest(kept, hash_of(text).encode()) else None


def hash_of(text: str) -> str:
    """What is kept of a token's text."""
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def new_token() -> tuple[str, str]:
    """The id and the whole text of a new token."""
    id_ = "".join(secrets.choice(_ID_ALPHABET) for _ in range(_ID_CHARS))
    return id_, f"{TOKEN_PREFIX}{id_}_{secrets.token_urlsafe(_SECRET_BYTES)}"

"""Sample access files, requests, keys and JWTs for tests of access control."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from tailrace.server.guard.access import Access
from tailrace.server.guard.access.tokens import hash_of, new_token
from tailrace.server.message import Request

ISSUER = "https://login.example.org/"
AUDIENCE = "tailrace"


class AccessToml:
    """An access file to which tests add tokens and tables."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._parts: dict[str, str] = {}
        self._write()

    def token(self, *grants: str, expires: str = "") -> str:
        """Add a token; returns its text."""
        id_, text = new_token()
        lines = ["[[token]]", f'id = "{id_}"', f'hash = "{hash_of(text)}"']
        lines.append(f"grants = {json.dumps(grants)}")
        if expires:
            lines.append(f"expires = {expires}")
        self.put(text, "\n".join(lines))
        return text

    def put(self, name: str, text: str) -> None:
        self._parts[name] = text
        self._write()

    def remove(self, name: str) -> None:
        del self._parts[name]
        self._write()

    def load(self) -> Access:
        return Access(self.path)

    def _write(self) -> None:
        self.path.write_text("\n\n".join(self._parts.values()) + "\n")
        self.path.chmod(0o600)


def bearer(token: str) -> dict[bytes, bytes]:
    return {b"authorization": f"Bearer {token}".encode("latin-1")}


def basic(token: str, name: str = "any") -> dict[bytes, bytes]:
    return {b"authorization": b"Basic " + base64.b64encode(f"{name}:{token}".encode())}


def new_request(
    method: str = "GET",
    path: str = "/chat-rooms/general",
    headers: dict[bytes, bytes] | None = None,
    query: str = "",
) -> Request:
    return Request(method, path.encode(), query.encode(), headers or {}, b"")


def b64(data: bytes | dict[str, Any]) -> str:
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


class Signer:
    """A private key, and its public half as a JWK."""

    def __init__(self, algorithm: str, kid: str | None = None) -> None:
        self.algorithm = algorithm
        self.kid = kid
        self.private: Any
        if algorithm.startswith(("RS", "PS")):
            self.private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
            exported = RSAAlgorithm.to_jwk(self.private.public_key())
        elif algorithm.startswith("ES"):
            curves = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}
            self.private = ec.generate_private_key(curves[algorithm])
            exported = ECAlgorithm.to_jwk(self.private.public_key())
        else:
            self.private = ed25519.Ed25519PrivateKey.generate()
            exported = OKPAlgorithm.to_jwk(self.private.public_key())
        self.jwk: dict[str, Any] = json.loads(exported)
        # PyJWT adds it; other issuers often leave it out.
        self.jwk.pop("key_ops", None)
        if kid is not None:
            self.jwk["kid"] = kid

    def sign(
        self,
        scope: Any = "read:/chat-rooms",
        *,
        header: dict[str, Any] | None = None,
        **claims: Any,
    ) -> str:
        """A valid JWT but for these arguments; a claim that is None is left out."""
        headers = {"kid": self.kid, **(header or {})}
        return jwt.encode(
            good_claims(scope, **claims),
            self.private,
            algorithm=self.algorithm,
            headers={name: value for name, value in headers.items() if value is not None},
        )


def good_claims(scope: Any = "read:/chat-rooms", **claims: Any) -> dict[str, Any]:
    now = int(time.time())
    found = {
        "iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": now + 600, "iat": now - 1,
        "scope": scope, **claims,
    }  # fmt: skip
    return {name: value for name, value in found.items() if value is not None}


def jwks(*keys: dict[str, Any]) -> str:
    return json.dumps({"keys": list(keys)})


def jwt_table(keys: str = "keys.json", **others: Any) -> str:
    lines: Iterable[str] = (f"{name} = {json.dumps(value)}" for name, value in others.items())
    fixed = [f'issuer = "{ISSUER}"', f'audience = "{AUDIENCE}"', f'jwks = "{keys}"']
    return "\n".join(
        ["[jwt]", *(line for line in fixed if line.split(" ")[0] not in others), *lines]
    )

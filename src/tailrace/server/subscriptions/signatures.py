"""
Signatures of webhooks: Ed25519 keys, the `Webhook-Signature` header, and the JWK set.

The seed of the key is stored by the engine, so that the key is the same after a restart.
"""

import base64
import hashlib
from typing import Final

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

__all__ = ["SIGNATURE_ALGORITHM", "SIGNATURE_HEADER", "WebhookSigner"]

SIGNATURE_HEADER: Final = "Webhook-Signature"
SIGNATURE_ALGORITHM: Final = "ed25519"
_KID_PREFIX: Final = "ds_"


class WebhookSigner:
    """Signs the bodies of webhooks with one key."""

    def __init__(self, seed: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        public = self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        # RFC 8037: the members that the thumbprint of RFC 7638 covers, in lexical order.
        members = {"crv": "Ed25519", "kty": "OKP", "x": base64url(public)}
        thumbprint = hashlib.sha256(msgspec.json.encode(members)).digest()
        self.kid = _KID_PREFIX + base64url(thumbprint)
        jwk = {**members, "kid": self.kid, "use": "sig", "alg": "EdDSA"}
        self.jwks = msgspec.json.encode({"keys": [jwk]})

    def sign(self, body: bytes, now_s: int) -> str:
        """The value of the signature header for a body that is sent at this time."""
        signature = self._key.sign(b"%d.%b" % (now_s, body))
        return f"t={now_s},kid={self.kid},{SIGNATURE_ALGORITHM}={base64url(signature)}"


def base64url(data: bytes) -> str:
    """Without padding, as in RFC 7515."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

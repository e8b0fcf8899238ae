"""
For receivers of webhooks: verify that a webhook comes from the server, and is recent.

    keys = fetch_keys("https://streams.example.org/v1/stream/__ds/jwks.json")
    verify(request_body, request_headers["Webhook-Signature"], keys)

The body is that of the request as it was received, byte for byte. Needs the library `cryptography`.
"""

import base64
import binascii
import json
import re
import time
import urllib.request
from collections.abc import Mapping
from typing import Any, Final

from tailrace.exceptions import TailraceError

__all__ = ["REPLAY_S", "WebhookInvalid", "fetch_keys", "verify"]

REPLAY_S: Final = 300
"""A webhook whose time differs more from ours is refused: it may be replayed."""

_SIGNATURE: Final = re.compile(r"t=([0-9]{1,12}),kid=([^,]{1,200}),ed25519=([A-Za-z0-9_-]{86})")
_FETCH_S: Final = 10.0


class WebhookInvalid(TailraceError):
    """The webhook was not sent by this server, was changed, or is too old."""

    message = "{reason}"
    reason: str


def fetch_keys(jwks_url: str) -> dict[str, Any]:
    """
    The public keys of a server, from `jwks_url` of a subscription. Keep them for minutes.

    Raises:
        OSError: They cannot be fetched.
        ValueError: The response is not JSON.
    """
    with urllib.request.urlopen(jwks_url, timeout=_FETCH_S) as response:
        keys: dict[str, Any] = json.loads(response.read())
    return keys


def verify(
    body: bytes, signature: str, keys: Mapping[str, Any], *, now_s: float | None = None
) -> dict[str, Any]:
    """
    The content of a webhook, if its signature is valid.

    Args:
        body: The body of the request, unchanged.
        signature: The header `Webhook-Signature`.
        keys: The JWK set of the server. If it lacks the key, fetch it again.
        now_s: Seconds since 1970, if not now.

    Raises:
        WebhookInvalid: The signature is missing, invalid, too old, or of another key.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    found = _SIGNATURE.fullmatch(signature)
    if found is None:
        raise WebhookInvalid("the Webhook-Signature header is missing or malformed")
    sent_s, kid = int(found[1]), found[2]
    if abs((time.time() if now_s is None else now_s) - sent_s) > REPLAY_S:
        raise WebhookInvalid("the webhook is too old, or the clocks differ")
    key = next((key for key in keys.get("keys", ()) if key.get("kid") == kid), None)
    if key is None:
        raise WebhookInvalid(f"the key {kid!r} is unknown: fetch the keys again")
    try:
        public = Ed25519PublicKey.from_public_bytes(_decoded(key["x"]))
        public.verify(_decoded(found[3]), b"%d.%b" % (sent_s, body))
        content = json.loads(body)
    except (InvalidSignature, binascii.Error, KeyError, ValueError):
        raise WebhookInvalid("the signature is not valid for this body") from None
    if not isinstance(content, dict):
        raise WebhookInvalid("the body is not a JSON object")
    return content


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))

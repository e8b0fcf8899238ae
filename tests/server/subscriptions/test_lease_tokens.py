"""The tokens of leases, and the signatures of webhooks."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.client.webhooks import REPLAY_S, WebhookInvalid, verify
from tailrace.server.subscriptions.errors import TokenExpired, TokenInvalid
from tailrace.server.subscriptions.lease_tokens import (
    CALLBACK_KIND,
    CLAIM_KIND,
    TOKEN_S,
    LeaseTokens,
)
from tailrace.server.subscriptions.signatures import WebhookSigner

SECRET = bytes(range(32))
NOW = 1_700_000_000


class Clock:
    def __init__(self) -> None:
        self.ms = NOW * 1000

    def __call__(self) -> int:
        return self.ms


def test_a_token_is_valid_for_its_subscription_kind_and_time() -> None:
    clock = Clock()
    tokens = LeaseTokens(SECRET, clock)
    token = tokens.issue(CLAIM_KIND, b"", "sub", 5, 7)
    assert tokens.verify(token, CLAIM_KIND, b"", "sub", 5) == 7
    others = (
        (CALLBACK_KIND, b"", "sub", 5),
        (CLAIM_KIND, b"rooms", "sub", 5),
        (CLAIM_KIND, b"", "s", 5),
        (CLAIM_KIND, b"", "sub", 6),
    )
    for other in others:
        with pytest.raises(TokenInvalid):
            tokens.verify(token, *other)
    with pytest.raises(TokenInvalid):
        LeaseTokens(bytes(32), clock).verify(token, CLAIM_KIND, b"", "sub", 5)
    clock.ms += TOKEN_S * 1000 - 1
    assert tokens.verify(token, CLAIM_KIND, b"", "sub", 5) == 7
    clock.ms += 1
    with pytest.raises(TokenExpired):
        tokens.verify(token, CLAIM_KIND, b"", "sub", 5)


@given(position=st.integers(0, 10_000), change=st.integers(1, 255))
def test_no_changed_token_is_accepted(position: int, change: int) -> None:
    tokens = LeaseTokens(SECRET, Clock())
    token = tokens.issue(CLAIM_KIND, b"", "sub", 5, 7)
    at = position % len(token)
    other = chr(ord(token[at]) ^ change)
    changed = token[:at] + other + token[at + 1 :]
    try:
        found = tokens.verify(changed, CLAIM_KIND, b"", "sub", 5)
    except TokenInvalid:
        return
    # The last character of base64 has bits that mean nothing: the same token, spelled differently.
    assert found == 7
    assert at in (token.index(".") - 1, len(token) - 1)


@given(st.text(max_size=200))
def test_no_text_is_accepted_as_a_token(text: str) -> None:
    with pytest.raises(TokenInvalid):
        LeaseTokens(SECRET, Clock()).verify(text, CLAIM_KIND, b"", "sub", 5)


def signed() -> tuple[bytes, str, dict[str, Any]]:
    signer = WebhookSigner(SECRET)
    body = b'{"wake_id":"w"}'
    return body, signer.sign(body, NOW), json.loads(signer.jwks)


def test_the_keys_are_as_the_protocol_says() -> None:
    signer = WebhookSigner(SECRET)
    (key,) = json.loads(signer.jwks)["keys"]
    members = f'{{"crv":"Ed25519","kty":"OKP","x":"{key["x"]}"}}'
    digest = hashlib.sha256(members.encode()).digest()
    thumbprint = base64.urlsafe_b64encode(digest).decode().rstrip("=")
    assert key == {
        "kty": "OKP",
        "crv": "Ed25519",
        "kid": f"ds_{thumbprint}",
        "use": "sig",
        "alg": "EdDSA",
        "x": key["x"],
    }
    assert len(base64.urlsafe_b64decode(key["x"] + "=")) == 32
    assert WebhookSigner(SECRET).kid == signer.kid != WebhookSigner(bytes(32)).kid


def test_receivers_verify_the_signature() -> None:
    body, signature, keys = signed()
    assert verify(body, signature, keys, now_s=NOW + REPLAY_S) == {"wake_id": "w"}
    assert signature.startswith(f"t={NOW},kid=ds_")
    assert "=" not in signature.rpartition("ed25519=")[2]


@pytest.mark.parametrize(
    ("body", "signature", "now_s"),
    [
        (b'{"wake_id":"v"}', None, NOW),
        (None, None, NOW + REPLAY_S + 1),
        (None, None, NOW - REPLAY_S - 1),
        (None, "", NOW),
        (None, f"t={NOW},kid=ds_x,ed25519={'A' * 86}", NOW),
    ],
)
def test_receivers_refuse_what_is_not_signed_or_not_recent(
    body: bytes | None, signature: str | None, now_s: int
) -> None:
    good_body, good_signature, keys = signed()
    with pytest.raises(WebhookInvalid):
        verify(
            good_body if body is None else body,
            good_signature if signature is None else signature,
            keys,
            now_s=now_s,
        )


def test_receivers_refuse_a_signature_with_another_time_or_key() -> None:
    body, signature, keys = signed()
    with pytest.raises(WebhookInvalid):
        verify(body, signature.replace(f"t={NOW}", f"t={NOW + 1}"), keys, now_s=NOW)
    other = json.loads(WebhookSigner(bytes(32)).jwks)
    with pytest.raises(WebhookInvalid):
        verify(body, signature, other, now_s=NOW)
    other["keys"][0]["kid"] = keys["keys"][0]["kid"]
    with pytest.raises(WebhookInvalid):
        verify(body, signature, other, now_s=NOW)

"""
JWTs: valid ones are accepted, and every one with a single defect is rejected.

Method: real keys and real signatures, made by PyJWT, or by hand where PyJWT refuses to make them.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from tailrace.server.guard.access import Access, AccessFileInvalid, Operation, Principal
from tailrace.server.guard.access.errors import CredentialsRefused
from tests.server.access.samples import (
    AUDIENCE,
    ISSUER,
    AccessToml,
    Signer,
    b64,
    bearer,
    good_claims,
    jwks,
    jwt_table,
    new_request,
)

RSA = Signer("RS256", "rsa-1")
EC = Signer("ES256", "ec-1")
OTHER = Signer("RS256", "rsa-1")
SECRET = b"0123456789abcdef0123456789abcdef"
OCT = {"kty": "oct", "kid": "oct-1", "k": b64(SECRET)}

Load = Callable[..., Access]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """An access file with JWTs of these keys."""

    def load(*keys: dict[str, Any], **table: Any) -> Access:
        (tmp_path / "keys.json").write_text(jwks(*keys))
        toml = AccessToml(tmp_path / "access.toml")
        toml.put("jwt", jwt_table(**table))
        return toml.load()

    return load


def identify(access: Access, token: str) -> Principal:
    return access.identify(new_request(headers=bearer(token)))


def refused(access: Access, token: str) -> str:
    with pytest.raises(CredentialsRefused) as caught:
        identify(access, token)
    reason = caught.value.reason
    # It goes into a quoted string of a header.
    assert reason.isascii() and '"' not in reason and "\\" not in reason
    return reason


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256", "EdDSA"])
def test_a_valid_token_has_a_principal_grants_and_an_expiry(load: Load, algorithm: str) -> None:
    check_valid(load, algorithm)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["RS384", "RS512", "PS384", "PS512", "ES384", "ES512"])
def test_a_valid_token_of_a_longer_hash(load: Load, algorithm: str) -> None:
    check_valid(load, algorithm)


def check_valid(load: Load, algorithm: str) -> None:
    signer = Signer(algorithm, "k")
    exp = int(time.time()) + 300
    principal = identify(load(signer.jwk), signer.sign("read:/chat-rooms openid", exp=exp))
    assert principal.id == "jwt:alice"
    assert principal.expires_at == exp * 1000
    assert principal.may(Operation.READ, b"chat-rooms\0a")
    assert not principal.may(Operation.APPEND, b"chat-rooms\0a")


def test_scopes_that_are_grants_are_granted_and_others_ignored(load: Load) -> None:
    access = load(RSA.jwk)
    scopes: list[tuple[Any, list[str]]] = [
        ("read:/chat-rooms append:/chat-rooms", ["read", "append"]),
        (["read:/chat-rooms", "create:/chat-rooms"], ["read", "create"]),
        ("openid profile read:/chat-rooms email:x", ["read"]),
        ("read:/chat-rooms read:/no write:/chat-rooms", ["read"]),
        (["read:/chat-rooms", 1, None, ["append:/chat-rooms"]], ["read"]),
        ("", []),
        ([], []),
        (None, []),
        (1, []),
        ({"read:/chat-rooms": True}, []),
        ("\ud800:/\ud800", []),
    ]
    for scope, operations in scopes:
        principal = identify(access, RSA.sign(scope))
        granted = [each for each in Operation if principal.may(each, b"chat-rooms\0a")]
        assert granted == operations, scope


def test_the_file_names_the_claim_of_the_grants(load: Load) -> None:
    access = load(RSA.jwk, scope_claim="https://example.org/grants")
    claims: dict[str, Any] = {"https://example.org/grants": ["*:/"]}
    principal = identify(access, RSA.sign(None, **claims))
    assert principal.may(Operation.ADMIN, b"/-/metrics")
    assert not identify(access, RSA.sign("*:/")).may(Operation.READ, b"chat-rooms")


def hostile() -> dict[str, str]:
    """Each is valid but for what its name says."""
    now = int(time.time())
    head, payload, signature = RSA.sign().split(".")
    public = RSA.private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    twice = json.dumps(good_claims())[:-1] + ', "scope": "*:/"}'
    two_algs = b'{"alg": "none", "alg": "RS256", "kid": "rsa-1"}'
    deep = b"[" * 3000
    return {
        "alg none": f"{b64({'alg': 'none', 'kid': 'rsa-1'})}.{payload}.",
        "alg None": f"{b64({'alg': 'None', 'kid': 'rsa-1'})}.{payload}.{signature}",
        "alg none without a key": f"{b64({'alg': 'none'})}.{payload}.",
        "no alg": f"{b64({'kid': 'rsa-1'})}.{payload}.{signature}",
        "alg is a list": f"{b64({'alg': ['RS256'], 'kid': 'rsa-1'})}.{payload}.{signature}",
        "no signature": f"{head}.{payload}.",
        "another signature": f"{head}.{payload}.{b64(b'0' * 256)}",
        "another payload": f"{head}.{b64(good_claims('*:/'))}.{signature}",
        "HMAC with the public key as PEM": by_hand({"alg": "HS256", "kid": "rsa-1"}, public),
        "HMAC with the modulus": by_hand(
            {"alg": "HS256", "kid": "rsa-1"}, RSA.jwk["n"].encode()
        ),
        "HMAC with nothing": by_hand({"alg": "HS256", "kid": "rsa-1"}, b""),
        "another key of the same kid": OTHER.sign(),
        "an elliptic key's kid": RSA.sign(header={"kid": "ec-1"}),
        "an unknown kid": RSA.sign(header={"kid": "rsa-2"}),
        "a kid that is a path": RSA.sign(header={"kid": "../../../../dev/null"}),
        "a kid that is SQL": RSA.sign(header={"kid": "x' UNION SELECT 'a"}),
        "a kid that is an address": RSA.sign(header={"kid": "https://evil.example.org/keys"}),
        "a kid that is a number": by_hand({"alg": "RS256", "kid": 1}, b"x"),
        "its own key": OTHER.sign(header={"kid": None, "jwk": OTHER.jwk}),
        "its own key and kid": OTHER.sign(header={"kid": "a", "jwk": {**OTHER.jwk, "kid": "a"}}),
        "the address of its own key": OTHER.sign(header={"jku": "https://evil.example.org/keys"}),
        "its own certificate": OTHER.sign(header={"x5c": ["MIIB"], "x5u": "https://evil.example"}),
        "an extension": RSA.sign(header={"crit": ["exp"], "exp": now + 9}),
        "detached": RSA.sign(header={"b64": False, "crit": ["b64"]}),
        "not encoded": by_hand({"alg": "RS256", "kid": "rsa-1", "b64": False}, b"x"),
        "expired": RSA.sign(exp=now - 1),
        "no exp": RSA.sign(exp=None),
        "exp is a word": RSA.sign(exp="soon"),
        "exp is infinite": by_key(RSA, json.dumps(good_claims(exp=float("inf"))).encode()),
        "exp is NaN": by_key(RSA, json.dumps(good_claims(exp=float("nan"))).encode()),
        "not yet valid": RSA.sign(nbf=now + 60),
        "issued tomorrow": RSA.sign(iat=now + 86_400),
        "another audience": RSA.sign(aud="other"),
        "other audiences": RSA.sign(aud=["other", "tailrace2"]),
        "no audience": RSA.sign(aud=None),
        "an empty audience": RSA.sign(aud=[]),
        "another issuer": by_key(RSA, json.dumps(good_claims(iss=ISSUER + "x")).encode()),
        "an issuer cut short": by_key(RSA, json.dumps(good_claims(iss=ISSUER[:-1])).encode()),
        "a list of issuers": by_key(RSA, json.dumps(good_claims(iss=[ISSUER])).encode()),
        "no issuer": RSA.sign(iss=None),
        "sub is a number": by_key(RSA, json.dumps(good_claims(sub=1)).encode()),
        "duplicate claims": by_key(RSA, twice.encode()),
        "duplicate alg": f"{b64(two_algs)}.{payload}.{signature}",
        "a payload that is a list": by_key(RSA, b"[]"),
        "a payload that is no JSON": by_key(RSA, b"{"),
        "a payload that is not UTF-8": by_key(RSA, b'{"a": "\xff"}'),
        "a payload that is nested": by_key(RSA, deep),
        "a header that is nested": f"{b64(deep)}.{payload}.{signature}",
        "a header that is a text": f"{b64(json.dumps('RS256').encode())}.{payload}.{signature}",
        "bad base64 in the header": f"!!!!.{payload}.{signature}",
        "bad base64 in the payload": f"{head}.a.{signature}",
        "bad base64 in the signature": f"{head}.{payload}.!",
        "plain base64": f"{head}.{payload}.{signature[:-4]}+/==",
        "padded": f"{head}=.{payload}.{signature}",
        "truncated": f"{head}.{payload}",
        "truncated within": f"{head}.{payload}.{signature[:-8]}",
        "four parts": f"{head}.{payload}.{signature}.{signature}",
        "five parts, as if encrypted": f"{head}.{payload}.{signature}.a.b",
        "nothing but dots": "..",
        "huge": RSA.sign("read:/chat-rooms " * 1000),
        "a token of another server": Signer("ES256", "ec-1").sign(),
    }  # fmt: skip


def by_hand(header: dict[str, Any], secret: bytes) -> str:
    """Signed by HMAC, whatever the header says."""
    signed = f"{b64(header)}.{b64(good_claims())}"
    return f"{signed}.{b64(hmac.digest(secret, signed.encode(), hashlib.sha256))}"


def by_key(signer: Signer, payload: bytes) -> str:
    """Correctly signed, whatever the payload is."""
    return jwt.PyJWS().encode(
        payload, signer.private, algorithm=signer.algorithm, headers={"kid": signer.kid}
    )


def test_hostile_tokens_are_rejected_with_a_reason(load: Load) -> None:
    access = load(RSA.jwk, EC.jwk)
    found = {}
    for name, token in hostile().items():
        found[name] = refused(access, token)
        assert token not in found[name]
    assert identify(access, RSA.sign()).id == "jwt:alice"
    assert len(found) > 60
    assert found["expired"] == "the token has expired"
    assert found["another audience"] == "the token is for another audience"
    assert found["no exp"] == "the token has no exp"
    assert found["not yet valid"] == "the token is not valid yet"
    assert found["another issuer"] == "the token is of another issuer"
    assert found["another signature"] == "the signature of the token is invalid"
    extended = "the token uses unsupported extensions"
    assert found["an extension"] == found["not encoded"] == extended
    assert found["huge"] == "the credentials are too large"


def test_key_confusion_is_rejected_even_where_hmac_is_allowed(load: Load) -> None:
    """HS256 is allowed and there is a secret; a public key is still not a secret."""
    access = load(RSA.jwk, OCT, algorithms=["RS256", "HS256"])
    assert identify(access, by_hand({"alg": "HS256", "kid": "oct-1"}, SECRET)).id == "jwt:alice"
    assert identify(access, RSA.sign()).id == "jwt:alice"
    for name in ("HMAC with the public key as PEM", "HMAC with the modulus", "HMAC with nothing"):
        refused(access, hostile()[name])
    modulus = base64.urlsafe_b64decode(RSA.jwk["n"] + "==")
    refused(access, by_hand({"alg": "HS256", "kid": "rsa-1"}, modulus))
    refused(access, by_hand({"alg": "RS256", "kid": "oct-1"}, SECRET))


def test_shared_secrets_are_used_only_if_the_file_allows_hmac(load: Load) -> None:
    refused(load(RSA.jwk, OCT), by_hand({"alg": "HS256", "kid": "oct-1"}, SECRET))


def test_only_algorithms_of_the_file_are_accepted(load: Load) -> None:
    access = load(RSA.jwk, EC.jwk, algorithms=["ES256"])
    assert identify(access, EC.sign()).id == "jwt:alice"
    refused(access, RSA.sign())


def test_a_token_without_kid_needs_a_single_fitting_key(load: Load) -> None:
    nameless = Signer("RS256")
    assert identify(load(nameless.jwk, EC.jwk), nameless.sign()).id == "jwt:alice"
    reason = refused(load(nameless.jwk, RSA.jwk), nameless.sign())
    assert reason == "several keys fit the token, and it does not name one"


def test_use_key_ops_and_alg_of_a_key_are_respected(load: Load) -> None:
    assert identify(load({**RSA.jwk, "use": "sig", "alg": "RS256"}), RSA.sign()).id == "jwt:alice"
    refused(load({**RSA.jwk, "alg": "RS512"}), RSA.sign())
    refused(load({**RSA.jwk, "use": "enc"}, EC.jwk), RSA.sign())
    refused(load({**RSA.jwk, "key_ops": ["encrypt"]}, EC.jwk), RSA.sign())


def test_unusable_keys_are_skipped(load: Load) -> None:
    keys: list[Any] = [
        {}, {"kty": "RSA"}, {"kty": "RSA", "n": "AQAB", "e": "AQAB"}, {"kty": "EC", "crv": "P-256"},
        {"kty": "OKP", "crv": "X25519", "x": "AA"}, {"kty": "oct", "k": "c2hvcnQ"}, {"kty": []},
        {"kty": "RSA", "n": 1, "e": None}, {**RSA.jwk, "kid": 1}, {**RSA.jwk, "key_ops": 1},
        {**RSA.jwk, "alg": 1}, {**RSA.jwk, "alg": "none"}, {**EC.jwk, "x": EC.jwk["y"]},
        {"kty": "oct"}, {**RSA.jwk, "alg": "HS256"}, {**EC.jwk, "alg": "ES384"}, 1, None, [],
    ]  # fmt: skip
    for key in keys:
        with pytest.raises(AccessFileInvalid, match="no usable key"):
            load(key)
        assert identify(load(key, EC.jwk), EC.sign()).id == "jwt:alice"


def test_an_rsa_key_that_is_too_short_is_skipped(load: Load) -> None:
    weak = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    with pytest.raises(AccessFileInvalid, match="no usable key"):
        load(json.loads(RSAAlgorithm.to_jwk(weak.public_key())))


def test_a_private_key_in_the_file_verifies_as_its_public_half(load: Load) -> None:
    numbers = RSA.private.private_numbers()
    raw = numbers.d.to_bytes(256, "big")
    assert identify(load({**RSA.jwk, "d": b64(raw)}), RSA.sign()).id == "jwt:alice"


def test_leeway_tolerates_a_difference_of_clocks(load: Load) -> None:
    now = int(time.time())
    access = load(RSA.jwk, leeway_s=60)
    principal = identify(access, RSA.sign(exp=now - 5, nbf=now + 5, iat=now + 5))
    assert principal.expires_at == (now + 55) * 1000
    assert access.is_valid(principal)
    refused(access, RSA.sign(exp=now - 70))


def test_any_of_several_audiences_is_accepted(load: Load) -> None:
    access = load(RSA.jwk, audience=["a", "b"])
    assert identify(access, RSA.sign(aud="a")).id == "jwt:alice"
    assert identify(access, RSA.sign(aud=["x", "b"])).id == "jwt:alice"
    refused(access, RSA.sign(aud=AUDIENCE))


def test_an_id_is_bounded_and_printable(load: Load) -> None:
    access = load(RSA.jwk)
    for subject in ("a" * 3000, "a\nb", "\ud800", "a\x1b[31m", "\u202e"):
        token = by_key(RSA, json.dumps(good_claims(sub=subject)).encode())
        assert identify(access, token).id.startswith("jwt:sha256:")
    assert identify(access, RSA.sign(sub=None)).id == "jwt:"


def test_a_far_exp_stays_exact_as_a_float_of_timers(load: Load) -> None:
    access = load(RSA.jwk)
    for exp in (10**300, 10**400):
        principal = identify(access, RSA.sign(exp=exp))
        assert principal.expires_at is not None
        assert float(principal.expires_at) == principal.expires_at


def test_a_jwt_in_the_query_may_only_read(load: Load) -> None:
    token = RSA.sign("*:/chat-rooms")
    principal = load(RSA.jwk).identify(new_request(query=f"access_token={token}"))
    assert [each for each in Operation if principal.may(each, b"chat-rooms\0a")] == ["read"]


def test_after_a_reload_a_principal_is_valid_only_with_the_same_settings_and_key(
    load: Load, tmp_path: Path
) -> None:
    access = load(RSA.jwk, EC.jwk)
    by_rsa, by_ec = identify(access, RSA.sign()), identify(access, EC.sign())
    access.reload()
    assert access.is_valid(by_rsa) and access.is_valid(by_ec)
    (tmp_path / "keys.json").write_text(jwks(EC.jwk))
    access.reload()
    assert not access.is_valid(by_rsa)
    assert access.is_valid(by_ec)
    refused(access, RSA.sign())
    # Another key of the same name.
    (tmp_path / "keys.json").write_text(jwks({**Signer("ES256").jwk, "kid": "ec-1"}))
    access.reload()
    assert not access.is_valid(by_ec)
    (tmp_path / "keys.json").write_text(jwks(EC.jwk))
    AccessToml(access.path).put("jwt", jwt_table(audience="other"))
    access.reload()
    assert not access.is_valid(by_ec)
    AccessToml(access.path)
    access.reload()
    assert not access.is_valid(by_ec)

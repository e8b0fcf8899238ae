"""The principal of a request: every form of credentials, and every way they can be invalid."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from tailrace.server.guard.access import Access, Operation, admit
from tailrace.server.guard.access.credentials import CREDENTIAL_BYTES_MAX
from tailrace.server.guard.access.errors import (
    CredentialsRefused,
    CredentialsRepeated,
    Forbidden,
    Unauthenticated,
)
from tailrace.server.guard.access.tokens import new_token
from tailrace.server.message import Request
from tailrace.server.problem import problem
from tailrace.server.routing import routes
from tailrace.server.routing.routes import OWN, ROUTES, UI
from tailrace.server.routing.target import resolve
from tests.server.access.samples import AccessToml, basic, bearer, new_request

MODULE = "tailrace.server.guard.access.access"


@pytest.fixture
def toml(tmp_path: Path) -> AccessToml:
    return AccessToml(tmp_path / "access.toml")


@pytest.fixture
def token(toml: AccessToml) -> str:
    return toml.token("*:/chat-rooms")


@pytest.fixture
def access(toml: AccessToml, token: str) -> Access:
    return toml.load()


def test_a_token_comes_as_bearer_basic_or_in_the_query(access: Access, token: str) -> None:
    id_ = "token:" + token.split("_")[1]
    for request in (
        new_request("POST", headers=bearer(token)),
        new_request("POST", headers=basic(token)),
        new_request("POST", headers=basic(token, name="")),
        new_request("POST", headers={b"authorization": b"bEaReR   " + token.encode()}),
        new_request("GET", query=f"access_token={token}"),
        new_request("HEAD", query=f"offset=-1&access_token={token}&live=sse"),
        new_request("GET", query="access_token=" + "".join(f"%{ord(char):02x}" for char in token)),
    ):
        assert access.identify(request).id == id_


def test_a_token_in_the_query_may_read_and_nothing_else(access: Access, token: str) -> None:
    query = f"access_token={token}"
    principal = access.identify(new_request(query=query))
    assert [each for each in Operation if principal.may(each, b"chat-rooms\0a")] == ["read"]
    # They are cached apart.
    assert access.identify(new_request(headers=bearer(token))).may(
        Operation.APPEND, b"chat-rooms\0a"
    )
    assert not access.identify(new_request(query=query)).may(Operation.APPEND, b"chat-rooms\0a")
    for method in ("POST", "PUT", "DELETE"):
        with pytest.raises(CredentialsRefused):
            access.identify(new_request(method, query=query))


def test_repeated_credentials_are_rejected(access: Access, token: str) -> None:
    twice = new_request(headers={b"authorization": f"Bearer {token}, Bearer {token}".encode()})
    twice.repeated = frozenset({b"authorization"})
    for request in (
        new_request(headers=bearer(token), query=f"access_token={token}"),
        new_request(headers=bearer(token), query="access_token="),
        new_request(query=f"access_token={token}&access_token={token}"),
        twice,
    ):
        with pytest.raises(CredentialsRepeated) as caught:
            access.identify(request)
        assert token not in caught.value.detail


def test_only_the_exact_parameter_name_is_a_credential(access: Access, token: str) -> None:
    for query in ("prefix=access_token", "my_access_token=a", "access_tokens=a"):
        with pytest.raises(Unauthenticated):
            access.identify(new_request(query=query))
        assert access.identify(new_request(headers=bearer(token), query=query)).id != "anonymous"


def bad_tokens(token: str, other: str) -> dict[str, str]:
    _, id_, secret = token.split("_", 2)
    return {
        "unknown": new_token()[1],
        "truncated": token[:-1],
        "longer": token + "A",
        "the id alone": f"trt_{id_}_",
        "no secret": f"trt_{id_}",
        "the secret alone": secret,
        "without its prefix": f"{id_}_{secret}",
        "another prefix": f"TRT_{id_}_{secret}",
        "the secret of one, the id of another": f"trt_{other.split('_')[1]}_{secret}",
        "upper case id": f"trt_{id_.upper()}_{secret}",
        "an empty id": f"trt__{secret}",
        "spaces within": f"trt_{id_}_ {secret}",
        "two of them": f"{token} {token}",
        "a line's end": f"{token}\n",
        "NUL": f"{token}\0",
        "not ASCII": token[:-1] + "é",
        "nothing": "",
        "huge": "trt_" + "a" * CREDENTIAL_BYTES_MAX,
        "a JWT where none are taken": "eyJhbGciOiJub25lIn0.e30.",
    }


def test_an_invalid_token_is_rejected_in_every_form(toml: AccessToml, token: str) -> None:
    other = toml.token("read:/chat-rooms")
    # Rule 3: nor does an invalid token get the anonymous grants.
    toml.put("anonymous", '[anonymous]\ngrants = ["*:/"]')
    access = toml.load()
    for bad in bad_tokens(token, other).values():
        quoted = "".join(f"%{byte:02x}" for byte in bad.encode())
        for request in (
            new_request(headers=bearer(bad)),
            new_request(headers=basic(bad)),
            new_request(query=f"access_token={quoted}"),
        ):
            with pytest.raises(CredentialsRefused) as caught:
                access.identify(request)
            response = problem(caught.value)
            (challenge,) = [
                value for name, value in response.headers if name == b"WWW-Authenticate"
            ]
            assert challenge.startswith(b'Bearer realm="tailrace", error="invalid_token", ')
            if len(bad) > 10:
                assert bad.encode() not in response.body + challenge


def test_a_header_of_unknown_form_is_rejected(access: Access) -> None:
    for header in (
        b"", b" ", b"Bearer", b"Bearer ", b"Basic", b"Basic ", b"Basic !!!", b"Basic YWJj",
        b"Basic =", b"Digest username=a", b"Negotiate abc", b"trt_a_b", b"Bearer\ttrt_a_b",
        b"\xff\xff \xff", b"Basic " + base64.b64encode(b"\xff:\xff\x00"), b"Bearer: trt_a_b",
    ):  # fmt: skip
        with pytest.raises(CredentialsRefused):
            access.identify(new_request(headers={b"authorization": header}))


def test_an_unknown_id_and_a_wrong_secret_get_the_same_response(access: Access, token: str) -> None:
    details = set()
    for bad in (new_token()[1], token[:-1] + ("A" if token[-1] != "A" else "B"), "abc"):
        with pytest.raises(CredentialsRefused) as caught:
            access.identify(new_request(headers=bearer(bad)))
        details.add(caught.value.detail)
    assert len(details) == 1


def test_a_cached_token_expires(toml: AccessToml, monkeypatch: pytest.MonkeyPatch) -> None:
    text = toml.token("read:/chat-rooms", expires="2040-01-01T00:00:00Z")
    access = toml.load()
    principal = access.identify(new_request(headers=bearer(text)))
    assert principal.expires_at == 2_208_988_800_000
    now = principal.expires_at
    monkeypatch.setattr(f"{MODULE}._now_ms", lambda: now - 1)
    assert access.identify(new_request(headers=bearer(text))) is principal
    assert access.is_valid(principal)
    monkeypatch.setattr(f"{MODULE}._now_ms", lambda: now)
    with pytest.raises(CredentialsRefused, match="expired"):
        access.identify(new_request(headers=bearer(text)))
    assert not access.is_valid(principal)


def test_an_expired_token_is_rejected(toml: AccessToml) -> None:
    for expires in ("2020-01-01T00:00:00Z", "2020-01-01T00:00:00", "2020-01-01"):
        text = toml.token("read:/chat-rooms", expires=expires)
        with pytest.raises(CredentialsRefused, match="expired"):
            toml.load().identify(new_request(headers=bearer(text)))


def test_the_cache_evicts_the_least_recently_used(
    toml: AccessToml, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [toml.token("read:/chat-rooms") for _ in range(5)]
    monkeypatch.setattr(f"{MODULE}.CACHED_COUNT_MAX", 3)
    access = toml.load()
    first = access.identify(new_request(headers=bearer(token)))
    for other in others:
        access.identify(new_request(headers=bearer(other)))
        assert access.identify(new_request(headers=bearer(token))) is first
    assert len(access._cache) == 3


def test_rejected_credentials_are_not_cached(access: Access) -> None:
    for _ in range(100):
        with pytest.raises(CredentialsRefused):
            access.identify(new_request(headers=bearer(new_token()[1])))
    assert not access._cache


def test_no_secret_is_kept_in_memory(access: Access, token: str) -> None:
    principal = access.identify(new_request(headers=bearer(token)))
    kept = repr((principal, principal.id, vars(access), access._tokens, principal.basis))
    assert token.split("_", 2)[2] not in kept


def test_a_request_without_credentials_gets_401_not_403(toml: AccessToml) -> None:
    """Also if there are anonymous grants: with credentials the request may be allowed."""
    toml.put("anonymous", '[anonymous]\ngrants = ["read:/chat-rooms"]')
    access = toml.load()
    target = resolve(b"/chat-rooms/general")
    assert admit(access, new_request("GET"), target).id == "anonymous"
    with pytest.raises(Unauthenticated) as caught:
        admit(access, new_request("POST"), target)
    response = problem(caught.value)
    assert (b"WWW-Authenticate", b'Bearer realm="tailrace"') in response.headers


def test_forbidden_names_the_principal_the_operation_and_the_resource(toml: AccessToml) -> None:
    text = toml.token("read:/chat-rooms")
    access = toml.load()
    id_ = text.split("_")[1]

    def detail(request: Request) -> str:
        with pytest.raises(Forbidden) as caught:
            admit(access, request, resolve(request.path))
        return caught.value.detail

    start = f"token:{id_} has no grant of"
    headers = bearer(text)
    assert detail(new_request("POST", headers=headers)) == (
        f"{start} append on the stream /chat-rooms/general"
    )
    assert (
        detail(new_request("PUT", "/other-rooms", headers))
        == f"{start} create on the bucket /other-rooms"
    )
    assert (
        detail(new_request("GET", "/-/metrics", headers))
        == f"{start} admin on the route /-/metrics"
    )
    long = detail(new_request("GET", "/v1/stream/" + "a" * 1000, headers))
    assert len(long) < 300


# Their handlers check the token of the lease; keys are public; the reserved paths are not found.
TOKEN_OF_A_LEASE = (routes.CALLBACK, routes.ACK, routes.RELEASE, routes.JWKS, routes.RESERVED)


def test_every_endpoint_needs_an_operation_but_the_open_routes() -> None:
    """A new route without an operation would be open to all."""
    for route in ROUTES:
        is_open = route.name in (OWN.name, UI.name) or route in TOKEN_OF_A_LEASE
        for method, endpoint in route.endpoints.items():
            assert (endpoint.operation is None) == is_open, (route.path, method)
        assert "OPTIONS" not in route.endpoints


def test_a_listing_needs_the_bucket_or_a_granted_prefix(toml: AccessToml) -> None:
    target = resolve(b"/chat-rooms/streams")

    def listed(grant: str, query: str) -> bool:
        text = toml.token(grant)
        try:
            admit(
                toml.load(), new_request("GET", "/chat-rooms/streams", bearer(text), query), target
            )
        except Forbidden:
            return False
        return True

    assert listed("read:/chat-rooms", "")
    assert listed("read:/chat-rooms/*", "")
    assert listed("read:/chat-*", "prefix=x")
    assert listed("read:/chat-rooms/user-*", "prefix=user-")
    assert listed("read:/chat-rooms/user-*", "prefix=user-4&limit=2")
    assert listed("read:/chat-rooms/user-*", "prefix=user%2D4")
    assert not listed("read:/chat-rooms/user-*", "")
    assert not listed("read:/chat-rooms/user-*", "prefix=user")
    assert not listed("read:/chat-rooms/user-*", "prefix=other")
    # A prefix covers more than the one stream.
    assert not listed("read:/chat-rooms/user-42", "prefix=user-42")
    assert not listed("append:/chat-rooms", "")
    assert not listed("read:/chat-room2", "")

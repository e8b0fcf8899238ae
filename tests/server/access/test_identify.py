"""Who a request comes from: every way to send credentials, and every way in which they are bad."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from tailrace.server.guard.access import Access, Operation, access, admit
from tailrace.server.guard.access.credentials import CREDENTIAL_BYTES_MAX
from tailrace.server.guard.access.errors import (
    CredentialsRefused,
    CredentialsRepeated,
    Forbidden,
    Unauthenticated,
)
from tailrace.server.guard.access.operations import STREAM_OPERATIONS, needed
from tailrace.server.guard.access.tokens import new_token
from tailrace.server.message import Request
from tailrace.server.problem import problem
from tailrace.server.service import _METHODS
from tailrace.server.target import Resource, resolve
from tests.server.access.samples import AccessToml, asking, basic, bearer


@pytest.fixture
def toml(tmp_path: Path) -> AccessToml:
    return AccessToml(tmp_path / "access.toml")


@pytest.fixture
def token(toml: AccessToml) -> str:
    return toml.token("*:/chat-rooms")


@pytest.fixture
def known(toml: AccessToml, token: str) -> Access:
    return toml.load()


def test_a_token_comes_as_bearer_basic_or_in_the_query(known: Access, token: str) -> None:
    id_ = "token:" + token.split("_")[1]
    for request in (
        asking("POST", headers=bearer(token)),
        asking("POST", headers=basic(token)),
        asking("POST", headers=basic(token, name="")),
        asking("POST", headers={b"authorization": b"bEaReR   " + token.encode()}),
        asking("GET", query=f"access_token={token}"),
        asking("HEAD", query=f"offset=-1&access_token={token}&live=sse"),
        asking("GET", query="access_token=" + "".join(f"%{ord(char):02x}" for char in token)),
    ):
        assert known.identify(request).id == id_


def test_a_token_in_the_query_may_read_and_nothing_else(known: Access, token: str) -> None:
    query = f"access_token={token}"
    principal = known.identify(asking(query=query))
    assert [each for each in Operation if principal.may(each, b"chat-rooms\0a")] == ["read"]
    # The one does not turn into the other by way of the cache.
    assert known.identify(asking(headers=bearer(token))).may(Operation.APPEND, b"chat-rooms\0a")
    assert not known.identify(asking(query=query)).may(Operation.APPEND, b"chat-rooms\0a")
    for method in ("POST", "PUT", "DELETE"):
        with pytest.raises(CredentialsRefused):
            known.identify(asking(method, query=query))


def test_credentials_in_two_places_are_refused(known: Access, token: str) -> None:
    twice = asking(headers={b"authorization": f"Bearer {token}, Bearer {token}".encode()})
    twice.repeated = frozenset({b"authorization"})
    for request in (
        asking(headers=bearer(token), query=f"access_token={token}"),
        asking(headers=bearer(token), query="access_token="),
        asking(query=f"access_token={token}&access_token={token}"),
        twice,
    ):
        with pytest.raises(CredentialsRepeated) as caught:
            known.identify(request)
        assert token not in caught.value.detail


def test_a_query_that_only_speaks_of_tokens_has_none(known: Access, token: str) -> None:
    for query in ("prefix=access_token", "my_access_token=a", "access_tokens=a"):
        with pytest.raises(Unauthenticated):
            known.identify(asking(query=query))
        assert known.identify(asking(headers=bearer(token), query=query)).id != "anonymous"


def bad_tokens(token: str, other: str) -> dict[str, str]:
    _, id_, secret = token.split("_", 2)
    return {
        "unknown": new_token()[1],
        "truncated": token[:-1],
        "longer": token + "A",
        "the id alone": f"trt_{id_}_",
        "no secret": f"trt_{id_}",
        "the secret alone": secret,
        "without its beginning": f"{id_}_{secret}",
        "another beginning": f"TRT_{id_}_{secret}",
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


KINDS = list(bad_tokens("trt_a_b", "trt_c_d"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_bad_token_is_refused_wherever_it_stands(toml: AccessToml, token: str, kind: str) -> None:
    bad = bad_tokens(token, toml.token("read:/chat-rooms"))[kind]
    # Rule 3: nor does it fall back to what anybody may do.
    toml.put("anonymous", '[anonymous]\ngrants = ["*:/"]')
    known = toml.load()
    quoted = "".join(f"%{byte:02x}" for byte in bad.encode())
    for request in (
        asking(headers=bearer(bad)),
        asking(headers=basic(bad)),
        asking(query=f"access_token={quoted}"),
    ):
        with pytest.raises(CredentialsRefused) as caught:
            known.identify(request)
        answer = problem(caught.value)
        (challenge,) = [value for name, value in answer.headers if name == b"WWW-Authenticate"]
        assert challenge.startswith(b'Bearer realm="tailrace", error="invalid_token", ')
        if len(bad) > 10:
            assert bad.encode() not in answer.body + challenge


@pytest.mark.parametrize(
    "header",
    [
        b"", b" ", b"Bearer", b"Bearer ", b"Basic", b"Basic ", b"Basic !!!", b"Basic YWJj",
        b"Basic =", b"Digest username=a", b"Negotiate abc", b"trt_a_b", b"Bearer\ttrt_a_b",
        b"\xff\xff \xff", b"Basic " + base64.b64encode(b"\xff:\xff\x00"), b"Bearer: trt_a_b",
    ],
)  # fmt: skip
def test_a_header_of_no_known_form_is_refused(known: Access, header: bytes) -> None:
    with pytest.raises(CredentialsRefused):
        known.identify(asking(headers={b"authorization": header}))


def test_unknown_and_wrong_are_told_in_the_same_words(known: Access, token: str) -> None:
    told = set()
    for bad in (new_token()[1], token[:-1] + ("A" if token[-1] != "A" else "B"), "abc"):
        with pytest.raises(CredentialsRefused) as caught:
            known.identify(asking(headers=bearer(bad)))
        told.add(caught.value.detail)
    assert len(told) == 1


def test_a_token_ends_at_its_time_also_in_the_cache(
    toml: AccessToml, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = toml.token("read:/chat-rooms", expires="2040-01-01T00:00:00Z")
    known = toml.load()
    principal = known.identify(asking(headers=bearer(text)))
    assert principal.expires_at == 2_208_988_800_000
    now = principal.expires_at
    monkeypatch.setattr(access, "_now_ms", lambda: now - 1)
    assert known.identify(asking(headers=bearer(text))) is principal
    assert known.is_valid(principal)
    monkeypatch.setattr(access, "_now_ms", lambda: now)
    with pytest.raises(CredentialsRefused, match="expired"):
        known.identify(asking(headers=bearer(text)))
    assert not known.is_valid(principal)


@pytest.mark.parametrize("expires", ["2020-01-01T00:00:00Z", "2020-01-01T00:00:00", "2020-01-01"])
def test_a_token_that_is_over_is_refused(toml: AccessToml, expires: str) -> None:
    text = toml.token("read:/chat-rooms", expires=expires)
    with pytest.raises(CredentialsRefused, match="expired"):
        toml.load().identify(asking(headers=bearer(text)))


def test_the_cache_is_bounded_and_keeps_who_comes_often(
    toml: AccessToml, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [toml.token("read:/chat-rooms") for _ in range(5)]
    monkeypatch.setattr(access, "CACHED_COUNT_MAX", 3)
    known = toml.load()
    first = known.identify(asking(headers=bearer(token)))
    for other in others:
        known.identify(asking(headers=bearer(other)))
        assert known.identify(asking(headers=bearer(token))) is first
    assert len(known._cache) == 3


def test_what_is_refused_is_not_remembered(known: Access) -> None:
    for _ in range(100):
        with pytest.raises(CredentialsRefused):
            known.identify(asking(headers=bearer(new_token()[1])))
    assert not known._cache


def test_no_secret_is_kept(known: Access, token: str) -> None:
    principal = known.identify(asking(headers=bearer(token)))
    kept = repr((principal, principal.id, vars(known), vars(known._tokens), principal.basis))
    assert token.split("_", 2)[2] not in kept


def test_without_credentials_what_is_missing_are_credentials(toml: AccessToml) -> None:
    """401, also where some things are open to all: with a token it may be another matter."""
    toml.put("anonymous", '[anonymous]\ngrants = ["read:/chat-rooms"]')
    known = toml.load()
    target = resolve(b"/chat-rooms/general")
    assert admit(known, asking("GET"), target).id == "anonymous"
    with pytest.raises(Unauthenticated) as caught:
        admit(known, asking("POST"), target)
    answer = problem(caught.value)
    assert (b"WWW-Authenticate", b'Bearer realm="tailrace"') in answer.headers


def test_what_was_missing_is_said_in_the_principals_own_words(toml: AccessToml) -> None:
    text = toml.token("read:/chat-rooms")
    known = toml.load()
    id_ = text.split("_")[1]

    def told(request: Request) -> str:
        with pytest.raises(Forbidden) as caught:
            admit(known, request, resolve(request.path))
        return caught.value.detail

    say = f"token:{id_} has no grant of"
    headers = bearer(text)
    assert told(asking("POST", headers=headers)) == (
        f"{say} append on the stream /chat-rooms/general"
    )
    assert (
        told(asking("PUT", "/other-rooms", headers)) == f"{say} create on the bucket /other-rooms"
    )
    assert told(asking("GET", "/-/metrics", headers)) == f"{say} admin on the route /-/metrics"
    long = told(asking("GET", "/v1/stream/" + "a" * 1000, headers))
    assert len(long) < 300


def test_everything_that_is_served_needs_something_but_what_is_open() -> None:
    """Whoever adds a route or a method, and forgets what it needs, is told here."""
    for resource, methods in {Resource.STREAM: tuple(STREAM_OPERATIONS), **_METHODS}.items():
        for method in methods:
            is_open = resource in (Resource.OWN, Resource.UI)
            assert (needed(resource, method) is None) == is_open, (resource, method)
    for resource in Resource:
        assert needed(resource, "OPTIONS") is None


def test_a_listing_needs_the_bucket_or_a_prefix_within_what_is_granted(toml: AccessToml) -> None:
    target = resolve(b"/chat-rooms/streams")

    def listed(grant: str, query: str) -> bool:
        text = toml.token(grant)
        try:
            admit(toml.load(), asking("GET", "/chat-rooms/streams", bearer(text), query), target)
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
    # All that begins like one stream is more than that one stream.
    assert not listed("read:/chat-rooms/user-42", "prefix=user-42")
    assert not listed("append:/chat-rooms", "")
    assert not listed("read:/chat-room2", "")

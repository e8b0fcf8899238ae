"""Subscriptions are created, shown, listed and deleted; streams are linked explicitly."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest

from tests.server.subscriptions.surface import Surface, check_error
from tests.support.http import Response

pytestmark = pytest.mark.every_kind

HOOK = "https://example.org/hook"


def test_put_creates_then_confirms_then_conflicts(surface: Surface) -> None:
    config = {"type": "webhook", "pattern": surface.pattern, "webhook": {"url": HOOK}}
    created = surface.request("PUT", surface.target(), config)
    assert created.status == 201
    assert created.headers["location"] == surface.api.url(surface.target())
    assert surface.request("PUT", surface.target(), config).status == 200
    other = surface.request("PUT", surface.target(), {**config, "description": "other"})
    check_error(other, 409, "SUBSCRIPTION_ALREADY_EXISTS")
    assert "description" not in surface.show()


def test_a_put_of_what_exists_that_may_only_create_changes_nothing(surface: Surface) -> None:
    config = {"type": "webhook", "pattern": surface.pattern, "webhook": {"url": HOOK}}

    def put(host: str, content: dict[str, Any]) -> Response:
        headers = {"Content-Type": "application/json", "If-None-Match": "*", "Host": host}
        return surface.api.request("PUT", surface.target(), headers, json.dumps(content).encode())

    assert put("one.example", config).status == 201
    before = surface.show()
    for content in (config, {**config, "description": "other"}):
        response = put("two.example", content)
        # The URLs for receivers are those that the first PUT used.
        assert surface.show() == before
        check_error(response, 412, "CONDITION_FAILED")


def test_the_subscription_as_json(surface: Surface) -> None:
    found = surface.webhook(HOOK, description="a note", lease_ttl_ms=2000)
    assert found == surface.show()
    jwks_url = surface.api.url(f"{surface.root}/__ds/jwks.json")
    assert found["id"] == found["subscription_id"] == surface._id("sub")
    assert (found["type"], found["pattern"]) == ("webhook", surface.pattern)
    assert (found["streams"], found["lease_ttl_ms"]) == ([], 2000)
    assert (found["status"], found["description"]) == ("active", "a note")
    assert found["created_at"].endswith("Z")
    signing = found["webhook"].pop("signing")
    assert found["webhook"] == {"url": HOOK}
    assert (signing["alg"], signing["jwks_url"]) == ("ed25519", jwks_url)
    assert signing["kid"].startswith("ds_")
    assert "wake_stream" not in found


def test_streams_are_compared_as_a_set_of_paths(surface: Surface) -> None:
    streams = ["/b/", "a", "b"] if surface.api.bucket else ["/x/b/", "x/a", "x/b"]
    config = {"type": "webhook", "webhook": {"url": HOOK}, "streams": streams}
    assert surface.request("PUT", surface.target(), config).status == 201
    paths = [item["path"] for item in surface.show()["streams"]]
    assert paths == sorted(path.strip("/") for path in streams[:2])
    same = {**config, "streams": paths, "lease_ttl_ms": 30000}
    assert surface.request("PUT", surface.target(), same).status == 200


INVALID: list[dict[str, Any] | bytes] = [
    b"",
    b"not JSON",
    b"[]",
    b'{"type":"webhook","pattern":"a","webhook":{"url":"https://x.org"},"type":1}',
    {"pattern": "a/*"},
    {"type": "other", "pattern": "a"},
    {"type": "webhook", "webhook": {"url": HOOK}},
    {"type": "webhook", "webhook": {"url": HOOK}, "streams": []},
    {"type": "webhook", "pattern": "a"},
    {"type": "webhook", "pattern": "a", "webhook": {}},
    {"type": "webhook", "pattern": "a", "webhook": HOOK},
    {"type": "webhook", "pattern": "", "webhook": {"url": HOOK}},
    {"type": "webhook", "pattern": "/", "webhook": {"url": HOOK}},
    {"type": "webhook", "pattern": "a/../b", "webhook": {"url": HOOK}},
    {"type": "webhook", "pattern": "user-*", "webhook": {"url": HOOK}},
    {"type": "webhook", "pattern": "a\x00", "webhook": {"url": HOOK}},
    {"type": "webhook", "streams": ["a", ""], "webhook": {"url": HOOK}},
    {"type": "webhook", "streams": [".."], "webhook": {"url": HOOK}},
    {"type": "webhook", "streams": "a", "webhook": {"url": HOOK}},
    {"type": "webhook", "pattern": "a", "webhook": {"url": HOOK}, "wake_stream": "w"},
    {"type": "webhook", "pattern": "a", "webhook": {"url": HOOK}, "unknown": 1},
    {"type": "pull-wake", "pattern": "a"},
    {"type": "pull-wake", "pattern": "a", "wake_stream": ""},
    {"type": "pull-wake", "pattern": "a", "wake_stream": "w", "webhook": {"url": HOOK}},
    *(
        {"type": "pull-wake", "pattern": "a", "wake_stream": "w", "lease_ttl_ms": value}
        for value in (999, 600_001, 0, -1, 1500.5, "2000", True, 10**30)
    ),
]


def test_invalid_configurations_are_refused(surface: Surface) -> None:
    for content in INVALID:
        response = surface.request("PUT", surface.target(), content)
        check_error(response, 400, "INVALID_REQUEST")
    check_error(surface.request("GET", surface.target()), 404, "SUBSCRIPTION_NOT_FOUND")


@pytest.mark.parametrize("lease", [1000, 600_000])
def test_the_bounds_of_a_lease(surface: Surface, lease: int) -> None:
    assert surface.webhook(HOOK, lease_ttl_ms=lease)["lease_ttl_ms"] == lease


@pytest.mark.parametrize("url", ["http://10.0.0.1/hook", "http://example.org/", "ftp://x", "x"])
def test_unsafe_webhooks_are_refused(surface: Surface, url: str) -> None:
    config = {"type": "webhook", "pattern": surface.pattern, "webhook": {"url": url}}
    response = surface.request("PUT", surface.target(), config)
    check_error(response, 400, "WEBHOOK_URL_REJECTED")


@pytest.mark.parametrize("name", ["é ü", "a%b?c", "x" * 256])
def test_ids_are_text(surface: Surface, name: str) -> None:
    target = f"{surface.root}/__ds/subscriptions/{quote(name, safe='')}"
    config = {"type": "webhook", "pattern": surface.pattern, "webhook": {"url": HOOK}}
    response = surface.request("PUT", target, config)
    assert response.status == 201
    assert json.loads(response.body)["id"] == name
    assert surface.request("DELETE", target).status == 204


@pytest.mark.parametrize("name", ["x" * 257, "a%2Fb", "a%00b", "%0A"])
def test_ids_that_are_refused(surface: Surface, name: str) -> None:
    target = f"{surface.root}/__ds/subscriptions/{name}"
    check_error(surface.request("GET", target), 400, "INVALID_REQUEST")


def test_delete_ends_it_and_may_be_repeated(surface: Surface) -> None:
    surface.webhook(HOOK)
    assert surface.request("DELETE", surface.target()).status == 204
    assert surface.request("DELETE", surface.target()).status == 204
    check_error(surface.request("GET", surface.target()), 404, "SUBSCRIPTION_NOT_FOUND")


def test_streams_are_added_and_removed(surface: Surface) -> None:
    tail = surface.put(surface.name("b"), b'{"n":1}')
    surface.webhook(HOOK, streams=[surface.name("a")])
    links = {"streams": ["/" + surface.name("b"), surface.other("c")]}
    for _ in range(2):
        assert surface.request("POST", surface.target("sub", "/streams"), links).status == 204
    found = {item["path"]: item for item in surface.show()["streams"]}
    assert {item["link_type"] for item in found.values()} == {"explicit"}
    # No history: linked at the present tail; a stream that does not exist at the zero offset.
    assert found[surface.name("b")]["acked_offset"] == tail
    zero = "0000000000000000_0000000000000000"
    assert found[surface.other("c")]["acked_offset"] == zero
    for _ in range(2):
        for name in (surface.name("b"), surface.other("c")):
            rest = f"/streams/{quote(name, safe='')}"
            assert surface.request("DELETE", surface.target("sub", rest)).status == 204
    # The explicit link is gone, and the pattern's match is left.
    found = {item["path"]: item["link_type"] for item in surface.show()["streams"]}
    assert found[surface.name("b")] == "glob"
    assert surface.other("c") not in found


@pytest.mark.parametrize(
    "content", [{}, {"streams": []}, {"streams": "a"}, {"streams": [1]}, {"streams": ["a/../b"]}]
)
def test_invalid_links_are_refused(surface: Surface, content: Any) -> None:
    surface.webhook(HOOK)
    response = surface.request("POST", surface.target("sub", "/streams"), content)
    check_error(response, 400, "INVALID_REQUEST")


def test_what_does_not_exist(surface: Surface) -> None:
    for method, rest, content in (
        ("GET", "", None),
        ("POST", "/streams", {"streams": ["a"]}),
        ("DELETE", "/streams/a", None),
        ("POST", "/claim", {"worker": "w"}),
    ):
        response = surface.request(method, surface.target("sub", rest), content)
        check_error(response, 404, "SUBSCRIPTION_NOT_FOUND")


def test_methods_that_a_route_does_not_have(surface: Surface) -> None:
    response = surface.request("POST", surface.target(), {})
    error = check_error(response, 405, "METHOD_NOT_ALLOWED")
    assert "POST" in error["message"]
    assert response.headers["allow"] == "GET, HEAD, PUT, DELETE, OPTIONS"


def test_the_listing_is_paged(surface: Surface) -> None:
    names = [f"list{index}" for index in range(5)]
    for name in names:
        surface.webhook(HOOK, name)
    found: list[str] = []
    after = ""
    while True:
        target = f"{surface.root}/__ds/subscriptions?limit=2&after={quote(after)}"
        page = json.loads(surface.request("GET", target).body)
        assert len(page["subscriptions"]) <= 2
        found += [item["id"] for item in page["subscriptions"]]
        if not page["has_more"]:
            break
        after = page["next_cursor"]
    assert found == sorted(found)
    assert {surface._id(name) for name in names} <= set(found)
    overview = json.loads(surface.api.get(f"{surface.api.server.base_path}/-/subscriptions").body)
    shown = {(item["bucket_id"], item["id"]) for item in overview["subscriptions"]}
    assert {(surface.api.bucket, surface._id(name)) for name in names} <= shown


def test_the_keys_are_public(surface: Surface) -> None:
    response = surface.api.get(f"{surface.root}/__ds/jwks.json")
    assert response.status == 200
    assert response.headers["content-type"] == "application/jwk-set+json"
    assert response.headers["cache-control"] == "public, max-age=300"
    (key,) = json.loads(response.body)["keys"]
    assert (key["kty"], key["crv"], key["use"], key["alg"]) == ("OKP", "Ed25519", "sig", "EdDSA")
    assert surface.webhook(HOOK)["webhook"]["signing"]["kid"] == key["kid"]

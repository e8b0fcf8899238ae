"""Subscriptions by both clients, without a worker loop."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from tailrace.client import Conflict, NotFound, Refused, Unauthorized
from tests.client.conftest import connected

_numbers = itertools.count()
HOOK = "https://example.org/hook"


@pytest.fixture
def prefix() -> str:
    return f"subscriptions/{next(_numbers)}"


def test_a_subscription_from_creation_to_deletion(client: Any, prefix: str) -> None:
    subscription = client.subscription(f"{prefix} é?".replace("/", "-"))
    created = subscription.create(pattern=f"{prefix}/*", webhook=HOOK, description="note")
    assert (created.new, created.type, created.status) == (True, "webhook", "active")
    assert (created.webhook_url, created.lease_ttl_ms) == (HOOK, 30000)
    again = subscription.create(pattern=f"{prefix}/*", webhook=HOOK, description="note")
    assert (again.new, again.id) == (False, created.id)
    with pytest.raises(Conflict) as conflict:
        subscription.create(pattern=f"{prefix}/*", webhook=HOOK)
    assert conflict.value.code == "SUBSCRIPTION_ALREADY_EXISTS"
    client.stream(f"{prefix}/a").create("text/plain")
    subscription.add_streams([f"{prefix}-b", f"{prefix}/a"])
    links = {item.path: item.link_type for item in subscription.get().streams}
    assert links == {f"{prefix}-b": "explicit", f"{prefix}/a": "explicit"}
    subscription.remove_stream(f"{prefix}-b")
    subscription.remove_stream(f"{prefix}/a")
    links = {item.path: item.link_type for item in subscription.get().streams}
    assert links == {f"{prefix}/a": "glob"}
    assert created.id in [item.id for item in client.subscriptions.list()]
    subscription.delete()
    subscription.delete()
    for operation in (subscription.get, lambda: subscription.add_streams(["a"])):
        with pytest.raises(NotFound):
            operation()


def test_the_collection_has_the_same_operations_by_id(client: Any) -> None:
    bucket = client.bucket(f"subscriptions-{next(_numbers)}")
    bucket.create()
    bucket.stream("wakes").create("application/json")
    subscriptions = bucket.subscriptions
    created = subscriptions.create("s", streams=["a"], wake_stream="wakes", lease_ttl_ms=5000)
    assert (created.type, created.lease_ttl_ms) == ("pull-wake", 5000)
    subscriptions.add_streams("s", ["b"])
    subscriptions.remove_stream("s", "b")
    assert [item.path for item in subscriptions.get("s").streams] == ["a"]
    with pytest.raises(Conflict) as nothing:
        subscriptions.claim("s", "me")
    assert nothing.value.code == "NO_PENDING_WORK"
    bucket.stream("a").create("text/plain", body=b"x")
    assert [item.pending_streams for item in subscriptions.list()] == [1]
    claim = subscriptions.claim("s", "me")
    subscriptions.release("s", claim)
    claim = subscriptions.claim("s", "me")
    (pending,) = claim.pending
    assert (pending.path, pending.has_pending) == ("a", True)
    assert subscriptions.ack("s", claim, {"a": pending.tail_offset}, done=True) is False
    with pytest.raises(Conflict) as fenced:
        subscriptions.ack("s", claim)
    assert fenced.value.code == "FENCED"
    # No error: the lease has ended in any case.
    subscriptions.release("s", claim)
    subscriptions.delete("s")
    with pytest.raises(NotFound):
        subscriptions.get("s")


def test_refusals_have_the_codes_of_the_protocol(client: Any, prefix: str) -> None:
    subscription = client.subscription(f"refused-{next(_numbers)}")
    with pytest.raises(Refused) as refused:
        subscription.create(pattern=f"{prefix}/*", webhook="http://10.0.0.1/hook")
    assert (refused.value.status, refused.value.code) == (400, "WEBHOOK_URL_REJECTED")
    assert "https" in refused.value.detail
    with pytest.raises(Refused) as refused:
        subscription.create(wake_stream="w")
    assert refused.value.code == "INVALID_REQUEST"


@pytest.mark.slow
def test_a_listing_spans_all_pages(client: Any) -> None:
    bucket = client.bucket(f"subscriptions-{next(_numbers)}")
    bucket.create()
    names = [f"s{at:04d}" for at in range(1005)]
    for name in names:
        bucket.subscriptions.create(name, pattern="x", webhook=HOOK)
    assert [item.id for item in bucket.subscriptions.list()] == names


def test_the_token_of_a_lease_replaces_that_of_the_client(kind: str, server: Any) -> None:
    """However the header of the client is spelled."""
    headers = {"AUTHORIZATION": "Bearer none"}
    with connected(kind, f"http://127.0.0.1:{server.port}", headers=headers) as client:
        bucket = client.bucket(f"subscriptions-{next(_numbers)}")
        bucket.create()
        bucket.subscriptions.create("s", pattern="a", wake_stream="wakes")
        bucket.stream("a").create("text/plain", body=b"x")
        claim = bucket.subscriptions.claim("s", "me")
        assert bucket.subscriptions.ack("s", claim) is False
        with pytest.raises(Unauthorized) as refused:
            bucket.subscriptions.ack("s", replace(claim, token="bad"))
        assert refused.value.code == "TOKEN_INVALID"

"""Pull-wake: wake events, claims, acks, releases, and what is fenced."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from tests.server.subscriptions.surface import Surface, check_error
from tests.support.together import together, wait_until

LEASE_MS = 1000


def events(surface: Surface) -> list[dict[str, Any]]:
    body = surface.api.get(surface.url(surface.wake_stream), "offset=-1").body
    found: list[dict[str, Any]] = json.loads(body)
    return found


@pytest.mark.every_kind
def test_an_append_wakes_once_until_it_is_acknowledged(surface: Surface) -> None:
    surface.pull()
    path = surface.name("a")
    surface.put(path)
    assert events(surface) == []
    surface.append(path)
    tail = surface.append(path)
    (event,) = events(surface)
    assert event.pop("ts") > 1_600_000_000_000
    expected = {
        "type": "wake",
        "subscription_id": surface._id("sub"),
        "stream": path,
        "generation": 1,
    }
    assert event == expected
    claim = surface.claim()
    assert (claim["generation"], claim["lease_ttl_ms"]) == (1, 30000)
    (stream,) = (item for item in claim["streams"] if item["path"] == path)
    assert (stream["tail_offset"], stream["has_pending"]) == (tail, True)
    done = surface.ack(claim, (path, tail), done=True)
    assert (done.status, json.loads(done.body)) == (200, {"ok": True, "next_wake": False})
    assert surface.cursors()[path] == tail
    surface.append(path)
    assert [event["generation"] for event in events(surface)] == [1, 2]


def test_the_body_of_a_put_counts_as_an_append(surface: Surface) -> None:
    surface.pull()
    surface.put(surface.name("a"), b'{"n":1}')
    assert len(events(surface)) == 1
    assert surface.claim()["streams"][0]["has_pending"]


def test_work_that_is_left_makes_another_wake(surface: Surface) -> None:
    surface.pull()
    path, other = surface.name("a"), surface.name("b")
    surface.put(path)
    surface.put(other)
    first = surface.append(path)
    surface.append(path)
    surface.append(other)
    claim = surface.claim()
    done = surface.ack(claim, (path, first), done=True)
    assert json.loads(done.body) == {"ok": True, "next_wake": True}
    assert surface.cursors()[path] == first
    assert surface.claim()["generation"] == claim["generation"] + 1


@pytest.mark.every_kind
def test_claims_exclude_each_other(surface: Surface) -> None:
    surface.pull()
    surface.put(surface.name("a"), b'{"n":1}')
    target = surface.target("sub", "/claim")

    def claim(worker: str) -> int:
        with surface.api.connect() as connection:
            body = json.dumps({"worker": worker}).encode()
            return connection.request("POST", target, {}, body).status

    statuses = together([partial(claim, f"w{index}") for index in range(8)])
    assert sorted(statuses) == [200] + [409] * 7
    error = check_error(surface.request("POST", target, {"worker": "late"}), 409, "ALREADY_CLAIMED")
    assert error["current_holder"].startswith("w")
    assert error["generation"] == 1


def test_a_claim_without_work_or_worker(surface: Surface) -> None:
    surface.pull()
    target = surface.target("sub", "/claim")
    check_error(surface.request("POST", target, {"worker": "w"}), 409, "NO_PENDING_WORK")
    for content in ({}, {"worker": ""}, {"worker": 1}, b"", {"worker": "w" * 300}):
        check_error(surface.request("POST", target, content), 400, "INVALID_REQUEST")


def test_a_webhook_cannot_be_claimed(surface: Surface) -> None:
    surface.webhook("https://example.org/hook")
    response = surface.request("POST", surface.target("sub", "/claim"), {"worker": "w"})
    check_error(response, 400, "INVALID_REQUEST")


@pytest.mark.every_kind
def test_the_order_of_checks(surface: Surface) -> None:
    surface.pull()
    path = surface.name("a")
    surface.put(path)
    tail = surface.append(path)
    claim = surface.claim()
    garbage = b"not JSON"
    for rest in ("/ack", "/callback", "/release"):
        missing = surface.target("missing", rest)
        target = surface.target("sub", rest)
        check_error(surface.request("POST", missing, garbage), 401, "TOKEN_INVALID")
        check_error(surface.request("POST", target, garbage), 401, "TOKEN_INVALID")
        check_error(surface.request("POST", missing, garbage, "bad"), 404, "SUBSCRIPTION_NOT_FOUND")
        check_error(surface.request("POST", target, garbage, "bad"), 401, "TOKEN_INVALID")
    ack = surface.target("sub", "/ack")
    basic = {"Authorization": f"Basic {claim['token']}"}
    check_error(surface.api.request("POST", ack, basic, b"{}"), 401, "TOKEN_INVALID")
    check_error(surface.request("POST", ack, garbage, claim["token"]), 400, "INVALID_REQUEST")
    # A token of a claim is none for a callback.
    callback = surface.target("sub", "/callback")
    check_error(surface.request("POST", callback, {}, claim["token"]), 401, "TOKEN_INVALID")
    # Fenced before the acks are looked at.
    stale = {**claim, "wake_id": "other"}
    check_error(surface.ack(stale, (path, "bad")), 409, "FENCED")
    stale = {**claim, "generation": 2}
    check_error(surface.ack(stale, (path, tail)), 409, "FENCED")
    check_error(surface.ack(claim, (path, "bad")), 409, "INVALID_OFFSET")
    assert surface.ack(claim, (path, tail), done=True).status == 200


def test_a_token_of_another_subscription_is_refused(surface: Surface) -> None:
    surface.pull()
    surface.pull("other")
    surface.put(surface.name("a"), b'{"n":1}')
    claim, other = surface.claim(), surface.claim("other")
    check_error(surface.ack({**claim, "token": other["token"]}), 401, "TOKEN_INVALID")
    check_error(surface.ack({**claim, "token": claim["token"] + "A"}), 401, "TOKEN_INVALID")


def test_all_acks_are_checked_before_one_is_applied(surface: Surface) -> None:
    surface.pull()
    path, other = surface.name("a"), surface.name("b")
    surface.put(path)
    surface.put(other)
    first, tail = surface.append(path), surface.append(path)
    surface.append(other)
    claim = surface.claim()
    before = surface.cursors()
    beyond = "0000000000000099_0000000000009999"
    for bad in (
        (other, "-1"),
        (other, "now"),
        (other, ""),
        (other, beyond),
        (surface.other("unknown"), tail),
    ):
        check_error(surface.ack(claim, (path, tail), bad), 409, "INVALID_OFFSET")
        check_error(surface.ack(claim, bad, (path, tail)), 409, "INVALID_OFFSET")
        assert surface.cursors() == before
    assert surface.ack(claim, ("/" + path + "/", tail)).status == 200
    check_error(surface.ack(claim, (path, first)), 409, "INVALID_OFFSET")
    assert surface.cursors()[path] == tail


def test_done_is_fenced_when_repeated(surface: Surface) -> None:
    surface.pull()
    path = surface.name("a")
    surface.put(path)
    tail = surface.append(path)
    claim = surface.claim()
    assert surface.ack(claim, (path, tail), done=True).status == 200
    check_error(surface.ack(claim, (path, tail), done=True), 409, "FENCED")
    check_error(surface.ack(claim), 409, "FENCED")


@pytest.mark.every_kind
def test_release_acknowledges_nothing_and_wakes_again(surface: Surface) -> None:
    surface.pull()
    path = surface.name("a")
    surface.put(path, b'{"n":1}')
    before = surface.cursors()
    claim = surface.claim()
    content = {"wake_id": claim["wake_id"], "generation": claim["generation"]}
    target = surface.target("sub", "/release")
    check_error(
        surface.request("POST", target, {**content, "generation": 9}, claim["token"]),
        409,
        "FENCED",
    )
    assert surface.request("POST", target, content, claim["token"]).status == 204
    check_error(surface.request("POST", target, content, claim["token"]), 409, "FENCED")
    assert surface.cursors() == before
    assert [event["generation"] for event in events(surface)] == [1, 2]
    assert surface.claim(worker="other")["generation"] == 2


def test_a_lease_expires_and_is_extended_by_acks(surface: Surface) -> None:
    surface.pull(lease_ttl_ms=LEASE_MS)
    path = surface.name("a")
    surface.put(path)
    tail = surface.append(path)
    claim = surface.claim()
    assert surface.show()["holder"] == "w"
    assert surface.ack(claim).status == 200
    wait_until(lambda: len(events(surface)) == 2)
    check_error(surface.ack(claim, (path, tail), done=True), 409, "FENCED")
    assert "holder" not in surface.show()
    assert surface.claim()["generation"] == 2


def test_after_deletion_everything_fails(surface: Surface) -> None:
    surface.pull()
    path = surface.name("a")
    surface.put(path)
    tail = surface.append(path)
    claim = surface.claim()
    assert surface.request("DELETE", surface.target()).status == 204
    check_error(surface.ack(claim, (path, tail)), 404, "SUBSCRIPTION_NOT_FOUND")
    # Created again, it is another one: the old token does not fit its wakes, although their
    # generations are the same.
    surface.pull()
    surface.append(path)
    new = surface.claim()
    assert new["generation"] == claim["generation"]
    for wake in (claim, {**new, "token": claim["token"]}):
        check_error(surface.ack(wake, (path, tail), done=True), 401, "TOKEN_INVALID")
    wake = {"wake_id": new["wake_id"], "generation": new["generation"]}
    release = surface.request("POST", surface.target("sub", "/release"), wake, claim["token"])
    check_error(release, 401, "TOKEN_INVALID")
    assert surface.ack(new).status == 200


def test_without_a_wake_stream_there_is_no_event_but_work(surface: Surface) -> None:
    surface.pull(wake_stream=surface.other("nowhere"))
    surface.put(surface.name("a"), b'{"n":1}')
    assert surface.claim()["generation"] == 1

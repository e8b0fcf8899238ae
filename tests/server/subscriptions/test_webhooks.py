"""Webhooks: real receivers, good and bad ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tailrace.client.webhooks import verify
from tailrace.server.subscriptions import webhook_client, webhook_sender
from tests.server.subscriptions.receiver import ACCEPTED, DONE, Received, Receiver, response
from tests.server.subscriptions.surface import Surface, check_error
from tests.support.certificates import Authority
from tests.support.http import Response
from tests.support.in_process import InProcessServer
from tests.support.server import ServerProcess
from tests.support.streams import Api
from tests.support.together import wait_until


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


def callback(surface: Surface, received: Received, **changes: Any) -> Response:
    body = received.content
    path = body["callback_url"].removeprefix(f"http://127.0.0.1:{surface.api.server.port}")
    acks = [
        {"stream": item["path"], "offset": item["tail_offset"]}
        for item in body["streams"]
        if item["has_pending"]
    ]
    content = {
        "wake_id": body["wake_id"],
        "generation": body["generation"],
        "acks": acks,
        "done": True,
        **changes,
    }
    return surface.request("POST", path, content, body["callback_token"])


@pytest.mark.every_kind
def test_done_acknowledges_what_the_webhook_told(surface: Surface, receiver: Receiver) -> None:
    created = surface.webhook(receiver.url)
    path = surface.name("a")
    surface.put(path)
    tail = surface.append(path)
    received = receiver.next()
    keys = json.loads(surface.api.get(f"{surface.root}/__ds/jwks.json").body)
    content = verify(received.body, received.signature, keys)
    assert f"kid={created['webhook']['signing']['kid']}," in received.signature
    assert received.headers["content-type"] == "application/json"
    assert content.pop("callback_token")
    wake_id = content.pop("wake_id")
    assert content == {
        "subscription_id": surface._id("sub"),
        "generation": 1,
        "streams": [
            {
                "path": path,
                "link_type": "glob",
                "acked_offset": "-1",
                "tail_offset": tail,
                "has_pending": True,
            }
        ],
        "callback_url": surface.api.url(surface.target("sub", "/callback")),
    }
    wait_until(lambda: surface.cursors()[path] == tail)
    surface.append(path)
    again = receiver.next().content
    assert (again["generation"], again["wake_id"] != wake_id) == (2, True)


@pytest.mark.every_kind
def test_a_callback_acknowledges_and_is_fenced_when_repeated(surface: Surface) -> None:
    with Receiver(ACCEPTED) as receiver:
        surface.webhook(receiver.url)
        path = surface.name("a")
        surface.put(path)
        tail = surface.append(path)
        received = receiver.next()
        beat = callback(surface, received, acks=[], done=False)
        assert json.loads(beat.body) == {"ok": True, "next_wake": False}
        assert surface.cursors()[path] == "-1"
        more = surface.append(path)
        done = callback(surface, received)
        assert json.loads(done.body) == {"ok": True, "next_wake": True}
        assert surface.cursors()[path] == tail
        check_error(callback(surface, received), 409, "FENCED")
        # What was appended meanwhile is a wake of its own.
        assert receiver.next().tail(path) == more


def test_a_lease_that_nobody_ends_expires_and_the_wake_is_sent_again(surface: Surface) -> None:
    with Receiver(ACCEPTED) as receiver:
        surface.webhook(receiver.url, lease_ttl_ms=1000)
        surface.put(surface.name("a"), b'{"n":1}')
        first = receiver.next()
        second = receiver.next()
        assert second.content["generation"] == first.content["generation"] + 1
        check_error(callback(surface, first), 409, "FENCED")
        assert callback(surface, second).status == 200


@pytest.mark.parametrize(
    "answer", [response(500), response(302, b"", "Location: http://127.0.0.1:1/"), b"garbage\r\n"]
)
def test_a_failed_webhook_is_retried_until_it_succeeds(surface: Surface, answer: bytes) -> None:
    with Receiver(answer) as receiver:
        surface.webhook(receiver.url)
        path = surface.name("a")
        surface.put(path)
        tail = surface.append(path)
        first = receiver.next()
        wait_until(lambda: surface.show()["status"] == "failed")
        shown = surface.show()
        assert shown["last_error"]
        assert shown["next_attempt_at"]
        assert shown["pending_streams"] == 1
        receiver.behave = lambda _: DONE
        second = receiver.next()
        assert second.content["wake_id"] == first.content["wake_id"]
        wait_until(lambda: surface.show()["status"] == "active")
        shown = surface.show()
        assert "last_error" not in shown
        assert shown["pending_streams"] == 0
        assert surface.cursors()[path] == tail


def test_receivers_that_hang_hold_up_nobody(surface: Surface, receiver: Receiver) -> None:
    """More subscriptions than one host gets attempts, to a receiver that never answers."""
    with Receiver(lambda _: None) as hanging:
        for index in range(20):
            surface.webhook(hanging.url, f"hanging{index}")
        surface.webhook(receiver.url, "good")
        path = surface.name("a")
        surface.put(path)
        tail = surface.append(path)
        assert receiver.next().tail(path) == tail
        wait_until(lambda: surface.cursors("good")[path] == tail)
        # The server sends one host only so many at once.
        wait_until(lambda: hanging.count == 8)
        for index in range(20):
            target = surface.target(f"hanging{index}")
            assert surface.request("DELETE", target).status == 204


def test_hosts_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host with many subscriptions, each of which hangs, takes all attempts there are."""
    monkeypatch.setattr(webhook_sender, "ATTEMPTS_MAX", 2)
    monkeypatch.setattr(webhook_client, "ATTEMPT_S", 0.3)
    server = InProcessServer()
    try:
        with Receiver(lambda _: None) as hanging, Receiver() as good, server.connect() as api:
            for index in range(10):
                url = good.url if index == 9 else hanging.url
                config = {"type": "webhook", "pattern": "t/*", "webhook": {"url": url}}
                target = f"/v1/stream/__ds/subscriptions/s{index}"
                assert api.request("PUT", target, {}, json.dumps(config).encode()).status == 201
            assert api.request("PUT", "/v1/stream/t/a", {}, b"x").status == 201
            good.next()
            assert hanging.count < 6
    finally:
        server.stop()


def test_a_wake_that_waits_for_its_turn_is_not_sent_after_deletion(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(webhook_sender, "ATTEMPTS_MAX", 1)
    server = InProcessServer()
    try:
        with Receiver(lambda _: None) as hanging, Receiver() as good, server.connect() as api:
            for name, url in (("first", hanging.url), ("second", good.url), ("third", good.url)):
                config = {"type": "webhook", "pattern": "t/*", "webhook": {"url": url}}
                target = f"/v1/stream/__ds/subscriptions/{name}"
                assert api.request("PUT", target, {}, json.dumps(config).encode()).status == 201
            assert api.request("PUT", "/v1/stream/t/a", {}, b"x").status == 201
            hanging.next()
            # The attempt of the first one goes on; its result will not matter.
            for name in ("second", "first"):
                target = f"/v1/stream/__ds/subscriptions/{name}"
                assert api.request("DELETE", target).status == 204
            hanging.release()
            assert good.next().content["subscription_id"] == "third"
    finally:
        server.stop()


def test_huge_and_garbage_responses_leave_the_lease_to_the_worker(surface: Surface) -> None:
    huge = response(200, b'{"done":true,"x":"' + b"y" * (1 << 20) + b'"}')
    with Receiver(huge) as receiver:
        surface.webhook(receiver.url)
        path = surface.name("a")
        surface.put(path)
        tail = surface.append(path)
        received = receiver.next()
        wait_until(lambda: surface.show()["status"] == "active")
        assert surface.cursors()[path] == "-1"
        assert callback(surface, received).status == 200
        assert surface.cursors()[path] == tail


def test_deletion_ends_the_delivery(surface: Surface) -> None:
    with Receiver(ACCEPTED) as receiver:
        surface.webhook(receiver.url)
        surface.put(surface.name("a"), b'{"n":1}')
        received = receiver.next()
        assert surface.request("DELETE", surface.target()).status == 204
        check_error(callback(surface, received), 404, "SUBSCRIPTION_NOT_FOUND")


@contextmanager
def started(
    path: Path, *options: str, env: dict[str, str] | None = None
) -> Iterator[tuple[ServerProcess, Surface]]:
    with ServerProcess(path, "--engine", "rocksdb", *options, env=env) as server:
        api = Api(server)
        yield server, Surface(api)
        api.close()


def test_retries_and_keys_survive_a_killed_server(tmp_path: Path) -> None:
    with Receiver(response(503)) as receiver, started(tmp_path) as (server, surface):
        surface.webhook(receiver.url)
        path = surface.name("a")
        surface.put(path)
        tail = surface.append(path)
        first = receiver.next()
        wait_until(lambda: surface.show()["status"] == "failed")
        keys = surface.api.get(f"{surface.root}/__ds/jwks.json").body
        surface.api.close()
        server.kill()
        receiver.behave = lambda _: DONE
        server.start()
        second = receiver.next()
        assert second.content["wake_id"] == first.content["wake_id"]
        assert surface.api.get(f"{surface.root}/__ds/jwks.json").body == keys
        assert verify(second.body, second.signature, json.loads(keys))
        wait_until(lambda: surface.cursors()[path] == tail)


def test_a_token_survives_a_killed_server(tmp_path: Path) -> None:
    with started(tmp_path) as (server, surface):
        surface.pull()
        path = surface.name("a")
        surface.put(path)
        tail = surface.append(path)
        claim = surface.claim()
        surface.api.close()
        server.restart()
        assert surface.ack(claim, (path, tail), done=True).status == 200
        assert surface.cursors()[path] == tail


def test_the_public_url_is_used(tmp_path: Path, receiver: Receiver) -> None:
    public = "https://streams.example.org/base"
    with started(tmp_path, "--public-url", public + "/") as (_, surface):
        signing = surface.webhook(receiver.url)["webhook"]["signing"]
        assert signing["jwks_url"] == f"{public}/v1/stream/__ds/jwks.json"
        surface.put(surface.name("a"), b'{"n":1}')
        content = receiver.next().content
        target = surface.target("sub", "/callback")
        assert content["callback_url"] == public + target


def test_https_is_sent_to_receivers_with_a_valid_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with (
        Receiver(tls=authority.issue("receiver")) as receiver,
        started(tmp_path / "data", env={"SSL_CERT_FILE": str(authority.file)}) as (_, surface),
    ):
        surface.webhook(receiver.url)
        path = surface.name("a")
        tail = surface.put(path, b'{"n":1}')
        assert receiver.next().tail(path) == tail
        wait_until(lambda: surface.cursors()[path] == tail)


def test_https_is_not_sent_to_receivers_with_another_certificate(tmp_path: Path) -> None:
    with (
        Receiver(tls=Authority(tmp_path).issue("receiver")) as receiver,
        started(tmp_path / "data") as (_, surface),
    ):
        surface.webhook(receiver.url)
        surface.put(surface.name("a"), b'{"n":1}')
        wait_until(lambda: "last_error" in surface.show())
        assert "certificate" in surface.show()["last_error"]
        assert receiver.count == 0


@pytest.mark.parametrize(
    ("networks", "url", "status"),
    [
        ("public", "http://127.0.0.1:9/", 400),
        ("private", "http://10.0.0.1/hook", 201),
        ("private", "http://169.254.169.254/", 400),
    ],
)
def test_the_networks_of_webhooks_are_a_setting(
    tmp_path: Path, networks: str, url: str, status: int
) -> None:
    with started(tmp_path, "--webhook-networks", networks) as (_, surface):
        config = {"type": "webhook", "pattern": "a/*", "webhook": {"url": url}}
        assert surface.request("PUT", surface.target(), config).status == status


def test_a_server_stops_while_a_webhook_hangs(tmp_path: Path) -> None:
    with Receiver(lambda _: None) as receiver, started(tmp_path) as (server, surface):
        surface.webhook(receiver.url)
        surface.put(surface.name("a"), b'{"n":1}')
        receiver.next()
        surface.api.close()
        assert server.terminate() == 0

"""
Access control of subscriptions: `subscribe` on all that they can match, `append` on the wake
stream; and nothing is told of streams that the owner may not read.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.server.access.samples import AccessToml, Signer, jwks, jwt_table
from tests.server.subscriptions.receiver import ACCEPTED, DONE, Receiver
from tests.server.subscriptions.surface import Surface, check_error
from tests.support.http import Response
from tests.support.server import ServerProcess
from tests.support.streams import Api
from tests.support.together import wait_until

HOOK = {"type": "webhook", "webhook": {"url": "http://127.0.0.1:9/"}}


@dataclass
class Guarded:
    """A server with access control, and clients with tokens."""

    server: ServerProcess
    toml: AccessToml
    api: Api

    def client(self, *grants: str) -> Surface:
        """A client with a new token of these grants."""
        return self.with_token(self.toml.token(*grants))

    def with_token(self, token: str) -> Surface:
        return Surface(self.api, number=0, token=token)

    def reload(self) -> None:
        lines = len(self.server.log)
        os.kill(self.server.pid, signal.SIGHUP)
        wait_until(lambda: any("reloaded" in line for line in self.server.log[lines:]))


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    toml = AccessToml(tmp_path / "access.toml")
    signer_file = tmp_path / "keys.json"
    signer_file.write_text(jwks(SIGNER.jwk))
    toml.put("jwt", jwt_table())
    with ServerProcess(tmp_path / "data", "--access", str(toml.path)) as server:
        api = Api(server)
        yield Guarded(server, toml, api)
        api.close()


SIGNER = Signer("EdDSA", "k1")


def put(client: Surface, name: str, **config: Any) -> Response:
    return client.request("PUT", client.target(name), config)


def test_what_a_subscription_needs(guarded: Guarded) -> None:
    grants = {
        "team": "subscribe:/v1/stream/team",
        "prefix": "subscribe:/v1/stream/te*",
        "one": "subscribe:/v1/stream/team/a",
        "all": "subscribe:/v1/stream",
        "read": "read:/v1/stream",
        "bucket": "subscribe:/rooms",
    }
    clients = {name: guarded.client(grant) for name, grant in grants.items()}
    guarded.reload()
    # What a PUT asks for, and who may.
    cases: list[tuple[dict[str, Any], set[str]]] = [
        ({"pattern": "team/*"}, {"team", "prefix", "all"}),
        ({"pattern": "team/**"}, {"team", "prefix", "all"}),
        ({"pattern": "team/a"}, {"team", "prefix", "one", "all"}),
        ({"pattern": "team/a/**"}, {"team", "prefix", "one", "all"}),
        ({"pattern": "teams/*"}, {"prefix", "all"}),
        ({"pattern": "*"}, {"all"}),
        ({"pattern": "*/a"}, {"all"}),
        ({"pattern": "**"}, {"all"}),
        ({"streams": ["team/a"]}, {"team", "prefix", "one", "all"}),
        ({"streams": ["team/a", "team/b"]}, {"team", "prefix", "all"}),
        ({"pattern": "team/*", "streams": ["other"]}, {"all"}),
    ]
    for number, (config, allowed) in enumerate(cases):
        for name, client in clients.items():
            response = put(client, f"{name}{number}", **HOOK, **config)
            if name in allowed:
                assert response.status == 201, (config, name, response.body)
            else:
                check_error(response, 403, "FORBIDDEN")
    check_error(put(guarded.with_token(""), "x", **HOOK, pattern="a"), 401, "UNAUTHENTICATED")


def test_a_pull_wake_needs_append_on_its_wake_stream(guarded: Guarded) -> None:
    config = {"type": "pull-wake", "pattern": "team/*", "wake_stream": "wakes/w"}
    without = guarded.client("subscribe:/v1/stream", "read:/v1/stream")
    with_it = guarded.client("subscribe:/v1/stream/team", "append:/v1/stream/wakes")
    guarded.reload()
    error = check_error(put(without, "s", **config), 403, "FORBIDDEN")
    assert "append" in error["message"]
    assert put(with_it, "s", **config).status == 201


def test_use_of_a_subscription_needs_to_be_covered(guarded: Guarded) -> None:
    owner = guarded.client("subscribe,append,create,read:/v1/stream/team")
    elsewhere = guarded.client("*:/v1/stream/other", "read,append:/v1/stream/team")
    covering = guarded.client("subscribe,read:/v1/stream/te*")
    guarded.reload()
    config = {"type": "pull-wake", "streams": ["team/a"], "wake_stream": "team/wakes"}
    assert put(owner, "sub", **config).status == 201
    owner.put("team/a", b'{"n":1}')

    def uses(client: Surface) -> Iterator[Response]:
        yield client.request("GET", client.target())
        links = {"streams": ["team/b"]}
        yield client.request("POST", client.target("sub", "/streams"), links)
        yield client.request("DELETE", client.target("sub", "/streams/team%2Fb"))
        yield client.request("POST", client.target("sub", "/claim"), {"worker": "w"})
        yield client.request("DELETE", client.target())

    for response in uses(elsewhere):
        check_error(response, 403, "FORBIDDEN")
    assert [response.status for response in uses(covering)] == [200, 204, 204, 200, 204]
    # Also for one that does not exist, nothing is told without the grant.
    outsider = guarded.client("read:/")
    guarded.reload()
    for response in uses(outsider):
        check_error(response, 403, "FORBIDDEN")


@pytest.mark.slow
def test_many_streams_do_not_change_who_may_use_a_subscription(guarded: Guarded) -> None:
    """More than a view lists."""
    owner = guarded.client("*:/v1/stream/team")
    covering = guarded.client("subscribe,read:/v1/stream/team")
    guarded.reload()
    assert put(owner, "sub", **HOOK, pattern="team/*").status == 201
    for number in range(1001):
        owner.put(f"team/{number}")
    shown = covering.show()
    assert (len(shown["streams"]), shown["streams_cut"]) == (1000, True)


def test_links_beyond_the_grants_are_refused(guarded: Guarded) -> None:
    owner = guarded.client("subscribe:/v1/stream/team")
    guarded.reload()
    assert put(owner, "sub", **HOOK, pattern="team/*").status == 201
    links = {"streams": ["team/b", "secret"]}
    response = owner.request("POST", owner.target("sub", "/streams"), links)
    check_error(response, 403, "FORBIDDEN")
    assert owner.show()["streams"] == []


def test_claims_and_views_tell_only_of_what_may_be_read(guarded: Guarded) -> None:
    """Neither what the owner may not read, nor what the asking principal may not."""
    admin = guarded.client("*:/")
    owner = guarded.client("subscribe,append:/v1/stream", "read:/v1/stream/team/a*")
    other = guarded.client("subscribe:/v1/stream", "read:/v1/stream/team/ab")
    guarded.reload()
    admin.put("wakes")
    for name in ("a", "ab", "secret"):
        admin.put(f"team/{name}")
    config = {"type": "pull-wake", "pattern": "team/*", "wake_stream": "wakes"}
    assert put(owner, "sub", **config).status == 201
    # A stream that the owner may not read does not even wake.
    admin.append("team/secret")
    claim = owner.request("POST", owner.target("sub", "/claim"), {"worker": "w"})
    check_error(claim, 409, "NO_PENDING_WORK")
    for name in ("a", "ab"):
        admin.append(f"team/{name}")
    paths = {
        name: [item["path"] for item in client.show()["streams"]]
        for name, client in (("owner", owner), ("other", other), ("admin", admin))
    }
    assert paths == {
        "owner": ["team/a", "team/ab"],
        "other": ["team/ab"],
        "admin": ["team/a", "team/ab"],
    }
    claimed = other.claim()
    assert [item["path"] for item in claimed["streams"]] == ["team/ab"]
    body = admin.api.get(
        admin.url("wakes"), "offset=-1", {"Authorization": f"Bearer {admin.token}"}
    ).body
    assert [event["stream"] for event in json.loads(body)] == ["team/a"]


def test_a_lease_token_needs_no_other_credentials(guarded: Guarded) -> None:
    owner = guarded.client("*:/v1/stream")
    guarded.reload()
    with Receiver(ACCEPTED) as receiver:
        config = {"type": "webhook", "pattern": "team/*", "webhook": {"url": receiver.url}}
        assert put(owner, "sub", **config).status == 201
        owner.put("team/a", b'{"n":1}')
        content = receiver.next().content
        target = owner.target("sub", "/callback")
        ack = {"wake_id": content["wake_id"], "generation": content["generation"], "done": True}
        response = owner.request("POST", target, ack, owner.token)
        check_error(response, 401, "TOKEN_INVALID")
        assert response.headers["www-authenticate"].startswith("Bearer")
        assert owner.request("POST", target, ack, content["callback_token"]).status == 200
    anonymous = guarded.with_token("")
    assert anonymous.request("GET", f"{anonymous.root}/__ds/jwks.json").status == 200
    # It is a token for this alone.
    read = guarded.with_token(content["callback_token"])
    assert read.request("GET", read.url("team/a")).status == 401


def test_a_revoked_owner_gets_nothing(guarded: Guarded) -> None:
    admin = guarded.client("*:/")
    owner = guarded.client("subscribe,read:/v1/stream/team")
    guarded.reload()
    with Receiver(DONE) as receiver:
        config = {"type": "webhook", "pattern": "team/*", "webhook": {"url": receiver.url}}
        assert put(owner, "sub", **config).status == 201
        admin.put("team/a")
        tail = admin.append("team/a")
        assert receiver.next().tail("team/a") == tail
        wait_until(lambda: admin.cursors()["team/a"] == tail)
        guarded.toml.remove(owner.token)
        guarded.reload()
        admin.append("team/a")
        shown = admin.show()
        assert (shown["status"], shown["streams"]) == ("failed", [])
        assert "no rights" in shown["last_error"]
        # Another principal with the rights takes it over by the same configuration.
        assert put(admin, "sub", **config).status == 200
        assert admin.show()["status"] == "active"
        tail = admin.append("team/a")
        assert receiver.next().tail("team/a") == tail
        assert receiver.count == 0


def test_grants_that_shrink_hide_what_was_told(guarded: Guarded) -> None:
    admin = guarded.client("*:/")
    owner = guarded.client("subscribe,read:/v1/stream/team")
    guarded.reload()
    with Receiver(ACCEPTED) as receiver:
        config = {"type": "webhook", "pattern": "team/*", "webhook": {"url": receiver.url}}
        assert put(owner, "sub", **config, lease_ttl_ms=1000).status == 201
        admin.put("team/a", b'{"n":1}')
        admin.put("team/b", b'{"n":1}')
        receiver.next()
        text = guarded.toml._parts[owner.token]
        shrunk = text.replace("subscribe,read:/v1/stream/team", "subscribe,read:/v1/stream/team/b")
        guarded.toml.put(owner.token, shrunk)
        guarded.reload()
        while [item["path"] for item in receiver.next().content["streams"]] != ["team/b"]:
            pass


def test_the_rights_of_a_jwt_end_with_it_and_are_renewed(guarded: Guarded) -> None:
    admin = guarded.client("*:/")
    guarded.reload()
    scope = "subscribe,read:/v1/stream/team"
    with Receiver(ACCEPTED) as receiver:
        config = {"type": "webhook", "pattern": "team/*", "webhook": {"url": receiver.url}}
        short = guarded.with_token(SIGNER.sign(scope, exp=int(time.time()) + 2))
        assert put(short, "sub", **config, lease_ttl_ms=1000).status == 201
        wait_until(lambda: admin.show()["status"] == "failed")
        admin.put("team/a")
        tail = admin.append("team/a")
        wait_until(lambda: "next_attempt_at" in admin.show())
        assert receiver.count == 0
        renewed = guarded.with_token(SIGNER.sign(scope))
        assert put(renewed, "sub", **config, lease_ttl_ms=1000).status == 200
        # What was appended meanwhile is not lost.
        assert receiver.next().tail("team/a") == tail


PULL = {"type": "pull-wake", "pattern": "team/*", "wake_stream": "wakes"}
PULL_GRANTS = ("subscribe,read:/v1/stream/team", "append:/v1/stream/wakes")


def wake_events(admin: Surface) -> list[int]:
    """The generations of the wake events."""
    events = json.loads(admin.request("GET", admin.url("wakes") + "?offset=-1").body)
    return [event["generation"] for event in events]


def test_no_wake_event_without_append_on_the_wake_stream(guarded: Guarded) -> None:
    admin = guarded.client("*:/")
    owner = guarded.client(*PULL_GRANTS)
    guarded.reload()
    admin.put("wakes")
    admin.put("team/a")
    assert put(owner, "sub", **PULL).status == 201
    granted = guarded.toml._parts[owner.token]
    guarded.toml.put(owner.token, granted.replace("append:/v1/stream/wakes", "read:/v1/stream/x"))
    guarded.reload()
    admin.append("team/a")
    assert wake_events(admin) == []
    guarded.toml.put(owner.token, granted)
    guarded.reload()
    # The same PUT writes the event that is missing, and only that one.
    for _ in range(2):
        assert put(owner, "sub", **PULL).status == 200
        assert wake_events(admin) == [1]
    assert owner.claim()["streams"][0]["has_pending"]
    assert put(owner, "sub", **PULL).status == 200
    assert wake_events(admin) == [1]


def test_a_jwt_that_has_expired_writes_no_wake_event_until_it_is_renewed(guarded: Guarded) -> None:
    admin = guarded.client("*:/")
    guarded.reload()
    admin.put("wakes")
    admin.put("team/a")
    scope = " ".join(PULL_GRANTS)
    short = guarded.with_token(SIGNER.sign(scope, exp=int(time.time()) + 2))
    assert put(short, "sub", **PULL).status == 201
    wait_until(lambda: admin.show()["status"] == "failed")
    admin.append("team/a")
    assert wake_events(admin) == []
    # Also one who may not read the pending stream is told nothing of it.
    less = guarded.with_token(SIGNER.sign("subscribe:/v1/stream/team append:/v1/stream/wakes"))
    assert put(less, "sub", **PULL).status == 200
    assert wake_events(admin) == []
    renewed = guarded.with_token(SIGNER.sign(scope))
    assert put(renewed, "sub", **PULL).status == 200
    assert wake_events(admin) == [1]
    later = guarded.with_token(SIGNER.sign(scope, exp=int(time.time()) + 900))
    assert put(later, "sub", **PULL).status == 200
    assert wake_events(admin) == [1]


def test_a_condition_is_checked_after_the_access(guarded: Guarded) -> None:
    owner = guarded.client("subscribe:/v1/stream/team")
    outsider = guarded.client("subscribe:/v1/stream/other")
    guarded.reload()
    config = {**HOOK, "pattern": "team/*"}
    assert put(owner, "sub", **config).status == 201
    for client, status in ((owner, 412), (outsider, 403)):
        headers = {**client._headers(), "If-None-Match": "*"}
        body = json.dumps(config).encode()
        assert guarded.api.request("PUT", client.target(), headers, body).status == status


def test_listings_show_what_is_covered(guarded: Guarded) -> None:
    admin = guarded.client("*:/")
    owner = guarded.client("subscribe:/v1/stream/team")
    other = guarded.client("subscribe:/v1/stream/te*")
    outsider = guarded.client("subscribe:/v1/stream/other", "read:/v1/stream")
    guarded.reload()
    assert put(owner, "sub", **HOOK, pattern="team/*").status == 201
    for client, count in ((admin, 1), (owner, 1), (other, 1), (outsider, 0)):
        for target in (f"{client.root}/__ds/subscriptions", "/-/subscriptions"):
            page = json.loads(client.request("GET", target).body)
            assert len(page["subscriptions"]) == count

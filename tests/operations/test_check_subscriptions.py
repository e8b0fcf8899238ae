"""`check` finds subscriptions that do not fit their links, their wakes or their streams."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tailrace.engine.codec import decode_subscription
from tailrace.engine.rocks import RocksStore
from tailrace.engine.rocks.keys import ID
from tailrace.protocol.offset import Offset
from tailrace.protocol.subscription import Link, Phase, SubscriptionState
from tests.contract.harness import World
from tests.contract.subscribing import Subscriber, pull, webhook
from tests.operations.building import check, no_damage, run
from tests.support.http import Connection
from tests.support.publishing import JSON
from tests.support.server import ServerProcess

BUSY = b"\0busy"
IDLE = b"\0idle"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A closed data directory with subscriptions in every phase."""
    with World("rocks", tmp_path / "data") as world:
        subscriber = Subscriber(world)
        subscriber.create("idle", pull("other/*", streams=("none",)))
        subscriber.create("busy", pull(streams=("x",)))
        subscriber.create("waking", pull())
        subscriber.create("hook", webhook())
        subscriber.start()
        tail = subscriber.append("e/1")
        for at in range(200):
            world.append(subscriber.key("e/2") if at else subscriber.key("e/1"), b"x")
            if not at:
                subscriber.append("e/2")
        subscriber.append("x")
        claim = subscriber.claim("busy")
        subscriber.ack("busy", claim, [("e/1", tail)])
        subscriber.failed(subscriber.deliveries[0])
        world.run(world.engine.subscriptions.secret("key"))
    return tmp_path / "data"


def state(store: RocksStore, key: bytes) -> SubscriptionState:
    return decode_subscription(store.families["subscriptions"].get(key) or b"")


def put(store: RocksStore, key: bytes, **changes: object) -> None:
    transaction = store.begin()
    transaction.put_subscription(key, replace(state(store, key), **changes))
    store.write(transaction)


def put_link(store: RocksStore, key: bytes, path: bytes, link: Link | None) -> None:
    transaction = store.begin()
    transaction.put_link(state(store, key).id, path, link)
    store.write(transaction)


def orphan(store: RocksStore) -> None:
    transaction = store.begin()
    transaction.put_link(900, b"e/1", Link(is_explicit=True))
    store.write(transaction)


def remove_stream(store: RocksStore) -> None:
    """As if the links of a deleted stream had been left."""
    found = store.load(b"\0e/1")
    assert found is not None
    transaction = store.begin()
    transaction.delete(b"\0e/1", found)
    store.write(transaction)


def rename(store: RocksStore) -> None:
    transaction = store.begin()
    transaction.put_subscription(b"nowhere\0busy", replace(state(store, IDLE), id=3000))
    transaction.reserve_ids(5000)
    store.write(transaction)


PAST = Offset(10**6, 10**6)

Fault = Callable[[RocksStore], None]
FAULTS: dict[str, tuple[Fault, str]] = {
    "an append without its cursor": (
        lambda store: put_link(store, BUSY, b"e/2", None), "its row has 3",
    ),
    "an append without its wake": (
        lambda store: put(
            store, BUSY, phase=Phase.IDLE, wake_id="", lease_until=None, holder=None
        ),
        "has pending work and no wake",
    ),
    "a cursor that is not counted": (
        lambda store: put(store, BUSY, pending=2), "has 3 pending streams, and its row has 2",
    ),
    "a cursor past the tail": (
        lambda store: put_link(store, BUSY, b"e/1", Link(acked=PAST)), "at or past the tail",
    ),
    "links of no subscription": (orphan, "links of subscription 900, which does not exist"),
    "a link of another pattern": (
        lambda store: put_link(store, IDLE, b"e/1", Link(acked=Offset(0, 0))), "does not match",
    ),
    "an empty link": (lambda store: put_link(store, BUSY, b"e/9", Link()), "an empty link"),
    "a stream that is gone": (remove_stream, "which does not exist"),
    "a lease without an end": (
        lambda store: put(store, BUSY, lease_until=None), "a deadline that does not fit",
    ),
    "a wake of an idle one": (
        lambda store: put(store, IDLE, wake_id="wake_1"), "a wake that does not fit",
    ),
    "a bucket that does not exist": (rename, "a bucket that does not exist"),
    "an unreadable subscription": (
        lambda store: store.families["subscriptions"].put(BUSY, b"\xc1"), "cannot be read",
    ),
    "ids would be used again": (
        lambda store: store._db.put(b"next_id", ID.pack(2)), "the next id is 2",
    ),
    "one id twice": (
        lambda store: put(store, BUSY, id=state(store, IDLE).id), "internal id of another",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(directory: Path, name: str) -> None:
    no_damage(directory)
    fault, expected = FAULTS[name]
    store = RocksStore(directory)
    fault(store)
    store.close()
    _, found = check(directory)
    assert any(expected in finding.problem for finding in found), [*map(str, found)]


def test_subscriptions_in_every_phase_are_sound(directory: Path) -> None:
    no_damage(directory)


def test_a_restored_backup_has_the_subscriptions_and_their_secrets(tmp_path: Path) -> None:
    """A lease of the origin is stale there, and expires; a token of it is still known."""
    with ServerProcess(tmp_path / "data") as server:
        with Connection.to(server.url) as connection:
            _send(connection, "PUT", "/v1/stream/__ds/subscriptions/s", CONFIG, 201)
            _send(connection, "PUT", "/v1/stream/e/1", b"[1]", 201)
            claim = _send(connection, "POST", "/v1/stream/__ds/subscriptions/s/claim", CLAIM, 200)
            before = _send(connection, "GET", "/v1/stream/__ds/subscriptions/s", b"", 200)
        assert run("backup", "--url", server.url, tmp_path / "saved").returncode == 0
    assert run("restore", tmp_path / "saved", "--data-dir", tmp_path / "restored").returncode == 0
    no_damage(tmp_path / "restored")
    with (
        ServerProcess(tmp_path / "restored") as server,
        Connection.to(server.url) as connection,
    ):
        after = _send(connection, "GET", "/v1/stream/__ds/subscriptions/s", b"", 200)
        assert after["streams"] == before["streams"]
        wake = {"wake_id": claim["wake_id"], "generation": claim["generation"], "done": True}
        body = json.dumps(wake).encode()
        headers = {"Authorization": f"Bearer {claim['token']}", "Content-Type": JSON}
        path = "/v1/stream/__ds/subscriptions/s/ack"
        answer = connection.request("POST", path, headers, body)
        assert (answer.status, json.loads(answer.body)["next_wake"]) == (200, True)


CONFIG = b'{"type":"pull-wake","pattern":"e/*","wake_stream":"wakes","lease_ttl_ms":600000}'
CLAIM = b'{"worker":"w"}'


def _send(connection: Connection, method: str, path: str, body: bytes, status: int) -> Any:
    answer = connection.request(method, path, {"Content-Type": JSON}, body)
    assert answer.status == status, (path, answer.status, answer.body)
    return json.loads(answer.body) if answer.body else None

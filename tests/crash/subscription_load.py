"""
Appends, claims, acks and webhooks under way while the server is killed, and what must hold after.

Offsets are compared as text, in which they sort; `-1` is before all of them.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.server.subscriptions.receiver import ACCEPTED, DONE, Received, Receiver, response
from tests.support.http import Connection, ProtocolError, Response
from tests.support.server import BaseServerProcess
from tests.support.together import HANG_S

__all__ = ["SubscriptionLoad"]

ROOT = "/v1/stream"
BEGINNING = "-1"
JSON = {"Content-Type": "application/json"}
STREAMS_PER_WRITER = 4
WRITERS = 3
WORKERS = 2
NAMES = ("pull", "hook")


class SubscriptionLoad:
    """
    A pull-wake subscription with workers, and a webhook with a receiver, over the same streams.

    All streams are created after the subscriptions, so each append is owed to both.
    """

    def __init__(self, seed: str, receiver: Receiver) -> None:
        self.chance = random.Random(seed)
        self.ending = threading.Event()
        self.claims = 0
        self._receiver = receiver
        self._lock = threading.Lock()
        self._serial = 0
        # By stream: the messages and the tail that were acknowledged to writers.
        self._stored: dict[str, set[int]] = defaultdict(set)
        self._tails: dict[str, str] = {}
        # What workers have read.
        self._seen: dict[str, set[int]] = defaultdict(set)
        # By subscription and stream: how far the cursor is known to be, and how far it may be.
        self._floor: dict[tuple[str, str], str] = {}
        self._sent: dict[tuple[str, str], str] = {}
        receiver.behave = self._answer

    # -- what runs ---------------------------------------------------------------------------

    def prepare(self, url: str) -> None:
        with Connection.to(url, HANG_S) as connection:
            _expect(connection.request("PUT", f"{ROOT}/wakes", JSON), 201)
            pull: dict[str, Any] = {"type": "pull-wake", "wake_stream": "wakes"}
            hook: dict[str, Any] = {"type": "webhook", "webhook": {"url": self._receiver.url}}
            for name, config in zip(NAMES, (pull, hook), strict=True):
                body = json.dumps({"pattern": "jobs/**", "lease_ttl_ms": 1000, **config})
                path = f"{ROOT}/__ds/subscriptions/{name}"
                _expect(connection.request("PUT", path, JSON, body.encode()), 201)

    def run_until_killed(self, server: BaseServerProcess, seconds: float) -> None:
        """Let all clients work, and kill the server in the middle of it."""
        self.ending.clear()
        clients = [*((self._write, at) for at in range(WRITERS)), *[(self._work, 0)] * WORKERS]
        with ThreadPoolExecutor(len(clients)) as pool:
            futures = [
                pool.submit(self._until_the_end, work, server.url, at) for work, at in clients
            ]
            time.sleep(seconds)
            self.ending.set()
            server.kill()
            for future in futures:
                future.result()

    def _until_the_end(
        self, work: Callable[[Connection, random.Random, int], None], url: str, at: int
    ) -> None:
        chance = random.Random(self.chance.random())
        try:
            with Connection.to(url, HANG_S) as connection:
                while not self.ending.is_set():
                    work(connection, chance, at)
        except (OSError, ProtocolError):
            # The server was killed in the middle of a request.
            if not self.ending.is_set():
                raise

    def _write(self, connection: Connection, chance: random.Random, at: int) -> None:
        path = f"jobs/{at}/{chance.randrange(STREAMS_PER_WRITER)}"
        with self._lock:
            self._serial += 1
            number = self._serial
        done = connection.request("POST", f"{ROOT}/{path}", JSON, b"%d" % number)
        if done.status == 404:
            # A PUT with a body counts as an append.
            done = connection.request("PUT", f"{ROOT}/{path}", JSON, b"%d" % number)
        _expect(done, 201, 204)
        with self._lock:
            self._stored[path].add(number)
            self._tails[path] = max(self._tails.get(path, ""), done.headers["Stream-Next-Offset"])

    def _work(self, connection: Connection, chance: random.Random, _at: int) -> None:
        ends = chance.choice(["done", "done", "acks", "release", "abandon"])
        claim = self._claim(connection)
        if claim is None:
            time.sleep(0.002)
            return
        acks = []
        for stream in claim["streams"]:
            if stream["has_pending"]:
                acks.append(self._read(connection, stream["path"], stream["acked_offset"]))
        if ends == "abandon":
            return
        if ends == "release":
            self._send(connection, claim, "release", [], done=False)
            return
        self._send(connection, claim, "ack", acks, done=ends == "done")

    def _claim(self, connection: Connection) -> dict[str, Any] | None:
        path = f"{ROOT}/__ds/subscriptions/pull/claim"
        answer = connection.request("POST", path, JSON, b'{"worker":"w"}')
        if answer.status == 409:
            code = json.loads(answer.body)["error"]["code"]
            assert code in ("ALREADY_CLAIMED", "NO_PENDING_WORK"), answer
            return None
        _expect(answer, 200)
        self.claims += 1
        found: dict[str, Any] = json.loads(answer.body)
        return found

    def _read(self, connection: Connection, path: str, offset: str) -> dict[str, str]:
        read = connection.request("GET", f"{ROOT}/{path}?offset={offset}")
        _expect(read, 200)
        with self._lock:
            self._seen[path].update(json.loads(read.body))
        return {"stream": path, "offset": read.headers["Stream-Next-Offset"]}

    def _send(
        self,
        connection: Connection,
        claim: dict[str, Any],
        action: str,
        acks: list[dict[str, str]],
        *,
        done: bool,
    ) -> None:
        with self._lock:
            for ack in acks:
                at = ("pull", ack["stream"])
                self._sent[at] = max(self._sent.get(at, BEGINNING), ack["offset"])
        wake = {"wake_id": claim["wake_id"], "generation": claim["generation"]}
        body = json.dumps(wake if action == "release" else {**wake, "acks": acks, "done": done})
        headers = {**JSON, "Authorization": f"Bearer {claim['token']}"}
        path = f"{ROOT}/__ds/subscriptions/pull/{action}"
        answer = connection.request("POST", path, headers, body.encode())
        # The lease may have expired meanwhile, on a busy machine.
        _expect(answer, 200, 204, 409)
        if answer.status == 200:
            with self._lock:
                for ack in acks:
                    at = ("pull", ack["stream"])
                    self._floor[at] = max(self._floor.get(at, BEGINNING), ack["offset"])

    def _answer(self, received: Received) -> bytes | None:
        """The receiver of webhooks: mostly it is done at once."""
        with self._lock:
            answer = self.chance.choice([DONE, DONE, DONE, ACCEPTED, response(500)])
            if answer is DONE:
                for stream in received.content["streams"]:
                    if stream["has_pending"]:
                        at = ("hook", stream["path"])
                        self._sent[at] = max(self._sent.get(at, BEGINNING), stream["tail_offset"])
        return answer

    # -- what must hold ----------------------------------------------------------------------

    def check(self, url: str) -> None:
        """No cursor moved back, and none is where no worker sent it."""
        with Connection.to(url, HANG_S) as connection:
            for name in NAMES:
                found = self._cursors(connection, name)
                assert found.keys() >= self._tails.keys(), "a stream that matches is not linked"
                for path, acked in found.items():
                    at = (name, path)
                    with self._lock:
                        floor = self._floor.get(at, BEGINNING)
                        sent = self._sent.get(at, BEGINNING)
                    assert floor <= acked, f"the cursor {at} moved back from {floor} to {acked}"
                    assert acked <= sent, f"the cursor {at} is at {acked}: nobody acknowledged it"
                    with self._lock:
                        self._floor[at] = acked

    def _cursors(self, connection: Connection, name: str) -> dict[str, str]:
        answer = connection.request("GET", f"{ROOT}/__ds/subscriptions/{name}")
        _expect(answer, 200)
        streams = json.loads(answer.body)["streams"]
        return {stream["path"]: stream["acked_offset"] for stream in streams}

    def drain(self, url: str) -> None:
        """Every append reaches a worker and the webhook: no wake was owed and missing."""
        deadline = time.monotonic() + HANG_S
        with Connection.to(url, HANG_S) as connection:
            while time.monotonic() < deadline:
                if (claim := self._claim(connection)) is not None:
                    acks = [
                        self._read(connection, stream["path"], stream["acked_offset"])
                        for stream in claim["streams"]
                        if stream["has_pending"]
                    ]
                    self._send(connection, claim, "ack", acks, done=True)
                if all(self._is_drained(connection, name) for name in NAMES):
                    break
                time.sleep(0.02)
            for name in NAMES:
                assert self._is_drained(connection, name), f"{name} was not woken for all"
        for path, numbers in self._stored.items():
            assert numbers <= self._seen[path], f"messages of {path} reached no worker"

    def _is_drained(self, connection: Connection, name: str) -> bool:
        found = self._cursors(connection, name)
        return all(found.get(path, "") >= tail for path, tail in self._tails.items())

    @property
    def stored(self) -> int:
        return sum(map(len, self._stored.values()))


def _expect(answer: Response, *statuses: int) -> None:
    assert answer.status in statuses, (answer.status, answer.body)

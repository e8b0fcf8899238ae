"""
Changes of access while a server runs: SIGHUP, expiring tokens, waiting readers.

Method: a real server, whose access file changes, with readers on open connections.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from os import kill
from pathlib import Path

import pytest

from tests.server.access.samples import AccessToml, Signer, jwks, jwt_table
from tests.support.http import Response
from tests.support.server import ServerProcess
from tests.support.streams import Api, text_of, wait_until

ROOM = "/v1/stream/room"
TEXT = {"Content-Type": "text/plain"}


def auth(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}", **TEXT}


class Running:
    """A server with a stream, and its access file."""

    def __init__(self, folder: Path) -> None:
        self.toml = AccessToml(folder / "access.toml")
        self.admin = self.toml.token("*:/")
        options = ("--engine", "memory", "--access", str(self.toml.path), "--log-level", "debug")
        waits = ("--long-poll-s", "60", "--sse-s", "60")
        self.server = ServerProcess(folder / "data", *options, *waits)
        self.api: Api | None = None

    def start(self) -> Api:
        self.server.start()
        self.api = Api(self.server)
        assert self.api.request("PUT", ROOM, auth(self.admin)).status == 201
        return self.api

    def reload(self) -> None:
        before = len(self.server.log)
        kill(self.server.pid, signal.SIGHUP)
        wait_until("reloaded", lambda: any("reloaded" in line for line in self.server.log[before:]))

    def append(self, data: bytes) -> Response:
        assert self.api is not None
        return self.api.request("POST", ROOM, auth(self.admin), data)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    made = Running(tmp_path)
    yield made
    if made.api is not None:
        made.api.close()
    made.server.kill()


def test_a_reload_applies_to_open_connections_and_drops_none(running: Running) -> None:
    kept, gone = (running.toml.token("read:/v1/stream/room") for _ in range(2))
    api = running.start()
    with (
        api.connect() as of_kept,
        api.connect() as of_gone,
        api.connect() as of_new,
        api.sse(ROOM, f"offset=-1&access_token={kept}") as reading,
        api.sse(ROOM, f"offset=-1&access_token={gone}") as revoked,
    ):
        assert reading.next().kind == revoked.next().kind == "control"
        of_gone.send_request("GET", f"{ROOM}?offset=now&live=long-poll", auth(gone))
        new = running.toml.token("read:/v1/stream/room")
        assert of_kept.request("GET", ROOM, auth(kept)).status == 200
        assert of_new.request("GET", ROOM, auth(new)).status == 401
        running.toml.remove(gone)
        running.reload()
        # Both waiting readers of the revoked token end.
        assert of_gone.read_response().status == 204
        assert text_of(list(revoked)) == ""
        assert of_kept.request("GET", ROOM, auth(kept)).status == 200
        assert of_gone.request("GET", ROOM, auth(gone)).status == 401
        assert of_new.request("GET", ROOM, auth(new)).status == 200
        assert running.append(b"after").status == 204
        assert reading.next().data == "after"


def test_an_invalid_file_changes_nothing(running: Running) -> None:
    running.start()
    running.toml.put("mistake", "[[token]]\nid = 1")
    running.reload()
    errors = [item["error"] for item in running.server.events() if item["level"] == "error"]
    assert ["[[token]] number 2: id must be text" in error for error in errors] == [True]
    assert running.append(b"x").status == 204


def test_an_expiring_token_ends_its_readers(running: Running) -> None:
    """They end at the expiry, not after their maximum time, and cannot come back."""
    api = running.start()
    # On a busy machine, a short-lived token may expire before its reader is connected.
    for lifetime_s in (1, 5, 25):
        end = datetime.now(UTC) + timedelta(seconds=lifetime_s)
        short = running.toml.token("read:/v1/stream/room", expires=end.isoformat())
        running.reload()
        query = f"offset=now&live=long-poll&access_token={short}"
        with api.connect() as polling, api.sse(ROOM, f"offset=-1&access_token={short}") as reading:
            polling.send_request("GET", f"{ROOM}?{query}")
            polled = polling.read_response().status
            if 401 in (reading.head.status, polled):
                continue
            assert polled == 204
            assert [event.kind for event in reading] == ["control", "control"]
            assert datetime.now(UTC) >= end
            refused = polling.request("GET", ROOM, auth(short))
            assert refused.status == 401
            assert "expired" in refused.headers["www-authenticate"]
            return
    raise AssertionError("no reader connected in time")


def test_a_withdrawn_key_ends_readers_of_its_jwts(running: Running) -> None:
    one, two = Signer("ES256", "one"), Signer("ES256", "two")
    keys = running.toml.path.parent / "keys.json"
    keys.write_text(jwks(one.jwk, two.jwk))
    running.toml.put("jwt", jwt_table())
    api = running.start()
    tokens = [signer.sign("read:/v1/stream/room") for signer in (one, two)]
    first, second = (f"offset=-1&access_token={token}" for token in tokens)
    with api.sse(ROOM, first) as ended, api.sse(ROOM, second) as staying:
        keys.write_text(jwks(two.jwk))
        running.reload()
        assert text_of(list(ended)) == ""
        assert running.append(b"after").status == 204
        assert staying.next().kind == "control"
        assert staying.next().data == "after"
    assert api.request("GET", ROOM, auth(tokens[0])).status == 401


def test_no_token_is_in_a_log_or_a_response(running: Running) -> None:
    """Valid or not, in a header or a query, for reads, writes and errors."""
    api, token = running.start(), running.admin
    bad = token[:-4] + "AAAA"
    sent = [token, bad]
    for each in sent:
        for method in ("GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS"):
            for path in (ROOM, "/chat-rooms", "/chat-rooms/a", "/chat-rooms/streams", "/-/metrics"):
                for query, headers in (
                    (f"?access_token={each}", TEXT),
                    (f"?access_token={each}&offset=bad&live=bad", TEXT),
                    ("", auth(each)),
                    (f"?access_token={each}", auth(each)),
                ):
                    response = api.request(method, path + query, headers, b"")
                    shown = repr(list(response.headers)).encode() + response.body
                    assert each.split("_", 2)[2].encode() not in shown
    running.reload()
    assert running.server.terminate() == 0
    log = "\n".join(running.server.log)
    for each in sent:
        assert each.split("_", 2)[2] not in log


def test_a_snapshot_without_a_grant_is_rejected_before_its_body(running: Running) -> None:
    """The response comes instead of 100 Continue."""
    reader = running.toml.token("read:/chat-rooms")
    api = running.start()
    headers = {"Content-Length": str(1 << 29), "Expect": "100-continue", **auth(reader)}
    with api.connect() as connection:
        connection.send_request("PUT", "/chat-rooms/a/snapshot/0_0", headers)
        response = connection.read_response("PUT")
        assert response.status == 403
        assert not response.interim


def test_a_server_with_a_missing_or_invalid_file_does_not_start(tmp_path: Path) -> None:
    file = tmp_path / "access.toml"
    args = [sys.executable, "-m", "tailrace", "serve", "--engine", "memory", "--port", "0"]
    for text, error in ((None, f"tailrace token new --file {file}"), ("[[token]]", "number 1: id")):
        if text is not None:
            file.write_text(text)
        done = subprocess.run(
            [*args, "--access", str(file)], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 2
        assert error in done.stderr

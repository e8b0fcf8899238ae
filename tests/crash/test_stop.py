"""SIGTERM: requests in flight are finished, acknowledged data stays, readers get an ending."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.crash.load import Load, Profile
from tests.support.chance import seeded
from tests.support.http import Connection, format_request, request
from tests.support.reading import Event, SseReader, problem_code
from tests.support.server import ServerProcess
from tests.support.tiers import slow_but
from tests.support.together import wait_until

STREAM = "/v1/stream/a"
TEXT = {"Content-Type": "text/plain"}


def is_stopping(server: ServerProcess) -> bool:
    return any(event.get("event") == "stopping" for event in server.events())


def test_sigterm_finishes_what_is_in_flight(tmp_path: Path) -> None:
    """
    Goal: at SIGTERM a request that is still arriving is served, `/-/ready` says 503 and
    `/-/health` 200 meanwhile, live readers get their last word, and the process exits with 0.

    Method: an SSE reader and a long-poll wait; an append, a `ready` and a `health` request are
    sent in part. After SIGTERM the rest of each is sent, the append's last; then restart and read.
    """
    with ServerProcess(tmp_path / "data") as server, ThreadPoolExecutor(3) as pool:
        assert request("PUT", server.url + STREAM, TEXT, b"first ").status == 201
        host = f"127.0.0.1:{server.port}"
        append = format_request("POST", STREAM, TEXT, b"second", host=host)
        ready = format_request("GET", "/-/ready", host=host)
        health = format_request("GET", "/-/health", host=host)
        with (
            Connection.to(server.url) as sse,
            Connection.to(server.url) as poll,
            Connection.to(server.url) as slow,
            Connection.to(server.url) as asks_ready,
            Connection.to(server.url) as asks_health,
        ):
            reader = SseReader(sse, STREAM)
            events = reader.events()
            assert next(events).kind == "data"
            assert next(events).control["upToDate"] is True
            poll.send_request("GET", f"{STREAM}?offset=now&live=long-poll")
            slow.send(append[:-3])
            asks_ready.send(ready[:-2])
            asks_health.send(health[:-2])
            # All five have arrived: the server responds in order of arrival.
            assert request("GET", server.url + "/-/ready").status == 200
            stopped = pool.submit(server.terminate)
            wait_until(lambda: is_stopping(server))
            last: list[Event] = list(events)
            assert [event.kind for event in last] == ["control"]
            assert last[0].control["upToDate"] is True
            assert "streamClosed" not in last[0].control
            assert poll.read_response().status == 204
            asks_ready.send(ready[-2:])
            refused = asks_ready.read_response()
            assert (refused.status, problem_code(refused)) == (503, "not-ready")
            asks_health.send(health[-2:])
            assert asks_health.read_response().status == 200
            slow.send(append[-3:])
            assert slow.read_response("POST").status == 204
            assert stopped.result() == 0
        server.start()
        assert request("GET", server.url + STREAM).body == b"first second"


@pytest.mark.parametrize("turn", slow_but([0], range(3)))
def test_sigterm_under_load(tmp_path: Path, turn: int) -> None:
    """
    Goal: a server that is stopped under load exits with 0 and has all that it acknowledged.

    Method: the mixed load of the SIGKILL test, ended by SIGTERM; then restart and compare every
    stream with the model.
    """
    with seeded("stop", turn) as chance, ServerProcess(tmp_path / "data") as server:
        load = Load(str(chance.random()), Profile())

        def terminate() -> None:
            time.sleep(chance.uniform(0.2, 0.8))
            load.ending.set()
            assert server.terminate() == 0

        for _ in range(2):
            load.run(server.url, terminate)
            server.start()
            load.check(server.url)
        assert load.stored > 20

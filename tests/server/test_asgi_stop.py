"""The ASGI app ends its live readers when its server is told to stop."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.server.test_asgi_framing import Hypercorn, UvicornH11
from tests.support.server import AsgiServerProcess
from tests.support.streams import Api

# Without the app's help the server would wait for its readers until the test fails.
LONG = ("--long-poll-s", "3600", "--sse-s", "3600")


@pytest.mark.parametrize("kind", [AsgiServerProcess, UvicornH11, Hypercorn])
@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_a_signal_ends_live_readers(
    tmp_path: Path, kind: type[AsgiServerProcess], number: signal.Signals
) -> None:
    """Each reader gets its last response, and the server stops at once, and not after an hour."""
    server = kind(tmp_path, *LONG).start()
    try:
        api = Api(server)
        path = api.create(body=b"x")
        tail = api.tail(path)
        with api.sse(path) as events, api.connect() as polling:
            events.until(tail=tail)
            polling.send_request("GET", f"{path}?offset={tail}&live=long-poll")
            # The long-poll has arrived when a later request has its response.
            assert b"tailrace_requests_total" in api.get(server.base_path + "/-/metrics").body
            server.signal(number)
            last = list(events)
            response = polling.read_response()
        api.close()
        server.wait_for_end()
    finally:
        server.kill()
    assert [event.json["streamNextOffset"] for event in last] == [tail]
    assert (response.status, response.headers["stream-next-offset"]) == (204, tail)
    assert response.headers["connection"] == "close"
    assert not [line for line in server.log if "Traceback" in line]


def test_what_was_appended_is_there_after_the_stop(tmp_path: Path) -> None:
    server = AsgiServerProcess(tmp_path, *LONG).start()
    try:
        api = Api(server)
        path = api.create(body=b"x")
        with api.sse(path) as events:
            events.next()
            api.append(path, b"y")
            server.terminate()
        api.close()
        server.start()
        api = Api(server)
        assert api.get(path).body == b"xy"
        api.close()
    finally:
        server.kill()

"""An idle event stream is kept alive by comments, which clients do not parse as events."""

from __future__ import annotations

import pytest

from tailrace.server.live import session
from tests.support.http import Connection
from tests.support.in_process import InProcessServer
from tests.support.streams import EventStream

PATH = "/v1/stream/quiet"
TEXT = {"Content-Type": "text/plain"}


def test_heartbeats_are_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    """A comment line and an empty line between events, by default every 15 s."""
    monkeypatch.setattr(session, "HEARTBEAT_S", 0.05)
    server = InProcessServer()
    try:
        with server.connect() as writer, server.connect() as reader:
            assert writer.request("PUT", PATH, TEXT).status == 201
            events = EventStream(reader, f"{PATH}?offset=-1&live=sse")
            assert events.next().kind == "control"
            raw = _read_until(events, reader, b": heartbeat\n\n: heartbeat\n\n: heartbeat\n\n")
            assert raw.replace(b": heartbeat\n\n", b"") == b""
            assert writer.request("POST", PATH, TEXT, b"hello").status == 204
            assert [events.next().kind, events.next().kind] == ["data", "control"]
            closing = writer.request("POST", PATH, {"Stream-Closed": "true"}, b"")
            assert closing.status == 204
            assert [event.json["streamClosed"] for event in events] == [True]
            assert set(events.comments) <= {"heartbeat"}
            # The connection can be reused: no late heartbeat is in the next response.
            for _ in range(3):
                assert reader.request("GET", PATH).body == b"hello"
    finally:
        server.stop()


def _read_until(events: EventStream, connection: Connection, mark: bytes) -> bytes:
    """The raw bytes of the response up to a mark, without parsing."""
    raw = b""
    for piece in connection.iter_body(events.head):
        raw += piece
        if raw.endswith(mark):
            return raw
    raise AssertionError(f"the response ended after {raw!r}")

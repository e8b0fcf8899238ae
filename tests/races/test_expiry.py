"""The end of a stream's life while the server is busy with others (§5.1)."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from tests.support.http import Connection, request
from tests.support.reading import SseReader
from tests.support.together import HANG_S, together
from tests.support.uneven_disk import SlowDiskServer

BUSY_S_MAX = 30.0
TEXT = {"Content-Type": "text/plain"}


def test_readers_learn_of_expiry_under_load(tmp_path: Path) -> None:
    """
    Goal: readers of a stream that expires get its end, even with a busy disk; work in
    the background is never put off for ever.

    Method: four writers keep a slow disk at work without a pause; a long-poll and an SSE reader
    wait for another stream with a TTL of one second, with waiting times so long that only its end
    can wake them.
    """
    waits = ("--long-poll-s", "600", "--sse-s", "600")
    with SlowDiskServer(tmp_path / "data", *waits) as server:
        over = threading.Event()
        # Not a limit for the server's speed: without an end of the load a fault would be a hang.
        end = time.monotonic() + BUSY_S_MAX

        def write(writer: int) -> None:
            with Connection.to(server.url, HANG_S) as connection:
                path = f"/v1/stream/busy/{writer}"
                assert connection.request("PUT", path, TEXT).status == 201
                while not over.is_set() and time.monotonic() < end:
                    assert connection.request("POST", path, TEXT, b"x").status == 204

        def wait() -> None:
            path = "/v1/stream/short"
            try:
                created = request("PUT", server.url + path, {**TEXT, "Stream-TTL": "1"}, b"a")
                assert created.status == 201
                with (
                    Connection.to(server.url, HANG_S) as sse,
                    Connection.to(server.url, HANG_S) as poll,
                ):
                    reader = SseReader(sse, path)
                    poll.send_request("GET", f"{path}?offset=now&live=long-poll")
                    events = list(reader.events())
                    assert events[-1].control["streamDeleted"] is True
                    assert time.monotonic() < end, "told only when the load was over"
                    assert poll.read_response().status == 404
            finally:
                over.set()

        together([*(lambda number=number: write(number) for number in range(4)), wait])

"""Deleting a stream, and making a new one of the same name, while others use it (§5.4)."""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable

from tests.support.chance import derive, seeded
from tests.support.http import Connection, request
from tests.support.reading import SseReader, problem_code, read_all
from tests.support.server import ServerProcess
from tests.support.together import HANG_S, together

TEXT = {"Content-Type": "text/plain"}
ROUNDS = 60


def test_delete_races_everything(server: ServerProcess, path: str) -> None:
    """
    Goal: when a stream is deleted, no request for it hangs: an append is 204 or 404, a waiting
    long-poll ends with 404, and SSE with `streamDeleted` and the end of the response.

    Method: many times over, appends, long-polls and SSE readers race with one DELETE.
    """
    with seeded("delete") as chance:
        for number in range(ROUNDS):
            stream = f"{path}/{number}"
            assert request("PUT", server.url + stream, TEXT, b"0").status == 201
            delay_s = chance.choice([0, 0.002, 0.01, 0.03])

            def append(stream: str = stream) -> None:
                with Connection.to(server.url, HANG_S) as connection:
                    while True:
                        response = connection.request("POST", stream, TEXT, b"x")
                        if response.status == 404:
                            return
                        assert response.status == 204, response

            def poll(stream: str = stream) -> None:
                with Connection.to(server.url, HANG_S) as connection:
                    offset = "-1"
                    while True:
                        target = f"{stream}?offset={offset}&live=long-poll"
                        response = connection.request("GET", target)
                        if response.status == 404:
                            assert problem_code(response) == "stream-not-found"
                            return
                        assert response.status in (200, 204), response
                        offset = response.headers["stream-next-offset"]

            def wait(stream: str = stream) -> None:
                """The stream gets no appends: only the DELETE can wake this reader."""
                with Connection.to(server.url, HANG_S) as connection:
                    response = connection.request(
                        "GET", f"{stream}/quiet?offset=now&live=long-poll"
                    )
                    assert response.status == 404, response

            def listen(stream: str = stream) -> None:
                with Connection.to(server.url, HANG_S) as connection:
                    reader = SseReader(connection, stream)
                    if reader.head.status == 404:
                        return
                    events = list(reader.events())
                    assert events[-1].control["streamDeleted"] is True, events[-1]
                    assert not any("streamDeleted" in event.data for event in events[:-1])

            def delete(stream: str = stream, delay_s: float = delay_s) -> None:
                time.sleep(delay_s)
                assert request("DELETE", server.url + stream, timeout=HANG_S).status == 204
                quiet = f"{server.url}{stream}/quiet"
                assert request("DELETE", quiet, timeout=HANG_S).status == 204

            assert request("PUT", f"{server.url}{stream}/quiet", TEXT).status == 201
            together([append, append, append, poll, poll, wait, wait, listen, listen, delete])
            assert request("GET", server.url + stream).status == 404


class Lives:
    """
    One name, one stream after another.

    Every message names the life that it belongs to, and the first is of a length that no other
    life's first has: an offset of one life is never a boundary of another.
    """

    def __init__(self, server: ServerProcess, path: str) -> None:
        self.url = server.url
        self.path = path
        self.over = threading.Event()
        self.seen = 0

    def write(self, lives: int, chance: random.Random) -> None:
        """Create, append, delete, over and over; the next life often in the same moment."""
        with Connection.to(self.url, HANG_S) as one, Connection.to(self.url, HANG_S) as other:
            for life in range(lives):
                first = self.message(life, 1000 + life)
                assert one.request("PUT", self.path, TEXT, first).status == 201
                for _ in range(chance.randrange(4)):
                    body = self.message(life, 5000)
                    assert one.request("POST", self.path, TEXT, body).status == 204
                time.sleep(chance.choice([0, 0, 0.001, 0.004]))
                # Appends of this life may still be on their way when the DELETE arrives.
                other.send_request("POST", self.path, TEXT, self.message(life, 5000))
                one.send_request("DELETE", self.path)
                if chance.random() < 0.5:
                    time.sleep(0.0005)
                assert other.read_response("POST").status in (204, 404)
                assert one.read_response("DELETE").status == 204
        self.over.set()

    def message(self, life: int, size: int) -> bytes:
        return f"<{life}>".encode().ljust(size, b".")

    def life_of(self, body: bytes) -> str:
        """The life that these bytes belong to: exactly one."""
        lives: set[bytes] = set(re.findall(rb"<(\d+)>", body))
        assert len(lives) == 1, f"bytes of several lives in one stream: {lives}"
        self.seen += 1
        return lives.pop().decode()

    def listen(self) -> None:
        """One SSE response never goes from one life to the next."""
        while not self.over.is_set():
            with Connection.to(self.url, HANG_S) as connection:
                reader = SseReader(connection, self.path)
                if reader.head.status == 404:
                    continue
                events = list(reader.events())
                data = b"".join(reader.payload(item) for item in events if item.kind == "data")
                if data:
                    self.life_of(data)
                assert events[-1].control["streamDeleted"] is True, events[-1]

    def poll(self) -> None:
        """What a long-poll at an offset of one life returns is of that life."""
        with Connection.to(self.url, HANG_S) as connection:
            while not self.over.is_set():
                begun = connection.request("GET", self.path)
                if begun.status == 404:
                    continue
                life = self.life_of(begun.body)
                offset = begun.headers["stream-next-offset"]
                response = connection.request("GET", f"{self.path}?offset={offset}&live=long-poll")
                # 400: by the time it arrived there was another life, without this offset.
                assert response.status in (200, 204, 400, 404), response
                if response.status == 200:
                    assert self.life_of(response.body) == life


def test_no_reader_sees_the_next_life(server: ServerProcess, path: str) -> None:
    """
    Goal: a stream created again under the same name is another one: a reader of the old one
    never gets a byte of the new one (§4).

    Method: one client creates, fills and deletes a stream over and over while SSE readers and
    long-polls follow it; every message says which life it belongs to.
    """
    with seeded("lives") as chance:
        lives = Lives(server, path)
        seed = chance.random()
        writer: Callable[[], None] = lambda: lives.write(500, derive(seed))  # noqa: E731
        together([writer, lives.listen, lives.listen, lives.poll, lives.poll])
        assert lives.seen > 0
        with Connection.to(server.url, HANG_S) as connection:
            assert read_all(connection, path) is None

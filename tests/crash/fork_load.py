"""Clients that fork, append, publish and delete in a bucket, until the server dies."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.support.http import Connection, ProtocolError, Response
from tests.support.publishing import offset
from tests.support.server import ServerProcess
from tests.support.together import HANG_S

__all__ = ["BUCKET", "ForkLoad"]

BUCKET = "crash"
CLIENTS = 5
OCTETS = "application/octet-stream"


@dataclass
class _Stream:
    """A stream as its client knows it: all messages, and how many are no longer retained."""

    messages: list[bytes]
    earliest: int = 0
    published: bool = False

    def token(self, count: int) -> str:
        return offset(count, sum(map(len, self.messages[:count])))

    @property
    def tail(self) -> str:
        return self.token(len(self.messages))


@dataclass
class _Client:
    """One client and its streams; nobody else uses them."""

    name: str
    chance: random.Random
    streams: dict[str, _Stream] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    count: int = 0
    done: int = 0
    # How to find out whether the last request, whose response did not arrive, was done.
    unknown: Callable[[Connection], None] | None = None

    def path(self) -> str:
        self.count += 1
        return f"/{BUCKET}/{self.name}-{self.count}"

    def run(self, url: str) -> None:
        """Send one request after the other, until the connection breaks."""
        try:
            with Connection.to(url, HANG_S) as connection:
                while True:
                    self._step(connection)
                    self.unknown = None
                    self.done += 1
        except (OSError, ProtocolError):
            return

    def _step(self, connection: Connection) -> None:
        paths = list(self.streams)
        if len(paths) < 3:
            self._create(connection)
            return
        # The newest ones more often: long chains, whose sources are deleted later.
        path = self.chance.choice(paths[-4:] if self.chance.random() < 0.6 else paths)
        step = self.chance.choices(
            (self._fork, self._append, self._delete, self._publish), (40, 25, 30, 5)
        )[0]
        step(connection, path)

    def _create(self, connection: Connection) -> None:
        path, body = self.path(), self._body()
        self._sends(path, _Stream([body]))
        self._expect(connection.request("PUT", path, {"Content-Type": OCTETS}, body), 201)
        self.streams[path] = _Stream([body])

    def _fork(self, connection: Connection, path: str) -> None:
        source, target = self.streams[path], self.path()
        at = self.chance.randint(source.earliest, len(source.messages))
        headers = {"Stream-Forked-From": path, "Stream-Fork-Offset": source.token(at)}
        messages = source.messages[:at]
        if at < len(source.messages) and self.chance.random() < 0.3:
            # In the middle of a message, which then is one of the fork.
            size = self.chance.randint(1, len(source.messages[at]))
            headers["Stream-Fork-Sub-Offset"] = str(size)
            messages = [*messages, source.messages[at][:size]]
        made = _Stream(messages, source.earliest, source.published)
        self._sends(target, made)
        self._expect(connection.request("PUT", target, headers, b""), 201)
        self.streams[target] = made

    def _append(self, connection: Connection, path: str) -> None:
        stream, body = self.streams[path], self._body()
        grown = _Stream([*stream.messages, body], stream.earliest, stream.published)

        def find_out(connection: Connection) -> None:
            tail = connection.request("HEAD", path).headers["stream-next-offset"]
            assert tail in (stream.tail, grown.tail), (path, tail)
            if tail == grown.tail:
                self.streams[path] = grown

        self.unknown = find_out
        self._expect(connection.request("POST", path, {"Content-Type": OCTETS}, body), 204)
        self.streams[path] = grown

    def _delete(self, connection: Connection, path: str) -> None:
        def deleted() -> None:
            del self.streams[path]
            self.gone.add(path)

        def find_out(connection: Connection) -> None:
            if connection.request("HEAD", path).status != 200:
                deleted()

        self.unknown = find_out
        self._expect(connection.request("DELETE", path), 204)
        deleted()

    def _publish(self, connection: Connection, path: str) -> None:
        stream = self.streams[path]
        at = self.chance.randint(stream.earliest, len(stream.messages))
        if at == stream.earliest and stream.published:
            return
        token = stream.token(at)
        after = _Stream(stream.messages, at, published=True)

        def find_out(connection: Connection) -> None:
            head = connection.request("HEAD", path)
            if head.headers.get("stream-snapshot-offset") == token:
                self.streams[path] = after

        self.unknown = find_out
        response = connection.request("PUT", f"{path}/snapshot/{token}", {}, self._body())
        self._expect(response, 204)
        self.streams[path] = after

    def _sends(self, path: str, made: _Stream) -> None:
        def find_out(connection: Connection) -> None:
            if connection.request("HEAD", path).status == 200:
                self.streams[path] = made

        self.unknown = find_out

    def _body(self) -> bytes:
        return self.chance.randbytes(self.chance.randint(1, 40))

    @staticmethod
    def _expect(response: Response, status: int) -> None:
        assert response.status == status, (response.status, response.body)

    def check(self, connection: Connection) -> None:
        """Everything that was acknowledged is there, and nothing else."""
        if self.unknown is not None:
            self.unknown(connection)
            self.unknown = None
        for path, stream in self.streams.items():
            start = stream.token(stream.earliest)
            response = connection.request("GET", f"{path}?offset={start}")
            assert response.status == 200, (path, response.status, response.body)
            assert response.body == b"".join(stream.messages[stream.earliest :]), path
            assert response.headers["stream-next-offset"] == stream.tail
        for path in self.gone:
            assert connection.request("HEAD", path).status in (404, 410), path


class ForkLoad:
    def __init__(self, seed: str) -> None:
        self._clients = [
            _Client(f"c{number}", random.Random(f"{seed}-{number}")) for number in range(CLIENTS)
        ]

    @property
    def done(self) -> int:
        return sum(client.done for client in self._clients)

    def run_until_killed(self, server: ServerProcess, seconds: float) -> None:
        failures: list[BaseException] = []

        def run(client: _Client) -> None:
            try:
                client.run(server.url)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=run, args=(client,)) for client in self._clients]
        for thread in threads:
            thread.start()
        threading.Event().wait(seconds)
        server.kill()
        for thread in threads:
            thread.join(HANG_S)
            assert not thread.is_alive()
        assert not failures, failures

    def check(self, url: str) -> None:
        with Connection.to(url, HANG_S) as connection:
            for client in self._clients:
                client.check(connection)

    def delete_all(self, url: str) -> None:
        with Connection.to(url, HANG_S) as connection:
            for client in self._clients:
                for path in list(client.streams):
                    client._delete(connection, path)
                client.unknown = None

"""Readers that are slow, and readers that go away."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from tests.support.chance import seeded
from tests.support.http import Connection, request
from tests.support.payloads import pack, unpack_all
from tests.support.reading import OCTETS, SseReader, read_all
from tests.support.server import ServerProcess
from tests.support.tiers import slow_but
from tests.support.together import HANG_S, wait_until

OCTET_HEADERS = {"Content-Type": OCTETS}
MESSAGE_BYTES = 256 << 10
MESSAGES = 320
SLOW_READERS = 3
# Of this, a server may need much for itself; far less than what it would keep for slow readers.
GROWTH_BYTES_MAX = 64 << 20


class SlowConnection(Connection):
    """A connection with a small receive buffer: the server's writes stall at once."""

    def __init__(self, host: str, port: int, timeout: float = HANG_S) -> None:
        super().__init__(host, port, timeout)
        self.sock.close()
        self.sock = socket.socket()
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 10)
        self.sock.settimeout(timeout)
        self.sock.connect((host, port))


def memory_bytes(server: ServerProcess) -> int:
    """What the server's process has in memory."""
    for line in Path(f"/proc/{server.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise AssertionError("no VmRSS")


def test_slow_readers_cost_no_memory_and_lose_nothing(tmp_path: Path) -> None:
    """
    Goal: a reader that stops reading does not make the server keep data in memory for it, and
    when it reads on it gets everything, once and in order.

    Method: SSE readers with small receive buffers read nothing while 80 MiB are appended. The
    server's memory must have grown by far less; a first such load, without readers, has filled
    caches and write buffers beforehand. Then the readers read on.
    """
    if not Path("/proc/self/status").exists():
        pytest.skip("the memory of a process is read from /proc")
    with seeded("slow") as chance, ServerProcess(tmp_path / "data") as server:
        filler = chance.randbytes(MESSAGE_BYTES)
        with Connection.to(server.url, HANG_S) as writer:
            for warm_up in ("/v1/stream/warm/1", "/v1/stream/warm/2"):
                _fill(writer, warm_up, filler)
                assert read_all(writer, warm_up) is not None
            path = "/v1/stream/slow"
            assert writer.request("PUT", path, OCTET_HEADERS).status == 201
            connections = [SlowConnection.to(server.url, HANG_S) for _ in range(SLOW_READERS)]
            try:
                readers = [SseReader(connection, path) for connection in connections]
                before = memory_bytes(server)
                _fill(writer, path, filler)
                growth = memory_bytes(server) - before
                assert growth < GROWTH_BYTES_MAX, f"memory grew by {growth >> 20} MiB"
                for reader in readers:
                    _check_everything(reader, path)
                assert memory_bytes(server) - before < GROWTH_BYTES_MAX
            finally:
                for connection in connections:
                    connection.close()


def test_one_large_message_is_not_kept_once_for_each_reader(tmp_path: Path) -> None:
    """
    Goal: a large message costs memory once, not once for each live reader that is slow to take it.

    Method: forty SSE readers wait at the tail and read nothing; one message of 16 MiB is appended.
    In base64 forty copies would be more than 800 MiB.
    """
    if not Path("/proc/self/status").exists():
        pytest.skip("the memory of a process is read from /proc")
    path = "/v1/stream/large"
    with ServerProcess(tmp_path / "data") as server:
        assert request("PUT", server.url + path, OCTET_HEADERS).status == 201
        connections = [SlowConnection.to(server.url, HANG_S) for _ in range(40)]
        try:
            readers = [SseReader(connection, path) for connection in connections]
            before = memory_bytes(server)
            body = pack("w", 0, bytes(16 << 20))
            response = request("POST", server.url + path, OCTET_HEADERS, body, HANG_S)
            assert response.status == 204
            # Another request: by now the readers have been served as far as they let it.
            assert request("HEAD", server.url + path).status == 200
            growth = memory_bytes(server) - before
            assert growth < 4 * GROWTH_BYTES_MAX, f"memory grew by {growth >> 20} MiB"
            first = next(event for event in readers[0].events() if event.kind == "data")
            assert readers[0].payload(first) == body
        finally:
            for connection in connections:
                connection.close()


def _fill(writer: Connection, path: str, filler: bytes) -> None:
    writer.request("PUT", path, OCTET_HEADERS)
    for seq in range(MESSAGES):
        body = pack("w", seq, filler)
        assert writer.request("POST", path, OCTET_HEADERS, body).status == 204


def _check_everything(reader: SseReader, path: str) -> None:
    found = 0
    for event in reader.events():
        if event.kind == "data":
            for message in unpack_all(reader.payload(event)):
                assert message.seq == found
                found += 1
        elif found == MESSAGES:
            assert event.control["upToDate"] is True
            return
    raise AssertionError(f"the response ended after {found} messages of {path}")


@pytest.mark.parametrize("live", ["long-poll", "sse"])
@pytest.mark.parametrize("farewell", slow_but(["reset"], ["close", "reset", "half-close"]))
def test_readers_that_go_away_leave_nothing(
    server: ServerProcess, path: str, live: str, farewell: str
) -> None:
    """
    Goal: five hundred readers that vanish while they wait leave no connection behind, and the
    stream works as before.

    Method: open readers in groups, let them wait, and end them in several ways, some right after
    an append. The server's open files must come back to what they were; then the stream is
    appended to, read live, and deleted.
    """
    assert request("PUT", server.url + path, OCTET_HEADERS).status == 201
    wait_until(lambda: _idle(server))
    before = _open_files(server)
    appended = 0
    for group in range(5):
        readers = [Connection.to(server.url, HANG_S) for _ in range(100)]
        for reader in readers:
            reader.send_request("GET", f"{path}?offset=now&live={live}")
        if live == "sse":
            for reader in readers:
                assert reader.read_head().status == 200
        if group % 2:
            # Some go away while their response is on its way.
            body = pack("w", appended, b"")
            assert request("POST", server.url + path, OCTET_HEADERS, body).status == 204
            appended += 1
        for reader in readers:
            if farewell == "reset":
                reader.reset()
            elif farewell == "half-close":
                reader.sock.shutdown(socket.SHUT_WR)
            else:
                reader.close()
        if farewell == "half-close":
            for reader in readers:
                while reader.sock.recv(65536):
                    pass
                reader.close()
    wait_until(lambda: _open_files(server) <= before)
    with Connection.to(server.url, HANG_S) as connection:
        listener = SseReader(connection, path)
        events = listener.events()
        if appended:
            assert len(unpack_all(listener.payload(next(events)))) == appended
        assert next(events).control["upToDate"] is True
        body = pack("w", appended, b"")
        assert request("POST", server.url + path, OCTET_HEADERS, body).status == 204
        assert unpack_all(listener.payload(next(events)))[0].seq == appended
        assert next(events).control["upToDate"] is True
        assert request("DELETE", server.url + path).status == 204
        assert next(events).control["streamDeleted"] is True
        assert next(events, None) is None


def _open_files(server: ServerProcess) -> int:
    return len(os.listdir(f"/proc/{server.pid}/fd"))  # noqa: PTH208


def _idle(server: ServerProcess) -> bool:
    """No connection but the listening socket."""
    sockets = 0
    for entry in Path(f"/proc/{server.pid}/fd").iterdir():
        try:
            sockets += entry.readlink().as_posix().startswith("socket:")
        except OSError:
            continue
    return sockets <= 3

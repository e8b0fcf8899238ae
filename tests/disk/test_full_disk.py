"""A full disk: refused in time, readable throughout, and of use again when there is room."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.chance import derive
from tests.support.http import Connection, ProtocolError, Response
from tests.support.payloads import Message, digest, pack, unpack_all
from tests.support.reading import OCTETS, problem_code, read_all
from tests.support.small_disk import NoSmallDisk, SmallDisk
from tests.support.tiers import slow_but
from tests.support.together import HANG_S, wait_until

OCTET_HEADERS = {"Content-Type": OCTETS}
DISK_BYTES = 192 << 20
STREAMS = 8
# What must be left for RocksDB to tidy up with while appends are refused.
LEFT_BYTES_MIN = 1 << 20


@pytest.fixture
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[SmallDisk]:
    """A disk of its own, small enough to fill; a test may ask for another size."""
    disk = SmallDisk(tmp_path / "disk", getattr(request, "param", DISK_BYTES))
    try:
        disk.__enter__()
    except NoSmallDisk as error:
        pytest.skip(f"a small disk needs the right to mount: {error}")
    try:
        yield disk
    finally:
        disk.__exit__(None, None, None)


def name(number: int) -> str:
    return f"/v1/stream/full/{number}"


class Filler:
    """A client that appends to several streams, and knows what was acknowledged."""

    def __init__(self, seed: str, message_bytes: int) -> None:
        self._chance = derive(seed)
        self._bytes = message_bytes
        self._seq = itertools.count()
        self.acknowledged: dict[int, list[bytes]] = {}
        # Not acknowledged: after a write that failed, one of these may be stored all the same.
        self.unknown: dict[int, list[bytes]] = {}

    def create(self, connection: Connection) -> None:
        for number in range(STREAMS):
            assert connection.request("PUT", name(number), OCTET_HEADERS).status == 201
            self.acknowledged[number] = []

    def append(self, connection: Connection, number: int) -> Response | None:
        """One append; None where the connection ended instead of a response."""
        filler = self._chance.randbytes(self._chance.randrange(self._bytes, 2 * self._bytes))
        body = pack("w", next(self._seq), filler)
        try:
            response = connection.request("POST", name(number), OCTET_HEADERS, body)
        except TimeoutError:
            raise
        except (OSError, ProtocolError):
            self.unknown.setdefault(number, []).append(digest(body))
            return None
        if response.status == 204:
            self.acknowledged[number].append(digest(body))
        else:
            self.unknown.setdefault(number, []).append(digest(body))
        return response

    def is_taken(self, connection: Connection, number: int) -> bool:
        """Append; false if it was refused for want of room."""
        response = self.append(connection, number)
        assert response is not None, "the server did not refuse, it ended"
        assert response.status in (204, 507), response
        return response.status == 204

    def fill(self, connection: Connection) -> Response | None:
        """Append until it is refused; the refusal, or None if the connection ended."""
        for number in itertools.count():
            response = self.append(connection, number % STREAMS)
            if response is None or response.status != 204:
                return response
        raise AssertionError("unreachable")

    def check(self, connection: Connection) -> None:
        """Every stream holds what was acknowledged, and perhaps what is unknown after that."""
        for number, digests in self.acknowledged.items():
            content = read_all(connection, name(number))
            assert content is not None, f"{name(number)} is lost"
            messages: list[Message] = unpack_all(content.raw)
            found = [message.digest for message in messages]
            assert found[: len(digests)] == digests, f"{name(number)} is not what it was"
            more = found[len(digests) :]
            assert len(more) <= 1, f"{name(number)} has more than was acknowledged"
            assert all(item in self.unknown.get(number, []) for item in more)


@pytest.mark.parametrize(
    ("disk", "message_bytes"),
    [
        pytest.param(192 << 20, 64 << 10, id="large"),
        pytest.param(192 << 20, 2 << 10, id="small", marks=pytest.mark.slow),
        pytest.param(320 << 20, 14 << 10, id="medium", marks=pytest.mark.slow),
    ],
    indirect=["disk"],
)
def test_reserve_keeps_the_server_alive(disk: SmallDisk, message_bytes: int) -> None:
    """
    Goal: with the default reserve appends are refused with 507 before the disk is full; reads and
    deletes go on; after deletes the room comes back, and appends are taken again, without restart.

    Method: fill a small disk over several streams; then read all, delete most of them, and wait
    until a new stream can be created; restart at the end.
    """
    with disk.server() as server, Connection.to(server.url, HANG_S) as connection:
        filler = Filler("reserve", message_bytes)
        filler.create(connection)
        refusal = filler.fill(connection)
        assert refusal is not None, "the server did not refuse, it ended"
        assert (refusal.status, problem_code(refusal)) == (507, "disk-full")
        assert disk.free_bytes > LEFT_BYTES_MIN
        filler.unknown.clear()
        filler.check(connection)
        ready = connection.request("GET", "/-/ready")
        assert ready.status == 200
        for number in range(STREAMS - 2):
            assert connection.request("DELETE", name(number)).status == 204
            del filler.acknowledged[number]
        wait_until(lambda: _takes_appends(connection))
        # Not just for one: much of the room comes back, if not all at once.
        for _ in range((8 << 20) // message_bytes):
            wait_until(lambda: filler.is_taken(connection, STREAMS - 1))
        filler.unknown.clear()
        filler.check(connection)
        assert server.terminate() == 0
        server.start()
        with Connection.to(server.url, HANG_S) as connection_after:
            filler.check(connection_after)


def _takes_appends(connection: Connection) -> bool:
    response = connection.request("PUT", "/v1/stream/after", OCTET_HEADERS, b"room")
    assert response.status in (200, 201, 507), response
    return response.status != 507


@pytest.mark.parametrize("left", slow_but([0], [8 << 20, 0]), ids=["nearly-full", "full"])
def test_room_that_others_take_and_give_back(disk: SmallDisk, left: int) -> None:
    """
    Goal: when other files fill the disk, appends are refused with 507 and reads go on; when those
    files are gone, appends are taken again, without restart.

    Method: a file takes all but a little of the disk, or all of it; it is removed after the
    refusal.
    """
    with disk.server() as server, Connection.to(server.url, HANG_S) as connection:
        filler = Filler("others", 10_000)
        filler.create(connection)
        for number in range(STREAMS):
            response = filler.append(connection, number)
            assert response is not None
            assert response.status == 204
        other = disk.here / "other"
        _take(other, disk, left)
        # The server asks for the free space about twice a second; a disk that fills up within a
        # moment is a write that fails, which is another test's matter.
        time.sleep(2)
        wait_until(lambda: not filler.is_taken(connection, 0))
        filler.unknown.clear()
        filler.check(connection)
        other.unlink()
        wait_until(lambda: _takes_appends(connection))
        response = filler.append(connection, 0)
        assert response is not None
        assert response.status == 204
        filler.check(connection)
        server.restart()
        with Connection.to(server.url, HANG_S) as connection_after:
            filler.check(connection_after)


def _take(file: Path, disk: SmallDisk, left: int) -> None:
    """Write a file until only so much of the disk is left."""
    with file.open("wb", buffering=0) as output:
        while (room := disk.free_bytes - left) > 0:
            try:
                output.write(bytes(min(room, 1 << 20)))
            except OSError:
                return


def test_without_reserve_nothing_acknowledged_is_lost(disk: SmallDisk) -> None:
    """
    Goal: even a disk that is really full costs nothing that was acknowledged: the server refuses
    with 507 or 503, and if a write fails it ends with an error; once there is room it starts, and
    all is there.

    Method: no reserve; append until there is no room, let another file take the last of it, and
    go on appending and deleting. Then free space, start if need be, and compare.
    """
    filler = Filler("no-reserve", 40_000)
    other = disk.here / "other"
    with disk.server("--disk-reserve-bytes", "0") as server:
        with Connection.to(server.url, HANG_S) as connection:
            filler.create(connection)
            _take(other, disk, 60 << 20)
            response = filler.fill(connection)
            assert response is None or response.status in (503, 507), response
            _take(other, disk, 0)
            for number in range(100):
                response = filler.append(connection, number % STREAMS)
                if response is None:
                    break
                assert response.status in (503, 507), response
            failed = response is None or response.status == 503
        if failed:
            assert server.wait_for_end() > 0, "it must end with an error"
        else:
            with Connection.to(server.url, HANG_S) as connection:
                assert connection.request("GET", "/-/ready").status == 200
                filler.check(connection)
        other.unlink()
        if failed:
            server.start()
        with Connection.to(server.url, HANG_S) as connection:
            filler.check(connection)
            wait_until(lambda: _takes_appends(connection))
        server.restart()
        with Connection.to(server.url, HANG_S) as connection:
            filler.check(connection)

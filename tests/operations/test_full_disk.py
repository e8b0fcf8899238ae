"""A backup where the disk is full: refused, or given up, and appends are none the worse for it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.chance import derive
from tests.support.http import Connection, ProtocolError
from tests.support.publishing import OCTETS, offset
from tests.support.reading import problem_code
from tests.support.small_disk import NoSmallDisk, SmallDisk
from tests.support.streams import wait_until

DISK_BYTES = 96 << 20
PIECE_BYTES = 4 << 20
LARGE_BYTES = 16 << 20
HEADERS = {"Content-Type": OCTETS}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    disk = SmallDisk(tmp_path / "disk", DISK_BYTES)
    try:
        disk.__enter__()
    except NoSmallDisk as error:
        pytest.skip(f"a small disk needs the right to mount: {error}")
    try:
        yield disk
    finally:
        disk.__exit__(None, None, None)


def fill(connection: Connection) -> None:
    """Append until there is no more room."""
    chance = derive(6, "full")
    for _ in range(DISK_BYTES // PIECE_BYTES):
        body = chance.randbytes(PIECE_BYTES)
        if connection.request("POST", "/v1/stream/a", HEADERS, body).status == 507:
            return
    raise AssertionError("the disk did not become full")


def test_a_backup_is_given_up_when_the_disk_becomes_full(disk: SmallDisk) -> None:
    """Though its client reads nothing: what the copy holds on to is room that others need."""
    with disk.server() as server, Connection.to(server.url) as connection:
        assert connection.request("PUT", "/v1/stream/a", HEADERS, bytes(1000)).status == 201
        assert connection.request("PUT", "/rooms").status == 201
        assert connection.request("PUT", "/rooms/large", HEADERS, b"x").status == 201
        where = f"/rooms/large/snapshot/{offset(1, 1)}"
        body = derive(6, "large").randbytes(LARGE_BYTES)
        assert connection.request("PUT", where, HEADERS, body).status == 204
        with Connection.to(server.url) as reader:
            reader.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 << 10)
            reader.send_request("POST", "/-/backup")
            head = reader.read_head()
            copy = disk.here / server.data_dir.name / "backup"
            assert copy.is_dir()
            fill(connection)
            wait_until("it is given up", lambda: not copy.exists())
            with pytest.raises((ProtocolError, ConnectionResetError)):
                for _ in reader.iter_body(head):
                    pass
        assert connection.request("GET", "/rooms/large?offset=now").status == 200


def test_no_backup_while_the_disk_is_full(disk: SmallDisk) -> None:
    with disk.server() as server, Connection.to(server.url) as connection:
        assert connection.request("PUT", "/v1/stream/a", HEADERS).status == 201
        fill(connection)
        refused = connection.request("POST", "/-/backup")
        assert (refused.status, problem_code(refused)) == (507, "disk-full")
        assert connection.request("DELETE", "/v1/stream/a").status == 204
        wait_until(
            "there is room again",
            lambda: connection.request("PUT", "/v1/stream/b", HEADERS, b"x").status < 300,
        )
        assert connection.request("POST", "/-/backup").status == 200

"""Short functions for snapshots and bootstraps over HTTP."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from tests.support.http import Connection, Response
from tests.support.multipart import Part, parts_of
from tests.support.streams import Api, wait_until

OCTETS = "application/octet-stream"
JSON = "application/json"
TEXT = "text/plain"
KINDS_ONCE = ["wire-rocksdb", "wire-memory", "asgi-rocksdb"]
"""The kinds of servers, without the one that differs only in the paths of plain streams."""
INLINE_BYTES_MAX = 256 << 10
"""A larger snapshot is stored as a file."""
CHUNK_BYTES = 1 << 20
"""A snapshot file is written in chunks of this size."""

LIMITED = ("--snapshot-bytes-max", str(2 * CHUNK_BYTES))
"""Options of a server with a low limit for snapshots."""


def offset(message: int, byte: int) -> str:
    return f"{message:016d}_{byte:016d}"


START = offset(0, 0)


def new_stream(
    api: Api,
    content_type: str = TEXT,
    *messages: bytes,
    headers: Mapping[str, str] | None = None,
    name: str = "stream",
) -> str:
    """Create a stream in a new bucket, with these appends; returns its path."""
    path = api.create(content_type, headers=headers, path=api.in_bucket(api.new_bucket(), name))
    for message in messages:
        api.append(path, message, content_type=content_type)
    return path


def put_snapshot(
    api: Api,
    path: str,
    at: str,
    body: bytes = b"",
    content_type: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    sent = dict(headers or {})
    if content_type is not None:
        sent["Content-Type"] = content_type
    return api.request("PUT", f"{path}/snapshot/{at}", sent, body)


def publish(
    api: Api, path: str, at: str, body: bytes = b"", content_type: str | None = None
) -> None:
    """Publish a snapshot, and expect success."""
    response = put_snapshot(api, path, at, body, content_type)
    assert response.status == 204, (response.status, response.body)


def read_snapshot(api: Api, path: str, at: str) -> bytes:
    response = api.get(f"{path}/snapshot/{at}")
    assert response.status == 200, (response.status, response.body)
    return response.body


@dataclass(frozen=True, slots=True)
class Bootstrapped:
    """A parsed bootstrap."""

    snapshot: Part
    updates: list[Part]
    snapshot_offset: str
    next_offset: str
    up_to_date: bool

    @property
    def messages(self) -> list[bytes]:
        return [part.body for part in self.updates]


def parse_bootstrap(response: Response) -> Bootstrapped:
    assert response.status == 200, (response.status, response.body)
    snapshot, *updates = parts_of(response.headers["content-type"], response.body)
    return Bootstrapped(
        snapshot,
        updates,
        response.headers["stream-snapshot-offset"],
        response.headers["stream-next-offset"],
        {"true": True, "false": False}[response.headers["stream-up-to-date"]],
    )


def bootstrap(api: Api, path: str) -> Bootstrapped:
    return parse_bootstrap(api.get(f"{path}/bootstrap"))


@contextmanager
def small_buffer_connection(api: Api, timeout: float = 60.0) -> Iterator[Connection]:
    """A connection with a small receive buffer, so that unread bytes stay in the server."""
    with api.connect(timeout) as connection:
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 << 10)
        yield connection


def snapshot_files(api: Api) -> set[str]:
    """The files of large snapshots; none if streams are in memory."""
    directory = api.server.data_dir / "snapshots"
    return {file.name for file in directory.iterdir()} if directory.is_dir() else set()


def on_disk(api: Api) -> bool:
    return "memory" not in api.server.args


def wait_for_files(api: Api, before: set[str], count: int) -> None:
    """Wait until there are this many new snapshot files."""
    if on_disk(api):
        wait_until(
            f"there are {count} new snapshot files",
            lambda: len(snapshot_files(api) - before) == count,
        )

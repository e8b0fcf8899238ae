"""
Snapshots on a disk that is full, fails, or loses what it had: the one before stays, nothing that
was begun is left, and what is damaged is never sent as if it were whole.

Run as a module, this is the server whose snapshot files fail while a file says how:
`python -m tests.disk.test_full_disk_snapshots serve …`.
"""

from __future__ import annotations

import errno
import json
import os
import random
import select
import stat
from collections.abc import Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import pytest

from tailrace.cli import main
from tailrace.engine.rocks import snapshot_files
from tests.crash.snapshot_load import stored_files
from tests.support.http import Connection, ProtocolError, Response, format_request
from tests.support.multipart import split_strictly
from tests.support.payloads import digest
from tests.support.reading import OCTETS, problem_code
from tests.support.server import BaseServerProcess, ServerProcess
from tests.support.small_disk import NoSmallDisk, SmallDisk
from tests.support.tiers import slow_but
from tests.support.together import HANG_S, together, wait_until

DISK_BYTES = 128 << 20
# One fits, two do not.
BIG_BYTES = 64 << 20
CHUNK_BYTES = 1 << 20
PIECE_BYTES = 1 << 20
FAULT_VARIABLE = "TAILRACE_TEST_SNAPSHOT_FAULT"
OCTET_HEADERS = {"Content-Type": OCTETS}


@lru_cache(maxsize=8)
def noise(size: int, seed: int = 0) -> bytes:
    return random.Random(f"{size}/{seed}").randbytes(size)


class Streams:
    """Streams in a bucket of a server, over one connection that is opened again when it ends."""

    def __init__(self, server: BaseServerProcess) -> None:
        self.server = server
        self._connection: Connection | None = None

    def ask(self, method: str, path: str, body: bytes | None = None) -> Response:
        if self._connection is None:
            self._connection = Connection.to(self.server.url, HANG_S)
        try:
            response = self._connection.request(method, path, OCTET_HEADERS, body)
        except BaseException:
            self.close()
            raise
        if response.headers.get("connection") == "close":
            self.close()
        return response

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def create(self, *names: str) -> None:
        response = self.ask("PUT", "/bucket")
        assert response.status in (201, 409), response
        for name in names:
            assert self.ask("PUT", f"/bucket/{name}").status == 201

    def append(self, name: str, body: bytes) -> int:
        return self.ask("POST", f"/bucket/{name}", body).status

    def publish(self, name: str, content: bytes) -> Response:
        """Publish at the tail. A client that is refused early does not send the rest."""
        tail = self.ask("HEAD", f"/bucket/{name}").headers["stream-next-offset"]
        headers = {**OCTET_HEADERS, "Content-Length": str(len(content))}
        with Connection.to(self.server.url, HANG_S) as connection:
            target = f"/bucket/{name}/snapshot/{tail}"
            connection.send(format_request("PUT", target, headers, host=connection.host_header))
            for at in range(0, len(content), PIECE_BYTES):
                if select.select([connection.sock], [], [], 0)[0]:
                    break
                connection.send(content[at : at + PIECE_BYTES])
            return connection.read_response("PUT")

    def shows(self, name: str, content: bytes, *messages: bytes) -> None:
        """The visible snapshot is this one, whole, and after it come these messages."""
        location = self.ask("GET", f"/bucket/{name}/snapshot").headers["location"]
        at = location.rpartition("/")[2]
        response = self.ask("GET", f"/bucket/{name}/snapshot/{at}")
        assert response.status == 200
        assert response.body == content, "other bytes"
        bootstrap = self.ask("GET", f"/bucket/{name}/bootstrap")
        assert bootstrap.status == 200, bootstrap
        found = split_strictly(bootstrap.headers["content-type"], bootstrap.body)
        parts = [part.body for part in found]
        assert parts[0] == content, "other bytes in the bootstrap"
        assert parts[1:] == list(messages)

    def is_ready(self) -> bool:
        return self.ask("GET", "/-/ready").status == 200

    def files_become(self, data_dir: Path, *contents: bytes) -> None:
        expected = sorted(map(digest, contents))
        wait_until(lambda: sorted(stored_files(data_dir)) == expected)


# -- a full disk -----------------------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A disk of its own, small enough to fill."""
    small = SmallDisk(tmp_path / "disk", DISK_BYTES)
    try:
        small.__enter__()
    except NoSmallDisk as error:
        pytest.skip(f"a small disk needs the right to mount: {error}")
    try:
        yield small
    finally:
        small.__exit__(None, None, None)


def is_full(response: Response) -> bool:
    return (response.status, problem_code(response)) == (507, "disk-full") and (
        "retry-after" in response.headers
    )


def test_a_snapshot_that_does_not_fit_changes_nothing(disk: SmallDisk) -> None:
    """
    Goal: it is refused with 507; the one before stays visible and whole, nothing of it is left,
    appends of others that fit go on, and a smaller one is taken, without restart (X§2.2).

    Method: publish one that fits, then one that is larger than the disk; look at all that, and
    once more after a restart.
    """
    with disk.server() as server:
        streams, data_dir = Streams(server), disk.here / "data"
        streams.create("a", "other")
        assert streams.append("a", b"one") == 204
        first, second = noise(3 << 20), noise(2 << 20, 1)
        assert streams.publish("a", first).status == 204
        assert streams.append("a", b"two") == 204
        assert is_full(streams.publish("a", bytes(DISK_BYTES)))
        streams.shows("a", first, b"two")
        streams.files_become(data_dir, first)
        wait_until(lambda: streams.append("other", b"x" * 10_000) == 204)
        assert streams.append("a", b"three") == 204
        assert streams.is_ready()
        streams.shows("a", first, b"two", b"three")
        assert streams.publish("a", second).status == 204
        streams.shows("a", second)
        streams.files_become(data_dir, second)
        streams.close()
        server.restart()
        streams.shows("a", second)
        streams.close()


@pytest.mark.parametrize("how", slow_but(["supersede"], ["delete", "supersede"]))
def test_room_that_snapshots_took_comes_back(disk: SmallDisk, how: str) -> None:
    """
    Goal: what was refused for want of room is taken once another stream is deleted, or once its
    snapshot is superseded by a smaller one.
    """
    with disk.server() as server:
        streams, data_dir = Streams(server), disk.here / "data"
        streams.create("a", "b")
        big, other, small = noise(BIG_BYTES), noise(BIG_BYTES, 1), noise(1000)
        assert streams.publish("a", big).status == 204
        assert is_full(streams.publish("b", other))
        streams.shows("a", big)
        streams.files_become(data_dir, big)
        if how == "delete":
            assert streams.ask("DELETE", "/bucket/a").status == 204
        else:
            wait_until(lambda: streams.append("a", b"more") == 204)
            assert streams.publish("a", small).status == 204
        streams.files_become(data_dir)
        wait_until(lambda: streams.publish("b", other).status == 204)
        streams.shows("b", other)
        assert streams.is_ready()
        streams.close()


def test_uploads_that_fit_only_one_by_one(disk: SmallDisk) -> None:
    """
    Goal: uploads at the same time cannot take more room than there is: some may be refused, the
    process lives, and what is left is what is visible.
    """
    with disk.server() as server:
        streams, data_dir = Streams(server), disk.here / "data"
        names = ["a", "b", "c"]
        streams.create(*names)
        contents = {name: noise(BIG_BYTES, at) for at, name in enumerate(names)}

        def publish(name: str) -> Response:
            mine = Streams(server)
            try:
                return mine.publish(name, contents[name])
            finally:
                mine.close()

        responses = together([partial(publish, name) for name in names])
        taken = [
            name for name, response in zip(names, responses, strict=True) if response.status == 204
        ]
        assert all(is_full(response) for response in responses if response.status != 204), responses
        assert len(taken) <= 1
        streams.files_become(data_dir, *(contents[name] for name in taken))
        for name in taken:
            streams.shows(name, contents[name])
            assert streams.ask("DELETE", f"/bucket/{name}").status == 204
        streams.files_become(data_dir)
        left = next(name for name in names if name not in taken)
        wait_until(lambda: streams.publish(left, contents[left]).status == 204)
        streams.shows(left, contents[left])
        assert streams.is_ready()
        streams.close()


# -- a disk that fails -----------------------------------------------------------------------------


class FailingFilesServer(ServerProcess):
    """A server whose snapshot files fail for as long as the test says so."""

    def __init__(self, data_dir: Path, control_dir: Path) -> None:
        self._fault = control_dir / "fault"
        super().__init__(data_dir, env={FAULT_VARIABLE: str(self._fault)})

    def _command(self, port: int) -> list[str]:
        command = super()._command(port)
        at = command.index("tailrace")
        return [*command[:at], __spec__.name, *command[at + 1 :]]

    def break_files(self, how: str) -> None:
        draft = self._fault.with_suffix(".draft")
        draft.write_text(how)
        draft.rename(self._fault)

    def mend_files(self) -> None:
        self._fault.unlink(missing_ok=True)


class FailingOs:
    """What the module of snapshot files takes for `os`: its calls fail as the file says."""

    def __init__(self, fault: Path) -> None:
        self._fault = fault

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def _how(self) -> str:
        return self._fault.read_text() if self._fault.exists() else ""

    def open(self, path: Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_CREAT and self._how() == "open":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return os.open(path, flags, mode)

    def write(self, file: int, data: bytes) -> int:
        how = self._how()
        # Not the very first bytes: a part of the file is there when it fails.
        if how in ("write", "full") and os.fstat(file).st_size >= CHUNK_BYTES:
            number = errno.ENOSPC if how == "full" else errno.EIO
            raise OSError(number, os.strerror(number))
        return os.write(file, data)

    def fsync(self, file: int) -> None:
        directory = stat.S_ISDIR(os.fstat(file).st_mode)
        if self._how() == ("fsync of the directory" if directory else "fsync"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        os.fsync(file)

    def pread(self, file: int, size: int, offset: int) -> bytes:
        if self._how() == "read" and offset >= CHUNK_BYTES:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return os.pread(file, size, offset)


@pytest.fixture(scope="module")
def failing_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FailingFilesServer]:
    directory = tmp_path_factory.mktemp("failing")
    with FailingFilesServer(directory / "data", directory) as server:
        yield server


@pytest.fixture
def failing(failing_server: FailingFilesServer) -> Iterator[FailingFilesServer]:
    """Every test finds it sound, and without a snapshot."""
    yield failing_server
    failing_server.mend_files()
    streams = Streams(failing_server)
    for item in json.loads(streams.ask("GET", "/bucket/streams").body)["streams"]:
        assert streams.ask("DELETE", f"/bucket/{item['stream_id']}").status == 204
    streams.files_become(failing_server.data_dir)
    streams.close()


def wait_for_more_errors(server: BaseServerProcess, count: int) -> None:
    """Wait until the log has more errors than before."""
    wait_until(lambda: len(errors_in(server)) > count)


def errors_in(server: BaseServerProcess) -> list[str]:
    return [str(event) for event in server.events() if event.get("level") == "error"]


@pytest.mark.parametrize(
    "how",
    slow_but(["fsync", "full"], ["open", "write", "fsync", "fsync of the directory", "full"]),
)
def test_a_snapshot_that_cannot_be_written_changes_nothing(
    failing: FailingFilesServer, how: str
) -> None:
    """
    Goal: it is refused with 503, or 507 for want of room; the one before stays visible and whole,
    nothing of it is left, the log tells why, and everything else goes on. Once the disk works
    again, so do snapshots.
    """
    streams, data_dir = Streams(failing), failing.data_dir
    count = len(errors_in(failing))
    streams.create("a", "other")
    first, second = noise(3 << 20), noise((2 << 20) + 5, 1)
    assert streams.publish("a", first).status == 204
    assert streams.append("a", b"one") == 204
    failing.break_files(how)
    response = streams.publish("a", second)
    if how == "full":
        assert is_full(response)
    else:
        assert (response.status, problem_code(response)) == (503, "snapshot-not-stored")
        assert "retry-after" in response.headers
        wait_for_more_errors(failing, count)
        assert "Input/output error" in errors_in(failing)[-1]
    streams.shows("a", first, b"one")
    streams.files_become(data_dir, first)
    assert streams.append("a", b"two") == 204
    # What goes through the log does not depend on those files.
    assert streams.publish("other", b"small").status == 204
    assert streams.is_ready()
    failing.mend_files()
    assert streams.publish("a", second).status == 204
    streams.shows("a", second)
    streams.files_become(data_dir, second)
    streams.shows("other", b"small")
    streams.close()


# -- a disk that loses what it had -----------------------------------------------------------------

SIZE = 3 * CHUNK_BYTES + 12_345
# More than sockets buffer.
LONG_BYTES = 32 * CHUNK_BYTES


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 0x01]))


def damage(path: Path, what: str) -> int:
    """Damage a file; how many bytes of the snapshot are still sound before that."""
    match what:
        case "first chunk":
            flip(path, 1000)
            return 0
        case "middle":
            flip(path, 2 * CHUNK_BYTES - 1)
            return CHUNK_BYTES
        case "last chunk":
            flip(path, SIZE - 1)
            return 3 * CHUNK_BYTES
        case "checksum":
            flip(path, SIZE + 4)
            return CHUNK_BYTES
        case "cut off":
            os.truncate(path, 2 * CHUNK_BYTES + 100)
            return 0
        case _:
            path.unlink()
            return 0


def download(streams: Streams, path: str, coding: str | None) -> tuple[int, bytes, bool]:
    """Status, what came of the body, and whether it seemed to be all."""
    headers = {} if coding is None else {"Accept-Encoding": coding}
    received = b""
    with Connection.to(streams.server.url, HANG_S) as connection:
        connection.send_request("GET", path, headers)
        head = connection.read_head()
        try:
            for piece in connection.iter_body(head):
                received += piece
        except TimeoutError:
            raise
        except (OSError, ProtocolError):
            return head.status, received, False
    return head.status, received, True


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("damage") / "data") as server:
        yield server


DAMAGES = ["first chunk", "middle", "last chunk", "checksum", "cut off", "missing"]


@pytest.mark.parametrize("what", slow_but(["middle", "missing"], DAMAGES))
def test_a_damaged_snapshot_is_never_sent_as_complete(sound: ServerProcess, what: str) -> None:
    """
    Goal: a download is cut off before the damage, plain or compressed; a bootstrap is refused or
    cut off; the log tells of both. Appends go on, and a later snapshot makes it good.

    Method: change one bit of the file, or take away its end or all of it, while the server runs.
    """
    streams, data_dir = Streams(sound), sound.data_dir
    name = what.replace(" ", "-")
    content, later = noise(SIZE), noise(SIZE, 1)
    streams.create(name)
    before = set(data_dir.glob("snapshots/*"))
    assert streams.publish(name, content).status == 204
    (path,) = set(data_dir.glob("snapshots/*")) - before
    at = streams.ask("GET", f"/bucket/{name}/snapshot").headers["location"].rpartition("/")[2]
    assert streams.append(name, b"after") == 204
    sound_bytes = damage(path, what)

    for coding in (None, "gzip"):
        count = len(errors_in(sound))
        status, received, whole = download(streams, f"/bucket/{name}/snapshot/{at}", coding)
        assert status == 500 or (status == 200 and not whole), status
        if coding is None and status == 200:
            assert len(received) <= sound_bytes
            assert received == content[: len(received)]
        wait_for_more_errors(sound, count)

    status, received, whole = download(streams, f"/bucket/{name}/bootstrap", None)
    assert status == 500 or (status == 200 and not whole), status
    assert content not in received

    assert streams.append(name, b"again") == 204
    assert streams.publish(name, later).status == 204
    streams.shows(name, later)
    assert streams.ask("DELETE", f"/bucket/{name}").status == 204
    streams.files_become(data_dir)
    assert streams.is_ready()
    streams.close()


@pytest.mark.parametrize("what", ["first chunk", "middle"])
def test_a_bootstrap_that_fails_by_damage_is_logged(tmp_path: Path, what: str) -> None:
    """The operator must learn of it, not only the client."""
    with ServerProcess(tmp_path / "data") as server:
        streams = Streams(server)
        streams.create("a")
        assert streams.publish("a", noise(SIZE)).status == 204
        (path,) = server.data_dir.glob("snapshots/*")
        damage(path, what)
        assert errors_in(server) == []
        status, _, whole = download(streams, "/bucket/a/bootstrap", None)
        assert status == 500 or not whole
        # The log goes through a pipe: what was written before this response has arrived after it.
        server.terminate()
        streams.close()
        assert errors_in(server) != []


@pytest.mark.parametrize("what", ["snapshot", "bootstrap"])
def test_damage_that_comes_while_it_is_sent(sound: ServerProcess, what: str) -> None:
    """
    Goal: the check is of the bytes that are sent, not of those that were there at first.

    Method: the client reads the head and no more, so that most of the response is still to be read
    from the disk when it is damaged there.
    """
    streams = Streams(sound)
    content = noise(LONG_BYTES)
    streams.create(what)
    assert streams.publish(what, content).status == 204
    (path,) = sound.data_dir.glob("snapshots/*")
    target = f"/bucket/{what}/bootstrap"
    if what == "snapshot":
        target = streams.ask("GET", f"/bucket/{what}/snapshot").headers["location"]
        target = target.removeprefix(sound.url)
    count = len(errors_in(sound))
    with Connection.to(sound.url, HANG_S) as connection:
        connection.send_request("GET", target)
        head = connection.read_head()
        assert head.status == 200
        flip(path, LONG_BYTES - CHUNK_BYTES // 2)
        with pytest.raises((ConnectionError, ProtocolError)):
            list(connection.iter_body(head))
    wait_for_more_errors(sound, count)
    assert streams.ask("DELETE", f"/bucket/{what}").status == 204
    streams.files_become(sound.data_dir)
    streams.close()


def test_a_snapshot_that_cannot_be_read_for_a_moment(failing: FailingFilesServer) -> None:
    """A disk error is reported like damage; after it, the snapshot can be read again."""
    streams = Streams(failing)
    streams.create("a")
    content = noise(SIZE)
    assert streams.publish("a", content).status == 204
    tail = streams.ask("HEAD", "/bucket/a").headers["stream-next-offset"]
    failing.break_files("read")
    status, received, whole = download(streams, f"/bucket/a/snapshot/{tail}", None)
    assert status == 500 or not whole
    assert received in (b"", content[:CHUNK_BYTES]) or status == 500
    status, _, whole = download(streams, "/bucket/a/bootstrap", None)
    assert status == 500 or not whole
    failing.mend_files()
    streams.shows("a", content)
    assert streams.is_ready()
    streams.close()


if __name__ == "__main__":
    vars(snapshot_files)["os"] = FailingOs(Path(os.environ[FAULT_VARIABLE]))
    main()

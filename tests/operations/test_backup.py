"""`backup`: equal to the origin at one instant, whatever goes on, and nothing is left of it."""

from __future__ import annotations

import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tailrace.engine.base import Garbage
from tailrace.engine.pins import Pins
from tests.cli.conftest import interruptible
from tests.operations.building import COMMAND, no_damage, run
from tests.support.chance import derive
from tests.support.http import Connection, Head, request
from tests.support.publishing import TEXT, offset
from tests.support.reading import problem_code
from tests.support.server import AsgiServerProcess, BaseServerProcess, ServerProcess
from tests.support.streams import wait_until
from tests.support.together import HANG_S

WRITERS = 3
LARGE_BYTES = 12 << 20
"""More than sockets buffer, so that a client that does not read keeps a backup under way."""
HEADERS = {"Content-Type": TEXT}


def send(
    connection: Connection, method: str, path: str, body: bytes = b"", **headers: str
) -> bytes:
    sent = HEADERS | {name.replace("_", "-"): value for name, value in headers.items()}
    response = connection.request(method, path, sent, body)
    assert response.status < 300, (method, path, response.status, response.body)
    return response.body


def lines_of(connection: Connection, path: str) -> list[bytes]:
    return send(connection, "GET", f"{path}?offset=-1").splitlines()


def line(number: int) -> bytes:
    return b"%06d\n" % number


class Load:
    """Clients that write, publish, create and delete until they are stopped."""

    def __init__(self, server: BaseServerProcess) -> None:
        self.acknowledged = [0] * (WRITERS + 2)
        self._server = server
        self._stop = threading.Event()
        self._errors: list[BaseException] = []
        work: list[Callable[[Connection], None]] = [
            *(self._writer(index) for index in range(WRITERS)), self._pair, self._churn,
        ]  # fmt: skip
        self._threads = [threading.Thread(target=self._run, args=(each,)) for each in work]

    def __enter__(self) -> Load:
        with Connection.to(self._server.url) as connection:
            for path in ("/rooms", *(f"/rooms/writer-{index}" for index in range(WRITERS))):
                send(connection, "PUT", path)
            for path in ("/v1/stream/first", "/v1/stream/second"):
                send(connection, "PUT", path)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(HANG_S)
        assert self._errors == []

    def wait_for_more(self, count: int) -> list[int]:
        """What was acknowledged once everyone has done so much more."""
        before = list(self.acknowledged)

        def went_on() -> bool:
            pairs = zip(self.acknowledged, before, strict=True)
            return all(now >= then + count for now, then in pairs)

        wait_until("everyone went on", went_on)
        assert self._errors == []
        return list(self.acknowledged)

    def _run(self, work: Callable[[Connection], None]) -> None:
        try:
            with Connection.to(self._server.url) as connection:
                work(connection)
        except BaseException as error:
            self._errors.append(error)

    def _writer(self, index: int) -> Callable[[Connection], None]:
        """With a producer, and a snapshot now and then: small, and large enough for a file."""
        path = f"/rooms/writer-{index}"

        def work(connection: Connection) -> None:
            number = 0
            while not self._stop.is_set():
                producer = {"Producer_Id": "p", "Producer_Epoch": "1", "Producer_Seq": str(number)}
                send(connection, "POST", path, line(number), **producer)
                number += 1
                self.acknowledged[index] = number
                if number % 10 == 0 and index:
                    where = f"{path}/snapshot/{offset(number - 5, 7 * (number - 5))}"
                    send(connection, "PUT", where, snapshot_of(number - 5, large=index == 1))

        return work

    def _pair(self, connection: Connection) -> None:
        """To one, and when that is acknowledged to the other."""
        number = 0
        while not self._stop.is_set():
            for path in ("/v1/stream/first", "/v1/stream/second"):
                send(connection, "POST", path, line(number))
            number += 1
            self.acknowledged[WRITERS] = number

    def _churn(self, connection: Connection) -> None:
        number = 0
        while not self._stop.is_set():
            path = f"/rooms/brief-{number % 7}"
            send(connection, "PUT", path, b"brief")
            send(connection, "DELETE", path)
            number += 1
            self.acknowledged[WRITERS + 1] = number


def snapshot_of(number: int, *, large: bool) -> bytes:
    content = b"".join(map(line, range(number)))
    return content + bytes(300_000) if large else content


@pytest.mark.timeout(180)
def test_a_backup_under_load_is_the_origin_at_one_instant(tmp_path: Path) -> None:
    """
    Goal: what is restored is what the origin was at one moment, not parts of several.

    Method: everyone writes numbers in order. What is restored of each is a beginning of what the
    origin has; it has all that was acknowledged before the backup began; of two streams that are
    written one after the other, the second never has more. Snapshots are what their offset says.
    """
    with ServerProcess(tmp_path / "origin") as origin, Load(origin) as load:
        for name in ("one", "two"):
            before = load.wait_for_more(12)
            done = run("backup", tmp_path / f"{name}.tar", "--url", origin.url)
            assert (done.returncode, done.stderr) == (0, b"")
            after = load.wait_for_more(1)
            done = run("restore", tmp_path / f"{name}.tar", "--data-dir", tmp_path / name)
            assert done.returncode == 0, done.stderr
            no_damage(tmp_path / name)
            with ServerProcess(tmp_path / name) as restored:
                judge(restored, before, after)
        assert not (tmp_path / "origin" / "backup").exists()
    assert run("check", "--data-dir", tmp_path / "origin").returncode == 0


def judge(restored: ServerProcess, before: list[int], after: list[int]) -> None:
    with Connection.to(restored.url) as connection:
        for index in range(WRITERS):
            path = f"/rooms/writer-{index}"
            count = writer_count(connection, path, large=index == 1)
            assert before[index] <= count <= after[index] + 1
            # What producers have sent is known too: the last is a retry, the next is news.
            for seq, status in ((count - 1, 204), (count, 200)):
                headers = HEADERS | {
                    "Producer-Id": "p", "Producer-Epoch": "1", "Producer-Seq": str(seq),
                }  # fmt: skip
                response = connection.request("POST", path, headers, line(seq))
                assert response.status == status, (index, seq, response.status, response.body)
        first = lines_of(connection, "/v1/stream/first")
        second = lines_of(connection, "/v1/stream/second")
    assert first == [line(number).rstrip() for number in range(len(first))]
    assert second == first[: len(second)]
    assert len(second) <= len(first) <= len(second) + 1
    assert before[WRITERS] <= len(second) <= after[WRITERS] + 1


def writer_count(connection: Connection, path: str, *, large: bool) -> int:
    """How many numbers there are, from the snapshot on; all are looked at."""
    response = connection.request("HEAD", path)
    covered = 0
    if (earliest := response.headers.get("stream-earliest-offset")) is not None:
        covered = int(earliest.split("_")[0])
    if covered:
        content = send(connection, "GET", f"{path}/snapshot/{earliest}")
        assert content == snapshot_of(covered, large=large)
    start = earliest if covered else "-1"
    found = send(connection, "GET", f"{path}?offset={start}").splitlines()
    assert found == [line(covered + index).rstrip() for index in range(len(found))]
    return covered + len(found)


# -- one that is under way -----------------------------------------------------------------


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server whose backup is larger than what a client that does not read is sent."""
    with ServerProcess(tmp_path / "data") as server:
        with Connection.to(server.url) as connection:
            send(connection, "PUT", "/rooms")
            send(connection, "PUT", "/rooms/large", b"x")
            where = f"/rooms/large/snapshot/{offset(1, 1)}"
            send(connection, "PUT", where, derive(6, "large").randbytes(LARGE_BYTES))
        yield server


@contextmanager
def under_way(server: ServerProcess) -> Iterator[tuple[Connection, Head]]:
    """A backup whose client has seen its head, and reads no more for now."""
    with Connection.to(server.url, HANG_S) as connection:
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 << 10)
        connection.send_request("POST", "/-/backup")
        head = connection.read_head()
        assert head.status == 200
        assert copy_of(server).is_dir()
        yield connection, head


def copy_of(server: ServerProcess) -> Path:
    return server.data_dir / "backup"


def is_gone(server: ServerProcess) -> None:
    wait_until("nothing is left of the backup", lambda: not copy_of(server).exists())


def whole(server: ServerProcess, data: bytes, directory: Path) -> None:
    done = run("restore", "-", "--data-dir", directory, stdin=data)
    assert done.returncode == 0, done.stderr
    no_damage(directory)
    is_gone(server)


def test_one_backup_at_a_time_and_it_has_what_is_deleted_meanwhile(
    server: ServerProcess, tmp_path: Path
) -> None:
    with under_way(server) as (connection, head):
        refused = request("POST", f"{server.url}/-/backup")
        assert (refused.status, problem_code(refused)) == (409, "backup-running")
        with Connection.to(server.url) as other:
            send(other, "DELETE", "/rooms/large")
            send(other, "PUT", "/v1/stream/later", b"not in it")
        files = server.data_dir / "snapshots"
        wait_until("its snapshot is unlinked", lambda: not any(files.iterdir()))
        data = b"".join(connection.iter_body(head))
    whole(server, data, tmp_path / "restored")
    with ServerProcess(tmp_path / "restored") as restored, Connection.to(restored.url) as again:
        content = send(again, "GET", f"/rooms/large/snapshot/{offset(1, 1)}")
        assert content == derive(6, "large").randbytes(LARGE_BYTES)
        assert again.request("HEAD", "/v1/stream/later").status == 404


def test_a_client_that_disconnects_leaves_no_copy(server: ServerProcess, tmp_path: Path) -> None:
    with under_way(server) as (connection, _):
        connection.reset()
        is_gone(server)
    wait_until(
        "another one can be taken",
        lambda: request("POST", f"{server.url}/-/backup", timeout=HANG_S).status == 200,
    )
    is_gone(server)


def test_a_server_that_is_killed_leaves_no_copy(server: ServerProcess, tmp_path: Path) -> None:
    with under_way(server):
        server.kill()
    assert copy_of(server).is_dir()
    server.start()
    assert not copy_of(server).exists()
    whole(server, request("POST", f"{server.url}/-/backup").body, tmp_path / "restored")


def test_a_server_that_is_stopped_leaves_no_copy(server: ServerProcess) -> None:
    server.args = ("--drain-s", "0.2")
    server.restart()
    with under_way(server):
        assert server.terminate() == 0
    assert not copy_of(server).exists()


def test_files_stay_while_they_are_being_linked() -> None:
    pins = Pins()
    file, records = Garbage(1, 10, file=True), Garbage(2, 10)
    with pins.hold_files():
        assert [pins.allow(file), pins.allow(records)] == [False, True]
    assert pins.allow(file)


# -- the command ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [ServerProcess, AsgiServerProcess])
def test_to_standard_output_and_back(kind: type[BaseServerProcess], tmp_path: Path) -> None:
    with kind(tmp_path / "data") as server:
        with Connection.to(server.url) as connection:
            send(connection, "PUT", f"{server.base_path}/v1/stream/a", b"hello")
        done = run("backup", "-", "--url", server.url)
        assert (done.returncode, done.stderr) == (0, b"")
    back = run("restore", "-", "--data-dir", tmp_path / "new", stdin=done.stdout)
    assert back.returncode == 0, back.stderr
    with ServerProcess(tmp_path / "new") as server, Connection.to(server.url) as connection:
        assert lines_of(connection, "/v1/stream/a") == [b"hello"]


def test_streams_in_memory_have_no_backup(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", "--engine", "memory") as server:
        refused = request("POST", f"{server.url}/-/backup")
        assert (refused.status, problem_code(refused)) == (501, "backup-unsupported")
        done = run("backup", tmp_path / "out.tar", "--url", server.url)
    assert done.returncode == 1
    assert b"--engine rocksdb" in done.stderr
    assert not (tmp_path / "out.tar").exists()


@pytest.mark.parametrize("end", ["broken off", "interrupted"])
def test_a_truncated_download_leaves_no_file(end: str, tmp_path: Path) -> None:
    """By the server's end, and by Ctrl-C; what was there before stays."""
    target = tmp_path / "backup.tar"
    target.write_bytes(b"of yesterday")
    with half_a_backup() as (url, connected):
        arguments = [*COMMAND, "backup", str(target), "--url", url]
        with interruptible():
            command = subprocess.Popen(arguments, stderr=subprocess.PIPE)
        with command:
            peer = connected()
            wait_until("it writes", lambda: any(tmp_path.glob("*.part")))
            if end == "interrupted":
                command.send_signal(signal.SIGINT)
            else:
                peer.close()
            _, told = command.communicate(timeout=HANG_S)
            peer.close()
    assert command.returncode == (130 if end == "interrupted" else 5), told
    assert [path.name for path in tmp_path.iterdir()] == ["backup.tar"]
    assert target.read_bytes() == b"of yesterday"


@contextmanager
def half_a_backup() -> Iterator[tuple[str, Callable[[], socket.socket]]]:
    """A server that promises a backup, sends half of it, and waits."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(HANG_S)

        def connected() -> socket.socket:
            peer, _ = listening.accept()
            request = b""
            while b"\r\n\r\n" not in request:
                request += peer.recv(4096)
            assert request.startswith(b"POST /-/backup HTTP/1.1\r\n")
            head = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-tar\r\n"
            peer.sendall(head + b"Content-Length: 200000\r\n\r\n" + bytes(100_000))
            return peer

        yield f"http://127.0.0.1:{listening.getsockname()[1]}", connected

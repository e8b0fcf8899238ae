"""A small data directory that has something of everything, and what the tests do with it."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

from tailrace.engine.rocks.check import Checked
from tailrace.engine.rocks.check import check as check_directory
from tailrace.engine.rocks.findings import Finding
from tailrace.engine.rocks.store import FORMAT_VERSION
from tests.support.http import Connection, Response
from tests.support.publishing import JSON, OCTETS, TEXT, offset
from tests.support.server import ServerProcess

COMMAND = (sys.executable, "-m", "tailrace")
BLOB_BYTES = 40_000
"""A value of this size goes to a blob file."""
FILE_BYTES = (1 << 20) + 1000
"""A snapshot of this size has a file of its own, of two chunks."""
SMALL_FILE_BYTES = (256 << 10) + 1


def run(*args: str | Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """A command of ours, in a process of its own."""
    return subprocess.run(
        [*COMMAND, *map(str, args)], input=stdin, capture_output=True, timeout=60, check=False
    )


def check(directory: Path) -> tuple[Checked, list[Finding]]:
    found: list[Finding] = []
    checked = check_directory(directory, FORMAT_VERSION, found.append, lambda _: None)
    assert checked.findings == len(found)
    return checked, found


def no_damage(directory: Path) -> Checked:
    """It is sound; there may be a remark."""
    checked, found = check(directory)
    assert [finding.line() for finding in found] == []
    assert checked.contents
    return checked


class Filler:
    """Fills a server: streams of each kind, in every state that they can be in."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._round = 0

    def fill(self, connection: Connection) -> None:
        self._round += 1
        self._connection = connection
        number = self._round
        if number == 1:
            self._send("PUT", "/rooms", 201)
            self._send("PUT", "/empty-bucket", 201)
            self._subscribe()
        for index in range(4):
            self._stream(f"/v1/stream/plain/{number}/{index}", OCTETS, 3 + index)
            self._stream(f"/rooms/chat-{number}-{index}", JSON, 3 + index)
        self._produced(f"/v1/stream/produced/{number}")
        self._closed(number)
        self._snapshots(number)
        self._gone(number)
        self._grow()

    def _send(
        self, method: str, path: str, status: int, body: bytes = b"", **headers: str
    ) -> Response:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        response = self._connection.request(method, path, sent, body)
        assert response.status == status, (method, path, response.status, response.body)
        return response

    def _subscribe(self) -> None:
        """Subscriptions whose wakes are never claimed: each round leaves them more to do."""
        for root, pattern in (("/v1/stream", "plain/**"), ("/rooms", "*"), ("/v1/stream", "x")):
            config = {"type": "pull-wake", "pattern": pattern, "wake_stream": "wakes"}
            path = f"{root}/__ds/subscriptions/{pattern.split('/')[0].replace('*', 'all')}"
            self._send("PUT", path, 201, json.dumps(config).encode(), Content_Type=JSON)

    def _stream(self, path: str, kind: str, count: int) -> None:
        self._send("PUT", path, 201, Content_Type=kind)
        for _ in range(count):
            self._append(path, kind)

    def _append(self, path: str, kind: str, size: int = 200, status: int = 204) -> None:
        body = self._chance.randbytes(size)
        if kind == JSON:
            values = [body[:20].hex(), {"n": self._chance.randrange(10**6)}, body.hex()]
            body = json.dumps(values[: self._chance.randint(1, 3)]).encode()
        self._send("POST", path, status, body, Content_Type=kind)

    def _produced(self, path: str) -> None:
        self._send("PUT", path, 201, Content_Type=TEXT)
        for seq in range(3):
            for name in ("one", "two"):
                self._send(
                    "POST", path, 200, b"%d" % seq, Content_Type=TEXT, Producer_Id=name,
                    Producer_Epoch="4", Producer_Seq=str(seq), Stream_Seq=f"{seq}{name}",
                )  # fmt: skip

    def _closed(self, number: int) -> None:
        for index, body in enumerate((b"", b"the last")):
            path = f"/v1/stream/closed/{number}/{index}"
            self._stream(path, TEXT, 2)
            self._send("POST", path, 204, body, Content_Type=TEXT, Stream_Closed="true")
        born = f"/v1/stream/closed/{number}/born"
        self._send("PUT", born, 201, Content_Type=TEXT, Stream_Closed="true")

    def _snapshots(self, number: int) -> None:
        """One in the log, one as a blob, one as a file; each with messages before and after it."""
        file_bytes = FILE_BYTES if number == 1 else SMALL_FILE_BYTES
        for name, size in (("small", 500), ("blob", BLOB_BYTES), ("file", file_bytes)):
            path = f"/rooms/{name}-{number}"
            self._send("PUT", path, 201, Content_Type=TEXT)
            for _ in range(3):
                self._append(path, TEXT, size=300)
            for at in (1, 2):
                where = f"{path}/snapshot/{offset(at, at * 300)}"
                self._send("PUT", where, 204, self._chance.randbytes(size), Content_Type=OCTETS)
        # Inside of a batch, which then stays.
        path = f"/rooms/cut-{number}"
        self._send("PUT", path, 201, b"[1,2,3]", Content_Type=JSON)
        self._send("PUT", f"{path}/snapshot/{offset(2, 4)}", 204, b"3", Content_Type=TEXT)

    def _gone(self, number: int) -> None:
        self._stream(f"/rooms/deleted-{number}", TEXT, 2)
        self._send("DELETE", f"/rooms/deleted-{number}", 204)
        self._send("PUT", f"/rooms/brief-{number}", 201, Content_Type=TEXT, Stream_TTL="1")
        self._send("PUT", f"/rooms/long-{number}", 201, Content_Type=TEXT, Stream_TTL="9999")

    def _grow(self) -> None:
        """What every round adds to: large values, and more records than one checkpoint covers."""
        path = "/v1/stream/growing"
        status = 201 if self._round == 1 else 200
        self._send("PUT", path, status, Content_Type=OCTETS)
        self._append(path, OCTETS, size=BLOB_BYTES)
        for _ in range(45):
            self._append(path, OCTETS, size=20)


def build(directory: Path, chance: random.Random) -> None:
    """
    A directory as a killed server leaves it: compacted tables, newer ones, blobs, and a log.

    A backup writes memtables to tables, which is why there are some here.
    """
    filler = Filler(chance)
    with ServerProcess(directory) as server:
        _fill_and_flush(filler, server, 2)
        assert server.terminate() == 0
        assert run("compact", "--data-dir", directory).returncode == 0
        server.start()
        _fill_and_flush(filler, server, 1)
        with Connection.to(server.url) as connection:
            filler.fill(connection)
        server.kill()


def _fill_and_flush(filler: Filler, server: ServerProcess, count: int) -> None:
    for _ in range(count):
        with Connection.to(server.url) as connection:
            filler.fill(connection)
            assert connection.request("POST", "/-/backup").status == 200

"""The end of the log after a crash: torn is as it should be, damaged is not."""

from __future__ import annotations

import json
import os
import shutil
import threading
from pathlib import Path

import pytest

from tests.operations.building import check, no_damage, run
from tests.operations.test_flipped_bytes import log_headers
from tests.support.chance import derive
from tests.support.http import Connection
from tests.support.publishing import OCTETS
from tests.support.server import ServerProcess
from tests.support.streams import wait_until
from tests.support.together import HANG_S

HEADERS = {"Content-Type": OCTETS}
WRITERS = 4
APPEND_BYTES = 3 << 20
KILLS = 4


def log_of(directory: Path) -> Path:
    (log,) = (path for path in directory.glob("*.log") if path.stat().st_size)
    return log


def log_bytes(directory: Path) -> int:
    size = 0
    for path in directory.glob("*.log"):
        try:
            size += path.stat().st_size
        except FileNotFoundError:
            continue
    return size


class Writer:
    """Appends to a stream of its own until its server is gone."""

    def __init__(self, server: ServerProcess, path: str) -> None:
        self.path = path
        self.acknowledged = 0
        self._server = server
        self._body = os.urandom(APPEND_BYTES)

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def join(self) -> None:
        self._thread.join(HANG_S)

    def _run(self) -> None:
        try:
            with Connection.to(self._server.url, HANG_S) as connection:
                while connection.request("POST", self.path, HEADERS, self._body).status == 204:
                    self.acknowledged += APPEND_BYTES
        except (OSError, AssertionError, EOFError):
            return


@pytest.mark.slow
def test_a_server_that_is_killed_amid_large_batches_leaves_no_damage(tmp_path: Path) -> None:
    """Whatever the moment; and all that was acknowledged is there."""
    chance = derive(6, "kills")
    server = ServerProcess(tmp_path / "data")
    writers = [Writer(server, f"/v1/stream/writer-{index}") for index in range(WRITERS)]
    with server:
        with Connection.to(server.url) as connection:
            for writer in writers:
                assert connection.request("PUT", writer.path, HEADERS).status == 201
        for _ in range(KILLS):
            until = log_bytes(server.data_dir) + chance.randrange(APPEND_BYTES, 6 * APPEND_BYTES)
            for writer in writers:
                writer.start()
            wait_until("the log grows", lambda until=until: log_bytes(server.data_dir) > until)
            server.kill()
            for writer in writers:
                writer.join()
            no_damage(server.data_dir)
            server.start()
        with Connection.to(server.url) as connection:
            for writer in writers:
                tail = connection.request("HEAD", writer.path).headers["stream-next-offset"]
                assert int(tail.split("_")[1]) >= writer.acknowledged


def test_a_log_that_ends_inside_of_a_record_is_remarked(copied: Path) -> None:
    """A log that ends between two records looks like one that was not continued."""
    chance = derive(6, "cuts")
    log = log_of(copied)
    data = log.read_bytes()
    ends = {*log_headers(data), len(data)}
    for end in (len(data) - 1, *(chance.randrange(1, len(data)) for _ in range(20))):
        log.write_bytes(data[:end])
        checked = no_damage(copied)
        if end in ends:
            continue
        (remark,) = checked.remarks
        assert remark.file == log.name
        assert f": {end - remark.offset} bytes, never acknowledged" in remark.remark


def test_a_torn_log_is_remarked_until_a_server_has_started(copied: Path) -> None:
    log = log_of(copied)
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size - 20_000)
    done = run("check", "--data-dir", copied)
    assert (done.returncode, done.stderr) == (0, b"")
    remark, summary = done.stdout.decode().splitlines()
    assert remark.startswith(f"{log.name}, byte ")
    assert "was being written when the server died" in remark
    assert summary.endswith(": no damage")
    done = run("check", "--data-dir", copied, "--json")
    assert done.returncode == 0
    (summary,) = map(json.loads, done.stdout.splitlines())
    assert summary["summary"]["findings"] == 0
    assert [found["file"] for found in summary["summary"]["remarks"]] == [log.name]
    with ServerProcess(copied) as server:
        server.kill()
    assert no_damage(copied).remarks == []


def test_a_failed_checksum_is_damage_and_the_rest_is_checked(copied: Path) -> None:
    log = log_of(copied)
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    checked, found = check(copied)
    assert checked.contents
    assert checked.streams > 50
    assert checked.remarks == []
    (finding,) = found
    assert finding.file == log.name
    assert finding.offset is not None
    assert f"{len(data) - finding.offset} bytes from here on are lost" in finding.problem


@pytest.mark.parametrize("longer", [1, 300, 60_000])
def test_a_length_that_leads_past_the_end_is_damage(copied: Path, longer: int) -> None:
    """The bytes of the record are all there, and its checksum fits them."""
    log = log_of(copied)
    data = bytearray(log.read_bytes())
    *_, last = log_headers(bytes(data))
    length = int.from_bytes(data[last + 4 : last + 6], "little")
    data[last + 4 : last + 6] = (length + longer & 0xFFFF).to_bytes(2, "little")
    log.write_bytes(data)
    checked, found = check(copied)
    assert [finding.file for finding in found] == [log.name]
    assert checked.remarks == []


def test_a_torn_log_that_is_not_the_newest_is_damaged(copied: Path) -> None:
    log = log_of(copied)
    shutil.copyfile(log, log.with_name(f"{int(log.stem) + 1:06d}.log"))
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size - 1)
    checked, found = check(copied)
    assert log.name in {finding.file for finding in found}
    assert checked.remarks == []


def test_a_new_log_that_is_empty_changes_nothing(copied: Path) -> None:
    """A server was killed again while it started."""
    log = log_of(copied)
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size - 1)
    log.with_name(f"{int(log.stem) + 1:06d}.log").touch()
    assert [remark.file for remark in no_damage(copied).remarks] == [log.name]

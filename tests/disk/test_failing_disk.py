"""A disk that fails: nothing is acknowledged that is not durable, and the process ends."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.support.chance import seeded
from tests.support.faulty_disk import SUPPORTED, SYNC, WRITE, FaultyDiskServer
from tests.support.http import Connection, ProtocolError, Response
from tests.support.payloads import pack, unpack_all
from tests.support.reading import OCTETS, Content, problem_code, read_all
from tests.support.tiers import slow_but
from tests.support.together import HANG_S, together

pytestmark = pytest.mark.skipif(not SUPPORTED, reason="seccomp filters are made for Linux alone")

OCTET_HEADERS = {"Content-Type": OCTETS}
PATH = "/v1/stream/a"


def append_or_none(connection: Connection, body: bytes) -> Response | None:
    """An append; None where the connection ended instead of a response."""
    try:
        return connection.request("POST", PATH, OCTET_HEADERS, body)
    except TimeoutError:
        raise
    except (OSError, ProtocolError):
        return None


def content_after_restart(server: FaultyDiskServer) -> Content:
    server.mend_disk()
    server.start()
    with Connection.to(server.url, HANG_S) as connection:
        content = read_all(connection, PATH)
        assert content is not None
        after = connection.request("POST", PATH, OCTET_HEADERS, pack("after", 0, b""))
        assert after.status == 204
    return content


@pytest.mark.parametrize("how", [SYNC, WRITE])
def test_failing_disk_is_never_trusted_again(tmp_path: Path, how: str) -> None:
    """
    Goal: an append whose write or fsync fails is not acknowledged; the server takes no more
    writes and ends with an error; after a restart all that was acknowledged is there.

    Method: the kernel is made to return EIO to every fsync, or to every write to the log. The
    next append must be refused with 503 `storage-failed`, and so must those after it while the
    process still responds. Then the disk is mended and the server started again.
    """
    with FaultyDiskServer(tmp_path / "data", tmp_path) as server:
        with (
            Connection.to(server.url, HANG_S) as connection,
            Connection.to(server.url, HANG_S) as other,
        ):
            assert connection.request("PUT", PATH, OCTET_HEADERS).status == 201
            for seq in range(20):
                body = pack("w", seq, bytes(100 * seq))
                assert connection.request("POST", PATH, OCTET_HEADERS, body).status == 204
            # A request that is under way, so that the process cannot end before it gets a response.
            other.send(b"POST " + PATH.encode() + b" HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n")
            other.send(f"Content-Type: {OCTETS}\r\n\r\n".encode())
            server.break_disk(how)
            first = append_or_none(connection, pack("w", 20, b""))
            assert first is not None, "the append that failed got no response"
            assert first.status == 503
            assert problem_code(first) == "storage-failed"
            other.send(b"abc")
            try:
                second: Response | None = other.read_response("POST")
            except (OSError, ProtocolError):
                second = None
            assert second is None or second.status == 503
            for _ in range(3):
                again = append_or_none(connection, pack("w", 21, b""))
                assert again is None or again.status == 503
        assert server.wait_for_end() > 0, "it must end with an error"
        found = [message.seq for message in unpack_all(content_after_restart(server).raw)]
        # Whether the one that failed is there is unknown; that is what its response said.
        assert found in (list(range(20)), list(range(21)))


@pytest.mark.parametrize("how", slow_but([SYNC], [SYNC, WRITE]))
def test_failing_disk_under_load(tmp_path: Path, how: str) -> None:
    """
    Goal: as above when many appends are under way: each is acknowledged and durable, or refused
    with 503, or its connection ends; none hangs, and nothing is acknowledged after the failure.

    Method: eight writers append without pause while the disk breaks; after a restart the stream
    holds every acknowledged message, in order and once.
    """
    with (
        seeded("failing", how) as chance,
        FaultyDiskServer(tmp_path / "data", tmp_path) as server,
    ):
        with Connection.to(server.url, HANG_S) as connection:
            assert connection.request("PUT", PATH, OCTET_HEADERS).status == 201
        sizes = [chance.randrange(2000) for _ in range(64)]
        broken = threading.Event()
        started = threading.Barrier(9)

        def write(writer: str) -> int:
            with Connection.to(server.url, HANG_S) as connection:
                for seq in range(1_000_000):
                    if seq == 20:
                        started.wait(HANG_S)
                    was_broken = broken.is_set()
                    body = pack(writer, seq, bytes(sizes[seq % 64]))
                    response = append_or_none(connection, body)
                    if response is None or response.status == 503:
                        return seq
                    assert response.status == 204, response
                    assert not was_broken, "acknowledged on a broken disk"
            raise AssertionError("the disk never failed")

        def break_disk() -> int:
            started.wait(HANG_S)
            server.break_disk(how)
            broken.set()
            return 0

        writers = [lambda name=f"w{n}": write(name) for n in range(8)]
        *counts, _ = together([*writers, break_disk])
        assert server.wait_for_end() > 0, "it must end with an error"
        messages = unpack_all(content_after_restart(server).raw)
        for number, count in enumerate(counts):
            found = [message.seq for message in messages if message.writer == f"w{number}"]
            assert found in (list(range(count)), list(range(count + 1)))

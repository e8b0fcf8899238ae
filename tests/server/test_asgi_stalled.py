"""A client that stops reading is disconnected by the ASGI app, as by `tailrace serve`."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.server.test_asgi_framing import UvicornH11
from tests.support.http import Connection, Head, ProtocolError
from tests.support.server import AsgiServerProcess
from tests.support.streams import Api

# Far more than the socket's buffers hold.
SIZE = 24 << 20
UNTIL_STOPPED_S = 20.0


class Impatient(AsgiServerProcess):
    app = "tests.support.asgi_impatient_app:app"


class ImpatientH11(Impatient, UvicornH11):
    pass


def fill(api: Api) -> tuple[str, str]:
    """A stream that is larger than what its readers' sockets hold, after such a snapshot."""
    path = api.in_bucket(api.new_bucket(), "s")
    api.create(path=path, body=b"x")
    offset = api.tail(path)
    url = f"{path}/snapshot/{offset}"
    assert api.request("PUT", url, {"Content-Type": "text/plain"}, b"s" * SIZE).status < 300
    api.append(path, b"y" * SIZE)
    return path, offset


def stall(api: Api, target: str) -> tuple[Connection, Head]:
    """Read the head of a response, and nothing more."""
    connection = api.connect(timeout=20)
    connection.send_request("GET", target)
    head = connection.read_head()
    assert head.status == 200
    return connection, head


def check_incomplete(connection: Connection, head: Head) -> None:
    """Read the rest: a client can tell that it is not the whole body."""
    with connection, pytest.raises((ProtocolError, ConnectionResetError)):
        list(connection.iter_body(head))


@pytest.mark.parametrize("kind", [Impatient, ImpatientH11])
def test_a_client_that_stops_reading_is_disconnected(tmp_path: Path, kind: type[Impatient]) -> None:
    """A catch-up, a bootstrap and a snapshot; others are served meanwhile."""
    with kind(tmp_path, "--body-bytes-max", str(SIZE)) as server:
        api = Api(server)
        path, offset = fill(api)
        targets = [f"{path}?offset={offset}", f"{path}/bootstrap", f"{path}/snapshot/{offset}"]
        stalled = [stall(api, target) for target in targets]
        time.sleep(3)
        for connection, head in stalled:
            check_incomplete(connection, head)
        assert len(api.get(f"{path}?offset={offset}").body) == SIZE
        api.close()
        assert not [line for line in server.log if "Traceback" in line]


def test_a_slow_client_reads_to_the_end(tmp_path: Path) -> None:
    """It takes longer than the deadline, but never stops for so long."""
    with Impatient(tmp_path, "--body-bytes-max", str(SIZE)) as server:
        api = Api(server)
        path = api.create(body=b"x" * SIZE)
        with api.connect() as connection:
            connection.send_request("GET", path)
            head = connection.read_head()
            size = 0
            for piece in connection.iter_body(head):
                before, size = size, size + len(piece)
                if before * 8 // SIZE != size * 8 // SIZE:
                    time.sleep(0.4)
        api.close()
    assert size == SIZE


@pytest.mark.parametrize("kind", [AsgiServerProcess, UvicornH11])
def test_a_client_that_stops_reading_does_not_keep_the_server_from_stopping(
    tmp_path: Path, kind: type[AsgiServerProcess]
) -> None:
    """Its response is cut off after `drain_s`, and one that is being read before is complete."""
    server = kind(tmp_path, "--body-bytes-max", str(SIZE), "--drain-s", "3").start()
    try:
        api = Api(server)
        path = api.create(body=b"x" * SIZE)
        (stalled, head), (reading, same) = stall(api, path), stall(api, path)
        with reading, api.connect() as sending:
            # An upload that does not go on.
            sending.send_request("PUT", api.path(), {"Content-Length": "10"}, b"half")
            api.close()
            began = time.monotonic()
            server.signal(signal.SIGTERM)
            read = b"".join(reading.iter_body(same))
            server.wait_for_end()
            took = time.monotonic() - began
            check_incomplete(stalled, head)
    finally:
        server.kill()
    assert len(read) == SIZE
    assert took < UNTIL_STOPPED_S
    assert not [line for line in server.log if "Traceback" in line]

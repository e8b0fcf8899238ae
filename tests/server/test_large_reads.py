"""
§5.6, decision 21: a catch-up read is one response up to `--read-bytes-max`, sent while it is read.

Its headers, the length included, are those of one state, whatever changes while it is sent.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator

import pytest

from tailrace.engine.memory import MemoryStore
from tests.server.conftest import KINDS
from tests.server.test_compression import DECODERS
from tests.support.http import Connection, ProtocolError
from tests.support.in_process import InProcessServer
from tests.support.publishing import OCTETS, publish, small_buffer_connection
from tests.support.streams import Api, check_problem

MIB = 1 << 20
JSON = "application/json"
NOISE = random.Random("large reads").randbytes(3 * MIB)


def filled(api: Api, pieces: list[bytes], content_type: str = OCTETS) -> str:
    path = api.create(content_type)
    for piece in pieces:
        api.append(path, piece, content_type=content_type)
    return path


@pytest.mark.every_kind
def test_one_read_returns_everything(api: Api) -> None:
    """More than one chunk, with a Content-Length, to the tail; the headers are of the end."""
    pieces = [NOISE[at : at + 100_000] for at in range(0, len(NOISE), 100_000)]
    path = filled(api, pieces)
    response = api.get(path)
    assert (response.status, response.body) == (200, NOISE)
    assert response.headers["content-length"] == str(len(NOISE))
    assert response.headers["stream-next-offset"] == api.tail(path)
    assert response.headers["stream-up-to-date"] == "true"
    assert "stream-closed" not in response.headers
    api.close_stream(path)
    assert api.get(path).headers["stream-closed"] == "true"


@pytest.mark.every_kind
def test_one_read_of_json_is_one_array(api: Api) -> None:
    """Batches and single messages; also from an offset inside a batch."""
    batch = [{"n": number, "pad": "p" * (number % 50)} for number in range(5000)]
    path = filled(api, [json.dumps(batch).encode()] * 8 + [b'{"last":true}'], JSON)
    response = api.get(path)
    assert len(response.body) > MIB
    assert response.headers["content-length"] == str(len(response.body))
    assert json.loads(response.body) == [*batch * 8, {"last": True}]
    first = len(json.dumps(batch[0])) + 1
    inside = api.get(path, f"offset={1:016d}_{first:016d}")
    assert json.loads(inside.body) == [*batch * 8, {"last": True}][1:]


@pytest.mark.every_kind
def test_a_message_of_many_megabytes(api: Api) -> None:
    """It is sent in pieces; messages before and after it are complete too."""
    path = filled(api, [b"before", NOISE, b"between", NOISE[::-1], b"after"])
    assert api.get(path).body == b"".join((b"before", NOISE, b"between", NOISE[::-1], b"after"))


def test_a_json_message_of_many_megabytes(api: Api) -> None:
    """Also within a batch, and as the last of the array."""
    large = "x" * (3 * MIB)
    path = filled(api, [json.dumps([1, large, 2, large]).encode()], JSON)
    response = api.get(path)
    assert json.loads(response.body) == [1, large, 2, large]
    assert response.headers["content-length"] == str(len(response.body))


@pytest.mark.every_kind
def test_a_large_read_can_be_compressed(api: Api) -> None:
    path = filled(api, [b"compressible " * 10_000] * 20)
    for coding, decode in DECODERS.items():
        response = api.get(path, headers={"Accept-Encoding": coding})
        assert response.headers["content-encoding"] == coding
        assert decode(response.body) == b"compressible " * 200_000
        etag = response.headers["etag"]
        again = api.get(path, headers={"Accept-Encoding": coding, "If-None-Match": etag})
        assert (again.status, again.body) == (304, b"")


def test_a_large_read_that_is_known_is_304(api: Api) -> None:
    path = filled(api, [NOISE])
    first = api.get(path)
    again = api.get(path, headers={"If-None-Match": first.headers["etag"]})
    assert (again.status, again.body) == (304, b"")
    for name in ("etag", "cache-control", "stream-next-offset", "stream-up-to-date", "vary"):
        assert again.headers[name] == first.headers[name]
    api.append(path, b"more", content_type=OCTETS)
    assert api.get(path, headers={"If-None-Match": first.headers["etag"]}).status == 200


def test_a_large_read_with_until(api: Api) -> None:
    """It ends there, and does not describe the tail."""
    path = filled(api, [NOISE[:MIB], NOISE[MIB : 2 * MIB]])
    end = api.tail(path)
    api.append(path, NOISE[2 * MIB :], content_type=OCTETS)
    response = api.get(path, f"offset=-1&until={end}")
    assert response.body == NOISE[: 2 * MIB]
    assert response.headers["stream-next-offset"] == end
    assert "stream-up-to-date" not in response.headers


def test_a_large_read_is_refused_before_it_begins(api: Api) -> None:
    path = filled(api, [NOISE] * 2)
    for query in (f"offset={9:016d}_{9 * MIB:016d}", f"offset=-1&until={1:016d}_{9:016d}"):
        check_problem(api.get(path, query), 400)


def test_a_long_poll_and_an_event_stay_small(api: Api) -> None:
    """`--chunk-bytes`, for data that is there at once."""
    path = filled(api, [NOISE[at : at + 100_000] for at in range(0, len(NOISE), 100_000)])
    response = api.get(path, "offset=-1&live=long-poll")
    assert 0 < len(response.body) <= MIB
    assert "stream-up-to-date" not in response.headers


def test_pipelined_large_reads_come_in_order(api: Api) -> None:
    """The length is exact: the next response begins right after the body."""
    path, small = filled(api, [NOISE]), api.create(body=b"small")
    with api.connect() as connection:
        for _ in range(3):
            connection.send_request("GET", path)
            connection.send_request("GET", small)
        for _ in range(3):
            assert connection.read_response().body == NOISE
            assert connection.read_response().body == b"small"


@pytest.mark.every_kind
def test_what_changes_during_a_slow_read_does_not_change_it(api: Api) -> None:
    """Appends, closure and deletion; the data stays until the last byte is sent."""
    content = NOISE * 8
    path = filled(api, [content])
    with small_buffer_connection(api) as connection:
        connection.send_request("GET", path)
        head = connection.read_head()
        body = connection.iter_body(head)
        first = next(body)
        api.append(path, b"later", content_type=OCTETS)
        api.close_stream(path)
        assert api.request("DELETE", path).status == 204
        assert b"".join((first, *body)) == content
    assert head.headers["content-length"] == str(len(content))
    assert "stream-closed" not in head.headers
    check_problem(api.get(path), 404)


def test_a_snapshot_during_a_slow_read_does_not_change_it(api: Api) -> None:
    bucketed = Api(api.server, api.new_bucket())
    content = NOISE * 8
    path = filled(bucketed, [content, b"after"])
    with small_buffer_connection(bucketed) as connection:
        connection.send_request("GET", path)
        body = connection.iter_body(connection.read_head())
        first = next(body)
        publish(bucketed, path, bucketed.tail(path), b"state")
        check_problem(bucketed.get(path, "offset=-1"), 410)
        assert b"".join((first, *body)) == content + b"after"
    bucketed.close()


@pytest.fixture
def limited(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A server whose reads end at 2 MiB."""
    options = ("--read-bytes-max", str(2 * MIB))
    with KINDS[kind](tmp_path_factory.mktemp("limited"), *options) as server:
        api = Api(server)
        if kind == "bucketed":
            api.bucket = api.new_bucket()
        yield api
        api.close()


def test_a_read_ends_at_the_last_boundary_within_the_limit(limited: Api) -> None:
    """Bodies, next offsets and headers of each response, until all is read."""
    pieces = [NOISE[:700_000]] * 7
    path = filled(limited, pieces)
    offset, sizes = "-1", []
    while True:
        response = limited.get(path, f"offset={offset}")
        sizes.append(len(response.body))
        offset = response.headers["stream-next-offset"]
        if "stream-up-to-date" in response.headers:
            break
    # Two of 700,000 bytes fit into 2 MiB; the last one is sent whole.
    assert sizes == [1_400_000, 1_400_000, 1_400_000, 700_000]
    assert offset == limited.tail(path)


def test_a_limit_inside_a_batch_ends_between_two_messages(limited: Api) -> None:
    batch = [{"n": number, "pad": "p" * 500} for number in range(10_000)]
    path = filled(limited, [json.dumps(batch).encode()], JSON)
    offset, found = "-1", []
    while True:
        response = limited.get(path, f"offset={offset}")
        assert len(response.body) <= 2 * MIB + 1
        found += json.loads(response.body)
        offset = response.headers["stream-next-offset"]
        if "stream-up-to-date" in response.headers:
            break
    assert found == batch


def test_a_message_above_the_limit_is_returned_whole(limited: Api) -> None:
    path = filled(limited, [NOISE, b"after"])
    response = limited.get(path)
    assert response.body == NOISE
    assert "stream-up-to-date" not in response.headers
    assert limited.get(path, f"offset={response.headers['stream-next-offset']}").body == b"after"


# -- failures --------------------------------------------------------------------------------------


class DamagedStore(MemoryStore):
    """Has no record from some byte on, as a store whose disk fails."""

    missing_from = 2 * MIB

    def scan(self, stream_id: int, start: int, end: int) -> Iterator[bytes]:
        return super().scan(stream_id, start, min(end, self.missing_from))


@pytest.mark.parametrize("kind", ["wire-memory"], indirect=True, scope="session")
def test_a_read_that_fails_midway_is_cut_off(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """The headers promised more: the client must not take it for a success."""
    monkeypatch.setattr("tests.support.in_process.MemoryStore", DamagedStore)
    server = InProcessServer()
    try:
        with server.connect() as connection:
            headers = {"Content-Type": OCTETS}
            assert connection.request("PUT", "/v1/stream/damaged", headers).status == 201
            for _ in range(4):
                body = NOISE[:MIB]
                assert connection.request("POST", "/v1/stream/damaged", headers, body).status == 204
            connection.send_request("GET", "/v1/stream/damaged")
            head = connection.read_head()
            assert (head.status, head.headers["content-length"]) == (200, str(4 * MIB))
            with pytest.raises((ProtocolError, OSError)):
                list(connection.iter_body(head))
    finally:
        server.stop()


@pytest.mark.parametrize("kind", ["wire-memory"], indirect=True, scope="session")
def test_a_slow_reader_holds_little_memory(kind: str) -> None:
    """Each of many readers that stop reading holds about one piece, not its whole response."""
    server = InProcessServer()
    try:
        with server.connect() as connection:
            headers = {"Content-Type": OCTETS}
            assert connection.request("PUT", "/v1/stream/slow", headers).status == 201
            for _ in range(30):
                connection.request("POST", "/v1/stream/slow", headers, bytes(100) * 10_000)
        readers = [Connection("127.0.0.1", server.port) for _ in range(10)]
        for reader in readers:
            reader.send_request("GET", "/v1/stream/slow")
            assert reader.read_head().headers["content-length"] == "30000000"
        loop = server._loop
        assert loop is not None
        held = asyncio.run_coroutine_threadsafe(_buffered(server), loop).result(60)
        assert held
        assert max(held) < 3 * MIB
        for reader in readers:
            reader.close()
    finally:
        server.stop()


async def _buffered(server: InProcessServer) -> list[int]:
    """What each connection has in its buffer, once all of them wait for their clients."""
    connections = [item for item in server.wire._connections if not item.idle]
    async with asyncio.timeout(30):
        while not all(item.blocked for item in connections):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return [item._transport.get_write_buffer_size() for item in connections if item._transport]

"""X§3: bootstrap returns a snapshot and all later messages as one `multipart/mixed` response."""

from __future__ import annotations

import json
import random
import re
import socket
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.server.test_compression import DECODERS
from tests.support.http import Connection, Response
from tests.support.looping import for_each
from tests.support.multipart import Part, boundary_of, parts_of
from tests.support.publishing import (
    INLINE_BYTES_MAX,
    JSON,
    KINDS_ONCE,
    OCTETS,
    START,
    TEXT,
    bootstrap,
    new_stream,
    offset,
    parse_bootstrap,
    publish,
    small_buffer_connection,
    snapshot_files,
    wait_for_files,
)
from tests.support.streams import Api, check_common, check_problem

pytestmark = pytest.mark.parametrize("kind", KINDS_ONCE, indirect=True, scope="session")

MIB = 1 << 20
NOISE = random.Random("bootstrap").randbytes(3 * MIB + 7)


# -- X§3.1: request --------------------------------------------------------------------------------


@for_each("method", ["GET", "HEAD"])
@for_each(
    "query",
    ["live=sse", "live=long-poll", "live=false", "live=", "live", "live=x", "x=1&%6Cive=sse"],
)
def test_any_live_parameter_is_400(api: Api, query: str, method: str) -> None:
    """X§3.3: bootstrap is not live: the parameter is rejected with any value or none."""
    path = new_stream(api, TEXT, b"abc")
    response = api.request(method, f"{path}/bootstrap?{query}")
    if method == "GET":
        check_problem(response, 400, "query-invalid")
    assert response.status == 400


@for_each(
    "query",
    ["x=1", "offset=-1", "cursor=5&x", "live2=sse", "", "offset=&offset=", "cursor=%FF"],
)
def test_bootstrap_ignores_other_parameters(api: Api, query: str) -> None:
    """§9.1: unknown ones, and those of ordinary reads, valid or not."""
    path = new_stream(api, TEXT, b"abc")
    assert parse_bootstrap(api.get(f"{path}/bootstrap?{query}")).messages == [b"abc"]


def test_bootstrap_of_a_stream_that_does_not_exist_is_404(api: Api) -> None:
    none = api.in_bucket(api.new_bucket(), "none")
    check_problem(api.get(f"{none}/bootstrap"), 404, "stream-not-found")
    assert api.head(f"{none}/bootstrap").status == 404
    nowhere = api.in_bucket("no-such-bucket", "none")
    check_problem(api.get(f"{nowhere}/bootstrap"), 404, "bucket-not-found")


# -- X§3.2: response -------------------------------------------------------------------------------


def test_the_exact_response(api: Api) -> None:
    """All headers, and the bytes of the body."""
    path = new_stream(api, JSON, b'{"op":"set"}', b'[{"op": "insert"},3]')
    publish(api, path, offset(1, 13), b"<snapshot-bytes>", "text/x-state")
    response = api.get(f"{path}/bootstrap")
    assert response.status == 200
    check_common(response)
    boundary = boundary_of(response.headers["content-type"])
    assert response.headers["stream-snapshot-offset"] == offset(1, 13)
    assert response.headers["stream-next-offset"] == api.tail(path) == offset(3, 32)
    assert response.headers["stream-up-to-date"] == "true"
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["content-length"] == str(len(response.body))
    assert "etag" not in response.headers
    assert "stream-closed" not in response.headers
    assert response.body == (
        b"--BOUNDARY\r\nContent-Type: text/x-state\r\n\r\n<snapshot-bytes>"
        b'\r\n--BOUNDARY\r\nContent-Type: application/json\r\n\r\n{"op": "insert"}'
        b"\r\n--BOUNDARY\r\nContent-Type: application/json\r\n\r\n3"
        b"\r\n--BOUNDARY--\r\n"
    ).replace(b"BOUNDARY", boundary)


@for_each("content_type", [TEXT, JSON])
def test_without_a_snapshot_the_first_part_is_empty(api: Api, content_type: str) -> None:
    """Its type is application/octet-stream, the offset is -1, and all messages follow."""
    path = new_stream(api, content_type, b"1", b"2")
    found = bootstrap(api, path)
    assert found.snapshot == Part(OCTETS, b"")
    assert found.snapshot_offset == "-1"
    assert found.updates == [Part(content_type, b"1"), Part(content_type, b"2")]
    assert (found.next_offset, found.up_to_date) == (api.tail(path), True)


@for_each("content_type", [TEXT, JSON, OCTETS])
def test_an_empty_stream_has_one_empty_part(api: Api, content_type: str) -> None:
    path = new_stream(api, content_type)
    found = bootstrap(api, path)
    assert (found.snapshot, found.updates) == (Part(OCTETS, b""), [])
    assert (found.snapshot_offset, found.next_offset, found.up_to_date) == ("-1", START, True)


def test_an_empty_snapshot_differs_from_no_snapshot(api: Api) -> None:
    """Its part is empty too, but has the snapshot's type and offset."""
    path = new_stream(api, TEXT, b"abc")
    publish(api, path, offset(1, 3), b"", "text/x-nothing")
    found = bootstrap(api, path)
    assert found.snapshot == Part("text/x-nothing", b"")
    assert (found.snapshot_offset, found.updates) == (offset(1, 3), [])


@for_each("size", [0, 1, INLINE_BYTES_MAX, INLINE_BYTES_MAX + 1, len(NOISE)])
def test_the_first_part_is_the_raw_snapshot_with_its_type(api: Api, size: int) -> None:
    path = new_stream(api, TEXT, b"abc", b"def")
    publish(api, path, offset(1, 3), NOISE[:size], "application/x-state; v=2")
    found = bootstrap(api, path)
    assert found.snapshot == Part("application/x-state; v=2", NOISE[:size])
    assert found.updates == [Part(TEXT, b"def")]


@for_each("content_type", ["Text/Plain; Charset=utf-8", "image/png", "a/b;c"])
def test_each_update_has_the_content_type_of_the_stream(api: Api, content_type: str) -> None:
    """With the exact spelling of the create."""
    path = new_stream(api, content_type, b"one", b"two", b"three")
    publish(api, path, offset(1, 3), b"state", JSON)
    found = bootstrap(api, path)
    assert found.snapshot.content_type == JSON
    assert found.updates == [Part(content_type, b"two"), Part(content_type, b"three")]


def test_each_update_is_exactly_one_message(api: Api) -> None:
    """One append is one part, even if its content looks like a delimiter."""
    messages = [b"[1,2,3]", b"\0", b"\r\n", b"a\nb", b"--", b"{", b"x" * 70_000, b"\xff\xfe"]
    path = new_stream(api, OCTETS, *messages)
    assert bootstrap(api, path).messages == messages


def test_each_update_of_a_json_stream_is_one_element(api: Api) -> None:
    """White space inside, numbers and escapes are unchanged; batches are split."""
    appends = [
        b' [ 1 ,{"a" :  1e2 },\r\n12345678901234567890.000 , [ ] , [1, 2] ,{}]\n',
        b'"\\u00e9\\r\\n--x"',
        b'{\r\n--x\r\n":1}'.replace(b"\r\n--x\r\n", b'\r\n  "--x'),
        b"\t-0.0\t",
        b'[["nested"], null, " , ", "]"]',
        '"é, 🐎"'.encode(),
        b"[1,2,\n3]",
    ]
    elements = [
        *(b"1", b'{"a" :  1e2 }', b"12345678901234567890.000", b"[ ]", b"[1, 2]", b"{}"),
        b'"\\u00e9\\r\\n--x"',
        b'{\r\n  "--x":1}',
        b"-0.0",
        *(b'["nested"]', b"null", b'" , "', b'"]"'),
        '"é, 🐎"'.encode(),
        *(b"1", b"2", b"3"),
    ]
    path = new_stream(api, JSON, *appends)
    found = bootstrap(api, path)
    assert found.messages == elements
    assert [json.loads(element) for element in elements] == json.loads(api.get(path).body)
    # Starting inside the first batch.
    size = sum(len(element) + 1 for element in elements[:3])
    publish(api, path, offset(3, size), b"state")
    assert bootstrap(api, path).messages == elements[3:]


def test_a_large_json_batch_has_one_part_per_element(api: Api) -> None:
    """Also if it is larger than one storage read and than the chunk of an ordinary read."""
    elements = [b'"%d%b"' % (number, b"x" * (number % 700)) for number in range(4000)]
    path = new_stream(api, JSON, b"[" + b",".join(elements) + b"]", b"[-1,-2]")
    assert bootstrap(api, path).messages == [*elements, b"-1", b"-2"]


def test_bootstrap_is_not_limited_by_chunk_bytes(short: Api) -> None:
    """On this server an ordinary read returns at most 100 bytes."""
    messages = [b"%d" % number * 60 for number in range(50)]
    path = new_stream(short, TEXT, *messages)
    found = bootstrap(short, path)
    assert found.messages == messages
    assert found.up_to_date


def test_bootstrap_of_a_closed_stream_has_stream_closed(api: Api) -> None:
    """Like an ordinary read that reaches the end."""
    path = new_stream(api, TEXT, b"abc", b"def")
    publish(api, path, offset(1, 3), b"state")
    api.close_stream(path)
    response = api.get(f"{path}/bootstrap")
    assert response.headers["stream-closed"] == "true"
    assert parse_bootstrap(response).messages == [b"def"]


def test_head_of_a_bootstrap_has_its_headers_and_no_body(api: Api) -> None:
    path = new_stream(api, TEXT, b"abc", b"def")
    publish(api, path, offset(1, 3), b"state")
    response = api.head(f"{path}/bootstrap")
    assert (response.status, response.body) == (200, b"")
    assert boundary_of(response.headers["content-type"])
    assert response.headers["stream-snapshot-offset"] == offset(1, 3)
    assert response.headers["stream-next-offset"] == offset(2, 6)
    assert response.headers["cache-control"] == "no-store"


# -- boundaries ------------------------------------------------------------------------------------


def test_each_response_has_its_own_boundary(api: Api) -> None:
    """It needs no quotation marks, and its length is allowed by RFC 2046."""
    path = new_stream(api, TEXT, b"abc")
    types = {api.get(f"{path}/bootstrap").headers["content-type"] for _ in range(20)}
    assert len(types) == 20
    for content_type in types:
        assert re.fullmatch(rb"[0-9A-Za-z-]{16,70}", boundary_of(content_type))


OLD = b"<boundary>"
"""Stands for the boundary of the stream's last bootstrap."""
NASTY = st.lists(
    st.one_of(
        st.sampled_from(
            [
                *(b"\r\n", b"\r", b"\n", b"--", b"-", b"\r\n--", b"\r\n\r\n", b"\0", OLD),
                *(b"--" + OLD, b"\r\n--" + OLD, b"--" + OLD + b"--", OLD[:-1]),
                b"\r\n--" + OLD + b"--\r\n",
                b"\r\n--" + OLD + b"\r\nContent-Type: text/html\r\n\r\n",
                b"Content-Type: multipart/mixed; boundary=" + OLD + b"\r\n\r\n",
            ]
        ),
        st.binary(max_size=30),
    ),
    max_size=6,
).map(b"".join)
fuzz = settings.get_profile("server")


@given(
    messages=st.lists(NASTY.filter(bool), max_size=8),
    snapshot=st.none() | st.tuples(st.integers(0, 8), NASTY),
)
@fuzz
def test_no_content_is_parsed_as_a_boundary(
    api: Api, messages: list[bytes], snapshot: tuple[int, bytes] | None
) -> None:
    """
    Messages and snapshots are returned unchanged, even if they consist of delimiters.

    Method: the content quotes the boundary of the previous bootstrap, the most that a client can
    know of the next one. Two independent parsers read the response.
    """
    path = new_stream(api, OCTETS)
    offsets, stored = [START], []
    for message in messages:
        old = boundary_of(api.get(f"{path}/bootstrap").headers["content-type"])
        stored.append(message.replace(OLD, old))
        offsets.append(api.append(path, stored[-1], content_type=OCTETS))
    first, content = 0, b""
    if snapshot is not None:
        first = min(snapshot[0], len(messages))
        old = boundary_of(api.get(f"{path}/bootstrap").headers["content-type"])
        content = snapshot[1].replace(OLD, old)
        publish(api, path, offsets[first], content)
    found = bootstrap(api, path)
    assert found.snapshot.body == content
    assert found.messages == stored[first:]
    assert found.next_offset == offsets[-1]


@given(
    elements=st.lists(
        st.tuples(
            st.recursive(
                st.none() | st.booleans() | st.integers() | st.text(max_size=20),
                lambda inner: (
                    st.lists(inner, max_size=3)
                    | st.dictionaries(st.text(max_size=5), inner, max_size=3)
                ),
                max_leaves=6,
            ),
            st.sampled_from(["", " ", "\r\n", "\t\n "]),
        ),
        min_size=1,
        max_size=10,
    ),
    cut=st.integers(0, 10),
)
@fuzz
def test_json_elements_are_returned_byte_for_byte(
    api: Api, elements: list[tuple[object, str]], cut: int
) -> None:
    """With any white space, and with the snapshot at any position in their batch."""
    texts = [
        json.dumps(value, ensure_ascii=bool(number % 2), separators=(f",{space}", f":{space}"))
        for number, (value, space) in enumerate(elements)
    ]
    # A lone surrogate cannot be encoded as UTF-8.
    encoded = [text.encode("utf-8", "replace") for text in texts]
    spaces = [space.encode() for _, space in elements]
    batch = b",".join(
        space + element + space for element, space in zip(encoded, spaces, strict=True)
    )
    path = new_stream(api, JSON, b"[" + batch + b"]")
    assert bootstrap(api, path).messages == encoded
    cut = min(cut, len(encoded))
    publish(api, path, offset(cut, sum(len(item) + 1 for item in encoded[:cut])))
    assert bootstrap(api, path).messages == encoded[cut:]


def test_a_snapshot_can_be_a_multipart_entity(api: Api) -> None:
    """Such as a stored bootstrap of another stream, with its content type."""
    inner = api.get(f"{new_stream(api, TEXT, b'one', b'two')}/bootstrap")
    path = new_stream(api, TEXT, b"abc", b"def")
    publish(api, path, offset(1, 3), inner.body, inner.headers["content-type"])
    api.append(path, inner.body)
    found = bootstrap(api, path)
    assert found.snapshot == Part(inner.headers["content-type"], inner.body)
    assert found.messages == [b"def", inner.body]
    parts = parts_of(found.snapshot.content_type, found.snapshot.body)
    assert [part.body for part in parts] == [b"", b"one", b"two"]


# -- X§3.4: compatibility --------------------------------------------------------------------------


def test_bootstrap_works_where_reads_are_410(api: Api) -> None:
    """
    Once a read is 410, bootstrap is available with a snapshot at the earliest retained offset.

    Reads continue from its Stream-Next-Offset.
    """
    path = new_stream(api, TEXT, b"abc")
    for number in range(3):
        at = api.append(path, b"%d" % number)
        publish(api, path, at, b"state %d" % number)
        api.append(path, b"after")
        gone = api.get(path, "offset=-1")
        assert gone.status == 410
        found = bootstrap(api, path)
        assert found.snapshot_offset == gone.headers["stream-earliest-offset"] == at
        assert (found.snapshot.body, found.messages) == (b"state %d" % number, [b"after"])
        assert api.get(path, f"offset={found.next_offset}").headers["stream-up-to-date"] == "true"


# -- codings, versions, connections ----------------------------------------------------------------


@for_each("coding", DECODERS)
@for_each("size", [2000, len(NOISE)])
def test_a_bootstrap_is_compressed_if_accepted(api: Api, coding: str, size: int) -> None:
    path = new_stream(api, TEXT, b"abc", *[b"the same again " * 50] * 5)
    publish(api, path, offset(1, 3), NOISE[:size])
    response = api.get(f"{path}/bootstrap", headers={"Accept-Encoding": coding})
    assert response.headers["content-encoding"] == coding
    assert "accept-encoding" in response.headers["vary"].lower()
    assert response.headers["cache-control"] == "no-store"
    body = DECODERS[coding](response.body)
    plain = Response(response.status, response.reason, response.headers, body)
    found = parse_bootstrap(plain)
    assert found.snapshot.body == NOISE[:size]
    assert found.messages == [b"the same again " * 50] * 5


def test_a_small_bootstrap_is_not_compressed(api: Api) -> None:
    path = new_stream(api, TEXT, b"abc")
    response = api.get(f"{path}/bootstrap", headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in response.headers
    assert parse_bootstrap(response).messages == [b"abc"]


@pytest.mark.parametrize("coding", ["identity", "gzip"])
def test_bootstrap_over_http_1_0(api: Api, kind: str, coding: str) -> None:
    """HTTP/1.0 has no chunked coding: the response ends with the connection."""
    if kind.startswith("asgi") and coding != "identity":
        pytest.skip("uvicorn sends chunks to clients of HTTP/1.0 too")
    path = new_stream(api, TEXT, b"abc", b"d" * 5000)
    publish(api, path, offset(1, 3), NOISE)
    with api.connect(30.0) as connection:
        head = f"GET {path}/bootstrap HTTP/1.0\r\nAccept-Encoding: {coding}\r\n\r\n"
        connection.send(head.encode())
        response = connection.read_response()
        assert "transfer-encoding" not in response.headers
        assert connection.closed_by_peer()
    body = response.body if coding == "identity" else DECODERS[coding](response.body)
    found = parse_bootstrap(Response(200, response.reason, response.headers, body))
    assert (found.snapshot.body, found.messages) == (NOISE, [b"d" * 5000])


def test_a_connection_can_be_reused_after_a_bootstrap(api: Api) -> None:
    """A pipelined request gets its response after the bootstrap."""
    path = new_stream(api, TEXT, b"abc", b"def")
    publish(api, path, offset(1, 3), NOISE)
    with api.connect(30.0) as connection:
        for _ in range(3):
            connection.send_request("GET", f"{path}/bootstrap", {"Accept-Encoding": "gzip"})
            connection.send_request("GET", f"{path}/bootstrap")
            connection.send_request("GET", f"{path}?offset={offset(1, 3)}")
        for _ in range(3):
            assert connection.read_response().headers["content-encoding"] == "gzip"
            assert parse_bootstrap(connection.read_response()).snapshot.body == NOISE
            assert connection.read_response().body == b"def"


def test_a_half_closed_client_gets_the_whole_bootstrap(api: Api, kind: str) -> None:
    """The client has shut down its sending side only."""
    if kind.startswith("asgi"):
        pytest.skip("uvicorn ends a connection whose client closes its side")
    path = new_stream(api, TEXT, b"abc", b"def")
    publish(api, path, offset(1, 3), NOISE)
    with small_buffer_connection(api) as connection:
        connection.send_request("GET", f"{path}/bootstrap")
        connection.sock.shutdown(socket.SHUT_WR)
        found = parse_bootstrap(connection.read_response())
    assert (found.snapshot.body, found.messages) == (NOISE, [b"def"])


# -- slow clients ----------------------------------------------------------------------------------


def request_bootstrap(connection: Connection, path: str) -> None:
    connection.send_request("GET", f"{path}/bootstrap")


def test_a_slow_reader_does_not_block_other_clients(api: Api) -> None:
    """The bootstrap is larger than all buffers on the way."""
    messages = [NOISE[number : number + MIB] for number in range(8)]
    path = new_stream(api, OCTETS, b"first", *messages)
    publish(api, path, offset(1, 5), NOISE)
    with small_buffer_connection(api) as connection:
        request_bootstrap(connection, path)
        head = connection.read_head()
        body = connection.iter_body(head)
        pieces = [next(body)]
        for number in range(20):
            other = new_stream(api, TEXT, b"%d" % number)
            assert api.get(other).body == b"%d" % number
            assert bootstrap(api, other).messages == [b"%d" % number]
            pieces.append(next(body))
        pieces.extend(body)
    response = Response(head.status, head.reason, head.headers, b"".join(pieces))
    found = parse_bootstrap(response)
    assert (found.snapshot.body, found.messages) == (NOISE, messages)


def resident_bytes(api: Api) -> int:
    status = Path(f"/proc/{api.server.pid}/status").read_text()
    match = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert match is not None
    return int(match[1]) << 10


@for_each("what", ["messages", "snapshot"])
def test_unread_bootstraps_cost_little_memory(api: Api, what: str) -> None:
    """
    Sixteen clients request 256 MiB and do not read: the server buffers only small pieces.

    Method: read the heads, so that every response has started; then send other requests for long
    enough that the server could produce all bodies, and measure its memory meanwhile.
    """
    path = new_stream(api, OCTETS, b"first")
    if what == "messages":
        for number in range(16):
            api.append(path, NOISE[number : number + MIB], content_type=OCTETS)
    else:
        publish(api, path, offset(1, 5), (NOISE * 6)[: 16 * MIB])
    small = new_stream(api, TEXT, b"small")
    # Read one to its end first, so that one-time allocations are not measured.
    assert len(api.get(f"{path}/bootstrap").body) > 16 * MIB
    before = resident_bytes(api)
    connections = []
    try:
        for _ in range(16):
            connection = api.connect(30.0)
            connections.append(connection)
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 << 10)
            request_bootstrap(connection, path)
        for connection in connections:
            assert connection.read_head().status == 200
        most = 0
        for _ in range(300):
            assert api.get(small).body == b"small"
            most = max(most, resident_bytes(api))
    finally:
        for connection in connections:
            connection.close()
    assert most - before < 96 * MIB, f"{(most - before) / MIB:.0f} MiB"


@for_each("coding", ["identity", "gzip"])
def test_a_disconnected_client_holds_no_snapshot_file(api: Api, coding: str) -> None:
    """The file of a superseded snapshot is removed after the disconnect."""
    path = new_stream(api, TEXT, b"abc", b"def")
    before = snapshot_files(api)
    publish(api, path, offset(1, 3), NOISE * 4)
    with small_buffer_connection(api) as closed, small_buffer_connection(api) as reset:
        for connection in (closed, reset):
            connection.send_request("GET", f"{path}/bootstrap", {"Accept-Encoding": coding})
        for connection in (closed, reset):
            assert connection.read_head().status == 200
        publish(api, path, offset(2, 6), b"state")
        reset.reset()
    wait_for_files(api, before, 0)

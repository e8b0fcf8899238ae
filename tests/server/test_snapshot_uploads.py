"""
X§2.2: uploads of snapshots of every size, and every way in which they can fail.

Snapshots of up to 256 KiB are stored in the log; larger ones in a file, written in chunks of 1 MiB.
An aborted or rejected upload does not change the visible snapshot, and leaves no file.
"""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.server.conftest import Start
from tests.support.chance import seeded
from tests.support.http import Connection, Response, format_request
from tests.support.looping import for_each
from tests.support.publishing import (
    CHUNK_BYTES,
    INLINE_BYTES_MAX,
    KINDS_ONCE,
    LIMITED,
    OCTETS,
    START,
    TEXT,
    bootstrap,
    new_stream,
    offset,
    publish,
    put_snapshot,
    read_snapshot,
    snapshot_files,
    wait_for_files,
)
from tests.support.streams import Api, check_problem
from tests.support.together import together

pytestmark = pytest.mark.parametrize("kind", KINDS_ONCE, indirect=True, scope="session")

SIZES = [
    *(0, 1),
    *(INLINE_BYTES_MAX - 1, INLINE_BYTES_MAX, INLINE_BYTES_MAX + 1),
    *(CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1),
    3 * CHUNK_BYTES + 7,
]
NOISE = random.Random("noise").randbytes(3 * CHUNK_BYTES + 7)


class Upload:
    """A PUT of a snapshot on its own connection, sent in steps."""

    def __init__(
        self, api: Api, path: str, at: str, body: bytes, *, chunked: bool = False, expect: str = ""
    ) -> None:
        self.connection = api.connect(30.0)
        self.body = body
        self.sent = 0
        self._chunked = chunked
        headers = {"Content-Type": OCTETS}
        headers |= (
            {"Transfer-Encoding": "chunked"} if chunked else {"Content-Length": f"{len(body)}"}
        )
        headers |= {"Expect": expect} if expect else {}
        self.connection.send_request("PUT", f"{path}/snapshot/{at}", headers)

    def __enter__(self) -> Upload:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def send(self, size: int) -> None:
        """Send the next bytes of the body."""
        piece = self.body[self.sent : self.sent + size]
        self.sent += len(piece)
        if self._chunked and piece:
            piece = b"%x\r\n%b\r\n" % (len(piece), piece)
        self.connection.send(piece)

    def finish(self) -> Response:
        """Send the rest of the body; returns the response."""
        self.send(len(self.body) - self.sent)
        if self._chunked:
            self.connection.send(b"0\r\n\r\n")
        return self.connection.read_response("PUT")


def pieces(chance: random.Random, size: int) -> Iterator[int]:
    """Sizes of pieces, large and small, with this sum."""
    while size:
        most = chance.choice((3, 1000, 100_000, CHUNK_BYTES))
        piece = min(size, chance.randint(1, most))
        size -= piece
        yield piece


# -- sizes -----------------------------------------------------------------------------------------


@for_each("chunked", [False, True])
@for_each("size", SIZES)
def test_a_snapshot_of_any_size_can_be_sent_in_any_pieces(
    api: Api, size: int, chunked: bool
) -> None:
    """It is returned byte for byte by its URL and in bootstrap; only large ones have a file."""
    path = new_stream(api, TEXT, b"abc", b"def")
    before = snapshot_files(api)
    with seeded(size, chunked) as chance:
        with Upload(api, path, offset(1, 3), NOISE[:size], chunked=chunked) as upload:
            for piece in pieces(chance, size):
                upload.send(piece)
            assert upload.finish().status == 204
        response = api.get(f"{path}/snapshot/{offset(1, 3)}")
        assert response.headers["content-length"] == str(size)
        assert response.body == NOISE[:size]
        found = bootstrap(api, path)
        assert found.snapshot.body == NOISE[:size]
        assert found.messages == [b"def"]
        wait_for_files(api, before, int(size > INLINE_BYTES_MAX))


@for_each("size", [INLINE_BYTES_MAX, 2 * CHUNK_BYTES])
def test_head_body_and_the_next_request_can_be_in_one_packet(api: Api, size: int) -> None:
    path = new_stream(api, TEXT, b"abc")
    with api.connect(30.0) as connection:
        target = f"{path}/snapshot/{offset(1, 3)}"
        put = format_request("PUT", target, {}, NOISE[:size], host=connection.host_header)
        connection.send(put + format_request("GET", target, host=connection.host_header))
        assert connection.read_response("PUT").status == 204
        assert connection.read_response().body == NOISE[:size]


def test_a_chunked_body_can_have_trailers_and_extensions(api: Api) -> None:
    """They are not part of the snapshot."""
    path = new_stream(api, TEXT, b"abc")
    body = b"3;name=value\r\nsta\r\n2\r\nte\r\n0\r\nChecksum: 1\r\n\r\n"
    headers = {"Transfer-Encoding": "chunked"}
    assert put_snapshot(api, path, offset(1, 3), body, headers=headers).status == 204
    assert read_snapshot(api, path, offset(1, 3)) == b"state"


@for_each("form", ["path", "whole-url"])
@for_each("chunked", [False, True])
def test_body_bytes_max_does_not_apply_to_snapshots(start: Start, form: str, chunked: bool) -> None:
    """Also if the target is an absolute URL (RFC 9112, 3.2.2)."""
    api = Api(start("--body-bytes-max", "1000"))
    path = new_stream(api, TEXT, b"abc")
    check_problem(api.post(path, b"x" * 1001), 413, "body-too-large")
    target = api.url(path) if form == "whole-url" else path
    with Upload(api, target, offset(1, 3), NOISE[:1001], chunked=chunked) as upload:
        assert upload.finish().status == 204
    assert read_snapshot(api, path, offset(1, 3)) == NOISE[:1001]
    api.close()


@for_each("size", [1000, len(NOISE)])
def test_a_client_of_http_1_0_can_publish(api: Api, size: int) -> None:
    path = new_stream(api, TEXT, b"abc")
    with api.connect(30.0) as connection:
        head = f"PUT {path}/snapshot/{offset(1, 3)} HTTP/1.0\r\nContent-Length: {size}\r\n\r\n"
        connection.send(head.encode() + NOISE[:size])
        assert connection.read_response("PUT").status == 204
        assert connection.closed_by_peer()
    assert read_snapshot(api, path, offset(1, 3)) == NOISE[:size]


def test_concurrent_uploads_do_not_mix(api: Api) -> None:
    """Each to its own stream, sent alternately."""
    with seeded() as chance:
        paths = [new_stream(api, TEXT, b"abc") for _ in range(8)]
        sizes = [chance.choice(SIZES[4:]) for _ in paths]
        starts = [chance.randrange(1000) for _ in paths]
        bodies = [NOISE[start:size] for start, size in zip(starts, sizes, strict=True)]
        uploads = [
            Upload(api, path, offset(1, 3), body, chunked=chance.random() < 0.5)
            for path, body in zip(paths, bodies, strict=True)
        ]
        for piece in pieces(chance, 2 * CHUNK_BYTES):
            for upload in uploads:
                upload.send(piece)
        for upload in uploads:
            with upload:
                assert upload.finish().status == 204
        for path, body in zip(paths, bodies, strict=True):
            assert read_snapshot(api, path, offset(1, 3)) == body


# -- Expect: 100-continue --------------------------------------------------------------------------


@for_each("chunked", [False, True])
@for_each("size", [5, 2 * CHUNK_BYTES])
def test_a_client_that_expects_100_gets_it_and_then_204(api: Api, size: int, chunked: bool) -> None:
    path = new_stream(api, TEXT, b"abc")
    body = NOISE[:size]
    with Upload(api, path, offset(1, 3), body, chunked=chunked, expect="100-continue") as upload:
        assert upload.connection.read_head().status == 100
        assert upload.finish().status == 204
    assert read_snapshot(api, path, offset(1, 3)) == body


REFUSED: dict[str, tuple[str, str, int]] = {
    "malformed": ("there", "x", 400),
    "misaligned": ("there", offset(1, 4), 400),
    "no-stream": ("none", offset(1, 3), 404),
    "past-the-tail": ("there", offset(3, 9), 409),
    "gone": ("there", START, 410),
}


@for_each("size", [5, 2 * CHUNK_BYTES])
@for_each(("stream", "at", "status"), REFUSED.values())
def test_a_client_that_expects_100_is_rejected_before_it_sends(
    api: Api, stream: str, at: str, status: int, size: int
) -> None:
    """No 100 is sent if the head is enough to reject the request."""
    bucket = api.new_bucket()
    api.create(body=b"abc", path=api.in_bucket(bucket, "there"))
    api.append(api.in_bucket(bucket, "there"), b"def")
    publish(api, api.in_bucket(bucket, "there"), offset(1, 3), b"state")
    path = api.in_bucket(bucket, stream)
    with Upload(api, path, at, NOISE[:size], expect="100-continue") as upload:
        response = upload.connection.read_response("PUT")
    check_problem(response, status)
    assert response.interim == []


@for_each("header", ["Content-Type", "Content-Encoding"])
def test_a_client_that_expects_100_is_rejected_for_its_headers(api: Api, header: str) -> None:
    path = new_stream(api, TEXT, b"abc")
    with api.connect() as connection:
        headers = {header: "gzip", "Content-Length": "5", "Expect": "100-continue"}
        connection.send_request("PUT", f"{path}/snapshot/{offset(1, 3)}", headers)
        response = connection.read_response("PUT")
    check_problem(response, 400 if header == "Content-Type" else 415)
    assert response.interim == []


def test_a_client_that_expects_100_is_rejected_if_the_body_is_too_large(start: Start) -> None:
    api = Api(start(*LIMITED))
    path = new_stream(api, TEXT, b"abc")
    with Upload(api, path, offset(1, 3), NOISE, expect="100-continue") as upload:
        response = upload.connection.read_response("PUT")
    check_problem(response, 413, "snapshot-too-large")
    assert response.interim == []
    api.close()


@for_each("chunked", [False, True])
def test_a_large_upload_is_rejected_before_it_is_sent(api: Api, chunked: bool) -> None:
    """Without Expect: a client that reads early can stop."""
    path = new_stream(api, TEXT, b"abc")
    with Upload(api, path, offset(9, 9), NOISE, chunked=chunked) as upload:
        response = upload.connection.read_response("PUT")
    check_problem(response, 409, "snapshot-beyond-tail")


# -- uploads that fail -----------------------------------------------------------------------------


def half_close(connection: Connection) -> None:
    connection.sock.shutdown(socket.SHUT_WR)


WAYS_TO_GO: dict[str, Callable[[Connection], None]] = {
    "close": Connection.close,
    "reset": Connection.reset,
    "half-close": half_close,
}


@for_each("chunked", [False, True])
@for_each("go", WAYS_TO_GO.values())
def test_an_upload_of_a_client_that_disconnects_leaves_no_file(
    api: Api, go: Callable[[Connection], None], chunked: bool
) -> None:
    """The previous snapshot stays visible, and the partial file is removed."""
    path = new_stream(api, TEXT, b"abc", b"def")
    publish(api, path, offset(1, 3), b"state")
    before = snapshot_files(api)
    with Upload(api, path, offset(2, 6), NOISE, chunked=chunked) as upload:
        upload.send(len(NOISE) - 1)
        wait_for_files(api, before, 1)
        go(upload.connection)
        wait_for_files(api, before, 0)
    assert api.head(path).headers["stream-snapshot-offset"] == offset(1, 3)
    assert read_snapshot(api, path, offset(1, 3)) == b"state"
    # A snapshot can still be published at the offset.
    publish(api, path, offset(2, 6), NOISE)
    assert read_snapshot(api, path, offset(2, 6)) == NOISE


def test_a_small_upload_that_is_cut_off_changes_nothing(api: Api) -> None:
    """A request takes effect only after all of it has arrived."""
    path = new_stream(api, TEXT, b"abc")
    for chunked in (False, True):
        with Upload(api, path, offset(1, 3), b"state", chunked=chunked) as upload:
            upload.send(4)
            half_close(upload.connection)
            assert upload.connection.closed_by_peer()
    assert "stream-snapshot-offset" not in api.head(path).headers


@for_each("chunked", [False, True])
def test_an_upload_that_is_too_large_leaves_no_file(start: Start, chunked: bool) -> None:
    """A chunked body is 413 as soon as it exceeds the limit."""
    api = Api(start(*LIMITED))
    path = new_stream(api, TEXT, b"abc", b"def")
    publish(api, path, offset(1, 3), b"state")
    before = snapshot_files(api)
    with Upload(api, path, offset(2, 6), NOISE, chunked=chunked) as upload:
        if chunked:
            upload.send(2 * CHUNK_BYTES)
            wait_for_files(api, before, 1)
            upload.send(1)
        check_problem(upload.connection.read_response("PUT"), 413, "snapshot-too-large")
    wait_for_files(api, before, 0)
    assert read_snapshot(api, path, offset(1, 3)) == b"state"
    publish(api, path, offset(2, 6), NOISE[: 2 * CHUNK_BYTES])
    api.close()


@for_each(
    ("at", "body", "status"),
    [(offset(1, 3), b"other", 409), (offset(2, 6), b"later", 410)],
)
@for_each("chunked", [False, True])
def test_an_upload_that_is_superseded_meanwhile_leaves_no_file(
    api: Api, at: str, body: bytes, status: int, chunked: bool
) -> None:
    """During the upload another snapshot is published at its offset or a later one."""
    path = new_stream(api, TEXT, b"abc", b"def")
    before = snapshot_files(api)
    with Upload(api, path, offset(1, 3), NOISE, chunked=chunked) as upload:
        upload.send(2 * CHUNK_BYTES)
        wait_for_files(api, before, 1)
        publish(api, path, at, body)
        check_problem(upload.finish(), status)
    wait_for_files(api, before, 0)
    assert read_snapshot(api, path, at) == body
    assert api.head(path).headers["stream-snapshot-offset"] == at


def test_an_upload_to_a_stream_that_is_deleted_meanwhile_is_404(api: Api) -> None:
    path = new_stream(api, TEXT, b"abc")
    before = snapshot_files(api)
    with Upload(api, path, offset(1, 3), NOISE) as upload:
        upload.send(2 * CHUNK_BYTES)
        wait_for_files(api, before, 1)
        assert api.request("DELETE", path).status == 204
        check_problem(upload.finish(), 404, "stream-not-found")
    wait_for_files(api, before, 0)


@for_each("size", [1000, len(NOISE)])
def test_an_upload_is_not_applied_to_a_stream_that_was_created_meanwhile(
    api: Api, size: int
) -> None:
    """
    A snapshot belongs to the stream that existed when its upload started.

    Another stream of the same name can have the same offsets, but never had that content.
    """
    path = new_stream(api, TEXT, b"abc", b"def")
    before = snapshot_files(api)
    with Upload(api, path, offset(1, 3), NOISE[:size], expect="100-continue") as upload:
        # Now the server has resolved the stream.
        assert upload.connection.read_head().status == 100
        assert api.request("DELETE", path).status == 204
        api.create(body=b"xyz", path=path)
        response = upload.finish()
    assert "stream-snapshot-offset" not in api.head(path).headers
    check_problem(response, 404, "stream-not-found")
    assert api.get(path, "offset=-1").body == b"xyz"
    wait_for_files(api, before, 0)


# -- concurrent uploads ----------------------------------------------------------------------------


@for_each("size", [1000, len(NOISE)])
def test_two_identical_uploads_at_one_offset_are_both_204(api: Api, size: int) -> None:
    """With one file."""
    path = new_stream(api, TEXT, b"abc")
    before = snapshot_files(api)
    uploads = [Upload(api, path, offset(1, 3), NOISE[:size]) for _ in range(2)]
    for upload in uploads:
        upload.send(size // 2)
    assert [response.status for response in together([upload.finish for upload in uploads])] == [
        204
    ] * 2
    for upload in uploads:
        upload.connection.close()
    assert read_snapshot(api, path, offset(1, 3)) == NOISE[:size]
    wait_for_files(api, before, int(size > INLINE_BYTES_MAX))


@for_each("sizes", [(1000, 1000), (1000, len(NOISE)), (len(NOISE), len(NOISE))])
def test_of_two_different_uploads_at_one_offset_one_is_204_and_one_409(
    api: Api, sizes: tuple[int, int]
) -> None:
    """The one with 204 is visible, and complete."""
    path = new_stream(api, TEXT, b"abc")
    before = snapshot_files(api)
    bodies = [b"1" + NOISE[1 : sizes[0]], b"2" + NOISE[1 : sizes[1]]]
    uploads = [Upload(api, path, offset(1, 3), body) for body in bodies]
    for upload in uploads:
        upload.send(len(upload.body) // 2)
    statuses = [response.status for response in together([upload.finish for upload in uploads])]
    for upload in uploads:
        upload.connection.close()
    assert sorted(statuses) == [204, 409]
    winner = bodies[statuses.index(204)]
    assert read_snapshot(api, path, offset(1, 3)) == winner
    wait_for_files(api, before, int(len(winner) > INLINE_BYTES_MAX))


def test_of_many_uploads_to_one_stream_the_latest_offset_wins(api: Api) -> None:
    """Each is 204, or 410 after a later one; the snapshot at the last offset is visible."""
    count = 8
    path = new_stream(api, TEXT, *[b"m"] * count)
    before = snapshot_files(api)
    bodies = [bytes([number]) + NOISE[: INLINE_BYTES_MAX + number] for number in range(count)]
    uploads = [
        Upload(api, path, offset(number, number), body) for number, body in enumerate(bodies)
    ]
    for upload in uploads:
        upload.send(INLINE_BYTES_MAX)
    statuses = [response.status for response in together([upload.finish for upload in uploads])]
    for upload in uploads:
        upload.connection.close()
    assert set(statuses) <= {204, 410}
    assert statuses[-1] == 204
    assert api.head(path).headers["stream-snapshot-offset"] == offset(count - 1, count - 1)
    assert read_snapshot(api, path, offset(count - 1, count - 1)) == bodies[-1]
    wait_for_files(api, before, 1)


def test_snapshot_creation_does_not_block_concurrent_appends(api: Api) -> None:
    """
    Appends and reads of the same stream work during an upload.

    Method: send half of the body, then every other operation on the stream, then the rest.
    """
    path = new_stream(api, TEXT, b"abc")
    before = snapshot_files(api)
    with Upload(api, path, offset(1, 3), NOISE) as upload:
        upload.send(2 * CHUNK_BYTES)
        wait_for_files(api, before, 1)
        for number in range(50):
            api.append(path, b"<%d>" % number)
        assert api.get(path, "offset=-1").body.startswith(b"abc<0><1>")
        assert bootstrap(api, path).snapshot_offset == "-1"
        assert "stream-snapshot-offset" not in api.head(path).headers
        with api.sse(path, f"offset={offset(1, 3)}") as events:
            assert events.next().data.endswith("<49>")
        response = upload.finish()
    assert (response.status, response.headers["stream-up-to-date"]) == (204, "false")
    assert read_snapshot(api, path, offset(1, 3)) == NOISE
    expected = b"".join(b"<%d>" % number for number in range(50))
    assert api.get(path, f"offset={offset(1, 3)}").body == expected
    assert bootstrap(api, path).messages == [b"<%d>" % number for number in range(50)]


@for_each("size", [1000, 2 * CHUNK_BYTES])
def test_requests_pipelined_behind_an_upload_are_processed_in_order(api: Api, size: int) -> None:
    """Pipelined on one connection, with two uploads among them."""
    path = new_stream(api, TEXT, b"abc", b"def")
    first, second = offset(1, 3), offset(2, 6)
    with api.connect(30.0) as connection:
        requests = [
            ("HEAD", path, None),
            ("PUT", f"{path}/snapshot/{first}", NOISE[:size]),
            ("GET", f"{path}/snapshot", None),
            ("GET", f"{path}?offset={first}", None),
            ("PUT", f"{path}/snapshot/{second}", NOISE[-size:]),
            ("PUT", f"{path}/snapshot/{first}", b"older"),
            ("GET", f"{path}/snapshot/{second}", None),
            ("POST", path, b"ghi"),
            ("GET", f"{path}?offset={second}", None),
        ]

        def send() -> None:
            for method, target, body in requests:
                headers = {"Content-Type": TEXT} if body is not None else {}
                connection.send_request(method, target, headers, body)

        # A client that sends this much must read at the same time.
        sending = threading.Thread(target=send)
        sending.start()
        responses = [connection.read_response(method) for method, _, _ in requests]
        sending.join()
    assert [response.status for response in responses] == [
        200,
        204,
        307,
        200,
        204,
        410,
        200,
        204,
        200,
    ]
    assert "stream-snapshot-offset" not in responses[0].headers
    assert responses[2].headers["location"].endswith(first)
    assert responses[3].body == b"def"
    assert responses[6].body == NOISE[-size:]
    assert responses[8].body == b"ghi"


def test_a_rejected_upload_behind_other_requests_gets_its_response_in_order(api: Api) -> None:
    """After the responses to earlier requests; then the connection may close."""
    path = new_stream(api, TEXT, b"abc")
    with api.connect(30.0) as connection:
        for _ in range(3):
            connection.send_request("GET", path)
        connection.send_request("PUT", f"{path}/snapshot/{offset(9, 9)}", {}, b"state")
        for _ in range(3):
            assert connection.read_response().body == b"abc"
        check_problem(connection.read_response("PUT"), 409, "snapshot-beyond-tail")


def test_the_connection_can_be_reused_after_a_rejected_small_upload(api: Api) -> None:
    """The server has read its body."""
    path = new_stream(api, TEXT, b"abc")
    with api.connect() as connection:
        for _ in range(3):
            target = f"{path}/snapshot/{offset(9, 9)}"
            assert connection.request("PUT", target, {}, b"state").status == 409
            assert connection.request("GET", path).body == b"abc"


# -- space -----------------------------------------------------------------------------------------


def test_the_files_of_superseded_snapshots_are_removed(api: Api) -> None:
    """One file is left; a small snapshot that replaces it leaves none."""
    path = new_stream(api, TEXT, *[b"m"] * 6)
    before = snapshot_files(api)
    for number in range(5):
        publish(api, path, offset(number, number), NOISE[number : INLINE_BYTES_MAX + 100])
    wait_for_files(api, before, 1)
    assert read_snapshot(api, path, offset(4, 4)) == NOISE[4 : INLINE_BYTES_MAX + 100]
    publish(api, path, offset(5, 5), b"small")
    wait_for_files(api, before, 0)
    assert read_snapshot(api, path, offset(5, 5)) == b"small"


def test_the_snapshot_file_of_a_deleted_stream_is_removed(api: Api) -> None:
    path = new_stream(api, TEXT, b"abc")
    before = snapshot_files(api)
    publish(api, path, offset(1, 3), NOISE)
    wait_for_files(api, before, 1)
    assert api.request("DELETE", path).status == 204
    wait_for_files(api, before, 0)


def test_a_file_stays_while_it_is_read(api: Api) -> None:
    """A download of a superseded snapshot completes; then the file is removed."""
    large = NOISE * 4
    path = new_stream(api, TEXT, b"abc", b"def")
    before = snapshot_files(api)
    publish(api, path, offset(1, 3), large)
    with api.connect(30.0) as connection:
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 << 10)
        connection.send_request("GET", f"{path}/snapshot/{offset(1, 3)}")
        head = connection.read_head()
        publish(api, path, offset(2, 6), b"state")
        # A file superseded later is gone, so reclamation has run.
        other = new_stream(api, TEXT, b"abc")
        publish(api, other, START, NOISE)
        wait_for_files(api, before, 2)
        publish(api, other, offset(1, 3), b"state")
        wait_for_files(api, before, 1)
        assert b"".join(connection.iter_body(head)) == large
    wait_for_files(api, before, 0)

"""
X§2.2: uploads of snapshots, of every size and in every way they can go wrong.

Up to 256 KiB go through the log; larger ones become a file, written a MiB at a time. One that was
given up or refused leaves the visible snapshot as it was, and no file behind.
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
    """A PUT of a snapshot on a connection of its own, sent as far as a test wants."""

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
        """The next bytes of the body."""
        piece = self.body[self.sent : self.sent + size]
        self.sent += len(piece)
        if self._chunked and piece:
            piece = b"%x\r\n%b\r\n" % (len(piece), piece)
        self.connection.send(piece)

    def finish(self) -> Response:
        """The rest of the body; the response."""
        self.send(len(self.body) - self.sent)
        if self._chunked:
            self.connection.send(b"0\r\n\r\n")
        return self.connection.read_response("PUT")


def pieces(chance: random.Random, size: int) -> Iterator[int]:
    """Sizes of pieces, large and small, that make up the whole."""
    while size:
        most = chance.choice((3, 1000, 100_000, CHUNK_BYTES))
        piece = min(size, chance.randint(1, most))
        size -= piece
        yield piece


# -- sizes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize("size", SIZES)
def test_a_snapshot_of_any_size_arrives_in_any_pieces(api: Api, size: int, chunked: bool) -> None:
    """Byte for byte, by its own URL and in bootstrap; only large ones have a file."""
    path = new_stream(api, TEXT, b"abc", b"def")
    before = snapshot_files(api)
    with seeded(size, chunked) as chance:
        with Upload(api, path, offset(1, 3), NOISE[:size], chunked=chunked) as upload:
            for piece in pieces(chance, size):
                upload.send(piece)
            assert upload.finish().status == 204
        answer = api.get(f"{path}/snapshot/{offset(1, 3)}")
        assert answer.headers["content-length"] == str(size)
        assert answer.body == NOISE[:size]
        found = bootstrap(api, path)
        assert found.snapshot.body == NOISE[:size]
        assert found.messages == [b"def"]
        wait_for_files(api, before, int(size > INLINE_BYTES_MAX))


@pytest.mark.parametrize("size", [INLINE_BYTES_MAX, 2 * CHUNK_BYTES])
def test_the_body_may_come_with_the_head(api: Api, size: int) -> None:
    """And the next request with the body: one packet is as good as many."""
    path = new_stream(api, TEXT, b"abc")
    with api.connect(30.0) as connection:
        target = f"{path}/snapshot/{offset(1, 3)}"
        put = format_request("PUT", target, {}, NOISE[:size], host=connection.host_header)
        connection.send(put + format_request("GET", target, host=connection.host_header))
        assert connection.read_response("PUT").status == 204
        assert connection.read_response().body == NOISE[:size]


def test_a_chunked_body_may_have_trailers_and_extensions(api: Api) -> None:
    """They are no part of the snapshot."""
    path = new_stream(api, TEXT, b"abc")
    body = b"3;name=value\r\nsta\r\n2\r\nte\r\n0\r\nChecksum: 1\r\n\r\n"
    headers = {"Transfer-Encoding": "chunked"}
    assert put_snapshot(api, path, offset(1, 3), body, headers=headers).status == 204
    assert read_snapshot(api, path, offset(1, 3)) == b"state"


@pytest.mark.parametrize("form", ["path", "whole-url"])
@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
def test_the_limit_of_other_bodies_is_none_of_snapshots(
    start: Start, form: str, chunked: bool
) -> None:
    """`--body-bytes-max` is for what is appended; a target may be a whole URL (RFC 9112, 3.2.2)."""
    api = Api(start("--body-bytes-max", "1000"))
    path = new_stream(api, TEXT, b"abc")
    check_problem(api.post(path, b"x" * 1001), 413, "body-too-large")
    target = api.url(path) if form == "whole-url" else path
    with Upload(api, target, offset(1, 3), NOISE[:1001], chunked=chunked) as upload:
        assert upload.finish().status == 204
    assert read_snapshot(api, path, offset(1, 3)) == NOISE[:1001]
    api.close()


@pytest.mark.parametrize("size", [1000, len(NOISE)], ids=["small", "large"])
def test_a_client_of_http_1_0_can_publish(api: Api, size: int) -> None:
    path = new_stream(api, TEXT, b"abc")
    with api.connect(30.0) as connection:
        head = f"PUT {path}/snapshot/{offset(1, 3)} HTTP/1.0\r\nContent-Length: {size}\r\n\r\n"
        connection.send(head.encode() + NOISE[:size])
        assert connection.read_response("PUT").status == 204
        assert connection.closed_by_peer()
    assert read_snapshot(api, path, offset(1, 3)) == NOISE[:size]


def test_several_uploads_at_once_do_not_mix(api: Api) -> None:
    """Each to a stream of its own, sent in turns."""
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


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize("size", [5, 2 * CHUNK_BYTES])
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


@pytest.mark.parametrize("size", [5, 2 * CHUNK_BYTES])
@pytest.mark.parametrize(("stream", "at", "status"), REFUSED.values(), ids=REFUSED)
def test_a_client_that_expects_100_is_refused_before_it_sends(
    api: Api, stream: str, at: str, status: int, size: int
) -> None:
    """No 100 where the response is plain already: the body is never sent."""
    bucket = api.new_bucket()
    api.create(body=b"abc", path=api.in_bucket(bucket, "there"))
    api.append(api.in_bucket(bucket, "there"), b"def")
    publish(api, api.in_bucket(bucket, "there"), offset(1, 3), b"state")
    path = api.in_bucket(bucket, stream)
    with Upload(api, path, at, NOISE[:size], expect="100-continue") as upload:
        answer = upload.connection.read_response("PUT")
    check_problem(answer, status)
    assert answer.interim == []


@pytest.mark.parametrize("header", ["Content-Type", "Content-Encoding"])
def test_a_client_that_expects_100_is_refused_for_its_headers(api: Api, header: str) -> None:
    path = new_stream(api, TEXT, b"abc")
    with api.connect() as connection:
        headers = {header: "gzip", "Content-Length": "5", "Expect": "100-continue"}
        connection.send_request("PUT", f"{path}/snapshot/{offset(1, 3)}", headers)
        answer = connection.read_response("PUT")
    check_problem(answer, 400 if header == "Content-Type" else 415)
    assert answer.interim == []


def test_a_client_that_expects_100_is_told_that_it_is_too_large(start: Start) -> None:
    api = Api(start(*LIMITED))
    path = new_stream(api, TEXT, b"abc")
    with Upload(api, path, offset(1, 3), NOISE, expect="100-continue") as upload:
        answer = upload.connection.read_response("PUT")
    check_problem(answer, 413, "snapshot-too-large")
    assert answer.interim == []
    api.close()


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
def test_a_large_upload_is_refused_before_it_is_sent(api: Api, chunked: bool) -> None:
    """Without Expect too: a client that reads early can stop."""
    path = new_stream(api, TEXT, b"abc")
    with Upload(api, path, offset(9, 9), NOISE, chunked=chunked) as upload:
        answer = upload.connection.read_response("PUT")
    check_problem(answer, 409, "snapshot-beyond-tail")


# -- uploads that come to nothing ------------------------------------------------------------------


def half_close(connection: Connection) -> None:
    connection.sock.shutdown(socket.SHUT_WR)


WAYS_TO_GO: dict[str, Callable[[Connection], None]] = {
    "close": Connection.close,
    "reset": Connection.reset,
    "half-close": half_close,
}


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize("go", WAYS_TO_GO.values(), ids=WAYS_TO_GO)
def test_a_client_that_disappears_leaves_nothing_behind(
    api: Api, go: Callable[[Connection], None], chunked: bool
) -> None:
    """The snapshot before stays visible, and the file that was begun goes away."""
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
    # The offset is as free as it was.
    publish(api, path, offset(2, 6), NOISE)
    assert read_snapshot(api, path, offset(2, 6)) == NOISE


def test_a_small_upload_that_is_cut_off_changes_nothing(api: Api) -> None:
    """A request exists when all of it has arrived."""
    path = new_stream(api, TEXT, b"abc")
    for chunked in (False, True):
        with Upload(api, path, offset(1, 3), b"state", chunked=chunked) as upload:
            upload.send(4)
            half_close(upload.connection)
            assert upload.connection.closed_by_peer()
    assert "stream-snapshot-offset" not in api.head(path).headers


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
def test_an_upload_that_is_too_large_leaves_nothing_behind(start: Start, chunked: bool) -> None:
    """A chunked body shows only on its way that it is: 413 before its end, and no file."""
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


@pytest.mark.parametrize(
    ("at", "body", "status"),
    [(offset(1, 3), b"other", 409), (offset(2, 6), b"later", 410)],
    ids=["same-offset", "later-offset"],
)
@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
def test_an_upload_that_was_overtaken_leaves_nothing_behind(
    api: Api, at: str, body: bytes, status: int, chunked: bool
) -> None:
    """While it was on its way another snapshot came to be there, or after it."""
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


@pytest.mark.parametrize("size", [1000, len(NOISE)], ids=["small", "large"])
def test_an_upload_is_not_applied_to_a_stream_that_was_created_meanwhile(
    api: Api, size: int
) -> None:
    """
    A snapshot is of the stream that was there when its upload began.

    Another one of the same name, whose offsets happen to look the same, never had that content.
    """
    path = new_stream(api, TEXT, b"abc", b"def")
    before = snapshot_files(api)
    with Upload(api, path, offset(1, 3), NOISE[:size], expect="100-continue") as upload:
        # From here on the server has looked at the stream.
        assert upload.connection.read_head().status == 100
        assert api.request("DELETE", path).status == 204
        api.create(body=b"xyz", path=path)
        answer = upload.finish()
    assert "stream-snapshot-offset" not in api.head(path).headers
    check_problem(answer, 404, "stream-not-found")
    assert api.get(path, "offset=-1").body == b"xyz"
    wait_for_files(api, before, 0)


# -- uploads beside others -------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1000, len(NOISE)], ids=["small", "large"])
def test_two_uploads_of_the_same_at_one_offset_are_both_204(api: Api, size: int) -> None:
    """And there is one file, not two."""
    path = new_stream(api, TEXT, b"abc")
    before = snapshot_files(api)
    uploads = [Upload(api, path, offset(1, 3), NOISE[:size]) for _ in range(2)]
    for upload in uploads:
        upload.send(size // 2)
    assert [answer.status for answer in together([upload.finish for upload in uploads])] == [
        204
    ] * 2
    for upload in uploads:
        upload.connection.close()
    assert read_snapshot(api, path, offset(1, 3)) == NOISE[:size]
    wait_for_files(api, before, int(size > INLINE_BYTES_MAX))


@pytest.mark.parametrize("sizes", [(1000, 1000), (1000, len(NOISE)), (len(NOISE), len(NOISE))])
def test_of_two_different_uploads_at_one_offset_one_is_204_and_one_409(
    api: Api, sizes: tuple[int, int]
) -> None:
    """Visible is the one that was told 204, whole."""
    path = new_stream(api, TEXT, b"abc")
    before = snapshot_files(api)
    bodies = [b"1" + NOISE[1 : sizes[0]], b"2" + NOISE[1 : sizes[1]]]
    uploads = [Upload(api, path, offset(1, 3), body) for body in bodies]
    for upload in uploads:
        upload.send(len(upload.body) // 2)
    statuses = [answer.status for answer in together([upload.finish for upload in uploads])]
    for upload in uploads:
        upload.connection.close()
    assert sorted(statuses) == [204, 409]
    winner = bodies[statuses.index(204)]
    assert read_snapshot(api, path, offset(1, 3)) == winner
    wait_for_files(api, before, int(len(winner) > INLINE_BYTES_MAX))


def test_of_many_uploads_to_one_stream_the_latest_offset_wins(api: Api) -> None:
    """Each is told 204 or, where a later one came before it, 410; the last offset is visible."""
    count = 8
    path = new_stream(api, TEXT, *[b"m"] * count)
    before = snapshot_files(api)
    bodies = [bytes([number]) + NOISE[: INLINE_BYTES_MAX + number] for number in range(count)]
    uploads = [
        Upload(api, path, offset(number, number), body) for number, body in enumerate(bodies)
    ]
    for upload in uploads:
        upload.send(INLINE_BYTES_MAX)
    statuses = [answer.status for answer in together([upload.finish for upload in uploads])]
    for upload in uploads:
        upload.connection.close()
    assert set(statuses) <= {204, 410}
    assert statuses[-1] == 204
    assert api.head(path).headers["stream-snapshot-offset"] == offset(count - 1, count - 1)
    assert read_snapshot(api, path, offset(count - 1, count - 1)) == bodies[-1]
    wait_for_files(api, before, 1)


def test_snapshot_creation_does_not_block_concurrent_appends(api: Api) -> None:
    """
    Appends and reads of the same stream go on during an upload, and are not folded into it.

    Method: half of the body, then everything else that can be done with a stream, then the rest.
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
        answer = upload.finish()
    assert (answer.status, answer.headers["stream-up-to-date"]) == (204, "false")
    assert read_snapshot(api, path, offset(1, 3)) == NOISE
    expected = b"".join(b"<%d>" % number for number in range(50))
    assert api.get(path, f"offset={offset(1, 3)}").body == expected
    assert bootstrap(api, path).messages == [b"<%d>" % number for number in range(50)]


@pytest.mark.parametrize("size", [1000, 2 * CHUNK_BYTES], ids=["small", "large"])
def test_requests_behind_an_upload_are_answered_in_order(api: Api, size: int) -> None:
    """Pipelined on one connection, an upload among them and one behind it: each in its turn."""
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

        # A client that sends so much must read at the same time.
        sending = threading.Thread(target=send)
        sending.start()
        answers = [connection.read_response(method) for method, _, _ in requests]
        sending.join()
    assert [answer.status for answer in answers] == [200, 204, 307, 200, 204, 410, 200, 204, 200]
    assert "stream-snapshot-offset" not in answers[0].headers
    assert answers[2].headers["location"].endswith(first)
    assert answers[3].body == b"def"
    assert answers[6].body == NOISE[-size:]
    assert answers[8].body == b"ghi"


def test_a_refused_upload_behind_other_requests_is_answered_in_its_turn(api: Api) -> None:
    """What came before it is answered first, then it, and then the connection may end."""
    path = new_stream(api, TEXT, b"abc")
    with api.connect(30.0) as connection:
        for _ in range(3):
            connection.send_request("GET", path)
        connection.send_request("PUT", f"{path}/snapshot/{offset(9, 9)}", {}, b"state")
        for _ in range(3):
            assert connection.read_response().body == b"abc"
        check_problem(connection.read_response("PUT"), 409, "snapshot-beyond-tail")


def test_a_refused_small_upload_leaves_the_connection_usable(api: Api) -> None:
    """Its body was read; what follows is the next request."""
    path = new_stream(api, TEXT, b"abc")
    with api.connect() as connection:
        for _ in range(3):
            target = f"{path}/snapshot/{offset(9, 9)}"
            assert connection.request("PUT", target, {}, b"state").status == 409
            assert connection.request("GET", path).body == b"abc"


# -- space -----------------------------------------------------------------------------------------


def test_the_files_of_superseded_snapshots_disappear(api: Api) -> None:
    """However many there were, one is left; a small one that replaces it leaves none."""
    path = new_stream(api, TEXT, *[b"m"] * 6)
    before = snapshot_files(api)
    for number in range(5):
        publish(api, path, offset(number, number), NOISE[number : INLINE_BYTES_MAX + 100])
    wait_for_files(api, before, 1)
    assert read_snapshot(api, path, offset(4, 4)) == NOISE[4 : INLINE_BYTES_MAX + 100]
    publish(api, path, offset(5, 5), b"small")
    wait_for_files(api, before, 0)
    assert read_snapshot(api, path, offset(5, 5)) == b"small"


def test_the_file_of_a_deleted_streams_snapshot_disappears(api: Api) -> None:
    path = new_stream(api, TEXT, b"abc")
    before = snapshot_files(api)
    publish(api, path, offset(1, 3), NOISE)
    wait_for_files(api, before, 1)
    assert api.request("DELETE", path).status == 204
    wait_for_files(api, before, 0)


def test_a_file_stays_while_it_is_read(api: Api) -> None:
    """A download of a superseded snapshot goes on to its end; then the file goes."""
    large = NOISE * 4
    path = new_stream(api, TEXT, b"abc", b"def")
    before = snapshot_files(api)
    publish(api, path, offset(1, 3), large)
    with api.connect(30.0) as connection:
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 << 10)
        connection.send_request("GET", f"{path}/snapshot/{offset(1, 3)}")
        head = connection.read_head()
        publish(api, path, offset(2, 6), b"state")
        # Another stream's file, superseded later, is gone: so the background has been here.
        other = new_stream(api, TEXT, b"abc")
        publish(api, other, START, NOISE)
        wait_for_files(api, before, 2)
        publish(api, other, offset(1, 3), b"state")
        wait_for_files(api, before, 1)
        assert b"".join(connection.iter_body(head)) == large
    wait_for_files(api, before, 0)

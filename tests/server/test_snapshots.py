"""X§2, X§5: snapshots are published, found, read, replaced, and never in the way of the stream."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest

from tests.server.conftest import Start
from tests.server.test_compression import DECODERS
from tests.support.http import request
from tests.support.publishing import (
    INLINE_BYTES_MAX,
    JSON,
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
from tests.support.streams import Api, check_common, check_problem, wait_until

pytestmark = pytest.mark.parametrize("kind", KINDS_ONCE, indirect=True, scope="session")

LARGE = random.Random("large").randbytes(INLINE_BYTES_MAX + 1000)
TEXTUAL = b"A snapshot that can be made smaller. " * 100


# -- X§2.1: offsets --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content_type", "appends"),
    [(JSON, [b'[1,"two",[3]]', b"4"]), (TEXT, [b"abc", b"d", b"ef"])],
)
def test_reads_snapshots_and_bootstrap_have_the_same_message_boundaries(
    api: Api, content_type: str, appends: list[bytes]
) -> None:
    """
    One consistent retained-message boundary model across reads, snapshot offsets and bootstrap.

    Method: every pair of numbers up to the tail, in order. Where a read may start, a snapshot may
    be published, and bootstrap has one part for each message that the read returns; nowhere else.
    """
    path = new_stream(api, content_type, *appends)
    messages, size = map(int, api.tail(path).split("_"))
    boundaries = []
    for byte, message in itertools.product(range(size + 1), range(messages + 1)):
        at = offset(message, byte)
        read = api.get(path, f"offset={at}").status
        assert put_snapshot(api, path, at).status == {200: 204, 400: 400}[read], at
        if read == 200:
            boundaries.append(message)
            assert len(bootstrap(api, path).updates) == messages - message
    assert boundaries == list(range(messages + 1))


def test_every_stream_next_offset_is_a_snapshot_offset(api: Api) -> None:
    """Whatever answer it came with: of a create, an append, a read, HEAD or a snapshot."""
    path = api.in_bucket(api.new_bucket(), "s")
    answers = [api.request("PUT", path, {"Content-Type": TEXT}, b"one")]
    publish(api, path, answers[-1].headers["stream-next-offset"])
    answers.append(api.post(path, b"two"))
    publish(api, path, answers[-1].headers["stream-next-offset"])
    before = answers[-1].headers["stream-next-offset"]
    api.append(path, b"three")
    answers.append(api.get(path, f"offset={before}"))
    publish(api, path, answers[-1].headers["stream-next-offset"])
    api.append(path, b"four")
    publish(api, path, api.head(path).headers["stream-next-offset"])
    again = api.get(f"{path}/snapshot/{api.tail(path)}")
    publish(api, path, again.headers["stream-next-offset"])


# -- X§2.2: publish --------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b"", b"state", LARGE], ids=["empty", "small", "large"])
def test_publish_is_204(api: Api, body: bytes) -> None:
    """With no body, and with where the stream goes on from there."""
    path = new_stream(api, TEXT, b"abc", b"def")
    answer = put_snapshot(api, path, offset(1, 3), body)
    assert (answer.status, answer.body) == (204, b"")
    check_common(answer)
    assert answer.headers["stream-snapshot-offset"] == offset(1, 3)
    assert answer.headers["stream-next-offset"] == offset(1, 3)
    assert answer.headers["stream-up-to-date"] == "false"
    assert answer.headers["cache-control"] == "no-store"
    assert read_snapshot(api, path, offset(1, 3)) == body


MALFORMED = [
    "-1",
    "%2D1",
    "now",
    "",
    "0",
    "x",
    "0_0",
    "1_3",
    "000000000000001_0000000000000003",
    "00000000000000001_0000000000000003",
    "0000000000000001-0000000000000003",
    "0000000000000001_0000000000000003_",
    "0000000000000001_000000000000000a",
    "+000000000000001_0000000000000003",
    "%200000000000000001_0000000000000003",
    "0000000000000001_0000000000000003%00",
    # Digits to Python's `int`, and to nobody else.
    "%D9%A00000000000000001_0000000000000003",
    "000000000000000%D9%A1_0000000000000003",
]


@pytest.mark.parametrize("token", MALFORMED)
def test_an_offset_that_is_invalid_is_400(api: Api, token: str) -> None:
    """Sentinels of reads too: a snapshot covers a range that ends at a message."""
    path = new_stream(api, TEXT, b"abc", b"def")
    check_problem(put_snapshot(api, path, token, b"state"), 400, "offset-invalid")
    assert "stream-snapshot-offset" not in api.head(path).headers


@pytest.mark.parametrize("end", ["%0A", "%0D%0A", "%20"])
def test_an_offset_ends_where_it_ends(api: Api, end: str) -> None:
    """What a `$` in a pattern forgives is 400 too; a framework above the app may say why."""
    path = new_stream(api, TEXT, b"abc", b"def")
    check_problem(put_snapshot(api, path, offset(1, 3) + end, b"state"), 400)
    assert "stream-snapshot-offset" not in api.head(path).headers


@pytest.mark.parametrize(
    "at",
    [offset(0, 1), offset(1, 1), offset(1, 4), offset(0, 3), offset(2, 3), offset(1, 6)],
    ids=["inside", "inside-as-1", "between", "fewer-messages", "more-messages", "tail-as-1"],
)
def test_an_offset_that_is_not_a_message_boundary_is_400(api: Api, at: str) -> None:
    """Inside a message, or with the wrong number of messages before it."""
    path = new_stream(api, TEXT, b"abc", b"def")
    check_problem(put_snapshot(api, path, at, b"state"), 400, "offset-misaligned")
    assert "stream-snapshot-offset" not in api.head(path).headers


@pytest.mark.parametrize("at", [offset(0, 2), offset(2, 2), offset(1, 3), offset(2, 5)])
def test_an_offset_inside_an_element_of_a_json_batch_is_400(api: Api, at: str) -> None:
    """A batch has boundaries between its elements, and none elsewhere."""
    # Stored as `1,` `"two",` `3,`.
    path = new_stream(api, JSON, b'[1,"two",3]')
    check_problem(put_snapshot(api, path, at, b"state"), 400, "offset-misaligned")


@pytest.mark.parametrize(
    ("at", "rest"),
    [(START, b'[1,"two",3]'), (offset(1, 2), b'["two",3]'), (offset(2, 8), b"[3]")],
)
def test_a_snapshot_between_the_elements_of_a_json_batch(api: Api, at: str, rest: bytes) -> None:
    """Though they came in one request."""
    path = new_stream(api, JSON, b'[1,"two",3]')
    publish(api, path, at, b"state")
    assert api.get(path, f"offset={at}").body == rest
    api.append(path, b"[4,5]", content_type=JSON)
    assert api.get(path, f"offset={at}").body == rest[:-1] + b",4,5]"
    publish(api, path, offset(4, 12), b"later")
    assert api.get(path, f"offset={offset(4, 12)}").body == b"[5]"


def test_publish_to_a_stream_that_does_not_exist_is_404(api: Api) -> None:
    """Nor does it create one; a bucket that is not there is 404 too."""
    path = api.in_bucket(api.new_bucket(), "none")
    for body in (b"state", LARGE):
        check_problem(put_snapshot(api, path, START, body), 404, "stream-not-found")
        nowhere = api.in_bucket("no-such-bucket", "none")
        check_problem(put_snapshot(api, nowhere, START, body), 404, "bucket-not-found")
    assert api.head(path).status == 404


@pytest.mark.parametrize(
    "at", [offset(3, 7), offset(2, 7), offset(3, 6), "9" * 16 + "_" + "9" * 16]
)
def test_an_offset_past_the_tail_is_409(api: Api, at: str) -> None:
    """By its bytes, by its messages, or by both."""
    path = new_stream(api, TEXT, b"abc", b"def")
    check_problem(put_snapshot(api, path, at, b"state"), 409, "snapshot-beyond-tail")
    assert "stream-snapshot-offset" not in api.head(path).headers


def test_an_offset_past_the_tail_is_one_once_the_stream_is_there(api: Api) -> None:
    """409 is not for ever: the client appends first, then publishes."""
    path = new_stream(api, TEXT, b"abc")
    assert put_snapshot(api, path, offset(2, 6), b"state").status == 409
    assert api.append(path, b"def") == offset(2, 6)
    publish(api, path, offset(2, 6), b"state")


@pytest.mark.parametrize("at", [START, offset(1, 3), offset(1, 1)])
def test_an_offset_before_the_earliest_retained_one_is_410(api: Api, at: str) -> None:
    """With what is the earliest; the visible snapshot stays."""
    path = new_stream(api, TEXT, b"abc", b"def", b"ghi")
    publish(api, path, offset(2, 6), b"state")
    answer = put_snapshot(api, path, at, b"older")
    check_problem(answer, 410, "offset-gone")
    assert answer.headers["stream-earliest-offset"] == offset(2, 6)
    assert read_snapshot(api, path, offset(2, 6)) == b"state"


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
def test_a_snapshot_over_the_size_limit_is_413(start: Start, chunked: bool) -> None:
    """One of exactly the limit is not; appends have a limit of their own."""
    api = Api(start(*LIMITED))
    most = int(LIMITED[1])
    path = new_stream(api, TEXT, b"x" * (most + 1), b"y")
    publish(api, path, offset(1, most + 1), b"s" * most)
    headers, body = {}, b"s" * (most + 1)
    if chunked:
        headers = {"Transfer-Encoding": "chunked"}
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    answer = put_snapshot(api, path, offset(2, most + 2), body, headers=headers)
    check_problem(answer, 413, "snapshot-too-large")
    assert api.head(path).headers["stream-snapshot-offset"] == offset(1, most + 1)
    assert read_snapshot(api, path, offset(1, most + 1)) == b"s" * most
    api.close()


@pytest.mark.parametrize(
    "content_type",
    [
        TEXT,
        "Text/HTML; Charset=UTF-8",
        'application/vnd.app+json;  version="1, 2"; x',
        "multipart/mixed; boundary=x",
        "message/http",
    ],
)
def test_the_content_type_is_stored_and_returned_exactly(api: Api, content_type: str) -> None:
    """On every later read: of the snapshot, of its head, and in bootstrap."""
    path = new_stream(api, OCTETS, b"abc")
    publish(api, path, offset(1, 3), b"state", content_type)
    target = f"{path}/snapshot/{offset(1, 3)}"
    assert api.get(target).headers["content-type"] == content_type
    assert api.head(target).headers["content-type"] == content_type
    assert bootstrap(api, path).snapshot.content_type == content_type
    assert api.head(path).headers["content-type"] == OCTETS


@pytest.mark.parametrize("stream_type", [TEXT, JSON])
def test_the_content_type_defaults_to_application_octet_stream(api: Api, stream_type: str) -> None:
    """Not to that of the stream."""
    path = new_stream(api, stream_type, b"1")
    publish(api, path, api.tail(path), b"state")
    assert api.get(f"{path}/snapshot/{api.tail(path)}").headers["content-type"] == OCTETS


@pytest.mark.parametrize("content_type", ["nonsense", "a/b, c/d", "text/plain x", "té/xt", "/"])
def test_a_content_type_that_is_none_is_400(api: Api, content_type: str) -> None:
    path = new_stream(api, TEXT, b"abc")
    check_problem(put_snapshot(api, path, offset(1, 3), b"state", content_type), 400)
    assert "stream-snapshot-offset" not in api.head(path).headers


@pytest.mark.parametrize("body", [b"state", LARGE], ids=["small", "large"])
def test_two_content_types_are_400(api: Api, body: bytes) -> None:
    path = new_stream(api, TEXT, b"abc")
    with api.connect() as connection:
        twice = [("Content-Type", "text/plain"), ("Content-Type", "text/html")]
        answer = connection.request("PUT", f"{path}/snapshot/{offset(1, 3)}", twice, body)
    check_problem(answer, 400)
    assert "stream-snapshot-offset" not in api.head(path).headers


def test_a_compressed_snapshot_is_refused(api: Api) -> None:
    """It would be returned as what it is not; `identity` is no coding."""
    path = new_stream(api, TEXT, b"abc")
    headers = {"Content-Encoding": "gzip"}
    answer = put_snapshot(api, path, offset(1, 3), b"state", headers=headers)
    check_problem(answer, 415, "content-coding-refused")
    assert "stream-snapshot-offset" not in api.head(path).headers
    headers = {"Content-Encoding": "identity"}
    assert put_snapshot(api, path, offset(1, 3), b"state", headers=headers).status == 204


@pytest.mark.parametrize("body", [b"", b"state", LARGE], ids=["empty", "small", "large"])
def test_the_same_snapshot_again_is_204(api: Api, body: bytes) -> None:
    """A client that lost the response may ask again; nothing changes."""
    path = new_stream(api, TEXT, b"abc", b"def")
    publish(api, path, offset(1, 3), body, TEXT)
    before = api.get(f"{path}/snapshot/{offset(1, 3)}")
    answer = put_snapshot(api, path, offset(1, 3), body, TEXT)
    assert answer.status == 204
    assert answer.headers["stream-snapshot-offset"] == offset(1, 3)
    after = api.get(f"{path}/snapshot/{offset(1, 3)}")
    assert (after.body, after.headers["etag"]) == (body, before.headers["etag"])


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"other", TEXT),
        (b"stat", TEXT),
        (b"", TEXT),
        (LARGE, TEXT),
        (b"state", "text/html"),
        (b"state", None),
    ],
)
def test_another_snapshot_at_the_same_offset_is_409(
    api: Api, body: bytes, content_type: str | None
) -> None:
    """Other bytes or another type; the one that clients may have seen stays as it is."""
    path = new_stream(api, TEXT, b"abc", b"def")
    publish(api, path, offset(1, 3), b"state", TEXT)
    before = api.get(f"{path}/snapshot/{offset(1, 3)}")
    answer = put_snapshot(api, path, offset(1, 3), body, content_type)
    check_problem(answer, 409, "snapshot-conflict")
    after = api.get(f"{path}/snapshot/{offset(1, 3)}")
    assert (after.body, after.headers["content-type"]) == (b"state", TEXT)
    assert after.headers["etag"] == before.headers["etag"]


@pytest.mark.parametrize("sizes", list(itertools.product([10, len(LARGE)], repeat=2)))
def test_a_new_snapshot_replaces_the_visible_one_immediately(
    api: Api, sizes: tuple[int, int]
) -> None:
    """The old one is 404 at once, everywhere the new one is named."""
    path = new_stream(api, TEXT, b"abc", b"def")
    old, new = LARGE[: sizes[0]], LARGE[-sizes[1] :]
    publish(api, path, offset(1, 3), old, TEXT)
    publish(api, path, offset(2, 6), new, "text/html")
    gone = f"{path}/snapshot/{offset(1, 3)}"
    body = check_problem(api.get(gone), 404, "snapshot-not-found")
    assert offset(2, 6) in body["detail"]
    assert api.head(gone).status == 404
    check_problem(api.request("DELETE", gone), 404, "snapshot-not-found")
    assert read_snapshot(api, path, offset(2, 6)) == new
    assert api.head(path).headers["stream-snapshot-offset"] == offset(2, 6)
    assert api.get(f"{path}/snapshot").headers["location"].endswith(offset(2, 6))
    found = bootstrap(api, path)
    assert (found.snapshot.body, found.snapshot_offset) == (new, offset(2, 6))


# -- X§2.2: retention ------------------------------------------------------------------------------


def test_every_offset_before_the_snapshot_is_410(api: Api) -> None:
    """
    With Stream-Earliest-Offset; -1 and a missing offset too, in every mode.

    Whether they ever were boundaries nobody can tell any more.
    """
    path = new_stream(api, TEXT, b"abc", b"def", b"ghi")
    publish(api, path, offset(2, 6), b"state")
    gone = ["-1", START, offset(0, 1), offset(1, 3), offset(1, 4), offset(1, 5)]
    queries = ["", "live=false"]
    for mode in ("", "&live=long-poll", "&live=sse"):
        queries += [f"offset={at}{mode}" for at in gone]
    for query in queries:
        answer = api.get(path, query)
        check_problem(answer, 410, "offset-gone")
        assert answer.headers["stream-earliest-offset"] == offset(2, 6), query


@pytest.mark.parametrize("mode", ["", "&live=long-poll"])
def test_the_snapshots_offset_and_every_later_one_are_retained(api: Api, mode: str) -> None:
    """`now` too; misaligned offsets after it are what they were before, 400."""
    path = new_stream(api, TEXT, b"abc", b"def", b"ghi", headers=None)
    publish(api, path, offset(1, 3), b"state")
    assert api.get(path, f"offset={offset(1, 3)}{mode}").body == b"defghi"
    assert api.get(path, f"offset={offset(2, 6)}{mode}").body == b"ghi"
    check_problem(api.get(path, f"offset={offset(2, 5)}{mode}"), 400, "offset-misaligned")
    check_problem(api.get(path, f"offset={offset(2, 3)}{mode}"), 400, "offset-misaligned")
    api.close_stream(path)
    assert api.get(path, f"offset=now{mode}").headers["stream-next-offset"] == offset(3, 9)


def test_event_streams_start_at_the_snapshots_offset(api: Api) -> None:
    path = new_stream(api, TEXT, b"abc", b"def", b"ghi")
    publish(api, path, offset(1, 3), b"state")
    with api.sse(path, f"offset={offset(1, 3)}") as events:
        assert events.until(tail=offset(3, 9))[0].data == "defghi"


def test_retention_moves_with_every_snapshot(api: Api) -> None:
    """What was the earliest offset is gone after the next one."""
    path = new_stream(api, TEXT)
    tails = [api.append(path, b"message %d" % number) for number in range(5)]
    for earlier, at in itertools.pairwise(tails):
        publish(api, path, at, at.encode())
        answer = api.get(path, f"offset={earlier}")
        check_problem(answer, 410, "offset-gone")
        assert answer.headers["stream-earliest-offset"] == at
        assert api.get(path, f"offset={at}").status == 200


def test_a_snapshot_at_the_start_covers_nothing(api: Api) -> None:
    """It may be of an empty stream; -1 is before it, and the offset 0 is not."""
    path = new_stream(api, TEXT)
    publish(api, path, START, b"initial state")
    answer = api.get(path, "offset=-1")
    check_problem(answer, 410, "offset-gone")
    assert answer.headers["stream-earliest-offset"] == START
    check_problem(api.get(path), 410, "offset-gone")
    api.append(path, b"abc")
    assert api.get(path, f"offset={START}").body == b"abc"
    assert read_snapshot(api, path, START) == b"initial state"
    found = bootstrap(api, path)
    assert (found.snapshot_offset, found.snapshot.body) == (START, b"initial state")
    assert found.messages == [b"abc"]


def test_a_snapshot_at_the_tail_covers_everything(api: Api) -> None:
    """Nothing is retained but what comes after it."""
    path = new_stream(api, TEXT, b"abc", b"def")
    answer = put_snapshot(api, path, offset(2, 6), b"state")
    assert answer.headers["stream-up-to-date"] == "true"
    assert api.get(path, f"offset={offset(2, 6)}").body == b""
    assert bootstrap(api, path).messages == []
    assert api.append(path, b"ghi") == offset(3, 9)
    assert api.get(path, f"offset={offset(2, 6)}").body == b"ghi"


def test_publishing_changes_nothing_else_of_a_stream(api: Api) -> None:
    """Producers, Stream-Seq, type and tail are what they were."""
    path = new_stream(api, TEXT)
    claim = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0"}
    api.append(path, b"abc", claim | {"Stream-Seq": "b"})
    publish(api, path, offset(1, 3), b"state")
    again = api.post(path, b"abc", claim)
    assert (again.status, again.headers["stream-next-offset"]) == (204, offset(1, 3))
    assert api.post(path, b"x", {"Stream-Seq": "a"}).status == 409
    assert api.append(path, b"def", claim | {"Producer-Seq": "1"}) == offset(2, 6)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_closed_stream_can_have_snapshots(api: Api, when: str) -> None:
    """Closure ends appends and nothing else; the end is still told at the tail."""
    path = new_stream(api, TEXT, b"abc", b"def")
    if when == "before":
        publish(api, path, offset(1, 3), b"state")
    api.close_stream(path)
    if when == "after":
        publish(api, path, offset(1, 3), b"state")
    answer = api.get(path, f"offset={offset(1, 3)}")
    assert (answer.body, answer.headers["stream-closed"]) == (b"def", "true")
    check_problem(api.get(path, "offset=-1"), 410, "offset-gone")
    publish(api, path, offset(2, 6), b"last")
    assert read_snapshot(api, path, offset(2, 6)) == b"last"
    answer = api.get(path, f"offset={offset(2, 6)}&live=long-poll")
    assert (answer.status, answer.headers["stream-closed"]) == (204, "true")
    head = api.head(path).headers
    assert (head["stream-closed"], head["stream-snapshot-offset"]) == ("true", offset(2, 6))


# -- X§2.3: read latest snapshot -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["plain", "caf%C3%A9%20%25%3F", "snapshot", "bootstrap", "a.b"])
def test_the_latest_snapshot_is_a_307_to_where_it_is(api: Api, name: str) -> None:
    """The Location is absolute and leads there, whatever the stream is called."""
    path = new_stream(api, TEXT, b"abc", b"def", name=name)
    publish(api, path, offset(1, 3), b"state")
    answer = api.get(f"{path}/snapshot")
    assert (answer.status, answer.body) == (307, b"")
    check_common(answer)
    location = answer.headers["location"]
    assert location == api.url(f"{path}/snapshot/{offset(1, 3)}")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["stream-snapshot-offset"] == offset(1, 3)
    followed = request("GET", location)
    assert (followed.status, followed.body) == (200, b"state")
    head = api.request("HEAD", f"{path}/snapshot")
    assert (head.status, head.headers["location"]) == (307, location)


def test_the_location_is_where_the_client_found_the_server(api: Api) -> None:
    """Behind a proxy: the host and the scheme that the client used."""
    path = new_stream(api, TEXT, b"abc")
    publish(api, path, offset(1, 3), b"state")
    headers = {"Host": "streams.example:8443", "X-Forwarded-Proto": "https"}
    location = urlsplit(api.get(f"{path}/snapshot", headers=headers).headers["location"])
    assert (location.scheme, location.netloc) == ("https", "streams.example:8443")
    assert location.path == f"{path}/snapshot/{offset(1, 3)}"


def test_the_latest_snapshot_is_404_when_there_is_none(api: Api) -> None:
    path = new_stream(api, TEXT, b"abc")
    check_problem(api.get(f"{path}/snapshot"), 404, "snapshot-not-found")
    assert api.head(f"{path}/snapshot").status == 404
    none = api.in_bucket(api.new_bucket(), "none")
    check_problem(api.get(f"{none}/snapshot"), 404, "stream-not-found")
    nowhere = api.in_bucket("no-such-bucket", "none")
    check_problem(api.get(f"{nowhere}/snapshot"), 404, "bucket-not-found")


# -- X§2.4: metadata on HEAD -----------------------------------------------------------------------


def test_head_says_which_snapshot_is_the_latest(api: Api) -> None:
    """
    Absent without one; else the one that GET …/snapshot leads to.

    Stream-Earliest-Offset is beside it.
    """
    path = new_stream(api, TEXT, b"abc", b"def")
    head = api.head(path).headers
    assert "stream-snapshot-offset" not in head
    assert "stream-earliest-offset" not in head
    for at in (START, offset(1, 3), offset(2, 6)):
        publish(api, path, at, at.encode())
        head = api.head(path).headers
        assert head["stream-snapshot-offset"] == head["stream-earliest-offset"] == at
        assert api.get(f"{path}/snapshot").headers["location"].endswith(f"/snapshot/{at}")
        assert head["stream-next-offset"] == offset(2, 6)


# -- X§2.5: read snapshot --------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b"", b"state", LARGE], ids=["empty", "small", "large"])
def test_a_snapshot_is_returned_with_its_headers(api: Api, body: bytes) -> None:
    """Content-Type, Stream-Snapshot-Offset, Stream-Next-Offset, Stream-Up-To-Date."""
    path = new_stream(api, TEXT, b"abc", b"def")
    publish(api, path, offset(1, 3), body, "text/x-state; v=1")
    answer = api.get(f"{path}/snapshot/{offset(1, 3)}")
    assert (answer.status, answer.body) == (200, body)
    check_common(answer)
    assert answer.headers["content-type"] == "text/x-state; v=1"
    assert answer.headers["content-length"] == str(len(body))
    assert answer.headers["stream-snapshot-offset"] == offset(1, 3)
    assert answer.headers["stream-next-offset"] == offset(1, 3)
    assert answer.headers["stream-up-to-date"] == "false"
    exposed = answer.headers["access-control-expose-headers"].lower()
    assert "stream-snapshot-offset" in exposed
    assert "stream-earliest-offset" in exposed
    rest = api.get(path, f"offset={answer.headers['stream-next-offset']}")
    assert rest.body == b"def"


def test_stream_up_to_date_says_whether_there_are_updates_beyond_the_snapshot(api: Api) -> None:
    path = new_stream(api, TEXT, b"abc")
    publish(api, path, offset(1, 3), b"state")
    target = f"{path}/snapshot/{offset(1, 3)}"
    assert api.get(target).headers["stream-up-to-date"] == "true"
    assert api.head(target).headers["stream-up-to-date"] == "true"
    api.append(path, b"def")
    assert api.get(target).headers["stream-up-to-date"] == "false"
    assert api.head(target).headers["stream-up-to-date"] == "false"


def test_head_of_a_snapshot_has_the_headers_of_get(api: Api) -> None:
    path = new_stream(api, TEXT, b"abc", b"def")
    publish(api, path, offset(1, 3), b"state", TEXT)
    target = f"{path}/snapshot/{offset(1, 3)}"
    got, head = api.get(target), api.head(target)
    assert (head.status, head.body) == (200, b"")
    left_out = {"date", "server", "content-length"}
    assert {name: value for name, value in head.headers if name not in left_out} == {
        name: value for name, value in got.headers if name not in left_out
    }


@pytest.mark.parametrize("at", [START, offset(1, 1), offset(2, 6), offset(3, 9)])
def test_a_snapshot_that_does_not_exist_is_404(api: Api, at: str) -> None:
    """Boundary or not, retained or not; and before there is any."""
    path = new_stream(api, TEXT, b"abc", b"def")
    check_problem(api.get(f"{path}/snapshot/{at}"), 404, "snapshot-not-found")
    publish(api, path, offset(1, 3), b"state")
    check_problem(api.get(f"{path}/snapshot/{at}"), 404, "snapshot-not-found")
    assert api.head(f"{path}/snapshot/{at}").status == 404


def test_a_snapshot_of_a_stream_that_does_not_exist_is_404(api: Api) -> None:
    for path, code in (
        (api.in_bucket(api.new_bucket(), "none"), "stream-not-found"),
        (api.in_bucket("no-such-bucket", "none"), "bucket-not-found"),
    ):
        check_problem(api.get(f"{path}/snapshot/{START}"), 404, code)
        check_problem(api.request("DELETE", f"{path}/snapshot/{START}"), 404, code)
        assert api.head(f"{path}/snapshot/{START}").status == 404


@pytest.mark.parametrize("body", [b"", b"state", LARGE], ids=["empty", "small", "large"])
def test_if_none_match_is_304(api: Api, body: bytes) -> None:
    """The bytes are not sent again; what may have changed, up-to-dateness, is told again."""
    path = new_stream(api, TEXT, b"abc")
    publish(api, path, offset(1, 3), body)
    target = f"{path}/snapshot/{offset(1, 3)}"
    etag = api.get(target).headers["etag"]
    assert etag.startswith('"') and etag.endswith('"')
    api.append(path, b"def")
    for known in (etag, f'"other", {etag}', f"W/{etag}", "*"):
        answer = api.get(target, headers={"If-None-Match": known})
        assert (answer.status, answer.body) == (304, b"")
        assert answer.headers["etag"] == etag
        assert answer.headers["stream-up-to-date"] == "false"
        assert answer.headers["cache-control"] == "no-cache"
    answer = api.get(target, headers={"If-None-Match": '"other"'})
    assert (answer.status, answer.body) == (200, body)


def test_each_snapshot_has_an_etag_of_its_own(api: Api) -> None:
    """Also where the bytes are the same, at another offset or of another stream."""
    etags = set()
    bucket = api.new_bucket()
    for _ in range(2):
        path = api.create(body=b"abc", path=api.in_bucket(bucket, "s"))
        for at in (START, offset(1, 3)):
            publish(api, path, at, b"state")
            etags.add(api.get(f"{path}/snapshot/{at}").headers["etag"])
        assert api.request("DELETE", path).status == 204
    assert len(etags) == 4


@pytest.mark.parametrize("coding", DECODERS)
@pytest.mark.parametrize("size", [len(TEXTUAL), 3 << 20], ids=["small", "large"])
def test_snapshots_are_compressed_when_asked_for(api: Api, coding: str, size: int) -> None:
    """Each coding is a variant with its own ETag."""
    body = (TEXTUAL * (size // len(TEXTUAL) + 1))[:size]
    path = new_stream(api, TEXT, b"abc")
    publish(api, path, offset(1, 3), body)
    target = f"{path}/snapshot/{offset(1, 3)}"
    answer = api.get(target, headers={"Accept-Encoding": coding})
    assert answer.headers["content-encoding"] == coding
    assert "accept-encoding" in answer.headers["vary"].lower()
    assert len(answer.body) < size
    assert DECODERS[coding](answer.body) == body
    plain = api.get(target)
    assert "content-encoding" not in plain.headers
    assert plain.body == body
    assert plain.headers["etag"] != answer.headers["etag"]
    headers = {"Accept-Encoding": coding, "If-None-Match": answer.headers["etag"]}
    assert api.get(target, headers=headers).status == 304
    assert api.get(target, headers={"If-None-Match": answer.headers["etag"]}).status == 200


@pytest.mark.parametrize("size", [0, 1024])
def test_snapshots_of_up_to_1_kib_are_not_compressed(api: Api, size: int) -> None:
    path = new_stream(api, TEXT, b"abc")
    publish(api, path, offset(1, 3), b"s" * size)
    answer = api.get(f"{path}/snapshot/{offset(1, 3)}", headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in answer.headers
    assert answer.body == b"s" * size


# -- X§2.6: delete snapshot ------------------------------------------------------------------------


def test_the_latest_snapshot_cannot_be_deleted(api: Api) -> None:
    """409, because bootstrap would become incomplete; a snapshot at the start is no exception."""
    path = new_stream(api, TEXT, b"abc", b"def")
    for at in (START, offset(1, 3), offset(2, 6)):
        publish(api, path, at, at.encode())
        answer = api.request("DELETE", f"{path}/snapshot/{at}")
        check_problem(answer, 409, "snapshot-needed")
        assert read_snapshot(api, path, at) == at.encode()
        assert bootstrap(api, path).snapshot.body == at.encode()


@pytest.mark.parametrize("at", [START, offset(1, 3), offset(1, 2), offset(9, 99)])
def test_delete_of_a_snapshot_that_does_not_exist_is_404(api: Api, at: str) -> None:
    """None at all, none there, or superseded; the visible one stays."""
    path = new_stream(api, TEXT, b"abc", b"def")
    check_problem(api.request("DELETE", f"{path}/snapshot/{at}"), 404, "snapshot-not-found")
    publish(api, path, offset(1, 3), b"old")
    publish(api, path, offset(2, 6), b"state")
    check_problem(api.request("DELETE", f"{path}/snapshot/{at}"), 404, "snapshot-not-found")
    assert read_snapshot(api, path, offset(2, 6)) == b"state"


@pytest.mark.parametrize("method", ["GET", "DELETE"])
@pytest.mark.parametrize("token", ["-1", "now", "x", "0_0"])
def test_what_is_no_offset_names_no_snapshot(api: Api, method: str, token: str) -> None:
    """X§2.5 and X§2.6: 404, the snapshot does not exist."""
    path = new_stream(api, TEXT, b"abc")
    publish(api, path, offset(1, 3), b"state")
    check_problem(api.request(method, f"{path}/snapshot/{token}"), 404, "snapshot-not-found")


# -- X§5: URL encoding -----------------------------------------------------------------------------


ENCODINGS: dict[str, Callable[[str], str]] = {
    "underscore": lambda token: token.replace("_", "%5F"),
    "lower-case": lambda token: token.replace("_", "%5f"),
    "digits": lambda token: token.replace("0", "%30"),
    "all": lambda token: "".join(f"%{ord(char):02X}" for char in token),
}


@pytest.mark.parametrize("encode", ENCODINGS.values(), ids=ENCODINGS)
def test_the_offset_in_a_path_may_be_percent_encoded(
    api: Api, encode: Callable[[str], str]
) -> None:
    """For PUT, GET, HEAD and DELETE; it is the same snapshot."""
    path = new_stream(api, TEXT, b"abc", b"def")
    encoded = encode(offset(1, 3))
    publish(api, path, encoded, b"state")
    assert api.head(path).headers["stream-snapshot-offset"] == offset(1, 3)
    assert read_snapshot(api, path, encoded) == b"state"
    assert read_snapshot(api, path, offset(1, 3)) == b"state"
    assert api.head(f"{path}/snapshot/{encoded}").status == 200
    check_problem(api.request("DELETE", f"{path}/snapshot/{encoded}"), 409, "snapshot-needed")
    check_problem(put_snapshot(api, path, encoded, b"other"), 409, "snapshot-conflict")
    publish(api, path, encode(offset(2, 6)), b"later")
    check_problem(api.get(f"{path}/snapshot/{encoded}"), 404, "snapshot-not-found")
    check_problem(put_snapshot(api, path, encoded, b"state"), 410, "offset-gone")


def test_the_offset_is_decoded_once(api: Api) -> None:
    path = new_stream(api, TEXT, b"abc")
    check_problem(put_snapshot(api, path, offset(1, 3).replace("_", "%255F")), 400)


# -- what snapshots are not ------------------------------------------------------------------------


def test_ordinary_reads_never_return_snapshot_bytes(api: Api) -> None:
    """X§3.4: snapshots are delivered by their own URL and by bootstrap, and by nothing else."""
    path = new_stream(api, TEXT, b"abc", b"def")
    publish(api, path, offset(1, 3), b"SNAPSHOT")
    for query in ("offset=-1", f"offset={offset(1, 3)}", "offset=now", f"offset={offset(2, 6)}"):
        for mode in ("", "&live=long-poll"):
            if "now" in query or offset(2, 6) in query:
                mode = ""
            assert b"SNAPSHOT" not in api.get(path, query + mode).body
    api.close_stream(path)
    with api.sse(path, f"offset={offset(1, 3)}") as events:
        list(events)
        assert b"SNAPSHOT" not in events.raw
        assert b"def" in events.raw


@pytest.mark.parametrize("name", ["snapshot", "bootstrap", f"snapshot/{START}"])
def test_on_the_base_surface_these_are_streams_like_any_other(api: Api, name: str) -> None:
    """There are neither snapshots nor bootstraps under /v1/stream, where paths have any depth."""
    stream = f"{api.server.base_path}/v1/stream/flat-{random.randrange(1 << 60)}"
    api.create(body=b"abc", path=stream)
    assert api.get(f"{stream}/{name}").status == 404
    api.create(body=b"of its own", path=f"{stream}/{name}")
    assert api.get(f"{stream}/{name}").body == b"of its own"
    api.append(f"{stream}/{name}", b", appended to")
    assert api.get(f"{stream}/{name}").body == b"of its own, appended to"
    head = api.head(stream).headers
    assert "stream-snapshot-offset" not in head
    assert api.get(stream).body == b"abc"
    assert api.request("DELETE", f"{stream}/{name}").status == 204


@pytest.mark.parametrize("below", ["snapshot", "snapshot/" + START, "bootstrap"])
def test_other_methods_are_405(api: Api, below: str) -> None:
    """With Allow; nothing becomes a stream of that name."""
    path = new_stream(api, TEXT, b"abc")
    publish(api, path, START, b"state")
    allowed = {"GET", "HEAD", "OPTIONS"} | ({"PUT", "DELETE"} if START in below else set())
    for method in {"GET", "HEAD", "PUT", "POST", "DELETE", "PATCH"} - allowed:
        answer = api.request(method, f"{path}/{below}", body=b"x")
        check_problem(answer, 405, "method-not-allowed")
        assert {name.strip() for name in answer.headers["allow"].split(",")} == allowed
    assert api.request("OPTIONS", f"{path}/{below}").status == 204


# -- the end of a stream ---------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b"state", LARGE], ids=["small", "large"])
def test_a_stream_that_is_deleted_and_created_again_has_no_snapshot(api: Api, body: bytes) -> None:
    """It is another stream: all its offsets are retained, though they look the same."""
    path = new_stream(api, TEXT, b"abc", b"def")
    publish(api, path, offset(1, 3), body)
    assert api.request("DELETE", path).status == 204
    for target in (f"{path}/snapshot", f"{path}/snapshot/{offset(1, 3)}", f"{path}/bootstrap"):
        check_problem(api.get(target), 404, "stream-not-found")
    api.create(body=b"abc", path=path)
    head = api.head(path).headers
    assert "stream-snapshot-offset" not in head
    assert "stream-earliest-offset" not in head
    check_problem(api.get(f"{path}/snapshot"), 404, "snapshot-not-found")
    check_problem(api.get(f"{path}/snapshot/{offset(1, 3)}"), 404, "snapshot-not-found")
    assert api.get(path, "offset=-1").body == b"abc"
    assert bootstrap(api, path).snapshot_offset == "-1"
    publish(api, path, START, b"earlier than the old one")


def check_gone(api: Api, path: str) -> None:
    """A stream that is over has no snapshot either."""
    for target in (f"{path}/snapshot", f"{path}/snapshot/{offset(1, 3)}", f"{path}/bootstrap"):
        check_problem(api.get(target), 404, "stream-not-found")
        assert api.head(target).status == 404
    check_problem(put_snapshot(api, path, offset(1, 3), b"state"), 404, "stream-not-found")
    answer = api.request("DELETE", f"{path}/snapshot/{offset(1, 3)}")
    check_problem(answer, 404, "stream-not-found")


def test_an_expired_stream_is_404(api: Api) -> None:
    """
    At once, and with the snapshot that it had, whose file disappears.

    The URL is then free for a new stream.
    """
    before = snapshot_files(api)
    over = new_stream(api, TEXT, headers={"Stream-TTL": "0"})
    check_gone(api, over)
    path = api.create(
        body=b"abc", headers={"Stream-TTL": "1"}, path=api.in_bucket(api.new_bucket(), "s")
    )
    # On a machine that stands still for a second it is over already.
    assert put_snapshot(api, path, offset(1, 3), LARGE).status in (204, 404)
    wait_until("the stream expires", lambda: api.head(path).status == 404)
    check_gone(api, path)
    api.create(body=b"new", path=path)
    assert "stream-snapshot-offset" not in api.head(path).headers
    wait_for_files(api, before, 0)


def aged_streams(api: Api, count: int) -> list[str]:
    """Streams with a snapshot, whose sliding TTL of 100 s has begun to run out."""
    messages = [b"%d" % number for number in range(10)]
    life = {"Stream-TTL": "100"}
    paths = [new_stream(api, TEXT, *messages, headers=life) for _ in range(count)]
    for path in paths:
        publish(api, path, START, b"state")
    wait_until("a second of their lives is over", lambda: ttl(api, paths[-1]) <= 99)
    return paths


def ttl(api: Api, path: str) -> int:
    return int(api.head(path).headers["stream-ttl"])


def test_sliding_ttl_starts_again_with_a_publish_and_with_every_read(sliding: Api) -> None:
    """Publishing, reading the snapshot or where it is, and bootstrap: all are uses."""

    unpublished = iter(range(1, 10))

    def publish_next(path: str) -> int:
        at = next(unpublished)
        return put_snapshot(sliding, path, offset(at, at), b"state").status

    uses: dict[str, Callable[[str], int]] = {
        "publish": publish_next,
        "read": lambda path: sliding.get(f"{path}/snapshot/{START}").status,
        "latest": lambda path: sliding.get(f"{path}/snapshot").status,
        "bootstrap": lambda path: sliding.get(f"{path}/bootstrap").status,
    }
    for (use, act), path in zip(uses.items(), aged_streams(sliding, len(uses)), strict=True):
        assert ttl(sliding, path) <= 99

        def restarted(act: Callable[[str], int] = act, path: str = path) -> bool:
            # Within a second of a use the number is 100; then it is less again.
            assert act(path) in (200, 204, 307)
            return ttl(sliding, path) == 100

        wait_until(f"{use} restarts the TTL", restarted, seconds=5.0)


def test_sliding_ttl_does_not_start_again_with_head_or_with_what_is_refused(sliding: Api) -> None:
    """
    Looking at metadata is no use, of a snapshot or a bootstrap as little as of a stream.

    A refused publish or delete changes nothing, and so not how long the stream lives.
    """
    acts: dict[str, Callable[[str], int]] = {
        "HEAD": lambda path: sliding.head(path).status,
        "HEAD …/snapshot": lambda path: sliding.head(f"{path}/snapshot").status,
        "HEAD …/snapshot/{}": lambda path: sliding.head(f"{path}/snapshot/{START}").status,
        "HEAD …/bootstrap": lambda path: sliding.head(f"{path}/bootstrap").status,
        "PUT": lambda path: put_snapshot(sliding, path, START, b"other").status,
        "DELETE": lambda path: sliding.request("DELETE", f"{path}/snapshot/{START}").status,
    }
    restarted = []
    for (name, act), path in zip(acts.items(), aged_streams(sliding, len(acts)), strict=True):
        assert act(path) == {"HEAD …/snapshot": 307, "PUT": 409, "DELETE": 409}.get(name, 200)
        if ttl(sliding, path) > 99:
            restarted.append(name)
    assert not restarted

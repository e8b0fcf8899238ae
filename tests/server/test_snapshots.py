"""X§2, X§5: publishing, finding, reading and replacing snapshots."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest

from tests.server.conftest import Start
from tests.server.test_compression import DECODERS
from tests.support.http import request
from tests.support.looping import for_each
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


@for_each(
    ("content_type", "appends"),
    [(JSON, [b'[1,"two",[3]]', b"4"]), (TEXT, [b"abc", b"d", b"ef"])],
)
def test_reads_snapshots_and_bootstrap_have_the_same_message_boundaries(
    api: Api, content_type: str, appends: list[bytes]
) -> None:
    """
    Reads, snapshots and bootstrap have one consistent model of retained message boundaries.

    Method: try every pair of numbers up to the tail, in order. A snapshot can be published exactly
    where a read can start, and bootstrap has one part for each message that the read returns.
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
    """From the response to a create, an append, a read, HEAD or a snapshot."""
    path = api.in_bucket(api.new_bucket(), "s")
    responses = [api.request("PUT", path, {"Content-Type": TEXT}, b"one")]
    publish(api, path, responses[-1].headers["stream-next-offset"])
    responses.append(api.post(path, b"two"))
    publish(api, path, responses[-1].headers["stream-next-offset"])
    before = responses[-1].headers["stream-next-offset"]
    api.append(path, b"three")
    responses.append(api.get(path, f"offset={before}"))
    publish(api, path, responses[-1].headers["stream-next-offset"])
    api.append(path, b"four")
    publish(api, path, api.head(path).headers["stream-next-offset"])
    again = api.get(f"{path}/snapshot/{api.tail(path)}")
    publish(api, path, again.headers["stream-next-offset"])


# -- X§2.2: publish --------------------------------------------------------------------------------


@for_each("body", [b"", b"state", LARGE])
def test_publish_is_204(api: Api, body: bytes) -> None:
    """Without a body, and with Stream-Next-Offset."""
    path = new_stream(api, TEXT, b"abc", b"def")
    response = put_snapshot(api, path, offset(1, 3), body)
    assert (response.status, response.body) == (204, b"")
    check_common(response)
    assert response.headers["stream-snapshot-offset"] == offset(1, 3)
    assert response.headers["stream-next-offset"] == offset(1, 3)
    assert response.headers["stream-up-to-date"] == "false"
    assert response.headers["cache-control"] == "no-store"
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
    # Digits that only Python's `int` accepts.
    "%D9%A00000000000000001_0000000000000003",
    "000000000000000%D9%A1_0000000000000003",
]


@for_each("token", MALFORMED)
def test_an_invalid_offset_is_400(api: Api, token: str) -> None:
    """Also the sentinels of reads: a snapshot covers a range that ends at a message."""
    path = new_stream(api, TEXT, b"abc", b"def")
    check_problem(put_snapshot(api, path, token, b"state"), 400, "offset-invalid")
    assert "stream-snapshot-offset" not in api.head(path).headers


@for_each("end", ["%0A", "%0D%0A", "%20"])
def test_an_offset_with_a_trailing_newline_is_400(api: Api, end: str) -> None:
    """`$` in a pattern would accept it; an ASGI framework may respond first."""
    path = new_stream(api, TEXT, b"abc", b"def")
    check_problem(put_snapshot(api, path, offset(1, 3) + end, b"state"), 400)
    assert "stream-snapshot-offset" not in api.head(path).headers


@for_each(
    "at",
    [offset(0, 1), offset(1, 1), offset(1, 4), offset(0, 3), offset(2, 3), offset(1, 6)],
)
def test_an_offset_that_is_not_a_message_boundary_is_400(api: Api, at: str) -> None:
    """Inside a message, or with the wrong message number."""
    path = new_stream(api, TEXT, b"abc", b"def")
    check_problem(put_snapshot(api, path, at, b"state"), 400, "offset-misaligned")
    assert "stream-snapshot-offset" not in api.head(path).headers


@for_each("at", [offset(0, 2), offset(2, 2), offset(1, 3), offset(2, 5)])
def test_an_offset_inside_an_element_of_a_json_batch_is_400(api: Api, at: str) -> None:
    """A batch has boundaries only between its elements."""
    # Stored as `1,` `"two",` `3,`.
    path = new_stream(api, JSON, b'[1,"two",3]')
    check_problem(put_snapshot(api, path, at, b"state"), 400, "offset-misaligned")


@for_each(
    ("at", "rest"),
    [(START, b'[1,"two",3]'), (offset(1, 2), b'["two",3]'), (offset(2, 8), b"[3]")],
)
def test_a_snapshot_can_be_between_the_elements_of_a_json_batch(
    api: Api, at: str, rest: bytes
) -> None:
    """Though they were appended in one request."""
    path = new_stream(api, JSON, b'[1,"two",3]')
    publish(api, path, at, b"state")
    assert api.get(path, f"offset={at}").body == rest
    api.append(path, b"[4,5]", content_type=JSON)
    assert api.get(path, f"offset={at}").body == rest[:-1] + b",4,5]"
    publish(api, path, offset(4, 12), b"later")
    assert api.get(path, f"offset={offset(4, 12)}").body == b"[5]"


def test_publish_to_a_stream_that_does_not_exist_is_404(api: Api) -> None:
    """And creates none; a missing bucket is 404 too."""
    path = api.in_bucket(api.new_bucket(), "none")
    for body in (b"state", LARGE):
        check_problem(put_snapshot(api, path, START, body), 404, "stream-not-found")
        nowhere = api.in_bucket("no-such-bucket", "none")
        check_problem(put_snapshot(api, nowhere, START, body), 404, "bucket-not-found")
    assert api.head(path).status == 404


@for_each("at", [offset(3, 7), offset(2, 7), offset(3, 6), "9" * 16 + "_" + "9" * 16])
def test_an_offset_past_the_tail_is_409(api: Api, at: str) -> None:
    """In bytes, in messages, or in both."""
    path = new_stream(api, TEXT, b"abc", b"def")
    check_problem(put_snapshot(api, path, at, b"state"), 409, "snapshot-beyond-tail")
    assert "stream-snapshot-offset" not in api.head(path).headers


def test_an_offset_past_the_tail_is_accepted_once_the_stream_reaches_it(api: Api) -> None:
    """After the 409 the client appends, then publishes again."""
    path = new_stream(api, TEXT, b"abc")
    assert put_snapshot(api, path, offset(2, 6), b"state").status == 409
    assert api.append(path, b"def") == offset(2, 6)
    publish(api, path, offset(2, 6), b"state")


@for_each("at", [START, offset(1, 3), offset(1, 1)])
def test_an_offset_before_the_earliest_retained_one_is_410(api: Api, at: str) -> None:
    """With the earliest offset; the visible snapshot does not change."""
    path = new_stream(api, TEXT, b"abc", b"def", b"ghi")
    publish(api, path, offset(2, 6), b"state")
    response = put_snapshot(api, path, at, b"older")
    check_problem(response, 410, "offset-gone")
    assert response.headers["stream-earliest-offset"] == offset(2, 6)
    assert read_snapshot(api, path, offset(2, 6)) == b"state"


@for_each("chunked", [False, True])
def test_a_snapshot_over_the_size_limit_is_413(start: Start, chunked: bool) -> None:
    """One of exactly the limit is accepted; appends have their own limit."""
    api = Api(start(*LIMITED))
    most = int(LIMITED[1])
    path = new_stream(api, TEXT, b"x" * (most + 1), b"y")
    publish(api, path, offset(1, most + 1), b"s" * most)
    headers, body = {}, b"s" * (most + 1)
    if chunked:
        headers = {"Transfer-Encoding": "chunked"}
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    response = put_snapshot(api, path, offset(2, most + 2), body, headers=headers)
    check_problem(response, 413, "snapshot-too-large")
    assert api.head(path).headers["stream-snapshot-offset"] == offset(1, most + 1)
    assert read_snapshot(api, path, offset(1, most + 1)) == b"s" * most
    api.close()


@for_each(
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
    """By GET and HEAD of the snapshot, and in bootstrap."""
    path = new_stream(api, OCTETS, b"abc")
    publish(api, path, offset(1, 3), b"state", content_type)
    target = f"{path}/snapshot/{offset(1, 3)}"
    assert api.get(target).headers["content-type"] == content_type
    assert api.head(target).headers["content-type"] == content_type
    assert bootstrap(api, path).snapshot.content_type == content_type
    assert api.head(path).headers["content-type"] == OCTETS


@for_each("stream_type", [TEXT, JSON])
def test_the_content_type_defaults_to_application_octet_stream(api: Api, stream_type: str) -> None:
    """Not to the content type of the stream."""
    path = new_stream(api, stream_type, b"1")
    publish(api, path, api.tail(path), b"state")
    assert api.get(f"{path}/snapshot/{api.tail(path)}").headers["content-type"] == OCTETS


@for_each("content_type", ["nonsense", "a/b, c/d", "text/plain x", "té/xt", "/"])
def test_an_invalid_content_type_is_400(api: Api, content_type: str) -> None:
    path = new_stream(api, TEXT, b"abc")
    check_problem(put_snapshot(api, path, offset(1, 3), b"state", content_type), 400)
    assert "stream-snapshot-offset" not in api.head(path).headers


@for_each("body", [b"state", LARGE])
def test_two_content_types_are_400(api: Api, body: bytes) -> None:
    path = new_stream(api, TEXT, b"abc")
    with api.connect() as connection:
        twice = [("Content-Type", "text/plain"), ("Content-Type", "text/html")]
        response = connection.request("PUT", f"{path}/snapshot/{offset(1, 3)}", twice, body)
    check_problem(response, 400)
    assert "stream-snapshot-offset" not in api.head(path).headers


def test_a_snapshot_with_a_content_encoding_is_rejected(api: Api) -> None:
    """It would be returned without the header; `identity` is accepted."""
    path = new_stream(api, TEXT, b"abc")
    headers = {"Content-Encoding": "gzip"}
    response = put_snapshot(api, path, offset(1, 3), b"state", headers=headers)
    check_problem(response, 415, "content-coding-refused")
    assert "stream-snapshot-offset" not in api.head(path).headers
    headers = {"Content-Encoding": "identity"}
    assert put_snapshot(api, path, offset(1, 3), b"state", headers=headers).status == 204


@for_each("body", [b"", b"state", LARGE])
def test_the_same_snapshot_again_is_204(api: Api, body: bytes) -> None:
    """A client that lost the response can retry; nothing changes."""
    path = new_stream(api, TEXT, b"abc", b"def")
    publish(api, path, offset(1, 3), body, TEXT)
    before = api.get(f"{path}/snapshot/{offset(1, 3)}")
    response = put_snapshot(api, path, offset(1, 3), body, TEXT)
    assert response.status == 204
    assert response.headers["stream-snapshot-offset"] == offset(1, 3)
    after = api.get(f"{path}/snapshot/{offset(1, 3)}")
    assert (after.body, after.headers["etag"]) == (body, before.headers["etag"])


@for_each(
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
    """Other bytes or another type; the visible snapshot does not change."""
    path = new_stream(api, TEXT, b"abc", b"def")
    publish(api, path, offset(1, 3), b"state", TEXT)
    before = api.get(f"{path}/snapshot/{offset(1, 3)}")
    response = put_snapshot(api, path, offset(1, 3), body, content_type)
    check_problem(response, 409, "snapshot-conflict")
    after = api.get(f"{path}/snapshot/{offset(1, 3)}")
    assert (after.body, after.headers["content-type"]) == (b"state", TEXT)
    assert after.headers["etag"] == before.headers["etag"]


@for_each("sizes", list(itertools.product([10, len(LARGE)], repeat=2)))
def test_a_new_snapshot_replaces_the_visible_one_at_once(api: Api, sizes: tuple[int, int]) -> None:
    """The old one is 404, and all headers name the new one."""
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
    With Stream-Earliest-Offset, in every mode; also -1 and a missing offset.

    Also offsets that never were message boundaries, which can no longer be determined.
    """
    path = new_stream(api, TEXT, b"abc", b"def", b"ghi")
    publish(api, path, offset(2, 6), b"state")
    gone = ["-1", START, offset(0, 1), offset(1, 3), offset(1, 4), offset(1, 5)]
    queries = ["", "live=false"]
    for mode in ("", "&live=long-poll", "&live=sse"):
        queries += [f"offset={at}{mode}" for at in gone]
    for query in queries:
        response = api.get(path, query)
        check_problem(response, 410, "offset-gone")
        assert response.headers["stream-earliest-offset"] == offset(2, 6), query


@for_each("mode", ["", "&live=long-poll"])
def test_the_snapshots_offset_and_every_later_one_are_retained(api: Api, mode: str) -> None:
    """Also `now`; misaligned offsets after it are 400."""
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


def test_every_snapshot_moves_the_earliest_retained_offset(api: Api) -> None:
    """The previous earliest offset is 410."""
    path = new_stream(api, TEXT)
    tails = [api.append(path, b"message %d" % number) for number in range(5)]
    for earlier, at in itertools.pairwise(tails):
        publish(api, path, at, at.encode())
        response = api.get(path, f"offset={earlier}")
        check_problem(response, 410, "offset-gone")
        assert response.headers["stream-earliest-offset"] == at
        assert api.get(path, f"offset={at}").status == 200


def test_a_snapshot_at_the_start_covers_no_messages(api: Api) -> None:
    """The stream can be empty; -1 is before the snapshot, and offset 0 is not."""
    path = new_stream(api, TEXT)
    publish(api, path, START, b"initial state")
    response = api.get(path, "offset=-1")
    check_problem(response, 410, "offset-gone")
    assert response.headers["stream-earliest-offset"] == START
    check_problem(api.get(path), 410, "offset-gone")
    api.append(path, b"abc")
    assert api.get(path, f"offset={START}").body == b"abc"
    assert read_snapshot(api, path, START) == b"initial state"
    found = bootstrap(api, path)
    assert (found.snapshot_offset, found.snapshot.body) == (START, b"initial state")
    assert found.messages == [b"abc"]


def test_a_snapshot_at_the_tail_covers_all_messages(api: Api) -> None:
    """Only later messages are retained."""
    path = new_stream(api, TEXT, b"abc", b"def")
    response = put_snapshot(api, path, offset(2, 6), b"state")
    assert response.headers["stream-up-to-date"] == "true"
    assert api.get(path, f"offset={offset(2, 6)}").body == b""
    assert bootstrap(api, path).messages == []
    assert api.append(path, b"ghi") == offset(3, 9)
    assert api.get(path, f"offset={offset(2, 6)}").body == b"ghi"


def test_publishing_does_not_change_the_state_of_writers(api: Api) -> None:
    """Producers, Stream-Seq, type and tail are unchanged."""
    path = new_stream(api, TEXT)
    claim = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0"}
    api.append(path, b"abc", claim | {"Stream-Seq": "b"})
    publish(api, path, offset(1, 3), b"state")
    again = api.post(path, b"abc", claim)
    assert (again.status, again.headers["stream-next-offset"]) == (204, offset(1, 3))
    assert api.post(path, b"x", {"Stream-Seq": "a"}).status == 409
    assert api.append(path, b"def", claim | {"Producer-Seq": "1"}) == offset(2, 6)


@for_each("when", ["before", "after"])
def test_a_closed_stream_can_have_snapshots(api: Api, when: str) -> None:
    """Published before or after closure; reads at the tail still have Stream-Closed."""
    path = new_stream(api, TEXT, b"abc", b"def")
    if when == "before":
        publish(api, path, offset(1, 3), b"state")
    api.close_stream(path)
    if when == "after":
        publish(api, path, offset(1, 3), b"state")
    response = api.get(path, f"offset={offset(1, 3)}")
    assert (response.body, response.headers["stream-closed"]) == (b"def", "true")
    check_problem(api.get(path, "offset=-1"), 410, "offset-gone")
    publish(api, path, offset(2, 6), b"last")
    assert read_snapshot(api, path, offset(2, 6)) == b"last"
    response = api.get(path, f"offset={offset(2, 6)}&live=long-poll")
    assert (response.status, response.headers["stream-closed"]) == (204, "true")
    head = api.head(path).headers
    assert (head["stream-closed"], head["stream-snapshot-offset"]) == ("true", offset(2, 6))


# -- X§2.3: read latest snapshot -------------------------------------------------------------------


@for_each("name", ["plain", "caf%C3%A9%20%25%3F", "snapshot", "bootstrap", "a.b"])
def test_the_latest_snapshot_is_a_307_to_its_url(api: Api, name: str) -> None:
    """Location is absolute and correct for any stream name."""
    path = new_stream(api, TEXT, b"abc", b"def", name=name)
    publish(api, path, offset(1, 3), b"state")
    response = api.get(f"{path}/snapshot")
    assert (response.status, response.body) == (307, b"")
    check_common(response)
    location = response.headers["location"]
    assert location == api.url(f"{path}/snapshot/{offset(1, 3)}")
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["stream-snapshot-offset"] == offset(1, 3)
    followed = request("GET", location)
    assert (followed.status, followed.body) == (200, b"state")
    head = api.request("HEAD", f"{path}/snapshot")
    assert (head.status, head.headers["location"]) == (307, location)


def test_the_location_has_the_host_and_scheme_of_the_client(api: Api) -> None:
    """Also behind a proxy."""
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


def test_head_returns_the_offset_of_the_latest_snapshot(api: Api) -> None:
    """
    It is absent without a snapshot, and otherwise the same as in GET …/snapshot.

    Stream-Earliest-Offset is present too.
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


@for_each("body", [b"", b"state", LARGE])
def test_a_snapshot_is_returned_with_its_headers(api: Api, body: bytes) -> None:
    """Content-Type, Stream-Snapshot-Offset, Stream-Next-Offset, Stream-Up-To-Date."""
    path = new_stream(api, TEXT, b"abc", b"def")
    publish(api, path, offset(1, 3), body, "text/x-state; v=1")
    response = api.get(f"{path}/snapshot/{offset(1, 3)}")
    assert (response.status, response.body) == (200, body)
    check_common(response)
    assert response.headers["content-type"] == "text/x-state; v=1"
    assert response.headers["content-length"] == str(len(body))
    assert response.headers["stream-snapshot-offset"] == offset(1, 3)
    assert response.headers["stream-next-offset"] == offset(1, 3)
    assert response.headers["stream-up-to-date"] == "false"
    exposed = response.headers["access-control-expose-headers"].lower()
    assert "stream-snapshot-offset" in exposed
    assert "stream-earliest-offset" in exposed
    rest = api.get(path, f"offset={response.headers['stream-next-offset']}")
    assert rest.body == b"def"


def test_stream_up_to_date_is_false_if_there_are_messages_after_the_snapshot(api: Api) -> None:
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


@for_each("at", [START, offset(1, 1), offset(2, 6), offset(3, 9)])
def test_a_snapshot_that_does_not_exist_is_404(api: Api, at: str) -> None:
    """At any offset, and also before the first snapshot."""
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


@for_each("body", [b"", b"state", LARGE])
def test_if_none_match_is_304(api: Api, body: bytes) -> None:
    """Without the bytes, but with the current Stream-Up-To-Date."""
    path = new_stream(api, TEXT, b"abc")
    publish(api, path, offset(1, 3), body)
    target = f"{path}/snapshot/{offset(1, 3)}"
    etag = api.get(target).headers["etag"]
    assert etag.startswith('"') and etag.endswith('"')
    api.append(path, b"def")
    for known in (etag, f'"other", {etag}', f"W/{etag}", "*"):
        response = api.get(target, headers={"If-None-Match": known})
        assert (response.status, response.body) == (304, b"")
        assert response.headers["etag"] == etag
        assert response.headers["stream-up-to-date"] == "false"
        assert response.headers["cache-control"] == "no-cache"
    response = api.get(target, headers={"If-None-Match": '"other"'})
    assert (response.status, response.body) == (200, body)


def test_each_snapshot_has_its_own_etag(api: Api) -> None:
    """Also for the same bytes at another offset or of another stream."""
    etags = set()
    bucket = api.new_bucket()
    for _ in range(2):
        path = api.create(body=b"abc", path=api.in_bucket(bucket, "s"))
        for at in (START, offset(1, 3)):
            publish(api, path, at, b"state")
            etags.add(api.get(f"{path}/snapshot/{at}").headers["etag"])
        assert api.request("DELETE", path).status == 204
    assert len(etags) == 4


@for_each("coding", DECODERS)
@for_each("size", [len(TEXTUAL), 3 << 20])
def test_snapshots_are_compressed_if_accepted(api: Api, coding: str, size: int) -> None:
    """Each coding is a variant with its own ETag."""
    body = (TEXTUAL * (size // len(TEXTUAL) + 1))[:size]
    path = new_stream(api, TEXT, b"abc")
    publish(api, path, offset(1, 3), body)
    target = f"{path}/snapshot/{offset(1, 3)}"
    response = api.get(target, headers={"Accept-Encoding": coding})
    assert response.headers["content-encoding"] == coding
    assert "accept-encoding" in response.headers["vary"].lower()
    assert len(response.body) < size
    assert DECODERS[coding](response.body) == body
    plain = api.get(target)
    assert "content-encoding" not in plain.headers
    assert plain.body == body
    assert plain.headers["etag"] != response.headers["etag"]
    headers = {"Accept-Encoding": coding, "If-None-Match": response.headers["etag"]}
    assert api.get(target, headers=headers).status == 304
    assert api.get(target, headers={"If-None-Match": response.headers["etag"]}).status == 200


@for_each("size", [0, 1024])
def test_snapshots_of_up_to_1_kib_are_not_compressed(api: Api, size: int) -> None:
    path = new_stream(api, TEXT, b"abc")
    publish(api, path, offset(1, 3), b"s" * size)
    response = api.get(f"{path}/snapshot/{offset(1, 3)}", headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in response.headers
    assert response.body == b"s" * size


# -- X§2.6: delete snapshot ------------------------------------------------------------------------


def test_the_latest_snapshot_cannot_be_deleted(api: Api) -> None:
    """409, because bootstrap would be incomplete; also for a snapshot at the start."""
    path = new_stream(api, TEXT, b"abc", b"def")
    for at in (START, offset(1, 3), offset(2, 6)):
        publish(api, path, at, at.encode())
        response = api.request("DELETE", f"{path}/snapshot/{at}")
        check_problem(response, 409, "snapshot-needed")
        assert read_snapshot(api, path, at) == at.encode()
        assert bootstrap(api, path).snapshot.body == at.encode()


@for_each("at", [START, offset(1, 3), offset(1, 2), offset(9, 99)])
def test_delete_of_a_snapshot_that_does_not_exist_is_404(api: Api, at: str) -> None:
    """With no snapshot, at another offset, or superseded; the visible one stays."""
    path = new_stream(api, TEXT, b"abc", b"def")
    check_problem(api.request("DELETE", f"{path}/snapshot/{at}"), 404, "snapshot-not-found")
    publish(api, path, offset(1, 3), b"old")
    publish(api, path, offset(2, 6), b"state")
    check_problem(api.request("DELETE", f"{path}/snapshot/{at}"), 404, "snapshot-not-found")
    assert read_snapshot(api, path, offset(2, 6)) == b"state"


@for_each("method", ["GET", "DELETE"])
@for_each("token", ["-1", "now", "x", "0_0"])
def test_reading_or_deleting_a_snapshot_at_an_invalid_offset_is_404(
    api: Api, method: str, token: str
) -> None:
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


@for_each("encode", ENCODINGS.values())
def test_the_offset_in_a_path_may_be_percent_encoded(
    api: Api, encode: Callable[[str], str]
) -> None:
    """For PUT, GET, HEAD and DELETE."""
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


def test_the_offset_in_a_path_is_decoded_once(api: Api) -> None:
    path = new_stream(api, TEXT, b"abc")
    check_problem(put_snapshot(api, path, offset(1, 3).replace("_", "%255F")), 400)


# -- other reads and routes ------------------------------------------------------------------------


def test_ordinary_reads_never_return_snapshot_bytes(api: Api) -> None:
    """X§3.4: only the snapshot's URL and bootstrap return them."""
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


@for_each("name", ["snapshot", "bootstrap", f"snapshot/{START}"])
def test_on_the_base_surface_snapshot_paths_are_ordinary_streams(api: Api, name: str) -> None:
    """Under /v1/stream paths have any depth, and there are no snapshots or bootstraps."""
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


@for_each("below", ["snapshot", "snapshot/" + START, "bootstrap"])
def test_other_methods_are_405(api: Api, below: str) -> None:
    """With Allow; no stream of that name is created."""
    path = new_stream(api, TEXT, b"abc")
    publish(api, path, START, b"state")
    allowed = {"GET", "HEAD", "OPTIONS"} | ({"PUT", "DELETE"} if START in below else set())
    for method in {"GET", "HEAD", "PUT", "POST", "DELETE", "PATCH"} - allowed:
        response = api.request(method, f"{path}/{below}", body=b"x")
        check_problem(response, 405, "method-not-allowed")
        assert {name.strip() for name in response.headers["allow"].split(",")} == allowed
    assert api.request("OPTIONS", f"{path}/{below}").status == 204


# -- the end of a stream ---------------------------------------------------------------------------


@for_each("body", [b"state", LARGE])
def test_a_stream_that_is_deleted_and_created_again_has_no_snapshot(api: Api, body: bytes) -> None:
    """All offsets of the new stream are retained."""
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
    """A stream that is gone has no snapshot either."""
    for target in (f"{path}/snapshot", f"{path}/snapshot/{offset(1, 3)}", f"{path}/bootstrap"):
        check_problem(api.get(target), 404, "stream-not-found")
        assert api.head(target).status == 404
    check_problem(put_snapshot(api, path, offset(1, 3), b"state"), 404, "stream-not-found")
    response = api.request("DELETE", f"{path}/snapshot/{offset(1, 3)}")
    check_problem(response, 404, "stream-not-found")


def test_an_expired_stream_is_404(api: Api) -> None:
    """
    With its snapshot, whose file is removed.

    Then a new stream can be created at the URL.
    """
    before = snapshot_files(api)
    over = new_stream(api, TEXT, headers={"Stream-TTL": "0"})
    check_gone(api, over)
    path = api.create(
        body=b"abc", headers={"Stream-TTL": "1"}, path=api.in_bucket(api.new_bucket(), "s")
    )
    # On a busy machine the stream may have expired already.
    assert put_snapshot(api, path, offset(1, 3), LARGE).status in (204, 404)
    wait_until("the stream expires", lambda: api.head(path).status == 404)
    check_gone(api, path)
    api.create(body=b"new", path=path)
    assert "stream-snapshot-offset" not in api.head(path).headers
    wait_for_files(api, before, 0)


def aged_streams(api: Api, count: int) -> list[str]:
    """Streams with a snapshot, and with less than 100 s left of a sliding TTL of 100 s."""
    messages = [b"%d" % number for number in range(10)]
    life = {"Stream-TTL": "100"}
    paths = [new_stream(api, TEXT, *messages, headers=life) for _ in range(count)]
    for path in paths:
        publish(api, path, START, b"state")
    wait_until("a second of their lives is over", lambda: ttl(api, paths[-1]) <= 99)
    return paths


def ttl(api: Api, path: str) -> int:
    return int(api.head(path).headers["stream-ttl"])


def test_a_sliding_ttl_restarts_with_a_publish_and_with_every_read(sliding: Api) -> None:
    """By publishing, reading the snapshot or its location, and bootstrap."""

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
            # The value is 100 only within a second after the restart.
            assert act(path) in (200, 204, 307)
            return ttl(sliding, path) == 100

        wait_until(f"{use} restarts the TTL", restarted, seconds=5.0)


def test_a_sliding_ttl_does_not_restart_with_head_or_rejected_requests(sliding: Api) -> None:
    """
    HEAD of a stream, a snapshot or a bootstrap does not restart it.

    Neither does a rejected publish or delete.
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

"""X§1: buckets. `test_listing` tests the listing of their streams."""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest

from tests.server.conftest import KINDS
from tests.support.http import Connection, Response, format_request
from tests.support.looping import for_each
from tests.support.publishing import KINDS_ONCE
from tests.support.streams import Api, check_common, check_problem, wait_until
from tests.support.together import HANG_S, together
from tests.support.uneven_disk import SlowDiskServer

TEXT = {"Content-Type": "text/plain"}
OFFSET = "0000000000000000_0000000000000000"
# Every request for a stream and its subresources.
STREAM_REQUESTS = [
    ("PUT", "", b""),
    ("PUT", "", b"first"),
    ("POST", "", b"x"),
    ("GET", "", None),
    ("GET", "?offset=-1", None),
    ("GET", "?offset=now", None),
    ("GET", "?offset=-1&live=long-poll", None),
    ("GET", "?offset=-1&live=sse", None),
    ("HEAD", "", None),
    ("DELETE", "", None),
    ("GET", "/snapshot", None),
    ("HEAD", "/snapshot", None),
    ("PUT", f"/snapshot/{OFFSET}", b"snapshot"),
    ("GET", f"/snapshot/{OFFSET}", None),
    ("HEAD", f"/snapshot/{OFFSET}", None),
    ("DELETE", f"/snapshot/{OFFSET}", None),
    ("GET", "/bootstrap", None),
    ("HEAD", "/bootstrap", None),
]

once = pytest.mark.parametrize("kind", KINDS_ONCE, indirect=True, scope="session")

_ids = itertools.count()


def new_id(length: int = 12) -> str:
    """An unused bucket id of this length."""
    number = next(_ids)
    digits = "0123456789abcdefghijklmnopqrstuvwxyz"
    return f"zq{digits[number // 36]}{digits[number % 36]}".ljust(length, "_")


def at(api: Api, bucket: str, rest: str = "") -> str:
    """The path of a bucket, or of a resource in it."""
    return f"{api.server.base_path}/{bucket}{rest}"


def describe(api: Api, bucket: str) -> dict[str, Any]:
    response = api.get(at(api, bucket))
    assert response.status == 200, (response.status, response.body)
    body: dict[str, Any] = json.loads(response.body)
    return body


def count(api: Api, bucket: str) -> int:
    """The number of streams in the bucket's metadata."""
    streams = describe(api, bucket)["streams"]
    assert type(streams) is int
    return streams


def listed(api: Api, bucket: str) -> list[str]:
    response = api.get(at(api, bucket, "/streams"))
    assert response.status == 200, (response.status, response.body)
    return [stream["stream_id"] for stream in json.loads(response.body)["streams"]]


def visible_state(api: Api, *buckets: str) -> list[dict[str, object]]:
    """Metadata and listing of these buckets, without the position, which a restart resets."""
    found = []
    for bucket in buckets:
        for rest in ("", "/streams"):
            body = json.loads(api.get(at(api, bucket, rest)).body)
            body.pop("position", None)
            found.append(body)
    return found


def refused(api: Api, method: str, target: str, body: bytes | None, status: int, code: str) -> None:
    """Send a request that must be rejected; the response to HEAD has no body to check."""
    headers = TEXT if body else {}
    response = api.request(method, target, headers, body)
    if method == "HEAD":
        assert (response.status, response.body) == (status, b"")
        check_common(response)
    else:
        check_problem(response, status, code)


@once
class TestBucketId:
    """X§1.1: bucket_id MUST match ^[a-z0-9_-]{4,64}$."""

    @for_each("length", [4, 5, 63, 64])
    def test_four_to_64_characters(self, api: Api, length: int) -> None:
        bucket = new_id(length)
        assert len(bucket) == length
        assert api.request("PUT", at(api, bucket)).status == 201
        assert describe(api, bucket)["bucket_id"] == bucket
        assert api.request("DELETE", at(api, bucket)).status == 204

    @for_each(
        "bucket", ["abcdefghijklmnopqrstuvwxyz0123456789_-", "____", "----", "0000", "v1v1", "-/-"]
    )
    def test_every_allowed_character(self, api: Api, bucket: str) -> None:
        bucket = bucket.replace("/", "--")
        assert api.request("PUT", at(api, bucket)).status == 201
        api.create(path=at(api, bucket, "/s"), body=b"x")
        assert api.get(at(api, bucket, "/s")).body == b"x"
        assert listed(api, bucket) == ["s"]
        assert api.request("DELETE", at(api, bucket, "/s")).status == 204
        assert api.request("DELETE", at(api, bucket)).status == 204

    @for_each(
        "bucket",
        [
            "a", "abc", "a" * 65, "a" * 1000, "ABCD", "abcD", "ab.d", "abcd.", "....", "ab~d",
            "ab+d", "ab%20d", "abcd%20", "abcd%00", "ab%2Fd",
            "abcd%2F", "ab%5Cd", "%41bcd", "%C3%A4bcd", "%EF%BD%81bcd", "ab%D9%A3%D9%A4",
            "%F0%9F%98%80abc", "abc%25", "a:cd", "a;cd", "a=cd", "a,cd", "a@cd", "a!cd", "a*cd",
        ],
    )  # fmt: skip
    def test_an_invalid_bucket_id_is_400_for_every_operation(self, api: Api, bucket: str) -> None:
        """400 Bad Request: bucket_id is invalid (X§1.2, X§1.3, X§1.4, X§1.5)."""
        for method, rest in (
            ("PUT", ""),
            ("GET", ""),
            ("HEAD", ""),
            ("DELETE", ""),
            ("GET", "/streams"),
            ("HEAD", "/streams"),
            ("PUT", "/s"),
            ("GET", "/s"),
            ("POST", "/s"),
            ("DELETE", "/s"),
            ("GET", "/s/snapshot"),
            ("GET", "/s/bootstrap"),
        ):
            body = b"x" if method == "POST" else None
            refused(api, method, at(api, bucket, rest), body, 400, "bucket-invalid")

    @for_each("bucket", ["abcd%0A", "abcd%0D%0A", "%0Aabcd", "ab%0Acd"])
    @for_each("method", ["PUT", "GET", "DELETE"])
    def test_a_bucket_id_that_ends_with_a_newline_is_400(
        self, api: Api, method: str, bucket: str
    ) -> None:
        """`$` must not match before a trailing newline."""
        response = api.request(method, at(api, bucket))
        if api.server.base_path:
            # The router of the ASGI framework may respond first.
            assert response.status in (400, 404)
        else:
            check_problem(response, 400, "bucket-invalid")
        assert api.get(at(api, bucket.replace("%0D", "").replace("%0A", ""))).status == 404

    @for_each("bucket", ["%ff%ff%ff%ff", "abcd%", "abcd%4", "abcd%zz", "%c0%80abcd"])
    def test_invalid_percent_encodings_are_400(self, api: Api, bucket: str) -> None:
        for rest in ("", "/streams", "/s"):
            refused(api, "GET", at(api, bucket, rest), None, 400, "path-invalid")

    def test_a_percent_encoded_letter_is_the_letter(self, api: Api) -> None:
        """And a path is decoded only once: `%2561` is `%61`."""
        bucket = new_id()
        encoded = "".join(f"%{ord(letter):02{'xX'[n % 2]}}" for n, letter in enumerate(bucket))
        assert api.request("PUT", at(api, encoded)).status == 201
        check_problem(api.request("PUT", at(api, bucket)), 409, "bucket-exists")
        assert describe(api, encoded)["bucket_id"] == bucket
        api.create(path=at(api, encoded, "/s"), body=b"x")
        assert api.get(at(api, bucket, "/%73")).body == b"x"
        twice = encoded.replace("%", "%25")
        check_problem(api.get(at(api, twice)), 400, "bucket-invalid")

    @for_each("first", ["v1", "-", ""])
    def test_reserved_first_segments_are_not_buckets(self, api: Api, first: str) -> None:
        """They belong to other routes: 404, and no bucket is created."""
        refused(api, "GET", at(api, first, "/x"), None, 404, "route-not-found")
        for method in ("PUT", "DELETE"):
            response = api.request(method, at(api, first, "/x"))
            check_problem(response, 405 if first == "-" else 404)


@once
class TestStreamId:
    """X§1.1: any UTF-8 string of a limited length, without `/`, NUL and `..`."""

    @for_each(
        "stream",
        [
            "s", "S", "a.b", ".a", "a.", "-", "~", "stream", "streams2", "Streams", "snapshot",
            "bootstrap", "v1", " ", "a b", "\t", "\x7f", "\\", "%", "%41", "?",
            "a?b", "#", "+", "&=;,", "'\"<>", "ä", "a\u0308", "\u202e", "😀", "\U0010ffff",
            "\ufeff",
        ],
    )  # fmt: skip
    def test_any_utf_8_string_is_a_stream_id(self, api: Api, stream: str) -> None:
        """Percent-encoded in the URL; the listing returns the text."""
        bucket = api.new_bucket()
        path = at(api, bucket, "/" + quote(stream, safe=""))
        created = api.request("PUT", path, TEXT, b"x")
        assert created.status == 201
        assert created.headers["location"] == api.url(path)
        assert api.get(path).body == b"x"
        assert listed(api, bucket) == [stream]
        assert api.append(path, b"yz") == "0000000000000002_0000000000000003"
        assert api.request("PUT", f"{path}/snapshot/{OFFSET}", {}, b"all").status == 204
        assert api.get(f"{path}/snapshot/{OFFSET}").body == b"all"
        assert api.get(path + "/bootstrap").status == 200
        assert api.request("DELETE", path).status == 204
        assert listed(api, bucket) == []

    @for_each("stream", ["%0A", "a%0A", "%0Aa", "a%0D%0Ab"])
    def test_a_stream_id_can_contain_newlines(self, api: Api, stream: str) -> None:
        bucket = api.new_bucket()
        response = api.request("PUT", at(api, bucket, "/" + stream), TEXT, b"x")
        if response.status == 404 and api.server.base_path:
            # The ASGI framework has no route for some of these.
            assert listed(api, bucket) == []
        else:
            assert response.status == 201
            assert listed(api, bucket) == [unquote(stream)]
            assert api.get(at(api, bucket, "/" + stream)).body == b"x"

    def test_ids_are_compared_as_bytes(self, api: Api) -> None:
        """Without folding of case or Unicode composition."""
        bucket = api.new_bucket()
        names = ["a", "A", "ä", "a\u0308", "Ä", "ﬁ", "fi"]
        for name in names:
            api.create(path=at(api, bucket, "/" + quote(name)), body=name.encode())
        for name in names:
            assert api.get(at(api, bucket, "/" + quote(name))).body == name.encode()
        assert count(api, bucket) == len(names)

    @for_each(
        "stream",
        [
            "", ".", "%2e", "..", "%2e%2e", ".%2E", "...", "a..", "..a", "a..b", "a%2e%2Eb",
            "..%2F..", "a/b", "a%2Fb", "%2F", "a%2f", "a/", "a/b/c", "a//", "%00", "a%00", "%00a",
            "a%00b", "a/snapshots", "a/snapshot/b/c", "a/bootstrap/x", "streams/x", "a/./b",
            "%ff", "a%80", "%c0%af", "%ed%a0%80", "%f4%90%80%80", "%", "a%2", "a%zz",
        ],
    )  # fmt: skip
    def test_an_invalid_stream_id_is_400(self, api: Api, stream: str) -> None:
        """A slash, NUL, `..` anywhere, an empty id, invalid UTF-8, and a single dot."""
        bucket = api.new_bucket()
        for method in ("PUT", "POST", "GET", "HEAD", "DELETE"):
            body = b"x" if method in ("PUT", "POST") else None
            refused(api, method, at(api, bucket, "/" + stream), body, 400, "path-invalid")
        assert count(api, bucket) == 0

    @for_each("rest", ["/snapshot", f"/snapshot/{OFFSET}", "/bootstrap"])
    @for_each("stream", ["", ".", "..", "a..b", "%00", "a%2Fb", "streams", "%ff"])
    def test_subresources_of_an_invalid_stream_id_are_400(
        self, api: Api, stream: str, rest: str
    ) -> None:
        refused(api, "GET", at(api, "some-bucket", f"/{stream}{rest}"), None, 400, "path-invalid")

    @for_each("letter", ["a", "ä", "€", "😀"])
    @for_each("length", [4, 64])
    def test_the_combined_key_must_not_exceed_122_bytes(
        self, api: Api, length: int, letter: str
    ) -> None:
        """Counted in bytes of UTF-8 after percent-decoding, including the slash."""
        bucket = new_id(length)
        assert api.request("PUT", at(api, bucket)).status == 201
        room = 122 - length - 1
        size = len(letter.encode())
        longest = letter * (room // size) + "x" * (room % size)
        path = at(api, bucket, "/" + quote(longest))
        api.create(path=path, body=b"x")
        assert listed(api, bucket) == [longest]
        assert api.get(path + "/bootstrap").status == 200
        for too_long in (longest + "x", letter * (room // size + 1)):
            for method, rest in (("PUT", ""), ("GET", ""), ("GET", "/snapshot")):
                target = at(api, bucket, "/" + quote(too_long)) + rest
                refused(api, method, target, None, 400, "path-invalid")
        assert count(api, bucket) == 1

    @for_each("length", [118, 121, 122, 123, 1000])
    def test_a_stream_id_that_is_too_long_for_any_bucket_is_400(
        self, api: Api, length: int
    ) -> None:
        """The shortest bucket id leaves 117 bytes."""
        refused(api, "PUT", at(api, "abcd", "/" + "s" * length), None, 400, "path-invalid")

    @for_each("spelling", ["streams", "%73treams", "stream%73"])
    def test_the_stream_id_streams_is_reserved(self, api: Api, spelling: str) -> None:
        """It is the listing, in any percent-encoding: no stream can be created there."""
        bucket = api.new_bucket()
        path = at(api, bucket, "/" + spelling)
        for method in ("PUT", "POST", "DELETE"):
            body = b"x" if method == "POST" else None
            problem = check_problem(api.request(method, path, TEXT, body), 400, "path-invalid")
            assert "reserved" in problem["detail"]
        assert json.loads(api.get(path).body)["streams"] == []
        assert count(api, bucket) == 0


@once
class TestCreate:
    """X§1.2: PUT /{bucket_id}."""

    def test_created_is_201(self, api: Api) -> None:
        bucket = new_id()
        response = api.request("PUT", at(api, bucket))
        assert (response.status, response.body) == (201, b"")
        assert response.headers["location"] == api.url(at(api, bucket))
        assert response.headers["cache-control"] == "no-store"
        check_common(response)

    def test_an_existing_bucket_is_409_and_unchanged(self, api: Api) -> None:
        bucket = api.new_bucket()
        api.create(path=at(api, bucket, "/s"), body=b"x")
        before = describe(api, bucket)
        for _ in range(2):
            check_problem(api.request("PUT", at(api, bucket)), 409, "bucket-exists")
        assert describe(api, bucket) == before
        assert api.get(at(api, bucket, "/s")).body == b"x"

    def test_a_body_and_a_query_are_ignored(self, api: Api) -> None:
        bucket = new_id()
        response = api.request("PUT", at(api, bucket, "?x=1"), TEXT, b"ignored")
        assert response.status == 201
        assert describe(api, bucket)["streams"] == 0

    def test_a_stream_must_not_create_its_bucket(self, api: Api) -> None:
        """PUT /{bucket_id}/{stream_id} MUST NOT implicitly create a bucket."""
        bucket = new_id()
        check_problem(api.request("PUT", at(api, bucket, "/s"), TEXT), 404, "bucket-not-found")
        check_problem(api.get(at(api, bucket)), 404, "bucket-not-found")
        assert api.request("PUT", at(api, bucket)).status == 201
        assert count(api, bucket) == 0
        check_problem(api.get(at(api, bucket, "/s")), 404, "stream-not-found")


@once
class TestMetadata:
    """X§1.3: GET /{bucket_id}."""

    def test_metadata_is_an_object_with_bucket_id_and_streams(self, api: Api) -> None:
        before = time.time() * 1000
        bucket = api.new_bucket()
        after = time.time() * 1000
        response = api.get(at(api, bucket))
        assert response.status == 200
        assert response.headers["content-type"] == "application/json"
        assert response.headers["cache-control"] == "no-store"
        check_common(response)
        body = json.loads(response.body)
        assert body["bucket_id"] == bucket
        assert type(body["streams"]) is int and body["streams"] == 0
        assert before - 1 <= body["created_at_ms"] <= after + 1

    def test_a_missing_bucket_is_404(self, api: Api) -> None:
        check_problem(api.get(at(api, new_id())), 404, "bucket-not-found")

    def test_the_count_changes_with_creates_and_deletes(self, api: Api) -> None:
        """Not with retries, conflicts, appends or closures, nor with streams of other buckets."""
        bucket, other = api.new_bucket(), api.new_bucket()
        paths = [at(api, bucket, f"/{n}") for n in range(3)]
        for number, path in enumerate(paths, 1):
            api.create(path=path)
            assert (count(api, bucket), count(api, other)) == (number, 0)
        assert api.request("PUT", paths[0], TEXT).status == 200
        assert api.request("PUT", paths[0], {"Content-Type": "text/html"}).status == 409
        assert api.request("PUT", at(api, bucket, "/a..b"), TEXT).status == 400
        assert api.request("PUT", at(api, bucket, "/bad"), {"Stream-TTL": "x"}).status == 400
        api.append(paths[0], b"x")
        api.close_stream(paths[1])
        api.create(path=at(api, other, "/0"))
        assert (count(api, bucket), count(api, other)) == (3, 1)
        for left, path in zip((2, 1, 0), paths, strict=True):
            assert api.request("DELETE", path).status == 204
            assert api.request("DELETE", path).status == 404
            assert (count(api, bucket), count(api, other)) == (left, 1)
        api.create(path=paths[0])
        assert count(api, bucket) == 1

    def test_a_stream_that_has_expired_is_not_counted(self, api: Api) -> None:
        """From its expiry on, whether or not the sweeper has removed it."""
        bucket = api.new_bucket()
        api.create(path=at(api, bucket, "/stays"))
        for _ in range(3):
            api.create(path=at(api, bucket, "/brief"), headers={"Stream-TTL": "0"})
            assert (count(api, bucket), listed(api, bucket)) == (1, ["stays"])

    def test_the_count_decreases_once_at_expiry(self, api: Api) -> None:
        """And not again when the sweeper removes the stream."""
        bucket = api.new_bucket()
        api.create(path=at(api, bucket, "/stays"))
        api.create(path=at(api, bucket, "/brief"), headers={"Stream-TTL": "1"})
        seen = [2]

        def expired() -> bool:
            seen.append(count(api, bucket))
            return seen[-1] != 2

        wait_until("it expires", expired)
        # The sweeper runs every half second; the count must not change within that time.
        end = time.monotonic() + 0.7
        while time.monotonic() < end:
            seen.append(count(api, bucket))
        assert [number for number, _ in itertools.groupby(seen)] == [2, 1]
        assert listed(api, bucket) == ["stays"]

    def test_a_stream_with_a_sliding_ttl_is_counted_while_it_is_read(self, sliding: Api) -> None:
        """Reading the bucket or its listing does not restart the TTL of its streams."""
        api = sliding
        bucket = api.new_bucket()
        path = at(api, bucket, "/s")
        api.create(path=path, headers={"Stream-TTL": "1"})
        end = time.monotonic() + 1.5
        while time.monotonic() < end and api.get(path).status == 200:
            # On a busy machine it may expire here; then it is gone from every view.
            seen = (count(api, bucket), listed(api, bucket))
            assert seen == (1, ["s"]) or api.head(path).status == 404
        wait_until("it expires", lambda: count(api, bucket) == 0)
        assert listed(api, bucket) == []
        assert api.head(path).status == 404


@once
class TestDelete:
    """X§1.5: DELETE /{bucket_id}."""

    def test_an_empty_bucket_is_204_and_then_404(self, api: Api) -> None:
        bucket = api.new_bucket()
        response = api.request("DELETE", at(api, bucket))
        assert (response.status, response.body) == (204, b"")
        check_common(response)
        for method, rest in (("DELETE", ""), ("GET", ""), ("GET", "/streams"), ("PUT", "/s")):
            refused(api, method, at(api, bucket, rest), None, 404, "bucket-not-found")

    def test_a_missing_bucket_is_404(self, api: Api) -> None:
        check_problem(api.request("DELETE", at(api, new_id())), 404, "bucket-not-found")

    def test_a_bucket_must_be_empty_before_deletion(self, api: Api) -> None:
        """409 as long as there is a stream, open or closed; then 204."""
        bucket = api.new_bucket()
        api.create(path=at(api, bucket, "/a"), body=b"x")
        api.create(path=at(api, bucket, "/b"), headers={"Stream-Closed": "true"})
        for name, left in (("a", ["a", "b"]), ("b", ["b"])):
            check_problem(api.request("DELETE", at(api, bucket)), 409, "bucket-not-empty")
            assert (count(api, bucket), listed(api, bucket)) == (len(left), left)
            assert api.request("DELETE", at(api, bucket, f"/{name}")).status == 204
        assert api.request("DELETE", at(api, bucket)).status == 204

    def test_a_bucket_whose_only_stream_has_expired_can_be_deleted(self, api: Api) -> None:
        """Even before the sweeper has removed the stream."""
        for _ in range(3):
            bucket = api.new_bucket()
            api.create(path=at(api, bucket, "/s"), headers={"Stream-TTL": "0"})
            assert api.request("DELETE", at(api, bucket)).status == 204
            check_problem(api.get(at(api, bucket)), 404, "bucket-not-found")

    def test_a_bucket_can_be_deleted_when_its_stream_expires(self, api: Api) -> None:
        bucket = api.new_bucket()
        api.create(path=at(api, bucket, "/s"), headers={"Stream-TTL": "1"})
        responses = []

        def deleted() -> bool:
            responses.append(api.request("DELETE", at(api, bucket)).status)
            return responses[-1] == 204

        wait_until("the bucket can be deleted", deleted)
        assert set(responses[:-1]) <= {409}

    def test_a_bucket_that_is_created_again_is_empty(self, api: Api) -> None:
        """It has no streams, counts or snapshots of the deleted bucket."""
        bucket = api.new_bucket()
        path = at(api, bucket, "/s")
        first = describe(api, bucket)
        for number in range(3):
            api.create(path=path, body=b"%d" % number)
            tail = api.tail(path)
            check_problem(api.get(path + "/snapshot"), 404, "snapshot-not-found")
            assert api.request("PUT", f"{path}/snapshot/{tail}", {}, b"all").status == 204
            assert api.request("DELETE", path).status == 204
            assert api.request("DELETE", at(api, bucket)).status == 204
            assert api.request("PUT", at(api, bucket)).status == 201
            assert (count(api, bucket), listed(api, bucket)) == (0, [])
            check_problem(api.get(path), 404, "stream-not-found")
        assert describe(api, bucket)["created_at_ms"] >= first["created_at_ms"]


@once
class TestStreamOperations:
    """X§1.6: all stream operations apply; when the bucket does not exist, 404."""

    @for_each(("method", "rest", "body"), STREAM_REQUESTS, ids=lambda value: str(value)[:30])
    def test_without_the_bucket_each_request_is_404(
        self, api: Api, method: str, rest: str, body: bytes | None
    ) -> None:
        """And no bucket is created."""
        bucket = new_id()
        refused(api, method, at(api, bucket, "/s") + rest, body, 404, "bucket-not-found")
        refused(api, "GET", at(api, bucket), None, 404, "bucket-not-found")
        refused(api, "GET", at(api, bucket, "/streams"), None, 404, "bucket-not-found")

    @for_each(
        ("method", "rest", "body"),
        [request for request in STREAM_REQUESTS if request[:2] != ("PUT", "")],
        ids=lambda value: str(value)[:30],
    )
    def test_without_the_stream_each_request_is_404_with_the_streams_code(
        self, api: Api, method: str, rest: str, body: bytes | None
    ) -> None:
        bucket = api.new_bucket()
        refused(api, method, at(api, bucket, "/s") + rest, body, 404, "stream-not-found")

    @for_each(("method", "rest", "body"), STREAM_REQUESTS, ids=lambda value: str(value)[:30])
    def test_after_the_bucket_is_deleted_each_request_is_404(
        self, api: Api, method: str, rest: str, body: bytes | None
    ) -> None:
        bucket = api.new_bucket()
        path = at(api, bucket, "/s")
        api.create(path=path, body=b"x")
        assert api.request("DELETE", path).status == 204
        assert api.request("DELETE", at(api, bucket)).status == 204
        refused(api, method, path + rest, body, 404, "bucket-not-found")

    def test_the_same_stream_id_in_two_buckets_and_as_a_path_are_three_streams(
        self, api: Api
    ) -> None:
        one, two = api.new_bucket(), api.new_bucket()
        paths = [at(api, one, "/s"), at(api, two, "/s"), at(api, "v1", f"/stream/{one}/s")]
        for number, path in enumerate(paths):
            api.create(path=path, body=b"%d" % number)
        for number, path in enumerate(paths):
            assert api.get(path).body == b"%d" % number
            assert api.request("DELETE", path).status == 204
            assert [api.head(path).status for path in paths[number + 1 :]] == [200] * (2 - number)


@once
class TestMethods:
    @for_each("method", ["POST", "PATCH", "TRACE"])
    def test_other_methods_of_a_bucket_are_405(self, api: Api, method: str) -> None:
        """With Allow, and without any effect."""
        bucket = api.new_bucket()
        response = api.request(method, at(api, bucket), {}, b"x" if method == "POST" else None)
        check_problem(response, 405, "method-not-allowed")
        assert response.headers["allow"] == "GET, HEAD, PUT, DELETE, OPTIONS"
        assert count(api, bucket) == 0

    @for_each("bucket", ["exists", "missing"])
    def test_other_methods_of_a_listing_are_rejected(self, api: Api, bucket: str) -> None:
        """Methods that write to streams are 400: the stream id is reserved (X§1.1)."""
        name = api.new_bucket() if bucket == "exists" else new_id()
        response = api.request("PATCH", at(api, name, "/streams"))
        check_problem(response, 405, "method-not-allowed")
        assert response.headers["allow"] == "GET, HEAD, OPTIONS"

    @for_each(
        ("rest", "allowed"),
        [
            ("/snapshot", "GET, HEAD, OPTIONS"),
            (f"/snapshot/{OFFSET}", "GET, HEAD, PUT, DELETE, OPTIONS"),
            ("/bootstrap", "GET, HEAD, OPTIONS"),
        ],
    )
    def test_other_methods_of_subresources_are_405(self, api: Api, rest: str, allowed: str) -> None:
        bucket = api.new_bucket()
        api.create(path=at(api, bucket, "/s"))
        for method in ("POST", "PATCH", "PUT", "DELETE"):
            if method not in allowed:
                response = api.request(method, at(api, bucket, "/s") + rest, TEXT, b"x")
                check_problem(response, 405, "method-not-allowed")
                assert response.headers["allow"] == allowed

    @for_each("rest", ["", "/streams"])
    def test_head_is_get_without_the_body(self, api: Api, rest: str) -> None:
        """The connection is reused: a body would be parsed as the next response."""
        bucket = api.new_bucket()
        api.create(path=at(api, bucket, "/s"))
        get, head = api.get(at(api, bucket, rest)), api.head(at(api, bucket, rest))
        assert (get.status, head.status, head.body) == (200, 200, b"")
        for name in ("content-type", "cache-control"):
            assert head.headers[name] == get.headers[name]
        assert api.head(at(api, new_id(), rest)).status == 404
        assert api.head(at(api, "abc", rest)).status == 400
        assert count(api, bucket) == 1

    @for_each("rest", ["", "/streams", "/s", "/s/snapshot", "/s/bootstrap"])
    def test_options_allows_cross_origin_requests(self, api: Api, rest: str) -> None:
        """Whether or not the resource exists."""
        response = api.request("OPTIONS", at(api, new_id(), rest))
        assert (response.status, response.body) == (204, b"")
        allowed = response.headers["access-control-allow-methods"]
        assert {"GET", "PUT", "DELETE"} <= {name.strip() for name in allowed.split(",")}
        check_common(response)


@pytest.mark.parametrize(
    "transport", ["wire-rocksdb", pytest.param("asgi-rocksdb", marks=pytest.mark.slow)]
)
def test_buckets_are_unchanged_after_a_crash(transport: str, tmp_path: Path) -> None:
    """§4: acknowledged buckets, counts, streams and closures survive SIGKILL."""
    with KINDS[transport](tmp_path) as server:
        api = Api(server)
        full, empty, gone, again = (api.new_bucket() for _ in range(4))
        for number in range(5):
            api.create(path=at(api, full, f"/{number}"), body=b"%d" % number)
        assert api.request("DELETE", at(api, full, "/3")).status == 204
        api.create(path=at(api, full, "/brief"), headers={"Stream-TTL": "0"})
        for bucket in (gone, again):
            api.create(path=at(api, bucket, "/s"), body=b"old")
            assert api.request("DELETE", at(api, bucket, "/s")).status == 204
            assert api.request("DELETE", at(api, bucket)).status == 204
        assert api.request("PUT", at(api, again)).status == 201
        before = visible_state(api, full, empty, again)
        for _ in range(2):
            server.restart()
            api.close()
            assert visible_state(api, full, empty, again) == before
            check_problem(api.get(at(api, gone)), 404, "bucket-not-found")
            check_problem(api.get(at(api, gone, "/s")), 404, "bucket-not-found")
            check_problem(api.get(at(api, again, "/s")), 404, "stream-not-found")
            check_problem(api.request("PUT", at(api, empty)), 409, "bucket-exists")
            check_problem(api.request("DELETE", at(api, full)), 409, "bucket-not-empty")
        for number in (0, 1, 2, 4):
            path = at(api, full, f"/{number}")
            assert api.get(path).body == b"%d" % number
            assert api.request("DELETE", path).status == 204
        for bucket in (full, empty, again):
            assert api.request("DELETE", at(api, bucket)).status == 204
        server.restart()
        api.close()
        for bucket in (full, empty, again):
            check_problem(api.get(at(api, bucket)), 404, "bucket-not-found")
        api.close()


# -- races ---------------------------------------------------------------------------------------


@pytest.fixture
def pair(api: Api) -> Iterator[tuple[Connection, Connection]]:
    """Two open connections."""
    with api.connect(HANG_S) as one, api.connect(HANG_S) as other:
        yield one, other


def request_both(
    pair: tuple[Connection, Connection], first: tuple[str, str], second: tuple[str, str]
) -> list[Response]:
    """Send two requests at the same time, each on its own connection."""
    return together(
        [
            lambda: pair[0].request(*first, dict(TEXT)),
            lambda: pair[1].request(*second, dict(TEXT)),
        ]
    )


def check_consistent(api: Api, bucket: str, streams: list[str]) -> None:
    """Metadata, listing and streams are consistent, or the bucket does not exist."""
    response = api.get(at(api, bucket))
    if response.status == 404:
        check_problem(response, 404, "bucket-not-found")
        check_problem(api.get(at(api, bucket, "/streams")), 404, "bucket-not-found")
        for stream in streams:
            check_problem(api.get(at(api, bucket, f"/{stream}")), 404, "bucket-not-found")
        return
    found = listed(api, bucket)
    assert json.loads(response.body)["streams"] == len(found)
    for stream in streams:
        status = api.head(at(api, bucket, f"/{stream}")).status
        assert status == (200 if stream in found else 404)


@once
def test_one_of_many_concurrent_creates_of_a_bucket_succeeds(api: Api) -> None:
    """X§1.2: exactly one is 201, all others are 409."""
    connections = [api.connect(HANG_S) for _ in range(6)]
    try:
        for _ in range(30):
            path = at(api, new_id())
            responses = together(
                [lambda one=one, path=path: one.request("PUT", path) for one in connections]  # type: ignore[misc]
            )
            assert Counter(response.status for response in responses) == {201: 1, 409: 5}
            responses = together(
                [lambda one=one, path=path: one.request("DELETE", path) for one in connections]  # type: ignore[misc]
            )
            assert Counter(response.status for response in responses) == {204: 1, 404: 5}
    finally:
        for connection in connections:
            connection.close()


def race_delete_with_create(
    api: Api, pair: tuple[Connection, Connection], bucket: str, rounds: int
) -> None:
    """Delete a bucket and create a stream in it at the same time, repeatedly."""
    delete, create = ("DELETE", at(api, bucket)), ("PUT", at(api, bucket, "/s"))
    for number in range(rounds):
        if number % 2:
            created, deleted = request_both(pair, create, delete)
        else:
            deleted, created = request_both(pair, delete, create)
        # The request that came second was decided on the result of the first.
        assert (deleted.status, created.status) in ((204, 404), (409, 201))
        check_consistent(api, bucket, ["s"])
        if deleted.status == 204:
            assert api.request("PUT", at(api, bucket)).status == 201
        else:
            assert api.request("DELETE", at(api, bucket, "/s")).status == 204
        assert (count(api, bucket), listed(api, bucket)) == (0, [])


@once
def test_concurrent_requests_leave_no_stream_without_its_bucket(
    api: Api, pair: tuple[Connection, Connection]
) -> None:
    """
    Goal: X§1.5 and X§1.6 hold for concurrent clients.

    Method: DELETE of an empty bucket against PUT of a stream in it, on two connections; exactly
    one succeeds, and metadata, listing and stream check_consistent afterwards.
    """
    race_delete_with_create(api, pair, api.new_bucket(), 200)


def test_concurrent_requests_on_a_slow_disk_leave_no_stream_without_its_bucket(
    tmp_path: Path,
) -> None:
    """The same while a commit batch is being written most of the time."""
    with SlowDiskServer(tmp_path) as server:
        api = Api(server)
        with api.connect(HANG_S) as one, api.connect(HANG_S) as other:
            race_delete_with_create(api, (one, other), api.new_bucket(), 40)
        api.close()


@once
def test_the_last_stream_and_its_bucket_are_deleted_concurrently(
    api: Api, pair: tuple[Connection, Connection]
) -> None:
    """DELETE of the bucket is 409 or 204, depending on which request came first."""
    bucket = api.new_bucket()
    for number in range(60):
        api.create(path=at(api, bucket, "/s"))
        requests = [("DELETE", at(api, bucket, "/s")), ("DELETE", at(api, bucket))]
        responses = request_both(pair, requests[number % 2], requests[1 - number % 2])
        by_stream, by_bucket = responses[number % 2], responses[1 - number % 2]
        assert by_stream.status == 204
        assert by_bucket.status in (204, 409)
        check_consistent(api, bucket, ["s"])
        if by_bucket.status == 204:
            assert api.request("PUT", at(api, bucket)).status == 201
        assert count(api, bucket) == 0


@once
def test_counts_are_exact_after_concurrent_creates_and_deletes(api: Api) -> None:
    """Four clients create and delete streams of one bucket, some of them the same ones."""
    bucket = api.new_bucket()

    def churn(client: int) -> None:
        with api.connect(HANG_S) as connection:
            for turn in range(40):
                name = f"{turn % 3}" if turn % 2 else f"{client}-{turn}"
                path = at(api, bucket, f"/{name}")
                assert connection.request("PUT", path, TEXT).status in (200, 201)
                if turn % 5 == 0:
                    assert connection.request("DELETE", path).status in (204, 404)

    together([lambda client=client: churn(client) for client in range(4)])  # type: ignore[misc]
    found = listed(api, bucket)
    assert count(api, bucket) == len(found) == len(set(found))
    for name in found:
        assert api.request("DELETE", at(api, bucket, f"/{name}")).status == 204
    assert api.request("DELETE", at(api, bucket)).status == 204


@once
@for_each(
    ("requests", "responses"),
    [
        ([("PUT", ""), ("PUT", ""), ("PUT", "/s")], [201, 409, 201]),
        ([("PUT", ""), ("DELETE", ""), ("PUT", "/s")], [201, 204, 404]),
        ([("PUT", ""), ("PUT", "/s"), ("DELETE", "")], [201, 201, 409]),
        ([("PUT", ""), ("PUT", "/s"), ("DELETE", "/s"), ("DELETE", "")], [201, 201, 204, 204]),
        ([("DELETE", ""), ("PUT", "/s"), ("PUT", ""), ("PUT", "/s")], [404, 404, 201, 201]),
    ],
)
def test_pipelined_requests_are_decided_in_order(
    api: Api, requests: list[tuple[str, str]], responses: list[int]
) -> None:
    """Most are decided before any of them is durable."""
    bucket = new_id()
    with api.connect() as connection:
        host = connection.host_header
        heads = [
            format_request(method, at(api, bucket, rest), host=host) for method, rest in requests
        ]
        connection.send(b"".join(heads))
        found = [connection.read_response(method).status for method, _ in requests]
    assert found == responses
    check_consistent(api, bucket, ["s"])

"""X§1.4: the listing of a bucket's streams."""

from __future__ import annotations

import json
import random
import time
from typing import Any
from urllib.parse import quote

import pytest

from tests.support.looping import for_each
from tests.support.publishing import KINDS_ONCE
from tests.support.streams import Api, check_common, check_problem, wait_until

pytestmark = pytest.mark.parametrize("kind", KINDS_ONCE, indirect=True, scope="session")

# One to four bytes in UTF-8, including the ends of ranges, and prefixes of each other.
# U+FFFF sorts before U+10000 as UTF-8, and after it as UTF-16.
IDS = [
    "!", "%", "%25", "*", "-", ".a", "0", "10", "9", "A", "Z", "_", "a", "a\tb", "a%", "a*", "a.b",
    "a?b", "aZ", "a\\b", "a_", "aa", "ab", "b", "user-1", "user-10", "user-2", "user_1", "~",
    "\x7f", "\x80", "é", "éa", "\u07ff", "\u0800", "€", "\ufffd", "\uffff", "\U00010000", "😀",
    "😀a", "\U0010ffff", "\U0010ffff\U0010ffff",
]  # fmt: skip

# For each server, the bucket with all of them.
_everything: dict[str, str] = {}


@pytest.fixture
def everything(api: Api) -> str:
    """A bucket with all of `IDS`, which no test changes."""
    made = _everything.get(api.server.url)
    if made is None:
        made = _everything[api.server.url] = bucket_with(api, IDS)
    return made


def text(value: str) -> str:
    """Percent-encoded for a URL."""
    return quote(value, safe="")


def bucket_with(api: Api, ids: list[str]) -> str:
    """A new bucket with these streams, created in random order."""
    bucket = api.new_bucket()
    shuffled = list(ids)
    random.Random(1).shuffle(shuffled)
    for name in shuffled:
        api.create(path=api.in_bucket(bucket, text(name)))
    return bucket


def listing(api: Api, bucket: str, query: str = "") -> dict[str, Any]:
    response = api.get(api.in_bucket(bucket, "streams"), query)
    assert response.status == 200, (response.status, response.body)
    body: dict[str, Any] = json.loads(response.body)
    assert body["stream_count"] == len(body["streams"])
    return body


def ids(api: Api, bucket: str, query: str = "") -> list[str]:
    return [stream["stream_id"] for stream in listing(api, bucket, query)["streams"]]


def by_bytes(names: list[str]) -> list[str]:
    return sorted(names, key=lambda name: name.encode())


class TestBody:
    def test_the_response_body(self, api: Api) -> None:
        """The fields of X§1.4, and `next_offset`, of an open stream."""
        bucket = api.new_bucket()
        path = api.in_bucket(bucket, "user-1")
        before = time.time() * 1000
        api.create("Text/Plain; a=b", b"first", path=path)
        between = time.time() * 1000
        wait_until("the clock moves on", lambda: time.time() * 1000 > between + 2)
        api.append(path, b"second")
        after = time.time() * 1000
        response = api.get(api.in_bucket(bucket, "streams"))
        assert response.status == 200
        assert response.headers["content-type"] == "application/json"
        assert response.headers["cache-control"] == "no-store"
        check_common(response)
        body = json.loads(response.body)
        (stream,) = body.pop("streams")
        assert type(body.pop("position")) is str
        assert body == {
            "bucket_id": bucket,
            "prefix": "",
            "stream_count": 1,
            "next_cursor": "user-1",
            "has_more": False,
        }
        created, written = stream.pop("created_at_ms"), stream.pop("last_write_at_ms")
        assert stream == {
            "stream_id": "user-1",
            "status": "Open",
            "content_type": "Text/Plain; a=b",
            "tail_offset": 11,
            "next_offset": "0000000000000002_0000000000000011",
            "earliest_offset": "0000000000000000_0000000000000000",
            "snapshot_offset": None,
            "snapshot_at_ms": None,
            "snapshot_bytes": None,
        }
        assert type(created) is int and type(written) is int
        assert before - 1 <= created <= between + 1 <= written <= after + 1

    def test_an_empty_bucket(self, api: Api) -> None:
        """Without a cursor."""
        bucket = api.new_bucket()
        body = listing(api, bucket)
        assert type(body.pop("position")) is str
        assert body == {
            "bucket_id": bucket,
            "prefix": "",
            "stream_count": 0,
            "streams": [],
            "next_cursor": None,
            "has_more": False,
        }

    def test_the_tail_is_the_same_as_in_head(self, api: Api) -> None:
        """As a number of bytes and as an offset, for every kind of stream, as it grows."""
        bucket = api.new_bucket()
        contents = {"json": "application/json", "text": "text/plain", "none": None}
        for name, content_type in contents.items():
            api.create(content_type, path=api.in_bucket(bucket, name))
        for _ in range(3):
            for stream in listing(api, bucket)["streams"]:
                head = api.head(api.in_bucket(bucket, stream["stream_id"])).headers
                assert stream["next_offset"] == head["stream-next-offset"]
                assert stream["tail_offset"] == int(head["stream-next-offset"].split("_")[1])
                assert stream["content_type"] == head["content-type"]
            api.append(api.in_bucket(bucket, "json"), b"[1,[2]]", content_type="application/json")
            api.append(api.in_bucket(bucket, "text"), "aé€".encode())
        assert [stream["tail_offset"] for stream in listing(api, bucket)["streams"]] == [18, 0, 18]

    def test_status_is_open_or_closed(self, api: Api) -> None:
        """For each way of closing; a closure updates `last_write_at_ms`."""
        bucket = api.new_bucket()
        for name in ("by-append", "by-close", "open"):
            api.create(path=api.in_bucket(bucket, name))
        api.create(path=api.in_bucket(bucket, "at-once"), headers={"Stream-Closed": "true"})
        api.close_stream(api.in_bucket(bucket, "by-close"))
        api.append(api.in_bucket(bucket, "by-append"), b"x", {"Stream-Closed": "true"})
        found = {
            stream["stream_id"]: stream["status"] for stream in listing(api, bucket)["streams"]
        }
        assert found.pop("open") == "Open"
        assert set(found.values()) == {"Closed"} and len(found) == 3

    def test_reads_and_snapshots_are_not_writes(self, api: Api) -> None:
        """They change neither the tail nor `last_write_at_ms`; a snapshot has its own field."""
        bucket = bucket_with(api, ["s"])
        path = api.in_bucket(bucket, "s")
        tail = api.append(path, b"abc")
        (before,) = listing(api, bucket)["streams"]
        written = before["last_write_at_ms"]
        wait_until("the clock moves on", lambda: time.time() * 1000 > written + 2)
        api.get(path)
        assert api.request("PUT", f"{path}/snapshot/{tail}", {}, b"snapshot").status == 204
        api.get(path, f"offset={tail}")
        (after,) = listing(api, bucket)["streams"]
        assert written < after["snapshot_at_ms"] <= time.time() * 1000 + 1
        assert after == before | {
            "earliest_offset": tail,
            "snapshot_offset": tail,
            "snapshot_at_ms": after["snapshot_at_ms"],
            "snapshot_bytes": 8,
        }


class TestOrder:
    def test_sorted_by_the_bytes_of_utf_8(self, api: Api, everything: str) -> None:
        """`streams` is sorted lexicographically by stream_id."""
        assert ids(api, everything) == by_bytes(IDS)
        assert by_bytes(IDS) == sorted(IDS), "the order of code points is the same"

    def test_only_the_streams_of_this_bucket(self, api: Api) -> None:
        """Not those of a bucket whose id has the same prefix, nor those without a bucket."""
        bucket = bucket_with(api, ["a", "b"])
        for other in (bucket + "-", bucket + "-0", bucket + "_2"):
            assert api.request("PUT", api.in_bucket(other, "")[:-1]).status == 201
            api.create(path=api.in_bucket(other, "c"))
        api.create(path=api.in_bucket("v1/stream", f"{bucket}/d"))
        assert ids(api, bucket) == ["a", "b"]

    def test_a_deleted_stream_is_not_listed(self, api: Api) -> None:
        """And one that was created again is listed once."""
        bucket = bucket_with(api, ["a", "b", "c"])
        assert api.request("DELETE", api.in_bucket(bucket, "b")).status == 204
        assert ids(api, bucket) == ["a", "c"]
        assert ids(api, bucket, "after=b") == ["c"]
        api.create("text/html", b"new", path=api.in_bucket(bucket, "b"))
        found = listing(api, bucket)["streams"]
        assert [stream["stream_id"] for stream in found] == ["a", "b", "c"]
        assert (found[1]["content_type"], found[1]["tail_offset"]) == ("text/html", 3)

    def test_a_stream_that_has_expired_is_not_listed(self, api: Api) -> None:
        """At once; it does not count towards the page limit either."""
        bucket = bucket_with(api, ["a", "c", "e"])
        for name in ("0", "b", "d", "f"):
            api.create(path=api.in_bucket(bucket, name), headers={"Stream-TTL": "0"})
        assert ids(api, bucket) == ["a", "c", "e"]
        page = listing(api, bucket, "limit=2")
        assert [stream["stream_id"] for stream in page["streams"]] == ["a", "c"]
        assert page["has_more"] is True
        page = listing(api, bucket, "after=c&limit=2")
        assert ([stream["stream_id"] for stream in page["streams"]], page["has_more"]) == (
            ["e"],
            False,
        )

    def test_a_stream_leaves_the_listing_when_it_expires(self, api: Api) -> None:
        bucket = bucket_with(api, ["stays"])
        api.create(path=api.in_bucket(bucket, "brief"), headers={"Stream-TTL": "1"})
        wait_until("it expires", lambda: ids(api, bucket) == ["stays"])
        assert api.head(api.in_bucket(bucket, "brief")).status == 404


class TestPrefix:
    @for_each(
        "prefix",
        [
            "a", "A", "user-", "user-1", "user_", "user", "%", "%2", "_", "a_", "a%", "a*", "a.",
            "a\\", "a?", ".", ".*", "[a]", "^a", "a$", "*", "-", "é", "éa", "\x7f", "\x80",
            "\u07ff", "€", "\uffff", "\U00010000", "😀", "😀a", "\U0010ffff",
            "\U0010ffff\U0010ffff", "\U0010ffff\U0010ffff\U0010ffff", "nothing", "", "\x00", "..",
            "a/b", " ",
        ],
    )  # fmt: skip
    def test_prefix_filters_by_prefix(self, api: Api, everything: str, prefix: str) -> None:
        """Compared byte for byte: the prefix is not a pattern."""
        body = listing(api, everything, f"prefix={text(prefix)}")
        found = [stream["stream_id"] for stream in body["streams"]]
        assert found == by_bytes([name for name in IDS if name.startswith(prefix)])
        assert body["prefix"] == prefix
        assert body["has_more"] is False

    def test_without_a_prefix_all_streams_are_listed(self, api: Api, everything: str) -> None:
        assert ids(api, everything) == ids(api, everything, "prefix=") == by_bytes(IDS)
        assert ids(api, everything, "prefix") == by_bytes(IDS)

    def test_a_plus_is_a_space_in_a_query(self, api: Api) -> None:
        """As in forms; a plus is `%2B`."""
        bucket = bucket_with(api, ["a b", "a+b", "a%20b"])
        assert ids(api, bucket, "prefix=a+b") == ["a b"]
        assert ids(api, bucket, "prefix=a%20b") == ["a b"]
        assert ids(api, bucket, "prefix=a%2Bb") == ["a+b"]
        assert ids(api, bucket, "after=a+b") == ["a%20b", "a+b"]

    @for_each("after", ["", "a", "a%", "aa", "b", "user-1", "é", "\U0010ffff", "🙂"])
    @for_each("prefix", ["", "a", "user-", "é", "\U0010ffff"])
    @for_each("limit", [1, 2, 1000])
    def test_prefix_after_and_limit_together(
        self, api: Api, everything: str, prefix: str, after: str, limit: int
    ) -> None:
        """Compared with a sorted list, for cursors before, within and after the prefix."""
        query = f"prefix={text(prefix)}&after={text(after)}&limit={limit}"
        expected = [
            name
            for name in by_bytes(IDS)
            if name.startswith(prefix) and name.encode() > after.encode()
        ]
        body = listing(api, everything, query)
        found = [stream["stream_id"] for stream in body["streams"]]
        assert found == expected[:limit]
        assert body["has_more"] is (len(expected) > limit)
        assert body["next_cursor"] == (found[-1] if found else None)


class TestPages:
    def test_after_is_exclusive_and_can_name_a_missing_stream(self, api: Api) -> None:
        bucket = bucket_with(api, ["a", "b", "d"])
        for after, found in (
            ("", ["a", "b", "d"]),
            ("A", ["a", "b", "d"]),
            ("a", ["b", "d"]),
            ("a%00", ["b", "d"]),
            ("aa", ["b", "d"]),
            ("b", ["d"]),
            ("c", ["d"]),
            ("d", []),
            ("z", []),
            ("streams", []),
            ("..", ["a", "b", "d"]),
            ("%2F", ["a", "b", "d"]),
            ("x" * 1000, []),
        ):
            assert ids(api, bucket, f"after={after}") == found, after

    @for_each("limit", [1, 2, 7, 42, 43, 44, 1000])
    def test_pages_have_each_stream_once_and_in_order(
        self, api: Api, everything: str, limit: int
    ) -> None:
        """`next_cursor` is the last id of a page, and `has_more` is true until the last page."""
        bucket = everything
        found: list[str] = []
        query = f"limit={limit}"
        while True:
            body = listing(api, bucket, query)
            page = [stream["stream_id"] for stream in body["streams"]]
            assert len(page) == min(limit, len(IDS) - len(found))
            found += page
            assert body["next_cursor"] == page[-1]
            assert body["has_more"] is (len(found) < len(IDS))
            if not body["has_more"]:
                break
            query = f"limit={limit}&after={text(body['next_cursor'])}"
        assert found == by_bytes(IDS)
        after_the_last = listing(api, bucket, f"after={text(found[-1])}")
        assert (after_the_last["streams"], after_the_last["has_more"]) == ([], False)

    def test_limit_defaults_to_1000(self, api: Api) -> None:
        """1001 streams are two pages; 1000 is also the maximum."""
        bucket = api.new_bucket()
        names = [f"{n:04d}" for n in range(1000)]
        with api.connect() as connection:
            for at in range(0, 1000, 50):
                # Pipelined: one by one each would wait for its own fsync.
                for name in names[at : at + 50]:
                    connection.send_request("PUT", api.in_bucket(bucket, name))
                for _ in range(50):
                    assert connection.read_response("PUT").status == 201
        body = listing(api, bucket)
        assert [stream["stream_id"] for stream in body["streams"]] == names
        assert body["has_more"] is False
        api.create(path=api.in_bucket(bucket, "9999"))
        for query in ("", "limit=1000"):
            body = listing(api, bucket, query)
            assert [stream["stream_id"] for stream in body["streams"]] == names
            assert (body["has_more"], body["next_cursor"]) == (True, "0999")
        assert ids(api, bucket, "after=0999") == ["9999"]
        assert len(ids(api, bucket, "limit=999")) == 999
        metadata = json.loads(api.get(api.in_bucket(bucket, "")[:-1]).body)
        assert metadata["streams"] == 1001

    def test_pages_of_a_bucket_that_changes(self, api: Api) -> None:
        """Streams that exist throughout are listed once while others are created and deleted."""
        kept = [f"{n:02d}" for n in range(0, 40, 2)]
        bucket = bucket_with(api, kept)
        found: list[str] = []
        query = "limit=3"
        for number in range(100):
            body = listing(api, bucket, query)
            found += [stream["stream_id"] for stream in body["streams"]]
            if not body["has_more"]:
                break
            query = f"limit=3&after={body['next_cursor']}"
            odd = f"{(number * 14 + 1) % 40:02d}"
            if api.request("PUT", api.in_bucket(bucket, odd)).status == 201 and number % 3:
                assert api.request("DELETE", api.in_bucket(bucket, odd)).status == 204
        assert found == sorted(set(found))
        assert [name for name in found if int(name) % 2 == 0] == kept


class TestRefused:
    @for_each(
        "limit",
        [
            "", "0", "00", "-1", "1001", "9999", "10000", "99999999999999999999", "1.0", "1e2",
            "0x10", "abc", "1a", "%201", "1%20", "1+", "+1", "1,2", "%D9%A3", "%EF%BC%91", "1%0A",
            "null", "%ff", "1%00",
        ],
    )  # fmt: skip
    def test_a_limit_outside_of_1_to_1000_is_400(self, api: Api, limit: str) -> None:
        bucket = bucket_with(api, ["a"])
        response = api.get(api.in_bucket(bucket, "streams"), f"limit={limit}")
        problem = check_problem(response, 400, "query-invalid")
        assert "limit" in problem["detail"]

    @for_each("limit", ["1", "2", "999", "1000", "%31", "0001"])
    def test_a_limit_within_1_to_1000_is_accepted(self, api: Api, limit: str) -> None:
        bucket = bucket_with(api, ["a"])
        assert ids(api, bucket, f"limit={limit}") == ["a"]

    @for_each(
        "query",
        [
            "prefix=a&prefix=a", "after=a&after=b", "limit=1&limit=1", "prefix=&prefix=",
            "limit=1&after=a&limit=1", "prefix=a&pre%66ix=a", "prefix=%ff", "after=%ff",
            "prefix=a%80", "prefix=%ed%a0%80", "after=%c0%80", "prefix=%f4%90%80%80",
            "limit", "&".join(f"x{n}=1" for n in range(1000)),
        ],
        ids=lambda query: query[:30],
    )  # fmt: skip
    def test_repeated_parameters_and_invalid_utf_8_are_400(self, api: Api, query: str) -> None:
        bucket = bucket_with(api, ["a"])
        check_problem(api.get(api.in_bucket(bucket, "streams"), query), 400, "query-invalid")

    def test_unknown_parameters_are_ignored(self, api: Api) -> None:
        """§9.1; also those of reads."""
        bucket = bucket_with(api, ["a"])
        for query in ("x=1", "offset=-1&offset=now", "live=sse", "Limit=0", "x&y=&=z&&", "x=%ff"):
            assert ids(api, bucket, query) == ["a"]

    def test_a_missing_bucket_is_404(self, api: Api) -> None:
        """With any parameters, and no bucket is created."""
        missing = "never-created"
        for query in ("", "prefix=a", "after=a&limit=1"):
            response = api.get(api.in_bucket(missing, "streams"), query)
            check_problem(response, 404, "bucket-not-found")
        assert api.get(api.in_bucket(missing, "")[:-1]).status == 404

    def test_an_invalid_bucket_is_400(self, api: Api) -> None:
        for bucket in ("abc", "Abcd", "a" * 65):
            response = api.get(api.in_bucket(bucket, "streams"))
            check_problem(response, 400, "bucket-invalid")

    def test_an_invalid_query_is_400_for_head_too(self, api: Api) -> None:
        bucket = bucket_with(api, ["a"])
        response = api.request("HEAD", api.in_bucket(bucket, "streams") + "?limit=0")
        assert (response.status, response.body) == (400, b"")

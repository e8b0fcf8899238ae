"""`POST /-/rows` over HTTP: the rows of each range, and errors."""

from __future__ import annotations

import gzip
import json
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest

from tests.support.http import Response
from tests.support.looping import for_each
from tests.support.publishing import KINDS_ONCE, offset, publish
from tests.support.streams import Api, check_common, check_problem

pytestmark = pytest.mark.parametrize("kind", KINDS_ONCE, indirect=True, scope="session")

JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"


def post(api: Api, body: bytes, headers: dict[str, str] | None = None) -> Response:
    where = f"{api.server.base_path}/-/rows"
    return api.request("POST", where, {"Content-Type": JSON, **(headers or {})}, body)


def batches(response: Response) -> list[Any]:
    assert response.status == 200, (response.status, response.body)
    assert response.headers["content-type"] == ARROW
    assert response.headers["cache-control"] == "no-store"
    check_common(response)
    assert response.body.endswith(b"\xff\xff\xff\xff\x00\x00\x00\x00")
    return list(pa.ipc.open_stream(response.body))


def rows(api: Api, *ranges: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    """All rows in order, including those that end ranges."""
    request = json.dumps({"ranges": ranges, **options}).encode()
    return [row for batch in batches(post(api, request)) for row in batch.to_pylist()]


def split(found: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows of messages, and those that end ranges."""
    return [row for row in found if row["status"] is None], [row for row in found if row["status"]]


class TestMessages:
    def test_each_message_is_a_row_with_all_columns(self, api: Api) -> None:
        bucket = api.new_bucket()
        name = "é ?%2F😀"
        api.create(JSON, path=api.in_bucket(bucket, quote(name, safe="")))
        claim = {"Producer-Id": "me", "Producer-Epoch": "0", "Producer-Seq": "0"}
        path = api.in_bucket(bucket, quote(name, safe=""))
        api.append(path, b'[1, {"a" : 2}]', claim, content_type=JSON)
        api.append(path, b'"x"', content_type=JSON)
        columns = [
            "range", "bucket", "stream", "message", "offset", "next_offset", "time",
            "content_type", "value", "size", "producer",
        ]  # fmt: skip
        found, (end,) = split(rows(api, {"bucket": bucket, "stream": name}, columns=columns))
        times = [int(row.pop("time").timestamp() * 1000) for row in found]
        listed = json.loads(api.get(api.in_bucket(bucket, "streams")).body)["streams"][0]
        assert listed["created_at_ms"] <= times[0] == times[1] <= times[2]
        assert times[2] == listed["last_write_at_ms"]
        expected = [
            (0, offset(0, 0), offset(1, 2), b"1", "me"),
            (1, offset(1, 2), offset(2, 12), b'{"a" : 2}', "me"),
            (2, offset(2, 12), offset(3, 16), b'"x"', None),
        ]
        assert found == [
            {
                "range": 0,
                "bucket": bucket,
                "stream": name,
                "message": message,
                "offset": start,
                "next_offset": after,
                "content_type": JSON,
                "value": value,
                "size": len(value),
                "producer": producer,
                "status": None,
                "detail": None,
            }
            for message, start, after, value, producer in expected
        ]
        assert {name: value for name, value in end.items() if value is not None} == {
            "range": 0,
            "status": "end",
            "next_offset": offset(3, 16),
        }

    def test_one_response_can_have_streams_of_any_type_and_location(self, api: Api) -> None:
        """An append is one message unless the stream is JSON; a path has no bucket."""
        path = api.path("rows").removeprefix(f"{api.server.base_path}/v1/stream/")
        api.create("text/plain", path=f"{api.server.base_path}/v1/stream/{path}", body=b"a,")
        bucket = api.new_bucket()
        api.create(None, path=api.in_bucket(bucket, "b"), body=bytes(range(256)))
        api.create("application/x+json", path=api.in_bucket(bucket, "j"), body=b"[[1,2],[],3]")
        api.create("text/html", path=api.in_bucket(bucket, "empty"))
        found, ends = split(
            rows(
                api,
                {"path": path},
                {"bucket": bucket, "stream": "empty"},
                {"bucket": bucket, "stream": "b"},
                {"bucket": bucket, "stream": "j"},
                {"path": path},
            )
        )
        found_rows = [
            (row["range"], row["bucket"], row["content_type"], row["value"]) for row in found
        ]
        assert found_rows == [
            (0, None, "text/plain", b"a,"),
            (2, bucket, "application/octet-stream", bytes(range(256))),
            (3, bucket, "application/x+json", b"[1,2]"),
            (3, bucket, "application/x+json", b"[]"),
            (3, bucket, "application/x+json", b"3"),
            (4, None, "text/plain", b"a,"),
        ]  # fmt: skip
        assert [(row["range"], row["status"]) for row in ends] == [(n, "end") for n in range(5)]
        assert set(found[0]) == {
            "range", "bucket", "stream", "message", "offset", "next_offset", "time",
            "content_type", "value", "status", "detail",
        }  # fmt: skip

    def test_from_and_until_can_be_inside_a_batch(self, api: Api) -> None:
        bucket = api.new_bucket()
        path = api.create(JSON, path=api.in_bucket(bucket, "s"))
        api.append(path, b"[0,1,2,3,4]", content_type=JSON)
        here = {"bucket": bucket, "stream": "s"}
        for first in range(6):
            for last in range(first, 6):
                requested = {
                    **here,
                    "from": offset(first, 2 * first),
                    "until": offset(last, 2 * last),
                }
                found, (end,) = split(rows(api, requested, columns=["value"]))
                assert [int(row["value"]) for row in found] == list(range(first, last))
                assert (end["status"], end["next_offset"]) == ("end", requested["until"])

    def test_the_response_ends_after_the_message_that_reaches_the_byte_budget(
        self, api: Api
    ) -> None:
        """The budget counts stored bytes of all ranges; ranges that are complete are marked."""
        bucket = api.new_bucket()
        for name in ("a", "b"):
            path = api.create(JSON, path=api.in_bucket(bucket, name))
            api.append(path, b"[10,11,12]", content_type=JSON)
        requested = [{"bucket": bucket, "stream": name} for name in ("a", "b")]
        for budget in range(1, 20):
            found, ends = split(rows(api, *requested, bytes_max=budget))
            count = min(6, -(-budget // 3))
            assert len(found) == count, budget
            assert len(ends) == (2 if budget > 18 else count // 3), budget

    def test_messages_and_range_ends_are_in_separate_batches(self, api: Api) -> None:
        bucket = api.new_bucket()
        api.create(path=api.in_bucket(bucket, "s"), body=b"x")
        requested = [{"bucket": bucket, "stream": name} for name in ("s", "no", "s")]
        first, second = batches(post(api, json.dumps({"ranges": requested}).encode()))
        assert first.column("status").null_count == len(first) == 2
        assert second.column("status").to_pylist() == ["end", "stream-not-found", "end"]

    def test_a_request_without_ranges_has_no_rows(self, api: Api) -> None:
        assert rows(api) == []

    def test_the_response_is_compressed_if_accepted(self, api: Api) -> None:
        bucket = api.new_bucket()
        api.create(path=api.in_bucket(bucket, "s"), body=b"x" * 5000)
        body = json.dumps({"ranges": [{"bucket": bucket, "stream": "s"}]}).encode()
        plain = post(api, body)
        packed = post(api, body, {"Accept-Encoding": "gzip"})
        assert packed.headers["content-encoding"] == "gzip"
        assert gzip.decompress(packed.body) == plain.body


class TestErrors:
    def test_a_range_that_cannot_be_read_is_an_error_row(self, api: Api) -> None:
        """With the code, status and detail that a read would have."""
        bucket = api.new_bucket()
        path = api.create(JSON, path=api.in_bucket(bucket, "s"))
        tail = api.append(path, b"[10,11,12]", content_type=JSON)
        here = {"bucket": bucket, "stream": "s"}
        requested: list[tuple[dict[str, Any], int, str]] = [
            ({"bucket": bucket, "stream": "no"}, 404, "stream-not-found"),
            ({"bucket": "never-created", "stream": "s"}, 404, "bucket-not-found"),
            ({"bucket": "x", "stream": "s"}, 400, "bucket-invalid"),
            ({"path": "a/../b"}, 400, "path-invalid"),
            ({"bucket": bucket}, 400, "request-invalid"),
            ({**here, "from": "now"}, 400, "offset-invalid"),
            ({**here, "from": ""}, 400, "offset-invalid"),
            ({**here, "until": "-1"}, 400, "offset-invalid"),
            ({**here, "from": offset(1, 2)}, 400, "offset-misaligned"),
            ({**here, "from": offset(2, 3)}, 400, "offset-misaligned"),
            ({**here, "until": offset(1, 4)}, 400, "offset-misaligned"),
            ({**here, "from": offset(4, 12)}, 400, "offset-beyond-tail"),
            ({**here, "until": offset(4, 12)}, 400, "offset-beyond-tail"),
            ({**here, "from": tail, "until": offset(1, 3)}, 400, "query-invalid"),
        ]
        found, ends = split(rows(api, *(item[0] for item in requested), here, columns=["value"]))
        assert [row["value"] for row in found] == [b"10", b"11", b"12"]
        assert [row["range"] for row in ends] == list(range(len(requested) + 1))
        for row, (_, status, code) in zip(ends, requested, strict=False):
            problem = json.loads(row["detail"])
            assert (row["status"], problem["code"], problem["status"]) == (code, code, status)
            assert problem["detail"] and row["value"] is None
        assert ends[-1]["status"] == "end" and ends[-1]["detail"] is None

    def test_a_range_behind_retention_returns_the_earliest_offset(self, api: Api) -> None:
        """X§2.2: the beginning is not retained either once there is a snapshot."""
        bucket = api.new_bucket()
        path = api.create(path=api.in_bucket(bucket, "s"))
        tails = [api.append(path, b"abc") for _ in range(3)]
        publish(api, path, tails[1], b"snapshot")
        here = {"bucket": bucket, "stream": "s"}
        found, ends = split(rows(api, here, {**here, "from": tails[0]}, {**here, "from": tails[1]}))
        assert [row["value"] for row in found] == [b"abc"]
        assert [(row["status"], row["next_offset"]) for row in ends] == [
            ("offset-gone", tails[1]),
            ("offset-gone", tails[1]),
            ("end", tails[2]),
        ]

    @for_each(
        "body",
        [
            b"", b"{", b"[]", b"{}", b'{"ranges":{}}', b'{"ranges":[1]}', b"\xff",
            b'{"ranges":[{"from":1}]}', b'{"ranges":[],"columns":["nothing"]}',
            b'{"ranges":[],"columns":["status"]}', b'{"ranges":[],"columns":"value"}',
            b'{"ranges":[],"bytes_max":0}', b'{"ranges":[],"bytes_max":-1}',
            b'{"ranges":[],"bytes_max":1073741825}', b'{"ranges":[],"bytes_max":"1"}',
            b'{"ranges":[{"bucket":1}]}', b"[" * 100_000,
        ],
    )  # fmt: skip
    def test_an_invalid_body_is_400(self, api: Api, body: bytes) -> None:
        check_problem(post(api, body), 400, "request-invalid")

    def test_too_many_ranges_are_400(self, api: Api) -> None:
        requested = [{"path": "x"}] * 10_001
        response = post(api, json.dumps({"ranges": requested}).encode())
        assert "10000" in check_problem(response, 400, "request-invalid")["detail"]


class TestMany:
    def test_ten_thousand_ranges(self, api: Api) -> None:
        """Of a few streams of different types; each has its row and its end row."""
        bucket = api.new_bucket()
        for number in range(10):
            kind, body = (JSON, b"[1,2]") if number % 2 else ("text/plain", b"ab")
            api.create(kind, path=api.in_bucket(bucket, f"s{number}"), body=body)
        requested = [{"bucket": bucket, "stream": f"s{number % 10}"} for number in range(10_000)]
        found, ends = split(rows(api, *requested, columns=["stream", "value", "offset"]))
        assert [(row["range"], row["value"], row["offset"]) for row in found] == [
            (number, value, at)
            for number in range(10_000)
            for value, at in (
                ((b"1", offset(0, 0)), (b"2", offset(1, 2)))
                if number % 2
                else ((b"ab", offset(0, 0)),)
            )
        ]
        assert all(row["stream"] == f"s{row['range'] % 10}" for row in found)
        assert [row["range"] for row in ends] == list(range(10_000))

    def test_a_disconnected_reader_does_not_affect_others(self, api: Api) -> None:
        """It disconnects during a response that is larger than any buffer."""
        bucket = api.new_bucket()
        path = api.create(path=api.in_bucket(bucket, "s"))
        for _ in range(8):
            api.append(path, b"x" * (1 << 20))
        requested = [{"bucket": bucket, "stream": "s"}] * 4
        body = json.dumps({"ranges": requested}).encode()
        for _ in range(3):
            with api.connect() as connection:
                connection.send_request(
                    "POST", f"{api.server.base_path}/-/rows", {"Content-Type": JSON}, body
                )
                head = connection.read_head()
                assert head.status == 200
                next(connection.iter_body(head))
        assert api.request("DELETE", path).status == 204
        assert [row["status"] for row in rows(api, *requested)] == ["stream-not-found"] * 4


def test_the_rows_of_a_fork_are_those_that_it_inherits_and_its_own(api: Api) -> None:
    bucket = api.new_bucket()
    source = api.create(JSON, path=api.in_bucket(bucket, "a"))
    claim = {"Producer-Id": "me", "Producer-Epoch": "0", "Producer-Seq": "0"}
    api.append(source, b"[1, 2, 3]", claim, content_type=JSON)
    fork = api.in_bucket(bucket, "b")
    headers = {"Stream-Forked-From": source, "Stream-Fork-Offset": offset(2, 4)}
    assert api.request("PUT", fork, headers, b"[4]").status == 201
    columns = ["stream", "message", "offset", "next_offset", "value", "producer"]
    found, (end,) = split(rows(api, {"bucket": bucket, "stream": "b"}, columns=columns))
    assert [row["value"] for row in found] == [b"1", b"2", b"4"]
    assert [row["message"] for row in found] == [0, 1, 2]
    assert [row["producer"] for row in found] == ["me", "me", None]
    assert {row["stream"] for row in found} == {"b"}
    assert found[-1]["next_offset"] == end["next_offset"] == api.tail(fork)
    inside = {"bucket": bucket, "stream": "b", "from": offset(1, 2), "until": offset(2, 4)}
    (row,), _ = split(rows(api, inside, columns=columns))
    assert row["value"] == b"2"

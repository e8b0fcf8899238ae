"""`POST /-/offsets`: offsets in many streams by message, byte or time."""

from __future__ import annotations

import json
import time
from typing import Any
from urllib.parse import quote

import pytest

from tests.support.http import Response
from tests.support.looping import for_each
from tests.support.publishing import KINDS_ONCE, offset, publish
from tests.support.streams import Api, check_common, check_problem
from tests.support.together import wait_until

pytestmark = pytest.mark.parametrize("kind", KINDS_ONCE, indirect=True, scope="session")

JSON = "application/json"


def post(api: Api, body: bytes) -> Response:
    where = f"{api.server.base_path}/-/offsets"
    return api.request("POST", where, {"Content-Type": JSON}, body)


def find_offsets(api: Api, *requested: dict[str, Any]) -> list[dict[str, Any]]:
    """The offset or error of each entry."""
    found = find_entries(api, *requested)
    return [{key: item[key] for key in ("offset", "error") if key in item} for item in found]


def find_entries(api: Api, *requested: dict[str, Any]) -> list[dict[str, Any]]:
    response = post(api, json.dumps({"places": requested}).encode())
    assert response.status == 200, (response.status, response.body)
    assert response.headers["content-type"] == JSON
    assert response.headers["cache-control"] == "no-store"
    check_common(response)
    found: list[dict[str, Any]] = json.loads(response.body)["places"]
    assert len(found) == len(requested)
    return found


def test_offsets_by_message_byte_and_time(api: Api) -> None:
    """In a bucket and on the base surface; values outside of the stream give its ends."""
    bucket = api.new_bucket()
    name = "é ?/x".replace("/", "-")
    path = api.create(JSON, path=api.in_bucket(bucket, quote(name)))
    api.append(path, b"[1,22,333]", content_type=JSON)
    listed = json.loads(api.get(api.in_bucket(bucket, "streams")).body)["streams"][0]
    here = {"bucket": bucket, "stream": name}
    written = listed["last_write_at_ms"]
    assert find_offsets(
        api,
        {**here, "message": 0},
        {**here, "message": 2},
        {**here, "message": 9},
        {**here, "byte": 0},
        {**here, "byte": 4},
        {**here, "byte": 5},
        {**here, "byte": 100},
        {**here, "time": 0},
        {**here, "time": written},
        {**here, "time": written + 1},
    ) == [
        {"offset": offset(*at)}
        for at in ((0, 0), (2, 5), (3, 9), (0, 0), (1, 2), (2, 5), (3, 9), (0, 0), (0, 0), (3, 9))
    ]
    api.create(path=f"{api.server.base_path}/v1/stream/offsets/{bucket}", body=b"abc")
    assert find_offsets(api, {"path": f"offsets/{bucket}", "byte": 2}) == [{"offset": offset(0, 0)}]


def test_offsets_are_not_before_the_earliest_retained_one(api: Api) -> None:
    bucket = api.new_bucket()
    path = api.create(path=api.in_bucket(bucket, "s"))
    tails = [api.append(path, b"abc") for _ in range(4)]
    publish(api, path, tails[1], b"snapshot")
    here = {"bucket": bucket, "stream": "s"}
    found = find_offsets(api, *({**here, how: 0} for how in ("message", "byte", "time")))
    assert found == [{"offset": tails[1]}] * 3


def test_each_entry_has_its_own_error(api: Api) -> None:
    bucket = api.new_bucket()
    api.create(path=api.in_bucket(bucket, "s"))
    found = find_offsets(
        api,
        {"bucket": bucket, "stream": "missing", "byte": 0},
        {"bucket": "never-created", "stream": "s", "byte": 0},
        {"bucket": "NO", "stream": "s", "byte": 0},
        {"bucket": bucket, "stream": "a/b", "byte": 0},
        {"path": "a//b", "byte": 0},
        {"path": "x", "bucket": bucket, "stream": "s", "byte": 0},
        {"bucket": bucket, "byte": 0},
        {"byte": 0},
        {"bucket": bucket, "stream": "s"},
        {"bucket": bucket, "stream": "s", "byte": 0, "time": 0},
        {"bucket": bucket, "stream": "s", "byte": 0},
    )
    errors = [item["error"] for item in found[:-1]]
    assert [(error["status"], error["code"]) for error in errors] == [
        (404, "stream-not-found"),
        (404, "bucket-not-found"),
        (400, "bucket-invalid"),
        (400, "path-invalid"),
        (400, "path-invalid"),
        *[(400, "request-invalid")] * 5,
    ]
    assert all(error["detail"] for error in errors)
    assert found[-1] == {"offset": offset(0, 0)}


@for_each(
    "body",
    [
        b"", b"{", b"[]", b"{}", b'{"places":1}', b'{"places":[1]}', b'{"places":[{"byte":"1"}]}',
        b'{"places":[{"bucket":1}]}', b"\xff", b'{"places":[{"path":"\xff"}]}',
        b'{"places":[{"path":"\\ud800","byte":1}]}', b"[" * 100_000,
    ],
)  # fmt: skip
def test_an_invalid_body_is_400(api: Api, body: bytes) -> None:
    check_problem(post(api, body), 400, "request-invalid")


def test_the_maximum_number_of_entries(api: Api) -> None:
    bucket = api.new_bucket()
    api.create(path=api.in_bucket(bucket, "s"), body=b"abc")
    entry = {"bucket": bucket, "stream": "s", "time": 0}
    assert find_offsets(api, *[entry] * 10_000) == [{"offset": offset(0, 0)}] * 10_000
    assert find_offsets(api) == []
    too_many = post(api, json.dumps({"places": [entry] * 10_001}).encode())
    assert "10000" in check_problem(too_many, 400, "request-invalid")["detail"]


def test_only_post_is_allowed(api: Api) -> None:
    for own in ("offsets", "rows"):
        where = f"{api.server.base_path}/-/{own}"
        for method in ("GET", "PUT", "DELETE"):
            response = api.request(method, where)
            check_problem(response, 405, "method-not-allowed")
            assert response.headers["allow"] == "POST, OPTIONS"
        assert api.request("OPTIONS", where).status == 204


def test_an_entry_identifies_the_stream(api: Api) -> None:
    """A stream that is created again has another creation time and its own closure."""
    bucket = api.new_bucket()
    requested = {"bucket": bucket, "stream": "s", "byte": 0}
    path = api.create(path=api.in_bucket(bucket, "s"))
    [first] = find_entries(api, requested)
    assert not first["closed"]
    assert api.request("DELETE", path).status == 204
    wait_until(lambda: time.time_ns() // 1_000_000 > first["created_at_ms"])
    api.create(path=path, headers={"Stream-Closed": "true"})
    [second] = find_entries(api, requested)
    assert second["closed"]
    assert second["created_at_ms"] > first["created_at_ms"]

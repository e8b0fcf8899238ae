"""`changed_since`: the streams of a bucket that changed since a position."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from tests.support.looping import for_each
from tests.support.publishing import KINDS_ONCE, publish
from tests.support.streams import Api, check_problem

pytestmark = pytest.mark.parametrize("kind", KINDS_ONCE, indirect=True, scope="session")


def listing(api: Api, bucket: str, query: str = "") -> dict[str, Any]:
    response = api.get(api.in_bucket(bucket, "streams"), query)
    assert response.status == 200, (response.status, response.body)
    body: dict[str, Any] = json.loads(response.body)
    assert body["stream_count"] == len(body["streams"])
    return body


def changed(api: Api, bucket: str, position: str, query: str = "") -> dict[str, Any]:
    return listing(api, bucket, f"changed_since={position}{query}")


def ids(page: dict[str, Any]) -> list[str]:
    return [item["stream_id"] for item in page["streams"]]


def test_a_changed_stream_has_the_same_fields_as_in_a_listing(api: Api) -> None:
    bucket = api.new_bucket()
    for name in ("a", "b", "c"):
        api.create(path=api.in_bucket(bucket, name))
    position = listing(api, bucket)["position"]
    api.append(api.in_bucket(bucket, "b"), b"abc")
    page = changed(api, bucket, position)
    expected = [item for item in listing(api, bucket)["streams"] if item["stream_id"] == "b"]
    assert page["streams"] == expected
    assert set(page) == {
        "bucket_id", "prefix", "stream_count", "streams", "has_more", "position",
    }  # fmt: skip
    assert changed(api, bucket, page["position"])["streams"] == []


def test_snapshots_and_deletions_are_changes(api: Api) -> None:
    bucket = api.new_bucket()
    for name in ("a", "b"):
        api.create(path=api.in_bucket(bucket, name), body=b"abc")
    position = listing(api, bucket)["position"]
    tail = api.tail(api.in_bucket(bucket, "b"))
    publish(api, api.in_bucket(bucket, "b"), tail, b"snap")
    assert api.request("DELETE", api.in_bucket(bucket, "a")).status == 204
    page = changed(api, bucket, position)
    assert page["streams"][1] == {"stream_id": "a", "status": "Deleted"}
    assert (page["streams"][0]["snapshot_offset"], page["streams"][0]["snapshot_bytes"]) == (
        tail,
        4,
    )


def test_changes_by_page_and_prefix(api: Api) -> None:
    bucket = api.new_bucket()
    position = listing(api, bucket)["position"]
    for number in range(7):
        api.create(path=api.in_bucket(bucket, f"{'xy'[number % 2]}-{number}"))
    found, at = [], position
    while True:
        page = changed(api, bucket, at, "&limit=2")
        found += ids(page)
        at = page["position"]
        if not page["has_more"]:
            break
        assert len(page["streams"]) == 2
    assert found == [f"{'xy'[number % 2]}-{number}" for number in range(7)]
    assert ids(changed(api, bucket, position, "&prefix=y&limit=2")) == ["y-1", "y-3"]
    assert ids(changed(api, bucket, position, "&prefix=y")) == ["y-1", "y-3", "y-5"]


def test_an_unknown_position_requires_a_new_listing(api: Api) -> None:
    bucket = api.new_bucket()
    where = api.in_bucket(bucket, "streams")
    gone = api.get(where, "changed_since=0123456789abcdef-3")
    assert "list the whole bucket" in check_problem(gone, 410, "position-gone")["detail"]
    for position in ("", "now", "-1", "0123456789abcdef", "0123456789abcdef-", "%C3%A9"):
        check_problem(api.get(where, f"changed_since={position}"), 400, "query-invalid")
    good = listing(api, bucket)["position"]
    check_problem(api.get(where, f"changed_since={good}&after=a"), 400, "query-invalid")
    check_problem(api.get(where, f"changed_since={good}&changed_since={good}"), 400)
    missing = api.in_bucket("never-created", "streams")
    check_problem(api.get(missing, f"changed_since={good}"), 404, "bucket-not-found")


@for_each("limit", [3, 1000])
def test_a_listing_and_then_its_changes_miss_nothing(api: Api, limit: int) -> None:
    """
    While streams are appended to, deleted and created again.

    Goal: a client that lists once and then follows changes has the current state of the bucket.
    Method: writers act at random, a follower applies pages to a dict, and both are compared.
    """
    bucket = api.new_bucket()
    names = [f"s{number}" for number in range(12)]
    stop = threading.Event()
    errors: list[BaseException] = []

    def write(seed: int) -> None:
        writer = Api(api.server)
        try:
            turn = seed
            while not stop.is_set():
                turn = (turn * 1_103_515_245 + 12_345) % (1 << 31)
                path = writer.in_bucket(bucket, names[turn // 7 % len(names)])
                if turn // 1009 % 3 == 0:
                    writer.request("DELETE", path)
                elif turn // 1009 % 3 == 1:
                    writer.request("PUT", path, {"Content-Type": "text/plain"}, b"new")
                else:
                    writer.post(path, b"more")
        except BaseException as error:
            errors.append(error)
        finally:
            writer.close()

    writers = [threading.Thread(target=write, args=(seed,)) for seed in (1, 2)]
    for thread in writers:
        thread.start()
    try:
        mine, position = listed_whole(api, bucket, limit)
        for _ in range(60):
            position = follow(api, bucket, mine, position, limit)
    finally:
        stop.set()
        for thread in writers:
            thread.join()
    assert not errors
    position = follow(api, bucket, mine, position, limit)
    assert mine == listed_whole(api, bucket, 1000)[0]


def listed_whole(api: Api, bucket: str, limit: int) -> tuple[dict[str, Any], str]:
    """All pages; the position is that of the first."""
    page = listing(api, bucket, f"limit={limit}")
    position: str = page["position"]
    found = {item["stream_id"]: item for item in page["streams"]}
    while page["has_more"]:
        page = listing(api, bucket, f"limit={limit}&after={page['next_cursor']}")
        found |= {item["stream_id"]: item for item in page["streams"]}
    return found, position


def follow(api: Api, bucket: str, mine: dict[str, Any], position: str, limit: int) -> str:
    """Apply all pages of changes; returns the new position."""
    while True:
        page = changed(api, bucket, position, f"&limit={limit}")
        for item in page["streams"]:
            if item["status"] == "Deleted":
                mine.pop(item["stream_id"], None)
            else:
                mine[item["stream_id"]] = item
        position = page["position"]
        if not page["has_more"]:
            return position

"""`/-/buckets`, `/-/paths` and `/-/about`: listings, limited to what the caller may read."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from tailrace.server.guard.access.token_editor import add_token
from tests.support.looping import for_each
from tests.support.publishing import KINDS_ONCE
from tests.support.server import ServerProcess
from tests.support.streams import Api, check_common, check_problem, wait_until

every_kind = pytest.mark.parametrize("kind", KINDS_ONCE, indirect=True, scope="session")

_stems = itertools.count()


def stem() -> str:
    """A prefix of names that no other test uses."""
    return f"ovw{next(_stems)}-"


def fetch(api: Api, what: str, token: str | None = None, **query: str) -> dict[str, Any]:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    target = f"{api.server.base_path}/-/{what}?{urlencode(query)}"
    response = api.request("GET", target, headers)
    assert response.status == 200, (response.status, response.body)
    assert response.headers["content-type"] == "application/json"
    assert response.headers["cache-control"] == "no-store"
    check_common(response)
    body: dict[str, Any] = json.loads(response.body)
    return body


def refused(api: Api, what: str, status: int, code: str, **query: str) -> None:
    target = f"{api.server.base_path}/-/{what}?{urlencode(query)}"
    check_problem(api.request("GET", target), status, code)


def make_bucket(api: Api, name: str) -> str:
    assert api.request("PUT", f"{api.server.base_path}/{name}").status == 201
    return name


def names(body: dict[str, Any]) -> list[str]:
    return [item["bucket_id"] for item in body["buckets"]]


@every_kind
class TestBuckets:
    def test_the_fields_of_a_bucket(self, api: Api) -> None:
        bucket = make_bucket(api, stem())
        api.create("text/plain", b"12345", path=api.in_bucket(bucket, "one"))
        api.create("text/plain", b"678", path=api.in_bucket(bucket, "two"))
        described = json.loads(api.get(f"{api.server.base_path}/{bucket}").body)
        (item,) = fetch(api, "buckets", prefix=bucket)["buckets"]
        assert item == {
            "bucket_id": bucket,
            "streams": 2,
            "bytes": 8,
            "created_at_ms": described["created_at_ms"],
        }

    def test_order_prefix_and_pages(self, api: Api) -> None:
        start = stem()
        made = [make_bucket(api, f"{start}{name}") for name in ("c", "a", "b-", "b", "b_")]
        assert names(fetch(api, "buckets", prefix=start)) == sorted(made)
        assert names(fetch(api, "buckets", prefix=start + "b")) == sorted(made)[1:4]
        first = fetch(api, "buckets", prefix=start, limit="3")
        assert (names(first), first["has_more"]) == (sorted(made)[:3], True)
        assert first["next_cursor"] == sorted(made)[2]
        rest = fetch(api, "buckets", prefix=start, after=first["next_cursor"], limit="2")
        assert (names(rest), rest["has_more"]) == (sorted(made)[3:], False)
        none = fetch(api, "buckets", prefix=start + "zz")
        assert (none["buckets"], none["next_cursor"], none["has_more"]) == ([], None, False)

    def test_deleted_buckets_are_not_listed_and_expired_streams_not_counted(self, api: Api) -> None:
        start = stem()
        gone, kept = make_bucket(api, f"{start}gone"), make_bucket(api, f"{start}kept")
        api.create(path=api.in_bucket(kept, "brief"), headers={"Stream-TTL": "1"})
        assert api.request("DELETE", f"{api.server.base_path}/{gone}").status == 204
        assert names(fetch(api, "buckets", prefix=start)) == [kept]
        wait_until(
            "the stream's time is over",
            lambda: fetch(api, "buckets", prefix=start)["buckets"][0]["streams"] == 0,
        )

    def test_head_is_the_same_without_a_body(self, api: Api) -> None:
        for what in ("buckets", "paths"):
            response = api.request("HEAD", f"{api.server.base_path}/-/{what}")
            assert (response.status, response.body) == (200, b"")
            assert response.headers["cache-control"] == "no-store"

    @for_each("limit", ["0", "1001", "x", "-1", ""])
    def test_an_invalid_limit_is_400(self, api: Api, limit: str) -> None:
        for what in ("buckets", "paths"):
            response = api.request("GET", f"{api.server.base_path}/-/{what}?limit={limit}")
            check_problem(response, 400, "query-invalid")

    def test_other_methods_are_405(self, api: Api) -> None:
        for what in ("buckets", "paths", "about"):
            response = api.request("POST", f"{api.server.base_path}/-/{what}", {}, b"")
            check_problem(response, 405, "method-not-allowed")


@every_kind
class TestPaths:
    def test_items_have_the_same_fields_as_in_the_listing_of_a_bucket(self, api: Api) -> None:
        """As in X§1.4, so a client can parse both."""
        path, bucket = stem() + "a/b c", api.new_bucket()
        api.create("text/plain", b"hello", path=f"{api.server.base_path}/v1/stream/{quote(path)}")
        api.create("text/plain", b"hello", path=api.in_bucket(bucket, "s"))
        (item,) = fetch(api, "paths", prefix=path)["streams"]
        listing = json.loads(api.get(api.in_bucket(bucket, "streams")).body)
        assert set(item) == set(listing["streams"][0])
        assert (item["stream_id"], item["tail_offset"], item["status"]) == (path, 5, "Open")

    def test_order_prefix_and_pages(self, api: Api) -> None:
        start = stem()
        ids = [f"{start}{name}" for name in ("b", "a/b", "a", "a/b/c", "aé", "ab")]
        for name in ids:
            api.create(path=f"{api.server.base_path}/v1/stream/{quote(name)}")
        found, after = [], ""
        while True:
            page = fetch(api, "paths", prefix=start, after=after, limit="2")
            assert page["stream_count"] == len(page["streams"]) <= 2
            found += [item["stream_id"] for item in page["streams"]]
            if not page["has_more"]:
                break
            after = page["next_cursor"]
        assert found == sorted(ids, key=str.encode)
        api.request("DELETE", f"{api.server.base_path}/v1/stream/{quote(ids[0])}")
        assert ids[0] not in [
            item["stream_id"] for item in fetch(api, "paths", prefix=start)["streams"]
        ]

    def test_streams_in_buckets_are_not_listed(self, api: Api) -> None:
        start = stem()
        make_bucket(api, start + "b")
        api.create(path=api.in_bucket(start + "b", start))
        assert fetch(api, "paths", prefix=start)["streams"] == []


@every_kind
class TestAbout:
    def test_all_fields_of_a_stream(self, api: Api) -> None:
        bucket = api.new_bucket()
        path = api.in_bucket(bucket, "a%20b")
        api.create("application/json", b"[1,2,3]", {"Stream-TTL": "3600"}, path)
        entry = {"places": [{"bucket": bucket, "stream": "a b", "message": 2}]}
        target = f"{api.server.base_path}/-/offsets"
        response = api.request("POST", target, {}, json.dumps(entry).encode())
        offset = json.loads(response.body)["places"][0]["offset"]
        published = api.request(
            "PUT", f"{path}/snapshot/{offset}", {"Content-Type": "text/plain"}, b"sum: 3"
        )
        assert published.status == 204
        api.close_stream(path)
        about = fetch(api, "about", bucket=bucket, stream="a b")
        (listed,) = json.loads(api.get(api.in_bucket(bucket, "streams")).body)["streams"]
        assert {name: about[name] for name in listed} == listed
        assert about["bucket_id"] == bucket
        assert (about["closed"], about["ttl_s"]) == (True, 3600)
        assert 3_500_000 < about["remaining_ms"] <= 3_600_000
        assert about["expires_at_ms"] == about["created_at_ms"] + 3_600_000
        snapshot = about["snapshot"]
        assert snapshot.pop("at_ms") == about["snapshot_at_ms"]
        assert snapshot == {"offset": offset, "content_type": "text/plain", "bytes": 6}
        assert (about["producers"], about["producer_count"]) == ([], 0)

    def test_a_stream_of_the_base_surface_without_expiry(self, api: Api) -> None:
        path = stem() + "x/y"
        api.create("text/plain", path=f"{api.server.base_path}/v1/stream/{path}")
        about = fetch(api, "about", path=path)
        assert (about["bucket_id"], about["stream_id"]) == (None, path)
        assert (about["ttl_s"], about["expires_at_ms"], about["remaining_ms"]) == (None,) * 3
        assert (about["snapshot"], about["closed"]) == (None, False)

    def test_the_source_of_a_fork(self, api: Api) -> None:
        path = stem()
        root = f"{api.server.base_path}/v1/stream/"
        source = api.create("text/plain", b"abc", path=f"{root}{path}")
        assert fetch(api, "about", path=path)["forked_from"] is None
        fork = {"Stream-Forked-From": source}
        assert api.request("PUT", f"{root}{path}/fork", fork).status == 201
        about = fetch(api, "about", path=f"{path}/fork")
        assert about["forked_from"] == {"stream_id": path, "offset": api.tail(source)}

    def test_a_stream_with_an_absolute_expiry(self, api: Api) -> None:
        path = stem()
        headers = {"Stream-Expires-At": "2999-01-01T00:00:00Z"}
        api.create("text/plain", None, headers, f"{api.server.base_path}/v1/stream/{path}")
        about = fetch(api, "about", path=path)
        assert (about["ttl_s"], about["expires_at_ms"]) == (None, 32_472_144_000_000)

    def test_order_and_pages_of_producers(self, api: Api) -> None:
        path = stem()
        target = api.create("text/plain", path=f"{api.server.base_path}/v1/stream/{path}")
        for at, name in enumerate(["p-b", "p-c", "p-a"]):
            for seq in range(at + 1):
                claim = {"Producer-Id": name, "Producer-Epoch": "7", "Producer-Seq": str(seq)}
                assert api.post(target, b"x", claim).status == 200
        about = fetch(api, "about", path=path, limit="2")
        assert about["producer_count"] == 3
        assert about["producers"] == [
            {"id": "p-a", "epoch": 7, "last_seq": 2},
            {"id": "p-b", "epoch": 7, "last_seq": 0},
        ]
        assert about["next_producer"] == "p-b"
        rest = fetch(api, "about", path=path, after="p-b")
        assert (rest["producers"], rest["next_producer"]) == (
            [{"id": "p-c", "epoch": 7, "last_seq": 1}],
            None,
        )

    def test_a_missing_bucket_or_stream_is_404(self, api: Api) -> None:
        refused(api, "about", 404, "stream-not-found", path=stem())
        refused(api, "about", 404, "bucket-not-found", bucket=stem() + "none", stream="s")
        refused(api, "about", 404, "stream-not-found", bucket=api.new_bucket(), stream="s")

    @for_each(
        "query",
        [{}, {"bucket": "abcd"}, {"stream": "s"}, {"path": "a", "bucket": "abcd", "stream": "s"}],
    )
    def test_a_query_must_name_one_stream_in_one_way(self, api: Api, query: dict[str, str]) -> None:
        refused(api, "about", 400, "query-invalid", **query)

    def test_invalid_names_are_400(self, api: Api) -> None:
        refused(api, "about", 400, "path-invalid", path="a//b")
        refused(api, "about", 400, "bucket-invalid", bucket="A", stream="s")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Api, dict[str, str]]]:
    directory = tmp_path_factory.mktemp("guarded")
    file = directory / "access.toml"
    _, root = add_token(file, "root", ["*:/"])
    tokens = {
        "all": root,
        "one": add_token(file, "one", ["read:/alpha"])[1],
        "part": add_token(file, "part", ["read:/alpha/x-*", "append:/beta-log"])[1],
        "base": add_token(file, "base", ["read:/v1/stream/team"])[1],
        "begin": add_token(file, "begin", ["read:/al*", "read:/alpha/y", "read:/-/metrics"])[1],
        "ways": add_token(file, "ways", ["read:/beta-log/*", "read:/beta-log", "read:/none"])[1],
    }
    options = ("--engine", "memory", "--access", str(file))
    with ServerProcess(directory / "data", *options) as server:
        api = Api(server)
        bearer = {"Authorization": f"Bearer {root}"}
        for bucket in ("alpha", "beta-log"):
            assert api.request("PUT", f"/{bucket}", bearer).status == 201
            assert api.request("PUT", f"/{bucket}/x-1", bearer).status == 201
        for path in ("team/a", "teams/a", "other"):
            assert api.request("PUT", f"/v1/stream/{path}", bearer).status == 201
        yield api, tokens
        api.close()


class TestAccess:
    """A principal sees only the buckets and streams that it may read."""

    @for_each(
        ("principal", "buckets", "paths"),
        [
            ("all", ["alpha", "beta-log"], ["other", "team/a", "teams/a"]),
            ("one", ["alpha"], []),
            ("part", ["alpha"], []),
            ("base", [], ["team/a"]),
            ("begin", ["alpha"], []),
            ("ways", ["beta-log"], []),
        ],
    )
    def test_each_principal_sees_only_what_it_may_read(
        self,
        guarded: tuple[Api, dict[str, str]],
        principal: str,
        buckets: list[str],
        paths: list[str],
    ) -> None:
        api, tokens = guarded
        assert names(fetch(api, "buckets", tokens[principal])) == buckets
        found = fetch(api, "paths", tokens[principal])["streams"]
        assert [item["stream_id"] for item in found] == paths

    def test_pages_and_prefixes_with_any_grants(self, guarded: tuple[Api, dict[str, str]]) -> None:
        api, tokens = guarded
        assert names(fetch(api, "buckets", tokens["begin"], prefix="alph")) == ["alpha"]
        assert names(fetch(api, "buckets", tokens["begin"], prefix="a")) == ["alpha"]
        for prefix in ("alphb", "b", "alpha\0", "alpha\0x"):
            for principal in ("begin", "part"):
                assert names(fetch(api, "buckets", tokens[principal], prefix=prefix)) == []
        for principal in ("one", "part", "begin"):
            page = fetch(api, "buckets", tokens[principal], limit="1")
            assert (names(page), page["has_more"]) == (["alpha"], False)
            assert names(fetch(api, "buckets", tokens[principal], after="alpha")) == []

    @for_each(
        ("principal", "query", "status"),
        [
            ("all", "bucket=alpha&stream=x-1", 200),
            ("one", "bucket=alpha&stream=x-1", 200),
            ("part", "bucket=alpha&stream=x-1", 200),
            ("base", "path=team/a", 200),
            ("base", "path=teams/a", 403),
            ("base", "path=none", 403),
            ("one", "bucket=beta-log&stream=x-1", 403),
            ("part", "bucket=beta-log&stream=x-1", 403),
            ("part", "bucket=alpha&stream=none", 403),
            ("one", "bucket=alpha&stream=none", 404),
        ],
    )
    def test_about(
        self, guarded: tuple[Api, dict[str, str]], principal: str, query: str, status: int
    ) -> None:
        """Without the right to read it is 403, whether or not the stream exists."""
        api, tokens = guarded
        headers = {"Authorization": f"Bearer {tokens[principal]}"}
        assert api.request("GET", f"/-/about?{query}", headers).status == status

    def test_without_a_token_it_is_401(self, guarded: tuple[Api, dict[str, str]]) -> None:
        api, _ = guarded
        for what in ("buckets", "paths", "about?path=other"):
            check_problem(api.request("GET", f"/-/{what}"), 401)

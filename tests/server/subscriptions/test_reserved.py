"""`__ds` on the base surface is never a stream; in a bucket it is a stream like others."""

from __future__ import annotations

import pytest

from tests.server.subscriptions.surface import check_error
from tests.support.streams import Api

pytestmark = pytest.mark.every_kind

RESERVED = [
    "__ds",
    "__ds/",
    "__ds/x",
    "__ds/subscriptions/a/b",
    "__ds/subscriptions/a/streams/x/y/../z",
    "__ds/jwks.json/x",
    "%5F%5Fds",
    "%5f_ds/x",
    "__ds%2Fx",
]


@pytest.mark.parametrize("path", RESERVED)
def test_reserved_paths_are_not_found(api: Api, path: str) -> None:
    for method in ("PUT", "GET", "POST", "DELETE"):
        target = f"{api.server.base_path}/v1/stream/{path}"
        if method == "DELETE" and "streams" in path:
            continue
        body = b"x" if method in ("PUT", "POST") else None
        response = api.request(method, target, {"Content-Type": "text/plain"}, body)
        if response.status != 405:
            check_error(response, 404, "SUBSCRIPTION_NOT_FOUND")


@pytest.mark.parametrize("path", ["__dsx", "a/__ds", "_ds", "__DS"])
def test_similar_paths_are_streams(api: Api, path: str) -> None:
    target = f"{api.server.base_path}/v1/stream/{path}"
    assert api.request("PUT", target).status == 201
    assert api.request("DELETE", target).status == 204


def test_in_a_bucket_it_is_a_stream_with_all_its_resources(api: Api) -> None:
    bucket = api.new_bucket()
    path = api.create(path=api.in_bucket(bucket, "__ds"))
    tail = api.append(path, b"hello")
    assert api.get(path, "offset=-1").body == b"hello"
    published = api.request("PUT", f"{path}/snapshot/{tail}", {"Content-Type": "text/plain"}, b"s")
    assert published.status == 204
    assert api.get(f"{path}/snapshot/{tail}").body == b"s"
    assert api.get(f"{path}/bootstrap").status == 200
    assert api.get(f"{path}/jwks.json").status == 200
    assert api.get(f"{path}/other").status == 400
    assert api.request("DELETE", path).status == 204


def test_a_bucket_that_does_not_exist_has_no_subscriptions(api: Api) -> None:
    target = f"{api.server.base_path}/no-bucket/__ds/subscriptions/a"
    body = b'{"type":"pull-wake","pattern":"*","wake_stream":"w"}'
    check_error(api.request("PUT", target, {}, body), 404, "BUCKET_NOT_FOUND")
    check_error(api.request("GET", target), 404, "SUBSCRIPTION_NOT_FOUND")

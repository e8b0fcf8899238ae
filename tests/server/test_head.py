"""§5.5: HEAD returns the metadata of a stream, without a body and not cached."""

from __future__ import annotations

from tests.support.looping import for_each
from tests.support.streams import Api, check_common


def test_head_of_an_open_stream(api: Api) -> None:
    """Type and tail, no-store, and no headers for TTL, expiry or closure."""
    path = api.create("text/html; charset=utf-8", b"abc")
    response = api.head(path)
    assert (response.status, response.body) == (200, b"")
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert response.headers["stream-next-offset"] == "0000000000000001_0000000000000003"
    assert response.headers["cache-control"] == "no-store"
    for name in ("stream-ttl", "stream-expires-at", "stream-closed", "etag"):
        assert name not in response.headers
    check_common(response)


def test_head_of_a_closed_stream(api: Api) -> None:
    """Stream-Closed: true."""
    path = api.create(headers={"Stream-Closed": "true"})
    assert api.head(path).headers["stream-closed"] == "true"


def test_head_of_a_stream_that_does_not_exist_is_404(api: Api) -> None:
    """Without a body, with the common headers."""
    response = api.head(api.path())
    assert (response.status, response.body) == (404, b"")
    check_common(response)


def test_head_returns_the_remaining_ttl(api: Api) -> None:
    """Rounded up: after creation it is the whole TTL, or a little less on a busy machine."""
    path = api.create(headers={"Stream-TTL": "3600"})
    response = api.head(path)
    assert 3500 < int(response.headers["stream-ttl"]) <= 3600
    assert "stream-expires-at" not in response.headers


@for_each(
    ("sent", "returned"),
    [
        ("2099-01-02T03:04:05Z", "2099-01-02T03:04:05Z"),
        ("2099-01-02T03:04:05.678Z", "2099-01-02T03:04:05.678Z"),
        ("2099-01-02T03:04:05.6789123Z", "2099-01-02T03:04:05.678Z"),
        ("2099-01-02t03:04:05z", "2099-01-02T03:04:05Z"),
        ("2099-01-02T03:04:05+05:30", "2099-01-01T21:34:05Z"),
        ("2099-01-02T03:04:05-00:00", "2099-01-02T03:04:05Z"),
        ("2096-02-29T23:59:59Z", "2096-02-29T23:59:59Z"),
    ],
)
def test_head_returns_the_expiry(api: Api, sent: str, returned: str) -> None:
    """RFC 3339, in UTC."""
    path = api.create(headers={"Stream-Expires-At": sent})
    response = api.head(path)
    assert response.headers["stream-expires-at"] == returned
    assert "stream-ttl" not in response.headers


def test_head_returns_the_tail_after_every_append(api: Api) -> None:
    path = api.create()
    for size in (1, 10, 100):
        tail = api.append(path, b"x" * size)
        assert api.tail(path) == tail


@for_each("query", ["offset=-1", "offset=now&live=sse", "live=long-poll", "offset=bad"])
def test_head_ignores_the_parameters_of_reads(api: Api, query: str) -> None:
    """It neither waits nor fails."""
    path = api.create(body=b"x")
    assert api.request("HEAD", f"{path}?{query}").status == 200

"""§6: `offset=now` in its three modes, on open and on closed streams."""

from __future__ import annotations

import threading

from tests.support.looping import for_each
from tests.support.streams import Api

JSON = "application/json"


@for_each("closed", [False, True])
@for_each(
    ("content_type", "body", "empty"),
    [
        ("text/plain", b"abc", b""),
        (JSON, b"[1,2]", b"[]"),
        ("application/x+json", b"[1]", b"[]"),
        ("image/png", b"x", b""),
    ],
)
def test_catch_up(api: Api, content_type: str, body: bytes, empty: bytes, closed: bool) -> None:
    """An empty body of the stream's type, the tail, up to date, no-store, no ETag."""
    path = api.create(content_type, body, {"Stream-Closed": "true"} if closed else {})
    for query in ("offset=now", "offset=now&live=false"):
        response = api.get(path, query, {"If-None-Match": "*"})
        assert (response.status, response.body) == (200, empty)
        assert response.headers["content-type"] == content_type
        assert response.headers["stream-next-offset"] == api.tail(path)
        assert response.headers["stream-up-to-date"] == "true"
        assert response.headers["cache-control"] == "no-store"
        assert "etag" not in response.headers
        assert response.headers.get("stream-closed") == ("true" if closed else None)


def test_long_poll_waits_for_new_data(api: Api) -> None:
    """The first response has the new data and the new tail."""
    path = api.create(body=b"old")
    with api.connect(30.0) as connection:
        connection.send_request("GET", f"{path}?offset=now&live=long-poll")
        threading.Event().wait(0.3)
        tail = api.append(path, b"new")
        response = connection.read_response()
    assert (response.status, response.body) == (200, b"new")
    assert response.headers["stream-next-offset"] == tail
    # A later request for the same URL must get other data.
    assert response.headers["cache-control"] == "no-store"


def test_long_poll_times_out_with_204(short: Api) -> None:
    """With the tail, and up to date."""
    path = short.create(body=b"old")
    response = short.get(path, "offset=now&live=long-poll")
    assert response.status == 204
    assert response.headers["stream-up-to-date"] == "true"
    assert response.headers["stream-next-offset"] == short.tail(path)


def test_long_poll_on_a_closed_stream_is_204_at_once(api: Api) -> None:
    """It does not wait."""
    path = api.create(body=b"old", headers={"Stream-Closed": "true"})
    response = api.get(path, "offset=now&live=long-poll")
    assert (response.status, response.headers["stream-closed"]) == (204, "true")
    assert response.headers["stream-up-to-date"] == "true"
    assert response.headers["stream-next-offset"] == api.tail(path)


def test_sse_starts_at_the_tail(api: Api) -> None:
    """The first control event has the tail and upToDate; no earlier data is sent."""
    path = api.create(body=b"old")
    with api.sse(path, "offset=now") as events:
        first = events.next()
        assert first.kind == "control"
        assert first.json["streamNextOffset"] == api.tail(path)
        assert first.json["upToDate"] is True
        assert "stream-closed" not in events.head.headers
        tail = api.append(path, b"new")
        assert events.until(tail=tail)[0].data == "new"


def test_sse_on_a_closed_stream(api: Api) -> None:
    """The headers and the only control event have the closure; then the response ends."""
    path = api.create(body=b"old", headers={"Stream-Closed": "true"})
    tail = api.tail(path)
    with api.sse(path, "offset=now") as events:
        headers = events.head.headers
        assert headers["stream-closed"] == "true"
        assert headers["stream-up-to-date"] == "true"
        assert headers["stream-next-offset"] == tail
        (control,) = list(events)
    assert control.json["streamClosed"] is True
    assert control.json["upToDate"] is True
    assert control.json["streamNextOffset"] == tail


@for_each("query", ["offset=now", "offset=now&live=long-poll"])
def test_now_on_an_empty_closed_stream(api: Api, query: str) -> None:
    """The response has the closure at once."""
    path = api.create(headers={"Stream-Closed": "true"})
    response = api.get(path, query)
    assert response.headers["stream-closed"] == "true"
    assert response.headers["stream-next-offset"] == "0000000000000000_0000000000000000"

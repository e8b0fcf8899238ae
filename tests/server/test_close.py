"""§4.1, §5.3: closing a stream is permanent and visible to every reader."""

from __future__ import annotations

from tests.support.looping import for_each
from tests.support.streams import Api, check_problem


def test_close_only_is_204_with_the_unchanged_tail(api: Api) -> None:
    """With Stream-Closed: true."""
    path = api.create(body=b"abc")
    tail = api.tail(path)
    response = api.close_stream(path)
    assert response.headers["stream-closed"] == "true"
    assert response.headers["stream-next-offset"] == tail
    assert api.read_all(path) == b"abc"


def test_closing_a_closed_stream_is_204(api: Api) -> None:
    """Close-only requests are idempotent."""
    path = api.create()
    first, second = api.close_stream(path), api.close_stream(path)
    for response in (first, second):
        assert response.headers["stream-closed"] == "true"
    assert first.headers["stream-next-offset"] == second.headers["stream-next-offset"]


def test_closing_a_stream_that_does_not_exist_is_404(api: Api) -> None:
    response = api.request("POST", api.path(), {"Stream-Closed": "true"}, b"")
    check_problem(response, 404, "stream-not-found")


def test_append_and_close_is_atomic(api: Api) -> None:
    """The body is the final data, and the response has Stream-Closed."""
    path = api.create(body=b"a")
    response = api.post(path, b"b", {"Stream-Closed": "true"})
    assert (response.status, response.headers["stream-closed"]) == (204, "true")
    read = api.get(path)
    assert (read.body, read.headers["stream-closed"]) == (b"ab", "true")


def test_append_and_close_is_not_idempotent(api: Api) -> None:
    """The second request is 409 with Stream-Closed."""
    path = api.create()
    api.append(path, b"b", {"Stream-Closed": "true"})
    response = api.post(path, b"b", {"Stream-Closed": "true"})
    check_problem(response, 409, "stream-closed")
    assert response.headers["stream-closed"] == "true"
    assert api.read_all(path) == b"b"


def test_a_rejected_append_and_close_does_not_close(api: Api) -> None:
    path = api.create("application/json")
    closing = {"Stream-Closed": "true"}
    assert api.post(path, b"{", closing, "application/json").status == 400
    assert api.post(path, b"{}", closing, "text/plain").status == 409
    assert api.post(path, b"[]", closing, "application/json").status == 400
    assert "stream-closed" not in api.head(path).headers
    api.append(path, b"{}", content_type="application/json")


@for_each("value", ["true", "TRUE", "True", "tRuE"])
def test_stream_closed_true_is_compared_without_case(api: Api, value: str) -> None:
    """§4.1."""
    path = api.create()
    response = api.request("POST", path, {"Stream-Closed": value}, b"")
    assert (response.status, response.headers["stream-closed"]) == (204, "true")


def test_a_closed_stream_cannot_be_reopened(api: Api) -> None:
    """By no append, no PUT and no other value of the header."""
    path = api.create(body=b"a")
    api.close_stream(path)
    assert api.post(path, b"b", {"Stream-Closed": "false"}).status == 409
    assert api.request("PUT", path, {"Content-Type": "text/plain"}).status == 409
    assert (
        api.request("PUT", path, {"Content-Type": "text/plain", "Stream-Closed": "false"}).status
        == 409
    )
    assert api.head(path).headers["stream-closed"] == "true"


def test_a_closed_stream_can_be_read(api: Api) -> None:
    """Only appends are rejected."""
    path = api.create(body=b"a")
    middle = api.tail(path)
    api.append(path, b"b")
    api.close_stream(path)
    assert api.get(path).body == b"ab"
    assert api.get(path, f"offset={middle}").body == b"b"

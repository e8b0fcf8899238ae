"""§5.2: POST appends; the order of its checks; Stream-Seq must increase."""

from __future__ import annotations

from tests.support.http import format_request
from tests.support.looping import for_each
from tests.support.streams import Api, check_problem


def test_append_is_204_with_the_new_tail(api: Api) -> None:
    """No content, Stream-Next-Offset after the append, no Stream-Closed."""
    path = api.create()
    response = api.post(path, b"hello")
    assert (response.status, response.body) == (204, b"")
    assert response.headers["stream-next-offset"] == "0000000000000001_0000000000000005"
    assert "stream-closed" not in response.headers
    assert response.headers["cache-control"] == "no-store"


def test_chunked_append(api: Api) -> None:
    """A body in several chunks is one append."""
    path = api.create()
    headers = {"Content-Type": "text/plain", "Transfer-Encoding": "chunked"}
    body = b"3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n"
    assert api.request("POST", path, headers, body).status == 204
    assert api.tail(path) == "0000000000000001_0000000000000004"
    assert api.read_all(path) == b"abcd"


def test_every_byte_value_is_stored_unchanged(api: Api) -> None:
    path = api.create("application/octet-stream")
    data = bytes(range(256)) * 3
    api.append(path, data, content_type="application/octet-stream")
    assert api.get(path).body == data


def test_append_to_a_stream_that_does_not_exist_is_404(api: Api) -> None:
    """And no stream is created."""
    path = api.path()
    check_problem(api.post(path, b"x"), 404, "stream-not-found")
    assert api.head(path).status == 404


@for_each("sent", [b"", None])
def test_empty_body_is_400(api: Api, sent: bytes | None) -> None:
    """An empty POST is malformed unless it closes the stream."""
    path = api.create()
    check_problem(api.post(path, sent), 400, "body-empty")


def test_empty_chunked_body_is_400(api: Api) -> None:
    path = api.create()
    headers = {"Content-Type": "text/plain", "Transfer-Encoding": "chunked"}
    check_problem(api.request("POST", path, headers, b"0\r\n\r\n"), 400, "body-empty")


def test_post_without_any_framing_is_an_empty_body(api: Api) -> None:
    """Neither Content-Length nor chunks: no body (RFC 9112, 6.3)."""
    path = api.create()
    with api.connect() as connection:
        raw = format_request("GET", path, {"Content-Type": "text/plain"}, host="x")
        connection.send(raw.replace(b"GET", b"POST", 1))
        check_problem(connection.read_response("POST"), 400, "body-empty")


def test_a_content_type_other_than_the_streams_is_409(api: Api) -> None:
    """And nothing is appended."""
    path = api.create()
    check_problem(
        api.post(path, b"{}", content_type="application/json"), 409, "content-type-mismatch"
    )
    assert api.read_all(path) == b""


def test_missing_content_type_is_400(api: Api) -> None:
    path = api.create()
    check_problem(api.post(path, b"x", content_type=None), 400, "content-type-missing")


@for_each("content_type", ["application/json", "nonsense", "", "a/b; c"])
def test_close_only_ignores_the_content_type(api: Api, content_type: str) -> None:
    """If the body is empty, servers must not reject a request for its Content-Type."""
    path = api.create()
    response = api.post(path, b"", {"Stream-Closed": "true"}, content_type)
    assert (response.status, response.headers["stream-closed"]) == (204, "true")


@for_each("charset", ["text/plain;charset=utf-8", "TEXT/plain", "text/Plain; a=b; c"])
def test_content_types_are_compared_without_case_and_parameters(api: Api, charset: str) -> None:
    """`text/plain; charset=utf-8` matches `text/plain`."""
    path = api.create("text/plain")
    assert api.post(path, b"x", content_type=charset).status == 204


# -- Stream-Seq ----------------------------------------------------------------------------------


@for_each(
    ("last", "next_one"),
    [
        ("1", "2"),
        ("09", "1"),
        ("10", "2"),
        ("a", "b"),
        ("Z", "a"),
        ("a", "aa"),
        ("a", "\xe4"),
        ("~", "\xff"),
        ("9", "A"),
    ],
)
def test_stream_seq_is_compared_bytewise(api: Api, last: str, next_one: str) -> None:
    """`10` < `2`, `Z` < `a`; a value not greater than the last is 409."""
    path = api.create()
    api.append(path, b"1", {"Stream-Seq": last})
    check_problem(api.post(path, b"x", {"Stream-Seq": last}), 409, "seq-regression")
    api.append(path, b"2", {"Stream-Seq": next_one})
    check_problem(api.post(path, b"x", {"Stream-Seq": last}), 409, "seq-regression")
    assert api.read_all(path) == b"12"


def test_appends_without_stream_seq_do_not_change_it(api: Api) -> None:
    path = api.create()
    api.append(path, b"1", {"Stream-Seq": "5"})
    api.append(path, b"2")
    assert api.post(path, b"x", {"Stream-Seq": "5"}).status == 409
    api.append(path, b"3", {"Stream-Seq": "6"})


def test_a_rejected_append_does_not_advance_stream_seq(api: Api) -> None:
    """The same value can be sent again."""
    path = api.create()
    assert api.post(path, b"x", {"Stream-Seq": "7"}, "text/html").status == 409
    assert api.post(path, b"", {"Stream-Seq": "7"}).status == 400
    api.append(path, b"1", {"Stream-Seq": "7"})


def test_stream_seq_is_scoped_per_stream(api: Api) -> None:
    """Another stream accepts the same value; all writers of one stream share the sequence."""
    one, two = api.create(), api.create()
    for path in (one, two):
        api.append(path, b"x", {"Stream-Seq": "1"})
    producer = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0"}
    check_problem(api.post(one, b"x", {"Stream-Seq": "1"} | producer), 409, "seq-regression")
    # The rejected batch did not advance the producer: it can be sent again.
    assert api.post(one, b"x", {"Stream-Seq": "2"} | producer).status == 200


def test_close_only_checks_and_advances_stream_seq(api: Api) -> None:
    """A close with a value not greater than the last is 409."""
    path = api.create()
    api.append(path, b"x", {"Stream-Seq": "5"})
    closing = {"Stream-Closed": "true", "Stream-Seq": "5"}
    check_problem(api.request("POST", path, closing, b""), 409, "seq-regression")
    assert "stream-closed" not in api.head(path).headers


# -- precedence of errors -------------------------------------------------------------------------


def test_error_precedence_on_a_closed_stream(api: Api) -> None:
    """Closure is checked before content type, body and sequence: clients see Stream-Closed."""
    path = api.create(body=b"x")
    api.append(path, b"y", {"Stream-Seq": "5"})
    tail = api.close_stream(path).headers["stream-next-offset"]
    attempts = [
        api.post(path, b"z"),
        api.post(path, b"z", content_type="application/json"),
        api.post(path, b"z", content_type=None),
        api.post(path, b""),
        api.post(path, b"z", {"Stream-Seq": "1"}),
        api.post(path, b"z", {"Stream-Closed": "true"}),
        api.post(path, b"z", {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "9"}),
    ]
    for response in attempts:
        check_problem(response, 409, "stream-closed")
        assert response.headers["stream-closed"] == "true"
        assert response.headers["stream-next-offset"] == tail
    assert api.read_all(path) == b"xy"


def test_error_precedence_on_an_open_stream(api: Api) -> None:
    """Content type, then body, then the producer's sequence, then Stream-Seq."""
    path = api.create("application/json")
    api.append(path, b"1", {"Stream-Seq": "5"}, "application/json")
    gap = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "3"}
    old = {"Stream-Seq": "1"}
    check_problem(api.post(path, b"{", gap | old, "text/plain"), 409, "content-type-mismatch")
    check_problem(api.post(path, b"{", gap | old, "application/json"), 400, "json-invalid")
    check_problem(api.post(path, b"{}", gap | old, "application/json"), 409, "producer-gap")
    first = gap | {"Producer-Seq": "0"}
    check_problem(api.post(path, b"{}", first | old, "application/json"), 409, "seq-regression")

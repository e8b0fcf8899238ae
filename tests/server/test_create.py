"""§5.1: PUT creates a stream, or confirms that it exists with the same configuration."""

from __future__ import annotations

import re

from tests.support.looping import for_each
from tests.support.streams import Api, check_problem

OFFSET = re.compile(r"[0-9]{16}_[0-9]{16}")


def test_create_is_201_with_location_type_and_offset(api: Api) -> None:
    """Location is the URL of the request; the offset is the tail."""
    path = api.path()
    response = api.request("PUT", path, {"Content-Type": "text/plain"})
    assert (response.status, response.body) == (201, b"")
    assert response.headers["location"] == api.url(path)
    assert response.headers["content-type"] == "text/plain"
    assert OFFSET.fullmatch(response.headers["stream-next-offset"])
    assert "stream-closed" not in response.headers
    assert response.headers["cache-control"] == "no-store"


def test_the_body_of_a_create_is_the_initial_content(api: Api) -> None:
    """The returned offset is the tail after it."""
    path = api.path()
    response = api.request("PUT", path, {"Content-Type": "text/plain"}, b"hello")
    assert response.headers["stream-next-offset"] == "0000000000000001_0000000000000005"
    assert api.get(path).body == b"hello"


def test_content_type_defaults_to_octet_stream(api: Api) -> None:
    path = api.create(None)
    assert api.head(path).headers["content-type"] == "application/octet-stream"
    assert api.request("PUT", path, {"Content-Type": "application/octet-stream"}).status == 200


@for_each(
    "spelling",
    [
        "Text/PLAIN; Charset=UTF-8",
        "application/json;charset=utf-8",
        'a/b; q="x;y"',
        "text/plain ; a=b",
    ],
)
def test_content_type_is_returned_exactly_as_first_spelled(api: Api, spelling: str) -> None:
    """Case and parameters are ignored in comparisons, kept in responses; no charset is added."""
    path = api.create(spelling)
    assert api.head(path).headers["content-type"] == spelling
    assert api.get(path).headers["content-type"] == spelling
    essence = spelling.split(";")[0].strip().lower()
    again = api.request("PUT", path, {"Content-Type": essence})
    assert (again.status, again.headers["content-type"]) == (200, spelling)
    assert api.post(path, b"1", content_type=essence.upper()).status == 204


def test_existing_stream_with_matching_configuration_is_200(api: Api) -> None:
    """With the current tail and no Location; a body is not appended."""
    path = api.create(body=b"abc")
    response = api.request("PUT", path, {"Content-Type": "text/plain"}, b"ignored")
    assert response.status == 200
    assert "location" not in response.headers
    assert response.headers["stream-next-offset"] == api.tail(path)
    assert api.read_all(path) == b"abc"


@for_each(
    ("first", "second"),
    [
        ({"Content-Type": "text/plain"}, {"Content-Type": "text/html"}),
        ({"Stream-TTL": "100"}, {"Stream-TTL": "101"}),
        ({"Stream-TTL": "100"}, {}),
        ({}, {"Stream-TTL": "100"}),
        ({"Stream-Expires-At": "2099-01-01T00:00:00Z"}, {}),
        (
            {"Stream-Expires-At": "2099-01-01T00:00:00Z"},
            {"Stream-Expires-At": "2099-01-01T00:00:01Z"},
        ),
        ({"Stream-Expires-At": "2099-01-01T00:00:00Z"}, {"Stream-TTL": "100"}),
        ({}, {"Stream-Closed": "true"}),
        ({"Stream-Closed": "true"}, {}),
    ],
)
def test_existing_stream_with_another_configuration_is_409(
    api: Api, first: dict[str, str], second: dict[str, str]
) -> None:
    """Type, TTL, expiry and closure status must all match; the stream is not changed."""
    path = api.path()
    assert api.request("PUT", path, first, b"abc").status == 201
    before = api.facts(path)
    check_problem(api.request("PUT", path, second, b"abc"), 409, "stream-exists")
    assert api.facts(path) == before


@for_each(
    "headers",
    [
        {"Stream-TTL": "100"},
        {"Stream-Expires-At": "2099-01-01T00:00:00Z"},
        {"Stream-Closed": "true"},
    ],
)
def test_each_part_of_the_configuration_can_be_sent_again(
    api: Api, headers: dict[str, str]
) -> None:
    path = api.path()
    assert [api.request("PUT", path, headers).status for _ in range(2)] == [201, 200]


def test_the_same_expiry_in_another_time_zone_matches(api: Api) -> None:
    """Stream-Expires-At is compared as a point in time, not as text."""
    path = api.create(headers={"Stream-Expires-At": "2099-01-01T00:00:00Z"})
    again = {"Content-Type": "text/plain", "Stream-Expires-At": "2099-01-01T02:00:00.000+02:00"}
    assert api.request("PUT", path, again).status == 200


def test_closure_status_is_compared_with_the_current_one(api: Api) -> None:
    """A stream that was closed later matches only a PUT with Stream-Closed: true."""
    path = api.create()
    api.close_stream(path)
    text = {"Content-Type": "text/plain"}
    check_problem(api.request("PUT", path, text), 409, "stream-exists")
    response = api.request("PUT", path, text | {"Stream-Closed": "true"})
    assert (response.status, response.headers["stream-closed"]) == (200, "true")


@for_each("body", [b"", b"all there is"])
def test_create_and_close_is_atomic(api: Api, body: bytes) -> None:
    """With Stream-Closed: true the body is the complete and final content."""
    path = api.path()
    headers = {"Content-Type": "text/plain", "Stream-Closed": "TRUE"}
    response = api.request("PUT", path, headers, body)
    assert (response.status, response.headers["stream-closed"]) == (201, "true")
    assert api.head(path).headers["stream-closed"] == "true"
    read = api.get(path)
    assert (read.body, read.headers["stream-closed"]) == (body, "true")
    assert api.post(path, b"more").status == 409


@for_each("value", ["false", "yes", "1", ""])
def test_stream_closed_with_another_value_is_ignored(api: Api, value: str) -> None:
    """§4.1: only `true` means closed."""
    path = api.path()
    response = api.request("PUT", path, {"Stream-Closed": value})
    assert response.status == 201
    assert "stream-closed" not in response.headers


def test_location_follows_the_scheme_that_a_proxy_saw(api: Api) -> None:
    path = api.path()
    response = api.request("PUT", path, {"X-Forwarded-Proto": "https"})
    assert response.headers["location"] in (
        api.url(path).replace("http://", "https://"),
        # The ASGI server has its own list of trusted proxies.
        api.url(path),
    )


def test_names_of_any_depth_and_script(api: Api) -> None:
    """A path can be nested and percent-encoded UTF-8; Location returns it as sent."""
    # In a bucket a stream id is one segment (X§1.1).
    path = api.path() + ("" if api.bucket else "/a/") + "b%20c%C3%A9%F0%9F%8C%8A"
    response = api.request("PUT", path, {"Content-Type": "text/plain"}, b"x")
    assert (response.status, response.headers["location"]) == (201, api.url(path))
    assert api.get(path).body == b"x"
    assert api.get(path.partition("b%20c")[0].rstrip("/")).status == 404

"""§7.1: JSON mode keeps message boundaries, flattens one level, and keeps every byte."""

from __future__ import annotations

import json

from tests.support.looping import for_each
from tests.support.streams import Api, check_problem

JSON = "application/json"


def stored(api: Api, body: bytes, content_type: str = JSON) -> bytes:
    """The content of a new stream after one append."""
    path = api.create(content_type)
    assert api.post(path, body, content_type=content_type).status == 204
    return api.get(path).body


@for_each(
    ("body", "response"),
    [
        (b'{"event": "created"}', b'[{"event": "created"}]'),
        (b'[{"event": "a"}, {"event": "b"}]', b'[{"event": "a"},{"event": "b"}]'),
        (b"[[1,2], [3,4]]", b"[[1,2],[3,4]]"),
        (b"[[[1,2,3]]]", b"[[[1,2,3]]]"),
        (b"[[]]", b"[[]]"),
        (b"[ [ ] ]", b"[[ ]]"),
        (b"[{}]", b"[{}]"),
        (b"[null]", b"[null]"),
        (b"null", b"[null]"),
        (b"true", b"[true]"),
        (b'"text"', b'["text"]'),
        (b"7", b"[7]"),
    ],
)
def test_arrays_are_flattened_by_exactly_one_level(api: Api, body: bytes, response: bytes) -> None:
    """The examples of the specification, and scalar values."""
    assert stored(api, body) == response


@for_each(
    "element",
    [
        b"12345678901234567890",
        b"-0",
        b"1e2",
        b"1E+02",
        b"1.0",
        b"1.10",
        b"0.1000000000000000055511151231257827",
        b"123456789012345678901234567890",
        b'{"b":1,"a":2}',
        b'{"a":1,"a":2}',
        b'{ "inner" :\t[ 1 , 2 ] ,\n"x":{ } }',
        b'"\\u00e4\\/\\n"',
        b'"\\ud83d\\ude00"',
        b'"\\ud83d"',
        b'{"\\udc00":"\\ud83d\\u0041"}',
        '"ä😀\u2028"'.encode(),
        b'",],{[\\""',
        b'[1,[2,[3,"]"]]]',
    ],
)
def test_elements_are_stored_byte_for_byte(api: Api, element: bytes) -> None:
    """Number spelling, key order, duplicate keys, escapes and inner white space are kept."""
    wrapped = b"[" + element + b"]"
    assert stored(api, wrapped) == wrapped
    assert (
        stored(api, b"[0," + element + b" ,\r\n" + element + b"]")
        == b"[0," + element + b"," + element + b"]"
    )
    if not element.startswith(b"["):
        assert stored(api, b" \t\r\n" + element + b"\n") == wrapped


@for_each(
    "content_type",
    [
        "application/json",
        "APPLICATION/JSON",
        "application/json; charset=utf-8",
        "application/vnd.api+json",
        "application/ld+json;profile=x",
        "application/hal+JSON",
        "text/x+json",
    ],
)
def test_json_content_types(api: Api, content_type: str) -> None:
    """application/json and every +json, without regard to parameters and case."""
    assert stored(api, b"[1, 2]", content_type) == b"[1,2]"


@for_each(
    "content_type",
    [
        "application/xml+xml",
        "application/jsonx",
        "text/json",
        "application/json-seq",
        "application/x-ndjson",
        "application/json+zip",
        "application/foo; x=+json",
    ],
)
def test_other_content_types_are_stored_as_bytes(api: Api, content_type: str) -> None:
    """Without any validation as JSON."""
    assert stored(api, b"[1, 2", content_type) == b"[1, 2"


def test_a_read_returns_the_messages_of_several_appends_as_one_array(api: Api) -> None:
    path = api.create(JSON, b'{"n":0}')
    for body in (b'{"n":1}', b'[{"n":2},{"n":3}]', b"[[4]]"):
        api.append(path, body, content_type=JSON)
    response = api.get(path)
    assert response.headers["content-type"] == JSON
    assert response.body == b'[{"n":0},{"n":1},{"n":2},{"n":3},[4]]'
    assert json.loads(response.body) == [{"n": 0}, {"n": 1}, {"n": 2}, {"n": 3}, [4]]


def test_an_empty_range_is_an_empty_array(api: Api) -> None:
    """`[]` on an empty stream, at the tail, and at the tail of a closed stream."""
    path = api.create(JSON)
    assert api.get(path).body == b"[]"
    tail = api.append(path, b"1", content_type=JSON)
    assert api.get(path, f"offset={tail}").body == b"[]"
    api.close_stream(path)
    response = api.get(path, f"offset={tail}")
    assert (response.body, response.headers["stream-closed"]) == (b"[]", "true")


@for_each("body", [b"[]", b" [ \n ] "])
def test_an_empty_array_is_400_for_post_and_accepted_by_put(api: Api, body: bytes) -> None:
    """POST: an append of nothing is probably a bug of the client. PUT: no initial messages."""
    path = api.path()
    response = api.request("PUT", path, {"Content-Type": JSON}, body)
    assert response.status == 201
    assert response.headers["stream-next-offset"] == "0000000000000000_0000000000000000"
    check_problem(api.post(path, body, content_type=JSON), 400, "json-invalid")
    assert api.get(path).body == b"[]"


def test_an_empty_array_with_close_is_400_and_does_not_close(api: Api) -> None:
    """It has a body, so it is an append of nothing and not a close-only request."""
    path = api.create(JSON)
    check_problem(api.post(path, b"[]", {"Stream-Closed": "true"}, JSON), 400, "json-invalid")
    assert "stream-closed" not in api.head(path).headers


def test_put_flattens_like_post(api: Api) -> None:
    path = api.create(JSON, b"[1,[2],3]")
    assert api.tail(path).startswith("0000000000000003_")
    assert api.get(path).body == b"[1,[2],3]"


def test_invalid_json_is_400_with_a_detail(api: Api) -> None:
    """The detail describes the error without quoting the whole body."""
    path = api.create(JSON)
    body = b"[1, 2, oops" + b"x" * 10_000
    problem = check_problem(api.post(path, body, content_type=JSON), 400, "json-invalid")
    assert len(problem["detail"]) < 1000


def test_a_batch_of_many_small_messages(api: Api) -> None:
    """Ten thousand messages in one request, each with its own offset."""
    path = api.create(JSON)
    body = b"[" + b",".join(b"%d" % n for n in range(10_000)) + b"]"
    tail = api.append(path, body, content_type=JSON)
    assert tail.startswith("0000000000010000_")
    assert api.get(path).body == body
    size = sum(len(str(n)) + 1 for n in range(5000))
    middle = api.get(path, f"offset={5000:016d}_{size:016d}").body
    assert json.loads(middle) == list(range(5000, 10_000))

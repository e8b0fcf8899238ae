"""JSON mode accepts only RFC 8259 in UTF-8 (§7.1); a rejected body changes nothing."""

from __future__ import annotations

import json

from tests.support.looping import for_each
from tests.support.streams import Api, check_problem
from tests.wire.refusal import head, refused

JSON = "application/json"

BAD_JSON = [
    b"",
    b" ",
    b"\n\t\r ",
    b"[]",
    b" [ ] ",
    b"NaN",
    b"[NaN]",
    b"Infinity",
    b"-Infinity",
    b"[1,]",
    b"[,1]",
    b"[,]",
    b"[1,,2]",
    b'{"a":1,}',
    b'{"a"}',
    b'{"a":}',
    b"{1:2}",
    b"{a:1}",
    b"{'a':1}",
    b"'a'",
    b"[1 2]",
    b"1 2",
    b"1,2",
    b"[1]x",
    b"[1][2]",
    b"{}{}",
    b"[",
    b"]",
    b"[1",
    b"{",
    b'"',
    b'"abc',
    b"tru",
    b"True",
    b"nulll",
    b"undefined",
    b"01",
    b"-01",
    b"+1",
    b".5",
    b"1.",
    b"1.e2",
    b"1e",
    b"1e+",
    b"-",
    b"0x1F",
    b"1_000",
    b'"\t"',
    b'"\n"',
    b'"\x00"',
    b'"\x1f"',
    b'"\\x41"',
    b'"\\u12"',
    b'"\\u12g4"',
    b'"\\"',
    b"\x00",
    b"1\x00",
    b"\x0c1",
    b"\xa01",
    b"\xc2\xa01",
    b"\xe2\x80\xa81",
    b"// comment\n1",
    b"/* comment */1",
    b"\xef\xbb\xbf{}",
    b"\xff\xfe1\x00",
    b"\x001\x00",
    b'"\xed\xa0\x80"',
    b'"\xed\xbf\xbf"',
    b'"\xff"',
    b'"\x80"',
    b'"\xc0\x80"',
    b'"\xe2\x82"',
    b'"\xf4\x90\x80\x80"',
    b'{"\xff":1}',
    b"[" * 60_000,
    b"[" * 5000 + b"]" * 5000,
    b'{"a":' * 5000 + b"1" + b"}" * 5000,
    b'[{"a":' * 3000 + b"1" + b"}]" * 3000,
]


@for_each("content_type", [JSON, "application/vnd.x+json"])
@for_each("body", BAD_JSON, ids=lambda body: repr(body)[:32])
def test_invalid_json_is_400_and_not_appended(api: Api, content_type: str, body: bytes) -> None:
    """With an error code; the content of the stream is unchanged."""
    path = api.create(content_type, b'[{"kept":true}]')
    lines = (f"Content-Type: {content_type}", f"Content-Length: {len(body)}")
    code = "body-empty" if not body else "json-invalid"
    raw = head(f"POST {path} HTTP/1.1", *lines) + body
    refused(api, raw, 400, code, path=path, closes=False)


@for_each("body", [b"NaN", b"[1,]", b'"\xff"', b"\xef\xbb\xbf{}", b" ", b"[" * 5000])
def test_invalid_json_creates_nothing(api: Api, body: bytes) -> None:
    """The body of a PUT is validated like an append."""
    path = api.path()
    response = api.request("PUT", path, {"Content-Type": JSON}, body)
    check_problem(response, 400, "json-invalid")
    assert api.head(path).status == 404


@for_each(
    "body",
    [
        b"1e400",
        b"-1e400",
        b"9" * 400,
        b"1e-400",
        b"0.1e-400",
        b"123456789012345678901234567890",
        b"-0",
        b"-0.0e-0",
        b"1E+2",
        b'"\\ud83d\\ude00"',
        b'"\\u0000"',
        b'"\x7f"',
        b'{"a":1,"a":2}',
        b'{"":{}}',
        b'"\xe2\x80\xa8"',
        b'"\xef\xbb\xbf"',
        b'"\xef\xbf\xbf"',
        b"[" * 500 + b"]" * 500,
        b'{"a":' * 500 + b"1" + b"}" * 500,
    ],
    ids=lambda body: repr(body)[:32],
)
def test_unusual_but_valid_json_is_kept_byte_for_byte(api: Api, body: bytes) -> None:
    """RFC 8259 limits neither the range of numbers nor the order of keys."""
    path = api.create(JSON)
    wrapped = b"[" + body + b"]"
    assert api.post(path, wrapped, content_type=JSON).status == 204
    assert api.get(path).body == wrapped
    assert json.loads(wrapped) is not None

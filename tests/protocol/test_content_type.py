"""§7: which types are JSON, which are text, and what is a media type at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.protocol.content_type import DEFAULT_CONTENT_TYPE, essence, is_json, is_text
from tailrace.protocol.errors import ContentTypeInvalid
from tailrace.protocol.limits import CONTENT_TYPE_BYTES_MAX


def test_essence_ignores_case_and_parameters() -> None:
    for content_type, name in [
        ("text/plain", "text/plain"),
        ("TEXT/Plain", "text/plain"),
        ("text/plain; charset=utf-8", "text/plain"),
        ("text/plain;charset=utf-8", "text/plain"),
        ("text/plain ;\tcharset=utf-8", "text/plain"),
        ("text/plain;", "text/plain"),
        ('multipart/mixed; boundary="a;b/c"', "multipart/mixed"),
        ("application/vnd.api+json", "application/vnd.api+json"),
        ("x-!#$%&'*+.^_`|~/9", "x-!#$%&'*+.^_`|~/9"),
    ]:
        assert essence(content_type) == name


def test_anything_but_a_media_type_is_400() -> None:
    for content_type in [
        "",
        "text",
        "/",
        "text/",
        "/plain",
        "text plain",
        "text/pl ain",
        "text/plain charset",
        "text/plain, text/html",
        "text/plain\n",
        "text/plain;\n",
        "text/plain; x=\x00",
        "text//x",
        "tëxt/plain",
        "text/plain; x=é",
        " text/plain",
        "*/*/*",
        "(a)/b",
        "text/plain\x7f",
        "text/" + "x" * CONTENT_TYPE_BYTES_MAX,
    ]:
        with pytest.raises(ContentTypeInvalid) as caught:
            essence(content_type)
        assert caught.value.status == 400


def test_the_longest_that_a_stream_keeps() -> None:
    assert essence("text/" + "x" * (CONTENT_TYPE_BYTES_MAX - 5)).startswith("text/x")


def test_json_mode_applies_to() -> None:
    for content_type in [
        "application/json",
        "application/vnd.api+json",
        "application/ld+json",
        "application/hal+json",
        "Application/JSON; charset=utf-8",
        "text/x+JSON",
        "image/svg+json",
        "application/problem+json;x",
    ]:
        assert is_json(content_type)
        # Over SSE it is text, never base64.
        assert is_text(content_type)


def test_json_mode_does_not_apply_to() -> None:
    for content_type in [
        "application/ndjson",
        "application/jsonl",
        "application/json-seq",
        "text/json",
        "application/x-json",
        "image/svg+xml",
        "application/x+der",
        "application/x+zip",
        "application/jsonp",
        "application/json+xml",
        "text/plain; x=application/json",
        "text/plain; a=b+json",
        DEFAULT_CONTENT_TYPE,
    ]:
        assert not is_json(content_type)


def test_what_goes_over_sse_as_text() -> None:
    """§5.8: `text/*` and JSON as they are, everything else in base64."""
    for content_type, text in [
        ("text/plain", True),
        ("TEXT/html; charset=utf-8", True),
        ("text/event-stream", True),
        ("application/ndjson", False),
        ("application/xml", False),
        ("texture/plain", False),
        ("application/text", False),
        (DEFAULT_CONTENT_TYPE, False),
    ]:
        assert is_text(content_type) is text


TOKENS = st.text("abcXYZ019!#$%&'*+.^_`|~-", min_size=1, max_size=12)


@given(kind=TOKENS, subtype=TOKENS, parameters=st.text(st.characters(min_codepoint=32,
       max_codepoint=126), max_size=20))  # fmt: skip
def test_any_media_type_equals_itself_in_any_case(kind: str, subtype: str, parameters: str) -> None:
    plain = f"{kind}/{subtype}"
    assert essence(plain.upper()) == essence(plain.lower())
    assert essence(f"{plain};{parameters}") == essence(plain) == plain.lower()
    assert is_json(plain) == is_json(f"{plain.upper()} ; {parameters}")

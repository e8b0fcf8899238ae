"""
`multipart/mixed` responses (RFC 2046), parsed twice: by a strict splitter, and by Python's `email`.

The splitter accepts only the exact form of a bootstrap. The `email` package is independent of it,
and is what a Python client would use.
"""

from __future__ import annotations

import email.policy
import re
from dataclasses import dataclass
from email.message import Message
from email.parser import BytesParser

# RFC 9110: a token needs no quotation marks in a parameter; RFC 2046: at most 70 characters.
_CONTENT_TYPE = re.compile(r"multipart/mixed; boundary=([!#$%&'*+.^_`|~0-9A-Za-z-]{1,70})")
_PART = re.compile(rb"Content-Type: ([\x20-\x7e]+)\r\n\r\n(.*)", re.DOTALL)
# Python parses long bodies line by line, which is slow.
_EMAIL_BYTES_MAX = 256 << 10


@dataclass(frozen=True, slots=True)
class Part:
    """One part: its content type exactly as sent, and its bytes."""

    content_type: str
    body: bytes


def boundary_of(content_type: str) -> bytes:
    """The boundary that a Content-Type header names."""
    match = _CONTENT_TYPE.fullmatch(content_type)
    assert match is not None, content_type
    return match[1].encode()


def parts_of(content_type: str, body: bytes) -> list[Part]:
    """The parts of a whole response; both parsers must agree where both can parse it."""
    parts = split_strictly(content_type, body)
    if len(body) <= _EMAIL_BYTES_MAX and not any(_is_composite(part) for part in parts):
        for policy in (email.policy.compat32, email.policy.HTTP):
            assert split_by_email(content_type, body, policy) == parts, policy
    return parts


def split_strictly(content_type: str, body: bytes) -> list[Part]:
    """Split at the delimiters; reject any bytes before, between or after parts."""
    boundary = boundary_of(content_type)
    first, between, last = b"--%b\r\n", b"\r\n--%b\r\n", b"\r\n--%b--\r\n"
    assert body.startswith(first % boundary), body[:200]
    assert body.endswith(last % boundary), body[-200:]
    inner = body[len(first % boundary) : -len(last % boundary)]
    pieces = inner.split(between % boundary)
    # The boundary occurs in delimiters only, not in a body or header.
    assert body.count(boundary) == len(pieces) + 1
    parts = []
    for piece in pieces:
        match = _PART.fullmatch(piece)
        assert match is not None, piece[:200]
        parts.append(Part(match[1].decode("ascii"), match[2]))
    return parts


def split_by_email(
    content_type: str, body: bytes, policy: email.policy.Policy = email.policy.compat32
) -> list[Part]:
    """Split with Python's `email` package."""
    head = f"Content-Type: {content_type}\r\n\r\n".encode()
    # Not `parse`, which reads a file as text and does not distinguish line endings.
    whole: Message = BytesParser(policy=policy).parsebytes(head + body)
    assert whole.is_multipart() and not whole.defects, whole.defects
    assert not whole.preamble and not whole.epilogue, (whole.preamble, whole.epilogue)
    parts = []
    for part in whole.get_payload():
        assert isinstance(part, Message)
        assert not part.defects, part.defects
        content = part.get_payload(decode=True)
        assert isinstance(content, bytes)
        # Not `part["Content-Type"]`, which newer policies rewrite.
        [(name, value)] = part.raw_items()
        assert name == "Content-Type"
        parts.append(Part(str(value), content))
    return parts


def _is_composite(part: Part) -> bool:
    """Whether Python would parse the part itself."""
    return part.content_type.lower().startswith(("multipart/", "message/"))

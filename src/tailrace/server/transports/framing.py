"""
Checks of the head of a request that every transport makes.

Our own server and ASGI servers read requests with different parsers. What one of them lets through,
such as an unknown transfer coding or two Host headers, must not be stored by way of another.
"""

from typing import Final

from tailrace.protocol.errors import Refusal
from tailrace.server.errors import (
    HeadersTooLarge,
    MalformedRequest,
    TransferCodingUnknown,
    UriTooLong,
)

__all__ = [
    "HEADERS_BYTES_MAX",
    "HEADERS_COUNT_MAX",
    "TARGET_BYTES_MAX",
    "check_framing",
    "check_sizes",
    "headers_size",
]

TARGET_BYTES_MAX: Final = 8 << 10
HEADERS_BYTES_MAX: Final = 32 << 10
HEADERS_COUNT_MAX: Final = 100

_LENGTH_DIGITS_MAX: Final = 19
_NO_NAMES: Final[frozenset[bytes]] = frozenset()


def check_framing(
    headers: dict[bytes, bytes], repeated: frozenset[bytes] | None, version: str
) -> Refusal | None:
    """
    What is wrong with the headers that say to whom a request is addressed, and where it ends.

    `version` is as in `HTTP/{version}`.
    """
    repeated = repeated or _NO_NAMES
    if b"host" not in headers and version == "1.1":
        return MalformedRequest("the Host header is missing")
    if b"host" in repeated:
        return MalformedRequest("there is more than one Host header")
    if b"transfer-encoding" in headers:
        if headers[b"transfer-encoding"].lower() != b"chunked":
            return TransferCodingUnknown()
        if version not in ("1.0", "1.1"):
            return MalformedRequest(f"HTTP/{version} has no Transfer-Encoding")
        if b"content-length" in headers:
            return MalformedRequest("Content-Length and Transfer-Encoding exclude each other")
    length = headers.get(b"content-length")
    if length is not None and not (length.isdigit() and len(length) <= _LENGTH_DIGITS_MAX):
        # Repeated ones are joined by a comma, so they are no number either.
        return MalformedRequest("Content-Length must be one decimal number")
    return None


def check_sizes(target_bytes: int, headers: dict[bytes, bytes], count: int) -> Refusal | None:
    """What is too large in the head of a request; `count` is the number of header lines."""
    if target_bytes > TARGET_BYTES_MAX:
        return UriTooLong(TARGET_BYTES_MAX)
    if count > HEADERS_COUNT_MAX or headers_size(headers) > HEADERS_BYTES_MAX:
        return HeadersTooLarge(HEADERS_BYTES_MAX, HEADERS_COUNT_MAX)
    return None


def headers_size(headers: dict[bytes, bytes]) -> int:
    """The bytes of names and values."""
    return sum(map(len, headers)) + sum(map(len, headers.values()))

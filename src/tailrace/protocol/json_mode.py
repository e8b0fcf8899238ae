"""
JSON mode (§7.1): a body becomes messages, and the bytes of each stay exactly as they were sent.

`orjson` judges the whole body (strict RFC 8259, UTF-8, nesting of at most 1024); `msgspec.Raw` cuts
the array without decoding an element. Each message is stored with a comma after it, so that a read
is one join with the last comma taken off.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import orjson

from tailrace.protocol.errors import JsonInvalid

__all__ = ["array_parts", "split_messages"]

_WHITE_SPACE: Final = b" \t\n\r"
_decode_array: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_REASON_CHARS_MAX: Final = 200


def split_messages(body: bytes) -> list[bytes | msgspec.Raw]:
    """
    The messages of one request: an array is flattened by one level, anything else is one message.

    Raises:
        JsonInvalid: The body is not JSON, or is nested too deeply.
    """
    try:
        orjson.loads(body)
        text = body.strip(_WHITE_SPACE)
        if text[0] != ord("["):
            return [text]
        return list(_decode_array(text))
    except RecursionError:
        raise JsonInvalid("the body is nested too deeply") from None
    except (orjson.JSONDecodeError, msgspec.DecodeError) as error:
        # The parser's message says where; it may quote the input, so it is kept short.
        raise JsonInvalid(f"the body is not valid JSON: {str(error)[:_REASON_CHARS_MAX]}") from None


def array_parts(stored: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
    """Stored messages, each with its comma, as the pieces of one JSON array."""
    if not stored:
        return [b"[]"]
    return [b"[", *stored[:-1], stored[-1][:-1], b"]"]

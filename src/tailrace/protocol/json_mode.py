"""
JSON mode (§7.1): a body becomes messages, and the bytes of each are kept exactly as they were sent.

`msgspec.Raw` checks the grammar and splits the array without decoding its elements, within the
interpreter's limit of recursion. It does not check the encoding of strings; `bytes.decode` does.
Each message is stored with a comma after it, so that a read is one join without the last comma.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from tailrace.protocol.errors import JsonInvalid
from tailrace.protocol.limits import JSON_COMMAS_MAX

__all__ = ["array_parts", "split_messages"]

_WHITE_SPACE: Final = b" \t\n\r"
_decode_array: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_value: Final = msgspec.json.Decoder(msgspec.Raw).decode
_REASON_CHARS_MAX: Final = 200


def split_messages(body: bytes) -> list[bytes | msgspec.Raw]:
    """
    The messages of one request: an array is flattened by one level, anything else is one message.

    Raises:
        JsonInvalid: The body is not JSON in UTF-8, or is nested too deeply.
    """
    text = body.strip(_WHITE_SPACE)
    try:
        body.decode()
        if text[:1] != b"[":
            _decode_value(text)
            messages: list[bytes | msgspec.Raw] = [text]
        else:
            if text.count(b",") > JSON_COMMAS_MAX:
                raise JsonInvalid("the array is too large: send it in several appends")
            messages = list(_decode_array(text))
    except RecursionError:
        raise JsonInvalid("the body is nested too deeply") from None
    except (UnicodeDecodeError, msgspec.DecodeError) as error:
        # The parser's message says where; it may quote the input, so it is kept short.
        raise JsonInvalid(f"the body is not valid JSON: {str(error)[:_REASON_CHARS_MAX]}") from None
    return messages


def array_parts(stored: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
    """Stored messages, each with its comma, as the pieces of one JSON array."""
    if not stored:
        return [b"[]"]
    return [b"[", *stored[:-1], stored[-1][:-1], b"]"]

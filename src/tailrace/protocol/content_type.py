"""
Content types: what they mean for message boundaries and for SSE (§7, §5.8).

Comparison ignores case and parameters; the first spelling is kept and returned exactly.
"""

import re
from functools import lru_cache
from typing import Final

from tailrace.protocol.errors import ContentTypeInvalid
from tailrace.protocol.limits import CONTENT_TYPE_BYTES_MAX

__all__ = ["DEFAULT_CONTENT_TYPE", "essence", "is_json", "is_text", "is_utf8_text"]

DEFAULT_CONTENT_TYPE: Final = "application/octet-stream"

_TOKEN: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
# Parameters are kept, and only `charset` is interpreted: any visible ASCII is allowed.
_MEDIA_TYPE: Final = re.compile(rf"({_TOKEN}/{_TOKEN})[ \t]*(;[\x20-\x7e\t]*)?", re.ASCII)
_CHARSET: Final = re.compile(r";[ \t]*charset[ \t]*=[ \t]*\"?([^ \t;\"]*)", re.IGNORECASE)
_UTF_8: Final = frozenset(("utf-8", "utf8", "us-ascii", "ascii"))


@lru_cache(maxsize=4096)
def essence(content_type: str) -> str:
    """The `type/subtype` part in lower case. Raises ContentTypeInvalid if there is none."""
    match = _MEDIA_TYPE.fullmatch(content_type)
    if match is None or len(content_type) > CONTENT_TYPE_BYTES_MAX:
        raise ContentTypeInvalid
    return match[1].lower()


@lru_cache(maxsize=4096)
def is_json(content_type: str) -> bool:
    """§7.1: JSON mode is `application/json` and every `+json` type."""
    name = essence(content_type)
    return name == "application/json" or name.endswith("+json")


@lru_cache(maxsize=4096)
def is_text(content_type: str) -> bool:
    """Whether the content is meant to be read as text: `text/*` and JSON."""
    return essence(content_type).startswith("text/") or is_json(content_type)


@lru_cache(maxsize=4096)
def is_utf8_text(content_type: str) -> bool:
    """§5.8: text in UTF-8 goes over SSE as it is, everything else in base64. JSON is UTF-8."""
    if is_json(content_type):
        return True
    charset = _CHARSET.search(content_type)
    return is_text(content_type) and (charset is None or charset[1].lower() in _UTF_8)

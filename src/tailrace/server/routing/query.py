"""The query of a request."""

from typing import Final
from urllib.parse import unquote

from tailrace.protocol.errors import QueryInvalid

__all__ = ["LISTING_QUERY", "READ_QUERY", "parse_query"]

READ_QUERY: Final = ("offset", "until", "bytes_max", "live", "cursor")
"""The parameters of a read."""
LISTING_QUERY: Final = ("prefix", "after", "limit", "changed_since")
"""The parameters of the listing of a bucket."""

_FIELDS_MAX: Final = 64


def parse_query(query: bytes, known: tuple[str, ...]) -> dict[str, str]:
    """
    Read the `known` parameters; others are ignored (§9.1).

    Raises:
        QueryInvalid: A known parameter is repeated, or the query has too many or is not UTF-8.
    """
    found: dict[str, str] = {}
    if not query:
        return found
    fields = query.split(b"&")
    if len(fields) > _FIELDS_MAX:
        raise QueryInvalid("query", f"may have {_FIELDS_MAX} parameters at most")
    for field in fields:
        name, _, value = field.partition(b"=")
        decoded = unquote(name.decode("latin-1"), errors="replace")
        if decoded not in known:
            continue
        if decoded in found:
            raise QueryInvalid(decoded, "must be given once")
        try:
            text = value.replace(b"+", b" ").decode("ascii")
            found[decoded] = unquote(text, errors="strict")
        except UnicodeDecodeError:
            raise QueryInvalid(decoded, "is not UTF-8 after percent-decoding") from None
    return found

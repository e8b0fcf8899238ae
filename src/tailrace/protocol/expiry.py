"""Stream-TTL and Stream-Expires-At: their forms (§5.1)."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from tailrace.protocol.errors import HeaderInvalid
from tailrace.protocol.limits import TTL_S_MAX

__all__ = ["format_expires_at", "parse_expires_at", "parse_ttl"]

_TTL: Final = re.compile(r"0|[1-9][0-9]{0,15}", re.ASCII)
# `fromisoformat` accepts more: 60 minutes in a zone, and from Python 3.14 on the hour 24.
_HOUR_MINUTE: Final = r"(?:[01]\d|2[0-3]):[0-5]\d"
_RFC3339: Final = re.compile(
    rf"(\d{{4}}-\d\d-\d\d[Tt ]{_HOUR_MINUTE}):(\d\d)(?:\.(\d{{1,32}}))?"
    rf"([Zz]|[+-]{_HOUR_MINUTE})",
    re.ASCII,
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_LAST_MS: Final = (datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC) - _EPOCH) // _MILLISECOND + 999


def parse_ttl(text: str) -> int:
    """
    §5.1: a non-negative decimal integer without leading zeros, sign, point or exponent.

    Raises:
        HeaderInvalid: It is something else, or more than a century.
    """
    if not _TTL.fullmatch(text):
        raise HeaderInvalid("Stream-TTL", "must be whole seconds in plain digits, such as 3600")
    seconds = int(text)
    if seconds > TTL_S_MAX:
        raise HeaderInvalid("Stream-TTL", f"must be at most {TTL_S_MAX} seconds")
    return seconds


def parse_expires_at(text: str) -> int:
    """
    An RFC 3339 timestamp, in milliseconds since 1970.

    Raises:
        HeaderInvalid: It is not an RFC 3339 timestamp, or no such day exists.
    """
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise HeaderInvalid("Stream-Expires-At", "must be RFC 3339, such as 2030-01-15T12:00:00Z")
    minute, second, fraction, zone = match.groups()
    # RFC 3339 allows a leap second; it is counted as the second before it.
    second = "59" if second == "60" else second
    try:
        since = datetime.fromisoformat(f"{minute}:{second}{zone.upper()}") - _EPOCH
    except (ValueError, OverflowError):
        raise HeaderInvalid("Stream-Expires-At", "is not a moment that exists") from None
    milliseconds = since // _MILLISECOND + int((fraction or "0").ljust(3, "0")[:3])
    if milliseconds > _LAST_MS:
        raise HeaderInvalid("Stream-Expires-At", "must be before the year 10000 in UTC")
    # Times are counted from 1970; a stream that expired before that has expired.
    return max(0, milliseconds)


def format_expires_at(milliseconds: int) -> str:
    """RFC 3339 in UTC, with milliseconds only where there are any."""
    moment = _EPOCH + timedelta(milliseconds=milliseconds)
    spec = "milliseconds" if milliseconds % 1000 else "seconds"
    return moment.replace(tzinfo=None).isoformat(timespec=spec) + "Z"

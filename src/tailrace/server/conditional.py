"""Conditional requests: does the client have what we would send (§8.1)?"""

__all__ = ["matches"]


def matches(if_none_match: bytes | None, etag: bytes) -> bool:
    """Whether an If-None-Match header names this ETag."""
    if if_none_match is None:
        return False
    candidates = (item.strip().removeprefix(b"W/") for item in if_none_match.split(b","))
    return any(item in (etag, b"*") for item in candidates)

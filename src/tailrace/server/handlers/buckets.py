"""Buckets and their listings (X§1)."""

import asyncio
import re
from typing import Final

import msgspec

from tailrace.engine.engine import Engine
from tailrace.engine.listing import ChangedPage, Page
from tailrace.protocol.errors import QueryInvalid
from tailrace.protocol.state import StreamState
from tailrace.server import headers as h
from tailrace.server.compress import coding_for, compress
from tailrace.server.message import Reply, Request, Response
from tailrace.server.problem import reply_unless_refused
from tailrace.server.routing.query import LISTING_QUERY, parse_query

__all__ = [
    "BucketHandlers", "json_response", "listed_stream", "listing_with_cursor", "parse_limit",
]  # fmt: skip

LIST_COUNT_MAX: Final = 1000

_LIMIT: Final = re.compile(r"[0-9]{1,4}", re.ASCII)
_JSON: Final = (h.CONTENT_TYPE, b"application/json")


class BucketHandlers:
    """PUT, GET and DELETE of a bucket, and GET of its listing."""

    def __init__(self, engine: Engine) -> None:
        self._buckets = engine.buckets
        self._listing = engine.listing

    def create(self, request: Request, reply: Reply) -> None:
        """X§1.2."""
        created = Response(201, [(h.LOCATION, request.url), h.NO_STORE])
        self._buckets.create(request.target.key, reply_unless_refused(reply, created))

    def describe(self, request: Request) -> Response:
        """X§1.3."""
        key = request.target.key
        state = self._buckets.find(key)
        content = {
            "bucket_id": key.decode(),
            "streams": state.streams,
            "bytes": state.bytes,
            "created_at_ms": state.created_at,
        }
        return Response(200, [_JSON, h.NO_STORE], msgspec.json.encode(content))

    def delete(self, request: Request, reply: Reply) -> None:
        """X§1.5."""
        deleted = Response(204, [h.NO_STORE])
        self._buckets.delete(request.target.key, reply_unless_refused(reply, deleted))

    async def list(self, request: Request) -> Response:
        """X§1.4."""
        key = request.target.key
        query = parse_query(request.query, LISTING_QUERY)
        prefix = query.get("prefix", "")
        limit = parse_limit(query.get("limit"))
        after = query.get("after", "").encode()
        since = query.get("changed_since")
        page: Page | ChangedPage
        if since is None:
            page = await self._listing.page(key, prefix.encode(), after, limit)
            content = listing_with_cursor(prefix, page)
        elif after:
            raise QueryInvalid("after", "excludes changed_since: continue from position")
        else:
            page = await self._listing.changed(key, prefix.encode(), since, limit)
            content = _listing(prefix, page)
        content = {"bucket_id": key.decode(), **content, "position": page.position}
        return await json_response(request, content)


async def json_response(request: Request, content: dict[str, object]) -> Response:
    """A JSON response, compressed if the client accepts it and the body is large enough."""
    body = msgspec.json.encode(content)
    headers = [_JSON, h.NO_STORE, (b"Vary", b"Accept-Encoding")]
    if (coding := coding_for(request.headers, len(body))) is not None:
        headers.append((b"Content-Encoding", coding.encode()))
        loop = asyncio.get_running_loop()
        body = await loop.run_in_executor(None, compress, coding, body)
    return Response(200, headers, body)


def parse_limit(text: str | None) -> int:
    """Read the `limit` parameter."""
    if text is None:
        return LIST_COUNT_MAX
    if not _LIMIT.fullmatch(text) or not 1 <= int(text) <= LIST_COUNT_MAX:
        raise QueryInvalid("limit", f"must be a whole number from 1 to {LIST_COUNT_MAX}")
    return int(text)


def _listing(prefix: str, page: Page | ChangedPage) -> dict[str, object]:
    return {
        "prefix": prefix,
        "stream_count": len(page.streams),
        "streams": [listed_stream(*item) for item in page.streams],
        "has_more": page.has_more,
    }


def listing_with_cursor(prefix: str, page: Page) -> dict[str, object]:
    """A page of streams, ordered by name."""
    cursor = page.streams[-1].stream_id.decode() if page.streams else None
    return {**_listing(prefix, page), "next_cursor": cursor}


def listed_stream(stream_id: bytes, state: StreamState | None) -> dict[str, object]:
    """One item of a listing; without a state, of a deleted stream."""
    if state is None:
        return {"stream_id": stream_id.decode(), "status": "Deleted"}
    snapshot = state.snapshot
    return {
        "stream_id": stream_id.decode(),
        "status": "Closed" if state.closed else "Open",
        "content_type": state.content_type,
        "tail_offset": state.tail.byte,
        "next_offset": state.tail.token(),
        "created_at_ms": state.created_at,
        "last_write_at_ms": state.written_at,
        "earliest_offset": state.earliest.token(),
        "snapshot_offset": None if snapshot is None else snapshot.offset.token(),
        "snapshot_at_ms": None if snapshot is None else snapshot.time,
        "snapshot_bytes": None if snapshot is None else snapshot.size,
    }

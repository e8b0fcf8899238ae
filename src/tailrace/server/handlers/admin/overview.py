"""
`/-/buckets`, `/-/paths` and `/-/about`: which buckets and streams exist, for people and the UI.

Rule 1: responses are made from durable states, like reads: a crash cannot undo them.

Rule 2: a principal sees only what it may read: a bucket if it may read anything in it; a path, and
the details of a stream, if it may read that stream.
"""

import asyncio
from heapq import nsmallest
from typing import Final

import msgspec

from tailrace.engine.engine import Engine
from tailrace.engine.entry import StreamEntry
from tailrace.engine.listing import ListedStream, Page
from tailrace.protocol.bucket import BucketState
from tailrace.protocol.errors import QueryInvalid
from tailrace.protocol.names import NO_BUCKET
from tailrace.protocol.producer import Producers
from tailrace.protocol.state import StreamState
from tailrace.server.errors import RequestInvalid
from tailrace.server.guard.access import Operation, Principal
from tailrace.server.handlers.buckets import (
    json_response,
    listed_stream,
    listing_with_cursor,
    parse_limit,
)
from tailrace.server.handlers.bulk.stream_reference import StreamReference
from tailrace.server.message import Request, Response
from tailrace.server.routing.query import parse_query

__all__ = ["ABOUT_QUERY", "OVERVIEW_QUERY", "OverviewHandlers"]

OVERVIEW_QUERY: Final = ("prefix", "after", "limit")
"""The parameters of the listings of buckets and of paths."""
ABOUT_QUERY: Final = ("bucket", "stream", "path", "after", "limit")
"""The parameters of `/-/about`; the last two page through the producers."""
_READ: Final = Operation.READ


class OverviewHandlers:
    """Listings of buckets and paths, and the details of one stream."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def buckets(self, request: Request) -> Response:
        """Buckets that the principal may see, ordered by id."""
        prefix, after, limit = _paging(request)
        page = await self._engine.listing.all(
            _visible(request.principal, prefix.encode()), after.encode(), limit
        )
        content: dict[str, object] = {
            "prefix": prefix,
            "buckets": [_bucket(*item, request.principal) for item in page.buckets],
            "next_cursor": page.buckets[-1][0].decode() if page.buckets else None,
            "has_more": page.has_more,
        }
        return await json_response(request, content)

    async def paths(self, request: Request) -> Response:
        """Streams of the base surface that the principal may read, in the form of X§1.4."""
        prefix, after, limit = _paging(request)
        page = await self._readable(request.principal, prefix.encode(), after.encode(), limit)
        return await json_response(request, listing_with_cursor(prefix, page))

    async def _readable(
        self, principal: Principal | None, prefix: bytes, after: bytes, limit: int
    ) -> Page:
        """A page of readable streams; others are not read, so that paging does not reveal them."""
        page_of = self._engine.listing.page_of
        if principal is None:
            return await page_of(NO_BUCKET, prefix, after, limit)
        found: list[ListedStream] = []
        position = ""
        for part, is_prefix in principal.granted(_READ, NO_BUCKET + prefix):
            name = part.removeprefix(NO_BUCKET)
            page = await page_of(NO_BUCKET, name, after, limit + 1 if is_prefix else 1)
            position = page.position
            found += [item for item in page.streams if is_prefix or item.stream_id == name]
            if len(found) > limit:
                break
        return Page(found[:limit], has_more=len(found) > limit, position=position)

    async def about(self, request: Request) -> Response:
        """Everything about one stream."""
        query = parse_query(request.query, ABOUT_QUERY)
        limit = parse_limit(query.get("limit"))
        try:
            key = msgspec.convert(query, StreamReference).readable_key(request.principal)
        except RequestInvalid as refusal:
            raise QueryInvalid("path", refusal.detail) from None
        stream = self._engine.find(key)
        state = stream.durable
        assert state is not None
        content = self._facts(stream, state)
        content["forked_from"] = _origin(state, request.principal)
        content |= await _producers(state.producers, query.get("after", ""), limit)
        return await json_response(request, content)

    def _facts(self, stream: StreamEntry, state: StreamState) -> dict[str, object]:
        bucket, _, name = stream.key.partition(b"\0")
        snapshot = state.snapshot
        return {
            "bucket_id": bucket.decode() or None,
            **listed_stream(name, state),
            "closed": state.closed,
            "ttl_s": state.ttl_s,
            "expires_at_ms": self._engine.deadline(stream, state),
            "remaining_ms": self._engine.remaining_ms(stream),
            "snapshot": None
            if snapshot is None
            else {
                "offset": snapshot.offset.token(),
                "content_type": snapshot.content_type,
                "bytes": snapshot.size,
                "at_ms": snapshot.time,
            },
        }


def _origin(state: StreamState, principal: Principal | None) -> dict[str, str] | None:
    """The source of a fork, if the principal may read it."""
    fork = state.fork
    if fork is None or (principal is not None and not principal.may(_READ, fork.key)):
        return None
    name = fork.key.partition(b"\0")[2].decode()
    return {"stream_id": name, "offset": fork.point.token()}


def _paging(request: Request) -> tuple[str, str, int]:
    """The parameters `prefix`, `after` and `limit`."""
    query = parse_query(request.query, OVERVIEW_QUERY)
    return query.get("prefix", ""), query.get("after", ""), parse_limit(query.get("limit"))


def _bucket(key: bytes, state: BucketState, principal: Principal | None) -> dict[str, object]:
    # A principal that may read only a part learns only the name of the bucket.
    whole = principal is None or principal.may(_READ, key)
    return {
        "bucket_id": key.decode(),
        "streams": state.streams if whole else None,
        "bytes": state.bytes if whole else None,
        "created_at_ms": state.created_at if whole else None,
    }


def _visible(principal: Principal | None, prefix: bytes) -> list[tuple[bytes, bool]]:
    """The visible buckets, as (name or prefix, whether it is a prefix), for `Buckets.all`."""
    if principal is None:
        return [(prefix, True)]
    parts: set[tuple[bytes, bool]] = set()
    for part, is_prefix in principal.granted(_READ, prefix):
        # A principal that may read anything in a bucket may know its name.
        bucket, within, _ = part.partition(b"\0")
        if not within:
            parts.add((bucket, is_prefix))
        elif bucket and bucket.startswith(prefix):
            parts.add((bucket, False))
    return sorted(parts)


async def _producers(producers: Producers, after: str, limit: int) -> dict[str, object]:
    """A page of the producers of a stream, ordered by id."""

    def page() -> list[dict[str, object]]:
        later = (item for item in producers.items() if item[0] > after)
        return [
            {"id": name, "epoch": state.epoch, "last_seq": state.last_seq}
            for name, state in nsmallest(limit + 1, later)
        ]

    # Sorting many takes milliseconds. The map is immutable, so that a thread may read it.
    found = await asyncio.to_thread(page)
    shown = found[:limit]
    return {
        "producer_count": len(producers),
        "producers": shown,
        "next_producer": shown[-1]["id"] if len(found) > limit else None,
    }

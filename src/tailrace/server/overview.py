"""
What there is: `/-/buckets`, `/-/paths`, `/-/about`: for people, and for the page that they look at.

Rule 1: everything is told from durable states, like a read: nothing that a crash could undo.

Rule 2: nobody learns of what they may not read. A principal sees a bucket if it may read all of it,
or anything in it; a path, and a stream's particulars, if it may read that stream.
"""

import asyncio
from heapq import nsmallest
from typing import Final

import msgspec

from tailrace.engine.buckets import Listed, Page
from tailrace.engine.core import Engine
from tailrace.engine.stream import Stream
from tailrace.protocol.bucket import BucketState
from tailrace.protocol.errors import QueryInvalid
from tailrace.protocol.names import NO_BUCKET
from tailrace.protocol.producer import Producers
from tailrace.protocol.state import StreamState
from tailrace.server.buckets import listed, listing_answer, parse_limit
from tailrace.server.errors import RequestInvalid
from tailrace.server.guard.access import Operation, Principal
from tailrace.server.message import Request, Response
from tailrace.server.named import Named
from tailrace.server.target import parse_query

__all__ = ["ABOUT_QUERY", "OVERVIEW_QUERY", "Overview"]

OVERVIEW_QUERY: Final = ("prefix", "after", "limit")
"""The parameters of the listings of buckets and of paths."""
ABOUT_QUERY: Final = ("bucket", "stream", "path", "after", "limit")
"""The parameters of what is asked about one stream; the last two are of its producers."""
_READ: Final = Operation.READ
_PRODUCERS_INLINE_MAX: Final = 1000
"""To sort more than this takes milliseconds: a thread does it while the loop goes on."""


class Overview:
    """Answers to the question of what there is."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def buckets(self, request: Request) -> Response:
        """Buckets that the principal may see, in the order of their ids."""
        query = parse_query(request.query, OVERVIEW_QUERY)
        prefix, after = query.get("prefix", ""), query.get("after", "")
        limit = parse_limit(query.get("limit"))
        page = await self._engine.buckets.all(
            _visible(request.principal, prefix.encode()), after.encode(), limit
        )
        content: dict[str, object] = {
            "prefix": prefix,
            "buckets": [_bucket(*item, request.principal) for item in page.buckets],
            "next_cursor": page.buckets[-1][0].decode() if page.buckets else None,
            "has_more": page.has_more,
        }
        return await _answer(request, content)

    async def paths(self, request: Request) -> Response:
        """Streams of the base surface that the principal may read, in the form of X§1.4."""
        query = parse_query(request.query, OVERVIEW_QUERY)
        prefix, after = query.get("prefix", ""), query.get("after", "")
        limit = parse_limit(query.get("limit"))
        page = await self._readable(request.principal, prefix.encode(), after.encode(), limit)
        content = {
            "prefix": prefix,
            "stream_count": len(page.streams),
            "streams": [listed(*item) for item in page.streams],
            "next_cursor": page.streams[-1].stream_id.decode() if page.streams else None,
            "has_more": page.has_more,
        }
        return await _answer(request, content)

    async def _readable(
        self, principal: Principal | None, prefix: bytes, after: bytes, limit: int
    ) -> Page:
        """A page of what may be read: nothing else is looked at, so nothing shows where it is."""
        page_of = self._engine.buckets.page_of
        if principal is None:
            return await page_of(NO_BUCKET, prefix, after, limit)
        found: list[Listed] = []
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
        """
        All that is known of one stream.

        Raises:
            QueryInvalid: It is named in neither way, or in both.
            Forbidden: The principal may not read it.
            StreamNotFound, BucketNotFound: It does not exist.
        """
        query = parse_query(request.query, ABOUT_QUERY)
        limit = parse_limit(query.get("limit"))
        stream = self._engine.find(_named(query).readable_key(request.principal))
        state = stream.durable
        assert state is not None
        content = self._facts(stream, state)
        content |= await _producers(state.producers, query.get("after", ""), limit)
        return await _answer(request, content)

    def _facts(self, stream: Stream, state: StreamState) -> dict[str, object]:
        bucket, _, name = stream.key.partition(b"\0")
        snapshot = state.snapshot
        return {
            "bucket_id": bucket.decode() or None,
            **listed(name, state),
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


def _named(query: dict[str, str]) -> Named:
    """The stream that is asked about; to be named in neither way, or in both, is refused here."""
    named = Named(bucket=query.get("bucket"), stream=query.get("stream"), path=query.get("path"))
    try:
        named.key()
    except RequestInvalid as refusal:
        raise QueryInvalid("path", f"is not enough, or too much: {refusal.detail}") from None
    return named


def _bucket(key: bytes, state: BucketState, principal: Principal | None) -> dict[str, object]:
    # Whoever may read a part of it learns its name, as `GET /{bucket_id}` would tell no more.
    whole = principal is None or principal.may(_READ, key)
    return {
        "bucket_id": key.decode(),
        "streams": state.streams if whole else None,
        "bytes": state.bytes if whole else None,
        "created_at_ms": state.created_at if whole else None,
    }


def _visible(principal: Principal | None, prefix: bytes) -> list[tuple[bytes, bool]]:
    """The buckets whose names are shown, as `Buckets.all` is told them."""
    if principal is None:
        return [(prefix, True)]
    parts: set[tuple[bytes, bool]] = set()
    for part, is_prefix in principal.granted(_READ, prefix):
        # Whoever may read anything in a bucket may know its name.
        bucket, within, _ = part.partition(b"\0")
        if not within:
            parts.add((bucket, is_prefix))
        elif bucket and bucket.startswith(prefix):
            parts.add((bucket, False))
    return sorted(parts)


async def _producers(producers: Producers, after: str, limit: int) -> dict[str, object]:
    """A page of a stream's producers, in the order of their ids."""

    def page() -> list[dict[str, object]]:
        later = (item for item in producers.items() if item[0] > after)
        return [
            {"id": name, "epoch": state.epoch, "last_seq": state.last_seq}
            for name, state in nsmallest(limit + 1, later)
        ]

    if len(producers) <= _PRODUCERS_INLINE_MAX:
        found = page()
    else:
        # The map is never changed, so that a thread may look at it.
        found = await asyncio.get_running_loop().run_in_executor(None, page)
    shown = found[:limit]
    return {
        "producer_count": len(producers),
        "producers": shown,
        "next_producer": shown[-1]["id"] if len(found) > limit else None,
    }


async def _answer(request: Request, content: dict[str, object]) -> Response:
    response = await listing_answer(request, msgspec.json.encode(content))
    if request.method == "HEAD":
        response.body = b""
    return response

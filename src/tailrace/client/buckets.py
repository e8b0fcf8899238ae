"""Every operation on a bucket, as a flow (X§1)."""

import json
from typing import Any
from urllib.parse import quote

from tailrace.client.errors import AnswerInvalid
from tailrace.client.flow import Body, Flow, Give, expect_gone, fetch, refused, send
from tailrace.client.items import Items
from tailrace.client.requests import Options, make_call
from tailrace.client.values import BucketInfo, Listed, Survey

__all__ = ["BucketFlows"]


class BucketFlows:
    """One bucket at its URL."""

    def __init__(self, url: str, options: Options) -> None:
        self.url = url
        self._options = options

    def stream_url(self, stream_id: str) -> str:
        return f"{self.url}/{quote(stream_id, safe='')}"

    def create(self) -> Flow[None]:
        """
        Create the bucket.

        Raises:
            Conflict: It exists.
            AnswerInvalid: The server has no buckets.
        """
        call = yield from make_call(self._options, "PUT", self.url)
        answer = yield from send(call, self._options.retry)
        is_ours = answer.status == 409 and answer.repeated
        if answer.status != 201 and not is_ours:
            raise (yield from refused(answer))
        yield Body()
        if "stream-next-offset" in answer.headers:
            raise AnswerInvalid(self.url, "this made a stream; has this server buckets?")

    def delete(self) -> Flow[None]:
        """
        Delete the bucket, which must be empty.

        Raises:
            NotFound: There is none.
            Conflict: It has streams.
        """
        call = yield from make_call(self._options, "DELETE", self.url)
        yield from expect_gone(call, self._options.retry)

    def info(self) -> Flow[BucketInfo]:
        """
        What the bucket is.

        Raises:
            NotFound: There is none.
        """
        call = yield from make_call(self._options, "GET", self.url)
        _, body = yield from fetch(call, self._options.retry, 200)
        found = _json(self.url, body)
        try:
            return BucketInfo(found["bucket_id"], found["streams"], found.get("bytes"))
        except KeyError:
            raise _no_buckets(self.url) from None

    def streams(self, prefix: str = "", after: str = "") -> Items[Listed]:
        """
        The streams of the bucket in the order of their ids, page by page as they are needed.

        Raises:
            NotFound: There is no such bucket.
        """
        return Items(self._streams(prefix, after))

    def _streams(self, prefix: str, after: str) -> Flow[None]:
        while True:
            params = {
                name: value for name, value in (("prefix", prefix), ("after", after)) if value
            }
            call = yield from make_call(self._options, "GET", f"{self.url}/streams", params)
            _, body = yield from fetch(call, self._options.retry, 200)
            page = _json(self.url, body)
            try:
                listed = [_listed(item) for item in page["streams"]]
                before, after = after, page["next_cursor"] if page["has_more"] else ""
            except (KeyError, TypeError):
                raise _no_buckets(self.url) from None
            yield Give(listed)
            if not after or after == before:
                return

    def survey(self, prefix: str = "", since: str | None = None) -> Flow[Survey]:
        """
        All streams of the bucket at once; or, `since` a position of a survey before, those that
        changed: that were written to, closed, created, deleted or have a new snapshot.

        Nothing is missed between one survey and the next; something may be told twice.

        Raises:
            NotFound: There is no such bucket.
            PositionGone: What changed since is not known: survey it whole.
        """
        params = {"prefix": prefix} if prefix else {}
        if since is not None:
            params["changed_since"] = since
        # Where a page says how to ask for the next one, and how that is asked.
        mark, param = ("next_cursor", "after") if since is None else ("position", "changed_since")
        gathered = _Gathered()
        position: str | None = None
        while True:
            call = yield from make_call(self._options, "GET", f"{self.url}/streams", params)
            _, body = yield from fetch(call, self._options.retry, 200)
            page = _json(self.url, body)
            try:
                gathered.add(page["streams"])
                if since is not None or "after" not in params:
                    # Of a whole listing the first one, from before it: what changed while we
                    # asked comes again.
                    position = page.get("position") if since is None else page["position"]
                before, params[param] = params.get(param), page[mark] or ""
                has_more = page["has_more"] and params[param] != before
            except (KeyError, TypeError):
                raise _no_buckets(self.url) from None
            if not has_more:
                return Survey(list(gathered.streams.values()), list(gathered.deleted), position)


class _Gathered:
    """The streams of several pages, each as it was last."""

    def __init__(self) -> None:
        self.streams: dict[str, Listed] = {}
        self.deleted: dict[str, None] = {}

    def add(self, items: list[dict[str, Any]]) -> None:
        for item in items:
            name = item["stream_id"]
            self.streams.pop(name, None)
            self.deleted.pop(name, None)
            if item["status"] == "Deleted":
                self.deleted[name] = None
            else:
                self.streams[name] = _listed(item)


def _listed(item: dict[str, Any]) -> Listed:
    return Listed(
        stream_id=item["stream_id"],
        closed=item["status"] == "Closed",
        content_type=item["content_type"],
        size=item["tail_offset"],
        next_offset=item.get("next_offset"),
        created_at_ms=item["created_at_ms"],
        last_write_at_ms=item["last_write_at_ms"],
        earliest_offset=item.get("earliest_offset"),
        snapshot_offset=item.get("snapshot_offset"),
        snapshot_at_ms=item.get("snapshot_at_ms"),
        snapshot_bytes=item.get("snapshot_bytes"),
    )


def _json(url: str, body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise _no_buckets(url)
    return found


def _no_buckets(url: str) -> AnswerInvalid:
    return AnswerInvalid(url, "the answer is not of a bucket; has this server buckets?")

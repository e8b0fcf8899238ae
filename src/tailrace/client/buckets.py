"""Every operation on a bucket, as a flow (X§1)."""

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import quote

from tailrace.client.errors import AnswerInvalid
from tailrace.client.flow import Body, Flow, Give, Items, delete, refused, send
from tailrace.client.requests import Resource
from tailrace.client.values import BucketInfo, Listed, Survey

__all__ = ["BucketFlows"]

T = TypeVar("T")


class BucketFlows(Resource):
    """One bucket at its URL."""

    def stream_url(self, stream_id: str) -> str:
        return f"{self.url}/{quote(stream_id, safe='')}"

    def create(self) -> Flow[None]:
        """
        Create the bucket.

        Raises:
            Conflict: It exists.
            AnswerInvalid: The server has no buckets.
        """
        response = yield from send(self._request("PUT"))
        was_created = response.status == 409 and response.repeated
        if response.status != 201 and not was_created:
            raise (yield from refused(response))
        yield Body()
        if "stream-next-offset" in response.headers:
            raise AnswerInvalid(self.url, "the server created a stream; does it have buckets?")

    def delete(self) -> Flow[None]:
        """
        Delete the bucket, which must be empty.

        Raises:
            NotFound: There is no such bucket.
            Conflict: It has streams.
        """
        return delete(self._request("DELETE"))

    def info(self) -> Flow[BucketInfo]:
        """
        The bucket's metadata.

        Raises:
            NotFound: There is no such bucket.
        """

        def parse(found: dict[str, Any]) -> BucketInfo:
            return BucketInfo(found["bucket_id"], found["streams"], found.get("bytes"))

        return (yield from self._get("", {}, parse))

    def streams(self, prefix: str = "", after: str = "") -> Items[Listed]:
        """
        The streams of the bucket in the order of their ids, fetched page by page.

        Raises:
            NotFound: There is no such bucket.
        """

        def parse(page: dict[str, Any]) -> tuple[list[Listed], str]:
            cursor = page["next_cursor"] if page["has_more"] else ""
            return [_listed(item) for item in page["streams"]], cursor or ""

        before: str | None = None
        while before is None or after not in ("", before):
            before = after
            given = (("prefix", prefix), ("after", after))
            params = {name: value for name, value in given if value}
            listed, after = yield from self._get("/streams", params, parse)
            yield Give(listed)

    def survey(self, prefix: str = "", since: str | None = None) -> Flow[Survey]:
        """
        All streams of the bucket; or, `since` the position of an earlier survey, those that were
        appended to, closed, created or deleted, or have a new snapshot.

        No change is missed between two surveys; a change may be reported twice.

        Raises:
            NotFound: There is no such bucket.
            PositionGone: The changes since that position are not known: survey the whole bucket.
        """
        streams: dict[str, Listed] = {}
        deleted: dict[str, None] = {}
        # The field that leads to the next page, and the parameter that carries it.
        field, param = ("next_cursor", "after") if since is None else ("position", "changed_since")
        params = {"prefix": prefix} if prefix else {}
        if since is not None:
            params[param] = since

        def parse(page: dict[str, Any]) -> tuple[str | None, str, bool]:
            for item in page["streams"]:
                name = item["stream_id"]
                streams.pop(name, None)
                deleted.pop(name, None)
                if item["status"] == "Deleted":
                    deleted[name] = None
                else:
                    streams[name] = _listed(item)
            position = page.get("position") if since is None else page["position"]
            return position, page[field] or "", page["has_more"]

        first: str | None = None
        has_more = True
        while has_more:
            before = params.get(param)
            position, params[param], has_more = yield from self._get("/streams", params, parse)
            has_more = has_more and params[param] not in ("", before)
            if since is None:
                # The first page's position: what changes during the listing is reported again.
                position = first = position if before is None else first
        return Survey(list(streams.values()), list(deleted), position)

    def _get(
        self, path: str, params: Mapping[str, str], parse: Callable[[dict[str, Any]], T]
    ) -> Flow[T]:
        """What a response's JSON object holds."""
        _, body = yield from self._fetch(self._request("GET", path, params), 200)
        try:
            return parse(json.loads(body))
        except (ValueError, KeyError, TypeError):
            reason = "this is not the response of a bucket; does this server have buckets?"
            raise AnswerInvalid(self.url, reason) from None


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

"""
A server with buckets as one would write it on a whiteboard: dicts of streams, each a list of
messages and perhaps a snapshot.

It shares no code with the server. Every method returns what the response must be; the rules of
appends are those of the model that the protocol's own tests use.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from tests.protocol.model import AppendCase, CreateCase, Model
from tests.support.http import Response
from tests.support.multipart import split_strictly
from tests.support.streams import check_common, check_problem

Place = tuple[int, int]
"""An offset: how many messages and how many stored bytes lie before it."""

START: Place = (0, 0)
OCTETS = "application/octet-stream"
TRUE = "true"

# The response for each word of the model.
STATUSES = {
    "created": 201, "existed": 200, "closed": 204, "duplicate": 204, "deleted": 204,
    "stream-exists": 409, "stream-closed": 409, "content-type-mismatch": 409,
    "producer-gap": 409, "seq-regression": 409, "snapshot-conflict": 409,
    "snapshot-beyond-tail": 409, "snapshot-needed": 409, "bucket-exists": 409,
    "bucket-not-empty": 409, "json-invalid": 400, "content-type-missing": 400, "body-empty": 400,
    "producer-epoch-start": 400, "offset-invalid": 400, "offset-misaligned": 400,
    "offset-beyond-tail": 400, "producer-fenced": 403, "stream-not-found": 404,
    "bucket-not-found": 404, "snapshot-not-found": 404, "offset-gone": 410,
}  # fmt: skip


def token(place: Place) -> str:
    return f"{place[0]:016d}_{place[1]:016d}"


def parse_token(text: str) -> Place | None:
    message, mark, byte = text.partition("_")
    if mark and all(len(part) == 16 and part.isdecimal() for part in (message, byte)):
        return int(message), int(byte)
    return None


@dataclass
class Expected:
    """What a response must be: status, code of an error, headers (None: not there), body."""

    status: int
    code: str | None = None
    headers: dict[str, str | None] = field(default_factory=dict)
    check_body: Callable[[Response], object] | None = None

    def check(self, response: Response) -> None:
        assert response.status == self.status, (response, self)
        if self.code is not None and response.body:
            check_problem(response, self.status, self.code)
        check_common(response)
        found = {name: response.headers.get(name) for name in self.headers}
        assert found == self.headers, response
        if self.check_body is not None:
            self.check_body(response)


def refused(code: str, **headers: str) -> Expected:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Expected(STATUSES[code], code, dict(named))


def exactly(body: bytes) -> Callable[[Response], object]:
    def check(response: Response) -> None:
        # Not by assert alone: a difference in megabytes is nothing to print.
        assert len(response.body) == len(body)
        assert response.body == body, "other bytes"

    return check


@dataclass(frozen=True)
class SnapshotModel:
    """A snapshot."""

    at: Place
    content: bytes
    content_type: str


@dataclass
class StreamModel(Model):
    """One URL in a bucket."""

    snapshot: SnapshotModel | None = None
    # Times that only the server knows: once returned, they stay.
    created_ms: int | None = None
    written_ms: int | None = None

    @property
    def places(self) -> list[Place]:
        """Every message boundary that was ever one, first to last."""
        ends = accumulate(map(len, self.stored), initial=0)
        return list(enumerate(ends))

    @property
    def earliest(self) -> Place:
        return START if self.snapshot is None else self.snapshot.at

    @property
    def retained(self) -> list[bytes]:
        return self.messages[self.earliest[0] :]

    def wrong_with(self, place: Place) -> str | None:
        """Why an offset is none to read from; None if it is one."""
        message, byte = place
        if message > self.tail[0] or byte > self.tail[1]:
            return "offset-beyond-tail"
        if byte < self.earliest[1]:
            return "offset-gone"
        return None if place in self.places else "offset-misaligned"

    def closed_header(self) -> str | None:
        return TRUE if self.closed else None

    # -- what responses must be ----------------------------------------------------------------

    def head(self) -> Expected:
        snapshot = self.snapshot
        return Expected(
            200,
            headers={
                "content-type": self.content_type,
                "stream-next-offset": token(self.tail),
                "stream-closed": self.closed_header(),
                "stream-snapshot-offset": None if snapshot is None else token(snapshot.at),
                "stream-earliest-offset": None if snapshot is None else token(snapshot.at),
                "cache-control": "no-store",
            },
        )

    def read(self, offset: str | None, chunk_bytes: int) -> tuple[Expected, str | None]:
        """What the response to a read must be, and where the next one starts, if there is more."""
        if offset == "now":
            return self._chunk(self.tail, 0), None
        if offset in (None, "-1"):
            if self.snapshot is not None:
                return refused("offset-gone", stream_earliest_offset=token(self.earliest)), None
            place: Place | None = START
        else:
            place = parse_token(offset or "")
        if place is None:
            return refused("offset-invalid"), None
        wrong = self.wrong_with(place)
        if wrong == "offset-gone":
            return refused(wrong, stream_earliest_offset=token(self.earliest)), None
        if wrong is not None:
            return refused(wrong), None
        rest = self.stored[place[0] :]
        count = size = 0
        for message in rest:
            if count and size + len(message) > chunk_bytes:
                break
            count += 1
            size += len(message)
        more = token((place[0] + count, place[1] + size)) if count < len(rest) else None
        return self._chunk(place, count), more

    def _chunk(self, start: Place, count: int) -> Expected:
        messages = self.messages[start[0] : start[0] + count]
        size = sum(map(len, self.stored[start[0] : start[0] + count]))
        end = (start[0] + count, start[1] + size)
        at_tail = end == self.tail
        body = b"[" + b",".join(messages) + b"]" if self.json else b"".join(messages)
        headers = {
            "content-type": self.content_type,
            "stream-next-offset": token(end),
            "stream-up-to-date": TRUE if at_tail else None,
            "stream-closed": self.closed_header() if at_tail else None,
        }
        return Expected(200, headers=headers, check_body=exactly(body))

    def publish(self, offset: str, content: bytes, content_type: str) -> Expected:
        place = parse_token(offset)
        if place is None:
            return refused("offset-invalid")
        wrong = self.wrong_with(place)
        if wrong == "offset-gone":
            return refused(wrong, stream_earliest_offset=token(self.earliest))
        if wrong is not None:
            return refused(wrong.replace("offset-beyond", "snapshot-beyond"))
        new = SnapshotModel(place, content, content_type)
        if self.snapshot is not None and self.snapshot.at == place and self.snapshot != new:
            return refused("snapshot-conflict")
        self.snapshot = new
        return Expected(204, headers=self._about(new))

    def _about(self, snapshot: SnapshotModel) -> dict[str, str | None]:
        return {
            "stream-snapshot-offset": token(snapshot.at),
            "stream-next-offset": token(snapshot.at),
            "stream-up-to-date": TRUE if snapshot.at == self.tail else "false",
        }

    def latest(self) -> Expected:
        if self.snapshot is None:
            return refused("snapshot-not-found")
        at = token(self.snapshot.at)

        def check(response: Response) -> None:
            assert response.headers["location"].endswith(f"/snapshot/{at}"), response

        return Expected(307, headers={"stream-snapshot-offset": at}, check_body=check)

    def get_snapshot(self, offset: str) -> Expected:
        snapshot = self.snapshot
        if snapshot is None or parse_token(offset) != snapshot.at:
            return refused("snapshot-not-found")
        headers = self._about(snapshot) | {"content-type": snapshot.content_type}
        return Expected(200, headers=headers, check_body=exactly(snapshot.content))

    def delete_snapshot(self, offset: str) -> Expected:
        snapshot = self.snapshot
        if snapshot is None or parse_token(offset) != snapshot.at:
            return refused("snapshot-not-found")
        return refused("snapshot-needed")

    def bootstrap(self) -> Expected:
        snapshot = self.snapshot
        first = (OCTETS, b"") if snapshot is None else (snapshot.content_type, snapshot.content)
        parts = [first, *((self.content_type, message) for message in self.retained)]

        def check(response: Response) -> None:
            found = split_strictly(response.headers["content-type"], response.body)
            assert len(found) == len(parts)
            for at, (part, (content_type, body)) in enumerate(zip(found, parts, strict=True)):
                assert part.content_type == content_type, at
                assert part.body == body, f"part {at} has other bytes"

        headers = {
            "stream-snapshot-offset": "-1" if snapshot is None else token(snapshot.at),
            "stream-next-offset": token(self.tail),
            "stream-up-to-date": TRUE,
            "stream-closed": self.closed_header(),
            "cache-control": "no-store",
        }
        return Expected(200, headers=headers, check_body=check)

    def listed(self, stream_id: str, item: dict[str, Any]) -> None:
        """Compare an entry of a listing, and learn the moments from it."""
        moments = (item.pop("created_at_ms"), item.pop("last_write_at_ms"))
        known = (self.created_ms, self.written_ms)
        for moment, before in zip(moments, known, strict=True):
            assert isinstance(moment, int) and before in (None, moment), (stream_id, before, moment)
        self.created_ms, self.written_ms = moments
        assert moments[0] <= moments[1]
        snapshot = self.snapshot
        assert (item.pop("snapshot_at_ms") is None) == (snapshot is None)
        assert item == {
            "stream_id": stream_id,
            "status": "Closed" if self.closed else "Open",
            "content_type": self.content_type,
            "tail_offset": self.tail[1],
            "next_offset": token(self.tail),
            "earliest_offset": token(self.earliest),
            "snapshot_offset": None if snapshot is None else token(snapshot.at),
            "snapshot_bytes": None if snapshot is None else len(snapshot.content),
        }


class ServerModel:
    """Buckets by their ids, and their streams by theirs."""

    def __init__(self) -> None:
        self.buckets: dict[str, dict[str, StreamModel]] = {}

    def find(self, bucket: str, stream: str) -> StreamModel | Expected:
        """A stream, or the refusal of a request for it."""
        if bucket not in self.buckets:
            return refused("bucket-not-found")
        return self.buckets[bucket].get(stream) or refused("stream-not-found")

    # -- buckets -----------------------------------------------------------------------------

    def create_bucket(self, bucket: str) -> Expected:
        if bucket in self.buckets:
            return refused("bucket-exists")
        self.buckets[bucket] = {}
        return Expected(201)

    def delete_bucket(self, bucket: str) -> Expected:
        if bucket not in self.buckets:
            return refused("bucket-not-found")
        if self.buckets[bucket]:
            return refused("bucket-not-empty")
        del self.buckets[bucket]
        return Expected(204)

    def describe(self, bucket: str) -> Expected:
        if bucket not in self.buckets:
            return refused("bucket-not-found")
        streams = len(self.buckets[bucket])

        def check(response: Response) -> None:
            content = json.loads(response.body)
            assert (content["bucket_id"], content["streams"]) == (bucket, streams)

        return Expected(200, headers={"content-type": "application/json"}, check_body=check)

    def list(self, bucket: str, prefix: str, after: str, limit: int) -> Expected:
        if bucket not in self.buckets:
            return refused("bucket-not-found")
        streams = self.buckets[bucket]
        ids = sorted((name for name in streams if name.startswith(prefix)), key=str.encode)
        if after:
            ids = [name for name in ids if name.encode() > after.encode()]
        page, more = ids[:limit], len(ids) > limit

        def check(response: Response) -> None:
            content = json.loads(response.body)
            items = content.pop("streams")
            assert isinstance(content.pop("position"), str)
            assert content == {
                "bucket_id": bucket,
                "prefix": prefix,
                "stream_count": len(page),
                "next_cursor": page[-1] if page else None,
                "has_more": more,
            }
            assert [item["stream_id"] for item in items] == page
            for item in items:
                streams[item["stream_id"]].listed(item["stream_id"], item)

        return Expected(200, check_body=check)

    # -- streams -----------------------------------------------------------------------------

    def create(self, bucket: str, stream: str, case: CreateCase) -> Expected:
        if bucket not in self.buckets:
            return refused("bucket-not-found")
        model = self.buckets[bucket].get(stream) or StreamModel()
        word = model.create(case, 0)
        if word not in ("created", "existed"):
            return refused(word)
        self.buckets[bucket][stream] = model
        return Expected(STATUSES[word], headers=self._written(model))

    def append(self, bucket: str, stream: str, case: AppendCase) -> Expected:
        model = self.find(bucket, stream)
        if isinstance(model, Expected):
            return model
        word = model.append(case, 0)
        if word not in ("appended", "closed", "duplicate"):
            about = self._written(model) if word == "stream-closed" else {}
            return Expected(STATUSES[word], word, about)
        if word != "duplicate":
            model.written_ms = None
        new = word == "appended" and case.claim is not None
        return Expected(200 if new else 204, headers=self._written(model))

    def _written(self, model: StreamModel) -> dict[str, str | None]:
        return {
            "stream-next-offset": token(model.tail),
            "stream-closed": model.closed_header(),
        }

    def delete(self, bucket: str, stream: str) -> Expected:
        model = self.find(bucket, stream)
        if isinstance(model, Expected):
            return model
        del self.buckets[bucket][stream]
        return Expected(204)


def place_before(places: list[Place], byte: int) -> Place:
    """The last boundary that lies before a byte."""
    return places[max(0, bisect_left(places, byte, key=lambda place: place[1]) - 1)]

"""Short calls for streams over a raw connection, and checks for every response."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.http import TIMEOUT_S, Connection, Head, ProtocolError, Response
from tests.support.server import BaseServerProcess

PROBLEM_FIELDS = {"type", "title", "status", "detail", "code"}

_names = itertools.count()


class Api:
    """A client of one server on one persistent connection, which is reopened if it was closed."""

    def __init__(self, server: BaseServerProcess, bucket: str | None = None) -> None:
        """With a bucket, `path` returns paths in it instead of base paths."""
        self.server = server
        self.bucket = bucket
        self._connection: Connection | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def connect(self, timeout: float = TIMEOUT_S) -> Connection:
        """A new connection."""
        return Connection("127.0.0.1", self.server.port, timeout)

    def path(self, label: str = "s") -> str:
        """The path of a stream that no other test uses."""
        where = self.bucket or "v1/stream"
        return f"{self.server.base_path}/{where}/{label}-{next(_names)}"

    def new_bucket(self) -> str:
        """A bucket that no other test uses; returns its id."""
        bucket = f"bucket-{next(_names)}"
        response = self.request("PUT", f"{self.server.base_path}/{bucket}")
        assert response.status == 201, (response.status, response.body)
        return bucket

    def in_bucket(self, bucket: str, stream: str) -> str:
        """The path of a stream in a bucket; `stream` is percent-encoded already."""
        return f"{self.server.base_path}/{bucket}/{stream}"

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server.port}{path}"

    def request(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Response:
        """One request. The connection is reused, so bad framing of a response shows in the next."""
        if self._connection is None:
            self._connection = self.connect()
        try:
            response = self._connection.request(method, target, dict(headers or {}), body)
        except BaseException:
            self.close()
            raise
        if response.headers.get("connection") == "close":
            self.close()
        return response

    def create(
        self,
        content_type: str | None = "text/plain",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        path: str | None = None,
    ) -> str:
        """Create a stream; returns its path."""
        path = path or self.path()
        sent = dict(headers or {})
        if content_type is not None:
            sent["Content-Type"] = content_type
        response = self.request("PUT", path, sent, body)
        assert response.status == 201, (response.status, response.body)
        return path

    def post(
        self,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str] | None = None,
        content_type: str | None = "text/plain",
    ) -> Response:
        sent = dict(headers or {})
        if content_type is not None:
            sent["Content-Type"] = content_type
        return self.request("POST", path, sent, body)

    def append(
        self,
        path: str,
        body: bytes,
        headers: Mapping[str, str] | None = None,
        content_type: str = "text/plain",
    ) -> str:
        """Append and expect success; returns the new tail."""
        response = self.post(path, body, headers, content_type)
        assert response.status in (200, 204), (response.status, response.body)
        return response.headers["stream-next-offset"]

    def close_stream(self, path: str) -> Response:
        """Close without an append."""
        response = self.request("POST", path, {"Stream-Closed": "true"}, b"")
        assert response.status == 204, (response.status, response.body)
        return response

    def get(self, path: str, query: str = "", headers: Mapping[str, str] | None = None) -> Response:
        return self.request("GET", f"{path}?{query}" if query else path, headers)

    def head(self, path: str) -> Response:
        return self.request("HEAD", path)

    def tail(self, path: str) -> str:
        return self.head(path).headers["stream-next-offset"]

    def read_all(self, path: str) -> bytes:
        """The whole content, read chunk by chunk from the start."""
        content, offset = b"", "-1"
        while True:
            response = self.get(path, f"offset={offset}")
            assert response.status == 200, (response.status, response.body)
            content += response.body
            offset = response.headers["stream-next-offset"]
            if response.headers.get("stream-up-to-date") == "true":
                return content

    def facts(self, path: str) -> tuple[object, ...]:
        """Everything visible of a stream, to compare before and after."""
        head = self.head(path)
        if head.status != 200:
            return (head.status,)
        names = ("content-type", "stream-next-offset", "stream-closed", "stream-expires-at")
        return (*(head.headers.get(name) for name in names), self.read_all(path))

    def sse(self, path: str, query: str = "offset=-1", timeout: float = TIMEOUT_S) -> EventStream:
        return EventStream(self.connect(timeout), f"{path}?live=sse&{query}")


@dataclass(frozen=True, slots=True)
class Event:
    """One event as a browser would dispatch it."""

    kind: str
    data: str
    id: str = ""

    @property
    def json(self) -> Any:
        return json.loads(self.data)


class EventStream:
    """An SSE response, parsed by the rules of the HTML standard."""

    def __init__(
        self,
        connection: Connection,
        target: str,
        version: str = "1.1",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.connection = connection
        sent = {"Host": connection.host_header, **(headers or {})}
        lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
        connection.send(f"GET {target} HTTP/{version}\r\n{lines}\r\n".encode())
        self.head: Head = connection.read_head()
        self.raw = b""
        self.comments: list[str] = []
        self._pieces = connection.iter_body(self.head)
        self._buffer = b""

    def __enter__(self) -> EventStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def __iter__(self) -> Iterator[Event]:
        """Events until the response ends."""
        while (event := self.next_or_end()) is not None:
            yield event

    def next(self) -> Event:
        event = self.next_or_end()
        assert event is not None, "the event stream ended"
        return event

    def next_or_end(self) -> Event | None:
        """The next event, or None at the end of the response. Comments are collected."""
        while True:
            block, mark, rest = self._buffer.partition(b"\n\n")
            if mark:
                self._buffer = rest
                if (event := self._parse(block.decode())) is not None:
                    return event
                continue
            piece = next(self._pieces, None)
            if piece is None:
                if self._buffer:
                    raise ProtocolError(f"an incomplete event at the end: {self._buffer!r}")
                return None
            self.raw += piece
            self._buffer += piece

    def until(self, *, tail: str) -> list[Event]:
        """Events up to and including the control event with this offset."""
        events = []
        for event in self:
            events.append(event)
            if event.kind == "control" and event.json["streamNextOffset"] == tail:
                return events
        raise AssertionError(f"the event stream ended before {tail}: {events}")

    def _parse(self, block: str) -> Event | None:
        kind, data, last_id = "message", [], ""
        for line in block.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "":
                self.comments.append(value)
            elif field == "event":
                kind = value
            elif field == "data":
                data.append(value)
            elif field == "id":
                last_id = value
            else:
                raise ProtocolError(f"an unknown field: {line!r}")
        return Event(kind, "\n".join(data), last_id) if data else None


def text_of(events: list[Event]) -> str:
    """The joined data of the data events."""
    return "".join(event.data for event in events if event.kind == "data")


def check_common(response: Response | Head) -> None:
    """§10.7 and CORS: the headers of every response, including errors."""
    headers = response.headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-resource-policy"] == "cross-origin"
    assert headers["access-control-allow-origin"] == "*"
    exposed = {name.strip().lower() for name in headers["access-control-expose-headers"].split(",")}
    assert {"stream-next-offset", "stream-closed", "etag", "producer-epoch"} <= exposed


def check_problem(response: Response, status: int, code: str | None = None) -> dict[str, Any]:
    """An error is RFC 9457 with a stable code and the common headers."""
    assert response.status == status, (response.status, response.body)
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["cache-control"] == "no-store"
    check_common(response)
    body: dict[str, Any] = json.loads(response.body)
    assert set(body) == PROBLEM_FIELDS
    assert body["status"] == status
    assert all(isinstance(body[name], str) and body[name] for name in PROBLEM_FIELDS - {"status"})
    assert body["type"].endswith(body["code"])
    if code is not None:
        assert body["code"] == code, body
    return body


def wait_until(what: str, check: Any, seconds: float = 60.0) -> None:
    """Poll until `check()` is true; the limit only stops a hang."""
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.02)

"""Reading streams in tests: a whole stream, or live events."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.support.http import Connection, Response

OCTETS = "application/octet-stream"
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Content:
    """A whole stream: its bytes, or its JSON elements as they were sent."""

    content_type: str
    raw: bytes
    elements: list[bytes]
    closed: bool
    next_offset: str


def read_all(connection: Connection, path: str) -> Content | None:
    """A whole stream by catch-up reads (§5.6) on one connection; None for 404."""
    offset = "-1"
    pieces: list[bytes] = []
    elements: list[bytes] = []
    while True:
        response = connection.request("GET", f"{path}?offset={offset}")
        if response.status == 404:
            return None
        assert response.status == 200, (path, offset, response)
        content_type = response.headers["content-type"]
        if content_type == JSON:
            elements.extend(split_array(response.body))
        else:
            pieces.append(response.body)
        offset = response.headers["stream-next-offset"]
        if response.headers.get("stream-up-to-date") == "true":
            closed = response.headers.get("stream-closed") == "true"
            return Content(content_type, b"".join(pieces), elements, closed, offset)


def split_array(body: bytes) -> list[bytes]:
    """The elements of a JSON array, each with its exact bytes."""
    text = body.decode()
    assert (text[:1], text[-1:]) == ("[", "]"), text[:80]
    decoder = json.JSONDecoder()
    elements: list[bytes] = []
    at = 1
    while text[at] != "]":
        _, end = decoder.raw_decode(text, at)
        elements.append(text[at:end].encode())
        assert text[end] in ",]", text[end : end + 80]
        at = end + (text[end] == ",")
    assert at == len(text) - 1, text[at:]
    return elements


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event."""

    kind: str
    data: str

    @property
    def control(self) -> dict[str, Any]:
        assert self.kind == "control", self
        fields = json.loads(self.data)
        assert isinstance(fields, dict)
        return fields


class SseReader:
    """A live reader over SSE (§5.8) on its own connection."""

    def __init__(self, connection: Connection, path: str, offset: str = "-1") -> None:
        self.connection = connection
        self.path = path
        connection.send_request("GET", f"{path}?offset={offset}&live=sse")
        self.head = connection.read_head()
        self._base64 = self.head.headers.get("stream-sse-data-encoding") == "base64"

    def events(self) -> Iterator[Event]:
        """Events as they arrive, until the server ends the response."""
        buffer = b""
        for piece in self.connection.iter_body(self.head):
            buffer += piece
            *blocks, buffer = buffer.split(b"\n\n")
            for block in blocks:
                event = _event(block)
                if event is not None:
                    yield event
        assert not buffer.strip(), f"the response ended inside an event: {buffer[:200]!r}"

    def payload(self, event: Event) -> bytes:
        """The stream's bytes in a data event."""
        assert event.kind == "data", event
        return b64decode(event.data, validate=True) if self._base64 else event.data.encode()


def _event(block: bytes) -> Event | None:
    kind, data = "", []
    for line in block.decode().split("\n"):
        name, _, value = line.partition(":")
        if name == "event":
            kind = value.strip()
        elif name == "data":
            data.append(value)
    return Event(kind, "\n".join(data)) if kind else None


def problem_code(response: Response) -> str:
    """The stable code in the body of an error (RFC 9457)."""
    assert response.headers["content-type"] == "application/problem+json", response
    code = json.loads(response.body)["code"]
    assert isinstance(code, str)
    return code

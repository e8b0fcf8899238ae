"""Subscriptions of one test: on the base surface below a path of its own, or in its bucket."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from tests.support.http import Response
from tests.support.streams import PROBLEM_FIELDS, Api, check_common

_names = itertools.count()


@dataclass
class Surface:
    """Short calls for streams and subscriptions, which no other test uses."""

    api: Api
    number: int = field(default_factory=lambda: next(_names))
    token: str = ""

    @property
    def root(self) -> str:
        return f"{self.api.server.base_path}/{self.api.bucket or 'v1/stream'}"

    @property
    def pattern(self) -> str:
        """Matches all streams of `name`."""
        return "*" if self.api.bucket else f"{self._label}/*"

    @property
    def _label(self) -> str:
        return f"t{self.number}"

    def name(self, label: str) -> str:
        """The path of a stream that the pattern matches, as in bodies."""
        return label if self.api.bucket else f"{self._label}/{label}"

    def other(self, label: str) -> str:
        """The path of a stream that the pattern does not match: on the base surface only."""
        return f"{self._label}-{label}"

    def url(self, name: str) -> str:
        """The target of a stream."""
        return f"{self.root}/{quote(name)}"

    def target(self, subscription: str = "sub", rest: str = "") -> str:
        return f"{self.root}/__ds/subscriptions/{quote(self._id(subscription), safe='')}{rest}"

    def _id(self, subscription: str) -> str:
        return f"{subscription}-{self._label}"

    def request(
        self, method: str, target: str, content: Any = None, token: str | None = None
    ) -> Response:
        headers = {}
        if token or self.token:
            headers["Authorization"] = f"Bearer {token or self.token}"
        body = None
        if content is not None:
            headers["Content-Type"] = "application/json"
            body = content if isinstance(content, bytes) else json.dumps(content).encode()
        return self.api.request(method, target, headers, body)

    def put(self, name: str, body: bytes | None = None) -> str:
        """Create a stream; returns its tail."""
        response = self.api.request("PUT", self.url(name), self._headers(), body)
        assert response.status == 201, response.body
        return response.headers["stream-next-offset"]

    def append(self, name: str, body: bytes = b'{"n":1}') -> str:
        """Append to a stream; returns its tail."""
        response = self.api.request("POST", self.url(name), self._headers(), body)
        assert response.status == 204, response.body
        return response.headers["stream-next-offset"]

    def _headers(self) -> dict[str, str]:
        authorization = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return {"Content-Type": "application/json", **authorization}

    def pull(self, subscription: str = "sub", **config: Any) -> dict[str, Any]:
        """Create a pull-wake subscription to the pattern, and its wake stream."""
        self.api.request("PUT", self.url(self.wake_stream), self._headers())
        # A wake stream that the pattern matches would wake itself.
        streams: dict[str, Any] = (
            {"streams": [self.name("a"), self.name("b")]} if self.api.bucket else {}
        )
        default = streams or {"pattern": self.pattern}
        content = {"type": "pull-wake", "wake_stream": self.wake_stream, **default, **config}
        response = self.request("PUT", self.target(subscription), content)
        assert response.status == 201, response.body
        return json.loads(response.body)  # type: ignore[no-any-return]

    @property
    def wake_stream(self) -> str:
        return self.other("wakes")

    def webhook(self, url: str, subscription: str = "sub", **config: Any) -> dict[str, Any]:
        """Create a webhook subscription to the pattern."""
        content = {"type": "webhook", "pattern": self.pattern, "webhook": {"url": url}, **config}
        response = self.request("PUT", self.target(subscription), content)
        assert response.status == 201, response.body
        return json.loads(response.body)  # type: ignore[no-any-return]

    def show(self, subscription: str = "sub") -> dict[str, Any]:
        response = self.request("GET", self.target(subscription))
        assert response.status == 200, response.body
        return json.loads(response.body)  # type: ignore[no-any-return]

    def cursors(self, subscription: str = "sub") -> dict[str, str]:
        """The acknowledged offsets by path."""
        streams = self.show(subscription)["streams"]
        return {item["path"]: item["acked_offset"] for item in streams}

    def claim(self, subscription: str = "sub", worker: str = "w") -> dict[str, Any]:
        response = self.request("POST", self.target(subscription, "/claim"), {"worker": worker})
        assert response.status == 200, response.body
        return json.loads(response.body)  # type: ignore[no-any-return]

    def ack(self, claim: dict[str, Any], *acks: tuple[str, str], **more: Any) -> Response:
        """Acknowledge a claim."""
        content = {
            "wake_id": claim["wake_id"],
            "generation": claim["generation"],
            "acks": [{"stream": path, "offset": offset} for path, offset in acks],
            **more,
        }
        return self.request("POST", self.target("sub", "/ack"), content, claim["token"])


def check_error(response: Response, status: int, code: str) -> dict[str, Any]:
    """An error in the form of the subscription API, which also is a problem; returns `error`."""
    assert response.status == status, (response.status, response.body)
    assert response.headers["content-type"] == "application/problem+json"
    check_common(response)
    body = json.loads(response.body)
    assert set(body) == PROBLEM_FIELDS | {"error"}
    assert body["error"]["code"] == code, body
    assert body["error"]["message"]
    error: dict[str, Any] = body["error"]
    return error

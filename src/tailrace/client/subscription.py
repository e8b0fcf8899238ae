"""Every operation on a subscription, as a flow."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import quote

from tailrace.client.errors import AnswerInvalid, Conflict, NotFound, OffsetGone, Unreachable
from tailrace.client.flow import (
    Body,
    Flow,
    HttpRequest,
    MakeRequest,
    Wait,
    delete,
    expect,
    refused,
    send,
)
from tailrace.client.requests import Options, Resource
from tailrace.client.subscription_values import (
    ClaimedWake,
    SubscriptionInfo,
    parse_claim,
    parse_subscription,
)

__all__ = ["FENCED", "INVALID_OFFSET", "SubscriptionFlows", "SubscriptionResource"]

T = TypeVar("T")

FENCED: Final = "FENCED"
INVALID_OFFSET: Final = "INVALID_OFFSET"
_NOTHING_TO_CLAIM: Final = ("NO_PENDING_WORK", "ALREADY_CLAIMED")
_NO_WAKE_STREAM_S: Final = 2.0
"""The pause between two claims if there is no wake stream to wait on."""


class SubscriptionResource(Resource):
    """Sends and receives JSON."""

    def _get_json(self, make: MakeRequest, parse: Callable[[Any], T], *statuses: int) -> Flow[T]:
        """The parsed JSON body of a response; the request must be safe."""
        response, body = yield from self._fetch(make, *statuses)
        try:
            return parse(json.loads(body))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise AnswerInvalid(
                response.url, f"the response is not as expected: {error!r}"
            ) from None

    def _send_json(
        self, method: str, path: str, content: object, headers: Mapping[str, str] | None = None
    ) -> MakeRequest:
        sent = {"content-type": "application/json", **(headers or {})}
        return self._request(method, path, headers=sent, body=json.dumps(content).encode())


class SubscriptionFlows(SubscriptionResource):
    """One subscription at its URL, below the URL of the surface that its streams are on."""

    def __init__(self, root: str, subscription_id: str, options: Options) -> None:
        url = f"{root}/__ds/subscriptions/{quote(subscription_id, safe='')}"
        super().__init__(url, options)
        self.root = root
        self._wake_stream_url = ""

    def create(
        self,
        *,
        pattern: str | None = None,
        streams: Iterable[str] = (),
        webhook: str | None = None,
        wake_stream: str | None = None,
        lease_ttl_ms: int | None = None,
        description: str | None = None,
    ) -> Flow[SubscriptionInfo]:
        """
        Create the subscription; no error if it exists with the same configuration.

        Args:
            pattern: Streams whose paths match: `*` is one segment, `**` any number.
            streams: Paths of streams, in addition to the pattern.
            webhook: The URL that wakes are sent to; or else
            wake_stream: The path of the stream that wake events are appended to. It must exist.
            lease_ttl_ms: How long a worker has a wake until it must show that it is alive.
            description: A note.

        Raises:
            Conflict: It exists with another configuration.
        """
        content = {
            "type": "pull-wake" if webhook is None else "webhook",
            "pattern": pattern,
            "streams": list(streams) or None,
            "webhook": None if webhook is None else {"url": webhook},
            "wake_stream": wake_stream,
            "lease_ttl_ms": lease_ttl_ms,
            "description": description,
        }
        given = {name: value for name, value in content.items() if value is not None}
        response, body = yield from self._fetch(self._send_json("PUT", "", given), 200, 201)
        new = response.status == 201
        return _parsed(self.url, body, lambda found: parse_subscription(found, new=new))

    def get(self) -> Flow[SubscriptionInfo]:
        """
        The subscription, its streams and their cursors.

        Raises:
            NotFound: There is no such subscription.
        """
        return self._get_json(self._request("GET"), parse_subscription, 200)

    def delete(self) -> Flow[None]:
        """Delete the subscription; no error if there is none."""
        return delete(self._request("DELETE"))

    def add_streams(self, paths: Iterable[str]) -> Flow[None]:
        """
        Link streams explicitly, at their present tails.

        Raises:
            NotFound: There is no such subscription.
        """
        yield from expect(self._send_json("POST", "/streams", {"streams": list(paths)}), 204)
        yield Body()

    def remove_stream(self, path: str) -> Flow[None]:
        """
        Remove an explicit link; no error if there is none. The pattern's matches stay.

        Raises:
            NotFound: There is no such subscription.
        """
        name = quote(path.strip("/"), safe="")
        yield from expect(self._request("DELETE", f"/streams/{name}"), 204)
        yield Body()

    def claim(self, worker: str) -> Flow[ClaimedWake]:
        """
        Claim the pending work of a pull-wake subscription.

        Raises:
            NotFound: There is no such subscription.
            Conflict: Nothing is pending, or another worker holds the lease.
        """
        return self._get_json(
            self._send_json("POST", "/claim", {"worker": worker}), parse_claim, 200
        )

    def ack(
        self, claim: ClaimedWake, offsets: Mapping[str, str] | None = None, *, done: bool = False
    ) -> Flow[bool]:
        """
        Acknowledge a claimed wake: the offset that was reached, by path of the stream.

        Without `done` it extends the lease, with `done` it ends the lease. Returns whether another
        wake was issued.

        Raises:
            Conflict: The lease has ended, or an offset is not possible. Nothing was acknowledged.
        """
        content = {
            "wake_id": claim.wake_id,
            "generation": claim.generation,
            "acks": [{"stream": path, "offset": at} for path, at in (offsets or {}).items()],
            "done": done,
        }
        make = self._send_json("POST", "/ack", content, _bearer(claim))
        attempt = 1
        while True:
            response = yield from send(make)
            if response.status != 200:
                error = yield from refused(response)
                if done and (response.repeated or attempt > 1) and _code(error) == FENCED:
                    # An earlier attempt was carried out, and its response was lost.
                    return False
                raise error
            try:
                body = yield Body()
            except Unreachable:
                if attempt >= self.options.retry.attempts_max:
                    raise
                attempt += 1
            else:
                return _parsed(self.url, body, lambda found: bool(found["next_wake"]))

    def release(self, claim: ClaimedWake) -> Flow[None]:
        """
        Give a claimed wake back without acknowledging it. No error if its lease has ended.

        Another worker can claim it at once.
        """
        content = {"wake_id": claim.wake_id, "generation": claim.generation}
        response = yield from send(self._send_json("POST", "/release", content, _bearer(claim)))
        if response.status not in (204, 401, 404, 409):
            raise (yield from refused(response))
        yield Body()

    def next_claim(self, worker: str, *, wait: bool) -> Flow[ClaimedWake | None]:
        """
        Claim as soon as there is something to claim; without `wait`, None if there is not.

        A claim is tried again at every event of the wake stream, and whenever a long-poll of it
        ends: an event may have been before, and a lease may have expired without one.
        """
        offset: str | None = None
        while True:
            try:
                return (yield from self.claim(worker))
            except Conflict as error:
                if _code(error) not in _NOTHING_TO_CLAIM:
                    raise
            if not wait:
                return None
            if not self._wake_stream_url:
                info = yield from self.get()
                self._wake_stream_url = f"{self.root}/{quote(info.wake_stream or '')}"
            url = self._wake_stream_url
            # Claim once more after the tail is known: an event may have been before it.
            if offset is None:
                offset = yield from self._tail(url)
            else:
                offset = yield from self._wait(url, offset)

    def _tail(self, url: str) -> Flow[str]:
        """The tail of the wake stream; empty if there is no such stream."""
        try:
            response = yield from expect(Resource(url, self.options)._request("HEAD"), 200)
        except (NotFound, OffsetGone):
            return ""
        yield Body()
        return response.headers.get("stream-next-offset", "")

    def _wait(self, url: str, offset: str) -> Flow[str]:
        """Wait for an event after an offset; returns the offset after it."""
        if not offset:
            yield Wait(_NO_WAKE_STREAM_S)
            return (yield from self._tail(url))
        make = Resource(url, self.options)._request("GET", params=_live(offset))

        def patient() -> Flow[HttpRequest]:
            request = yield from make()
            return HttpRequest(
                request.method,
                request.url,
                request.headers,
                retry=request.retry,
                idle_s=self.options.live_idle_s,
            )

        try:
            response = yield from send(patient)
            yield Body()
        except Unreachable:
            yield Wait(_NO_WAKE_STREAM_S)
            return offset
        if response.status not in (200, 204) or response.headers.get("stream-closed"):
            # Deleted, closed or compacted: poll until it is there again.
            yield Wait(_NO_WAKE_STREAM_S)
            return ""
        return response.headers.get("stream-next-offset") or offset


def _parsed(url: str, body: bytes, parse: Callable[[Any], T]) -> T:
    try:
        return parse(json.loads(body))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise AnswerInvalid(url, f"the response is not as expected: {error!r}") from None


def _bearer(claim: ClaimedWake) -> dict[str, str]:
    return {"authorization": f"Bearer {claim.token}"}


def _live(offset: str) -> dict[str, str]:
    return {"offset": offset, "live": "long-poll"}


def _code(error: Exception) -> str | None:
    return getattr(error, "code", None)

"""The errors that the client raises: no response, an invalid response, or `Refused` by status."""

import json
from collections.abc import Mapping
from dataclasses import field

from tailrace.exceptions import ExitCode, TailraceError

__all__ = [
    "AnswerInvalid",
    "Conflict",
    "NotFound",
    "OffsetGone",
    "PositionGone",
    "ProducerFenced",
    "ProducerGap",
    "ProducerReused",
    "RateLimited",
    "Refused",
    "SeqConflict",
    "ServerFailed",
    "StreamClosed",
    "StreamSoftDeleted",
    "TailraceError",
    "TimedOut",
    "TooLarge",
    "Unauthorized",
    "Unreachable",
]


class Unreachable(TailraceError):
    """
    No response, or an incomplete one: the server is down, the connection broke, or time ran out.

    `sent` is false if the request cannot have reached the server. Then it was certainly not stored.
    """

    message = "{url}: {reason}"
    exit_code = ExitCode.UNREACHABLE
    hint = "is the server running? start one with: tailrace serve"
    url: str
    reason: str
    sent: bool = True


class TimedOut(TailraceError, TimeoutError):
    """The `timeout_s` of a tail has passed. Continue at the offset that it has reached."""

    message = "{url}: not within {seconds:g} s"
    exit_code = ExitCode.UNREACHABLE
    url: str
    seconds: float


class AnswerInvalid(TailraceError):
    """The response does not follow the protocol. Check that the URL is the right one."""

    message = "{url}: {reason}"
    hint = "is this the URL of a durable streams server?"
    url: str
    reason: str


class Refused(TailraceError):
    """The server rejected a request. Nothing was changed, unless it is `ServerFailed`."""

    message = "{status} at {url}: {detail}"
    status: int
    url: str
    code: str | None = None
    """The error code of a Tailrace server; None from other servers."""
    detail: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    """The headers of the response, names in lower case."""

    def __str__(self) -> str:
        return super().__str__() if self.detail else f"{self.status} at {self.url}"

    @property
    def retry_after_s(self) -> int | None:
        """The seconds after which to retry, if the server gives them."""
        return self._number("retry-after")

    def _number(self, header: str) -> int | None:
        value = self.headers.get(header, "")
        is_number = value.isascii() and value.isdecimal() and len(value) < 20
        return int(value) if is_number else None


class Unauthorized(Refused):
    """401 or 403: the token is missing, invalid, or lacks the permission. Get another one."""

    exit_code = ExitCode.UNAUTHORIZED


class ProducerFenced(Refused):
    """403: a newer `epoch` holds this producer id. Stop, or claim the id with the next epoch."""

    exit_code = ExitCode.CONFLICT

    @property
    def epoch(self) -> int | None:
        return self._number("producer-epoch")


class NotFound(Refused):
    """404: no such stream, bucket or snapshot. Create it, or check whether it was deleted."""

    exit_code = ExitCode.NOT_FOUND


class StreamSoftDeleted(NotFound):
    """410: the stream was deleted or has expired, and is kept for its forks only."""

    hint = "read one of its forks: they still have what they inherited"


class Conflict(Refused):
    """409: the state of the stream or bucket does not allow the request; `detail` says why."""

    exit_code = ExitCode.CONFLICT


class StreamClosed(Conflict):
    """409: the stream is closed at `next_offset`. Nothing can be appended to it."""

    hint = "a closed stream accepts no appends: append to another stream"

    @property
    def next_offset(self) -> str | None:
        return self.headers.get("stream-next-offset")


class SeqConflict(Conflict):
    """409: `Stream-Seq` is not above the last one. Another writer was first; nothing was stored."""


class ProducerGap(Conflict):
    """409: a predecessor of this batch has not arrived. Resend from `expected_seq`."""

    @property
    def expected_seq(self) -> int | None:
        return self._number("producer-expected-seq")

    @property
    def received_seq(self) -> int | None:
        return self._number("producer-received-seq")


class ProducerReused(ProducerGap):
    """
    Another run wrote with this producer id in this epoch. The server would take our batches for
    retries of that run and drop them. Use a higher epoch, another id, or `auto_claim`.
    """

    hint = "use a higher --epoch, or omit --epoch to take the next one"
    detail: str = (
        "this producer id was used in this epoch before;"
        " use a higher epoch, another id, or auto_claim"
    )


class OffsetGone(Refused):
    """410: the offset is no longer retained. Bootstrap, or read from `earliest_offset`."""

    exit_code = ExitCode.GONE

    @property
    def earliest_offset(self) -> str | None:
        return self.headers.get("stream-earliest-offset")


class PositionGone(Refused):
    """410: the changes since this position are not known. Survey the whole bucket."""


class TooLarge(Refused):
    """413: the body is too large. Send it in several appends."""


class RateLimited(Refused):
    """429: retry later, after `retry_after_s` seconds if the server gives them."""


class ServerFailed(Refused):
    """5xx: the server failed. It is unknown whether an append was stored."""


_BY_STATUS: dict[int, type[Refused]] = {
    401: Unauthorized,
    403: Unauthorized,
    404: NotFound,
    409: Conflict,
    410: OffsetGone,
    413: TooLarge,
    429: RateLimited,
}


_SEQ_CODE = "seq-regression"
# Other servers have no code, and these words.
_SEQ_WORDS = "sequence conflict"


def refusal(status: int, url: str, headers: Mapping[str, str], body: bytes) -> Refused:
    """The error for a response without success; header names are in lower case."""
    kind = _BY_STATUS.get(status, ServerFailed if status >= 500 else Refused)
    if status == 403 and "producer-epoch" in headers:
        kind = ProducerFenced
    elif status == 409 and "producer-expected-seq" in headers:
        kind = ProducerGap
    elif status == 409 and headers.get("stream-closed", "").lower() == "true":
        kind = StreamClosed
    code, detail = _problem(headers, body)
    if code == "position-gone":
        kind = PositionGone
    elif code == "stream-gone" or (status == 410 and not body and _is_head_of_gone(headers)):
        kind = StreamSoftDeleted
    elif kind is Conflict and (code == _SEQ_CODE or _SEQ_WORDS in detail.lower()):
        kind = SeqConflict
    return kind(status, url, code, detail, dict(headers))


def _is_head_of_gone(headers: Mapping[str, str]) -> bool:
    """Whether a 410 without a body is a response to HEAD of a soft-deleted stream."""
    is_problem = headers.get("content-type") == "application/problem+json"
    return is_problem and "stream-earliest-offset" not in headers


def _problem(headers: Mapping[str, str], body: bytes) -> tuple[str | None, str]:
    """Code and detail of the body: `application/problem+json`, or plain text of other servers."""
    text = body[:2000].decode("utf-8", "replace").strip()
    if "json" not in headers.get("content-type", ""):
        return None, text
    try:
        content = json.loads(body)
    except ValueError:
        return None, text
    if not isinstance(content, dict):
        return None, text
    error = content.get("error")
    if isinstance(error, dict):
        # The form of the subscription API.
        content = {**error, **content}
        error = error.get("message")
    code = content.get("code")
    detail = content.get("detail") or content.get("message") or error or text
    return code if isinstance(code, str) else None, str(detail)

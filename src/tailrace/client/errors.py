"""
What can go wrong, one class each, under one base.

    TailraceError
      Unreachable          no answer, or half of one
      AnswerInvalid        an answer that this protocol does not know
      Refused              the server said no; by its status and headers one of
        Unauthorized         401, 403: the token is missing, wrong, or does not suffice
        ProducerFenced       403: a newer epoch holds the producer id
        NotFound             404: no such stream, bucket or snapshot
        Conflict             409: it exists otherwise, is of another type, or not empty
          StreamClosed         it takes no more
          ProducerGap          a predecessor of a batch has not arrived
            ProducerReused       the producer id and epoch were used before
        OffsetGone           410: no longer retained
        PositionGone         410: what changed since is not known
        TooLarge             413
        RateLimited          429
        ServerFailed         5xx

Each pickles, to cross from one process to another: exceptions are rebuilt from their `args`.
"""

import json
from collections.abc import Mapping
from typing import Any

from tailrace import exceptions
from tailrace.exceptions import ExitCode

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
    "ServerFailed",
    "StreamClosed",
    "TailraceError",
    "TooLarge",
    "Unauthorized",
    "Unreachable",
    "refusal",
]


class TailraceError(exceptions.TailraceError):
    """Anything that this client raises."""

    # Subclasses have an `__init__` of their own and are no dataclasses.
    def __init_subclass__(cls, **options: Any) -> None:
        pass

    def __init__(self, *args: object) -> None:
        Exception.__init__(self, *args)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.args


class Unreachable(TailraceError):
    """
    No answer, or half of one: the server is down, the connection broke, or time ran out.

    `sent` is false where the request cannot have reached the server: it was not stored for sure.
    """

    exit_code = ExitCode.UNREACHABLE

    def __init__(self, url: str, reason: str, sent: bool = True) -> None:
        super().__init__(url, reason, sent)
        self.url = url
        self.reason = reason
        self.sent = sent

    def __str__(self) -> str:
        return f"{self.url}: {self.reason}"


class AnswerInvalid(TailraceError):
    """The server said something that this protocol does not know: is it the right URL?"""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(url, reason)
        self.url = url
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.url}: {self.reason}"


class Refused(TailraceError):
    """The server refused a request; nothing was changed, unless it is `ServerFailed`."""

    def __init__(
        self,
        status: int,
        url: str,
        code: str | None = None,
        detail: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, url, code, detail, headers)
        self.status = status
        self.url = url
        self.code = code
        """A Tailrace server's name for what happened; other servers have none."""
        self.detail = detail
        self.headers: dict[str, str] = dict(headers or {})
        """Of the answer, names in lower case."""

    def __str__(self) -> str:
        return f"{self.status} at {self.url}: {self.detail or 'no reason given'}"

    def _number(self, header: str) -> int | None:
        value = self.headers.get(header, "")
        is_number = value.isascii() and value.isdecimal() and len(value) < 20
        return int(value) if is_number else None


class Unauthorized(Refused):
    """401 or 403: the token is missing, wrong, or does not suffice. Get another one."""

    exit_code = ExitCode.UNAUTHORIZED


class ProducerFenced(Refused):
    """403: a newer `epoch` holds this producer id. Stop, or claim it with the next epoch."""

    exit_code = ExitCode.CONFLICT

    @property
    def epoch(self) -> int | None:
        return self._number("producer-epoch")


class NotFound(Refused):
    """404: no such stream, bucket or snapshot. Create it, or see whether it was deleted."""

    exit_code = ExitCode.NOT_FOUND


class Conflict(Refused):
    """409: what is there does not allow it; `detail` says what."""

    exit_code = ExitCode.CONFLICT


class StreamClosed(Conflict):
    """409: the stream is closed at `next_offset` and takes no more."""

    @property
    def next_offset(self) -> str | None:
        return self.headers.get("stream-next-offset")


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
    Another run wrote with this producer id in this epoch: the server would take our batches for
    its, and drop them. Use a higher epoch, another id, or `auto_claim`.
    """

    def __str__(self) -> str:
        return (
            f"{self.status} at {self.url}: this producer id was used in this epoch before;"
            " use a higher epoch, another id, or auto_claim"
        )


class OffsetGone(Refused):
    """410: the offset is no longer retained. Bootstrap, or read on from `earliest_offset`."""

    exit_code = ExitCode.GONE

    @property
    def earliest_offset(self) -> str | None:
        return self.headers.get("stream-earliest-offset")


class PositionGone(Refused):
    """410: the server cannot tell what changed since. Survey the bucket whole."""


class TooLarge(Refused):
    """413: send it in several appends."""


class RateLimited(Refused):
    """429: try again later; `retry_after_s` says when, if the server does."""

    @property
    def retry_after_s(self) -> int | None:
        return self._number("retry-after")


class ServerFailed(Refused):
    """5xx: the server could not do it. Whether an append was stored is unknown."""

    @property
    def retry_after_s(self) -> int | None:
        return self._number("retry-after")


_BY_STATUS: dict[int, type[Refused]] = {
    401: Unauthorized,
    403: Unauthorized,
    404: NotFound,
    409: Conflict,
    410: OffsetGone,
    413: TooLarge,
    429: RateLimited,
}


def refusal(status: int, url: str, headers: Mapping[str, str], body: bytes) -> Refused:
    """The error for an answer that is none of success; header names are in lower case."""
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
    return kind(status, url, code, detail, dict(headers))


def _problem(headers: Mapping[str, str], body: bytes) -> tuple[str | None, str]:
    """What the body says: `application/problem+json` of our servers, some text of others."""
    text = body[:2000].decode("utf-8", "replace").strip()
    if "json" not in headers.get("content-type", ""):
        return None, text
    try:
        content = json.loads(body)
    except ValueError:
        return None, text
    if not isinstance(content, dict):
        return None, text
    code = content.get("code")
    detail = content.get("detail") or content.get("message") or content.get("error") or text
    return code if isinstance(code, str) else None, str(detail)

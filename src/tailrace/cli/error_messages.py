"""What an error of the client means to somebody at a terminal."""

from collections.abc import Sequence
from dataclasses import dataclass

from tailrace.cli.failures import ExitCode, Failure
from tailrace.cli.parameters import spell
from tailrace.client import (
    AnswerInvalid,
    Conflict,
    NotFound,
    OffsetGone,
    ProducerFenced,
    ProducerReused,
    Refused,
    StreamClosed,
    TailraceError,
    Unauthorized,
    Unreachable,
)

__all__ = ["Subject", "explain"]

_CODES: dict[type[TailraceError], ExitCode] = {
    NotFound: ExitCode.NOT_FOUND,
    Conflict: ExitCode.CONFLICT,
    ProducerFenced: ExitCode.CONFLICT,
    Unreachable: ExitCode.UNREACHABLE,
    Unauthorized: ExitCode.UNAUTHORIZED,
    OffsetGone: ExitCode.GONE,
}


@dataclass(frozen=True, slots=True)
class Subject:
    """What a command was about."""

    name: str
    path: str
    """As it is written in a command; none if it is a bucket."""
    bucket: str
    options: Sequence[str]
    """Words that name the server in a command."""
    missing: str | None = None
    """What to do if it is not there, where that is not to create it; empty for nothing."""

    def stream(self, command: str, *more: str, file: str = "") -> str:
        """A command about the stream, and perhaps a file."""
        place = ["-b", self.bucket] if self.bucket else []
        named = [self.path, file] if file else [self.path]
        return spell(command, named, [*place, *more, *self.options])

    def of_bucket(self, command: str) -> str:
        """A command about the bucket."""
        return spell(command, [self.bucket], self.options)


def explain(error: TailraceError, subject: Subject) -> Failure:
    """What to tell about an error, with a hint at what to do."""
    code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), ExitCode.FAILED)
    match error:
        case Unreachable():
            hint = "is the server running? start one with: tailrace serve"
            return Failure(f"cannot reach {error.url}: {error.reason}", code, hint)
        case AnswerInvalid():
            hint = "is this the URL of a server of durable streams?"
            return Failure(f"{error.url}: {error.reason}", code, hint)
        case Refused():
            reason = _reason(error, subject) or error.detail or "the server refused it"
            hint = _hint(error, subject)
            return Failure(f"{subject.name}: {reason} ({error.status})", code, hint)
    return Failure(f"{subject.name}: {error}", code)


def _reason(error: Refused, subject: Subject) -> str:
    """In our own words, where the server has none, or such as are for programs."""
    match error:
        case ProducerReused():
            return "this producer id was used in this epoch before"
        case NotFound() if error.code == "bucket-not-found":
            return "no such bucket"
        case NotFound() if error.code == "stream-not-found" or not error.detail:
            return "no such stream" if subject.path else "no such bucket"
        case Unauthorized() if not error.detail:
            return "not authorized"
        case Conflict() if error.code == "bucket-not-empty":
            return "the bucket has streams"
    if 300 <= error.status < 400:
        return f"the server sends us on to {error.headers.get('location', 'nowhere')}"
    return ""


def _hint(error: Refused, subject: Subject) -> str:
    match error:
        case NotFound():
            return _missing_hint(error.code, subject)
        case StreamClosed():
            return "a closed stream takes no more: append to another one"
        case ProducerReused():
            return "use a higher --epoch, or leave it out: the next one is then taken"
        case Conflict():
            return _conflict_hint(error.code, subject)
        case ProducerFenced():
            return f"another run took this id over; take it back: --epoch {(error.epoch or 0) + 1}"
        case Unauthorized():
            # With a token that may not, sending it would not help.
            return "send a token: --token, or TAILRACE_TOKEN" if error.status == 401 else ""
        case OffsetGone():
            earliest = error.earliest_offset
            start = subject.stream("bootstrap") if subject.bucket else ""
            read = f"--offset {earliest}" if earliest else ""
            return "what is still there: " + ", or ".join(filter(None, (start, read)))
    if 300 <= error.status < 400:
        return "give its URL as it is now: --url"
    return ""


def _missing_hint(code: str | None, subject: Subject) -> str:
    if subject.missing == "":
        return ""
    if code == "snapshot-not-found":
        put = subject.stream("snapshot put", "--offset", "OFFSET", file="FILE")
        return f"publish one: {put}"
    if code == "bucket-not-found" or not subject.path:
        return f"create it first: {subject.of_bucket('bucket create')}"
    return subject.missing or f"create it first: {subject.stream('create')}"


def _conflict_hint(code: str | None, subject: Subject) -> str:
    match code:
        case "stream-exists" | "content-type-mismatch":
            return f"what is there: {subject.stream('head')}"
        case "bucket-exists":
            return "if that is as well: --exist-ok"
        case "bucket-not-empty":
            return f"remove them first: {subject.of_bucket('ls')}"
        case "snapshot-conflict":
            return "publish at a later offset"
    return ""

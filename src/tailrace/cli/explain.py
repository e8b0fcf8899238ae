"""What an error of the client means to somebody at a terminal."""

from tailrace.cli.failures import ExitCode, Failure
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

__all__ = ["explain"]

_CODES: dict[type[TailraceError], ExitCode] = {
    NotFound: ExitCode.NOT_FOUND,
    Conflict: ExitCode.CONFLICT,
    ProducerFenced: ExitCode.CONFLICT,
    Unreachable: ExitCode.UNREACHABLE,
    Unauthorized: ExitCode.UNAUTHORIZED,
    OffsetGone: ExitCode.GONE,
}


def explain(error: TailraceError, name: str, path: str = "", bucket: str = "") -> Failure:
    """
    What to tell about an error, with a hint at what to do.

    `name` is what the command was about; `path` and `bucket` are the words that name it again in a
    command, where there are such.
    """
    code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), ExitCode.FAILED)
    match error:
        case Unreachable():
            hint = "is the server running? start one with: tailrace serve"
            return Failure(f"cannot reach {error.url}: {error.reason}", code, hint)
        case AnswerInvalid():
            hint = "is this the URL of a server of durable streams?"
            return Failure(f"{error.url}: {error.reason}", code, hint)
        case Refused():
            reason = _reason(error, path) or error.detail or "the server gave no reason"
            hint = _hint(error, path, bucket)
            return Failure(f"{name}: {reason} ({error.status})", code, hint)
    return Failure(f"{name}: {error}", code)


def _reason(error: Refused, path: str) -> str:
    """In our own words, where the server has none: an answer to HEAD has no body."""
    match error:
        case ProducerReused():
            return "this producer id was used in this epoch before"
        case NotFound() if not error.detail:
            return "no such stream" if path else "no such bucket"
        case Unauthorized() if not error.detail:
            return "not authorized"
    return ""


def _hint(error: Refused, path: str, bucket: str) -> str:
    place = f"{path} -b {bucket}" if bucket else path
    match error:
        case NotFound():
            if error.code == "snapshot-not-found":
                return f"publish one: tailrace snapshot put {place} --offset OFFSET FILE"
            if error.code == "bucket-not-found" or not path:
                return f"create it first: tailrace bucket create {bucket}"
            return f"create it first: tailrace create {place}"
        case StreamClosed():
            return "a closed stream takes no more: append to another one"
        case ProducerReused():
            return "use a higher --epoch, or leave it out: the next one is then taken"
        case Conflict():
            return _conflict_hint(error.code, place, bucket)
        case ProducerFenced():
            return f"another run took this id over; take it back: --epoch {(error.epoch or 0) + 1}"
        case Unauthorized():
            return "send a token: --header 'Authorization: Bearer …'"
        case OffsetGone():
            earliest = error.earliest_offset
            start = f"tailrace bootstrap {place}" if bucket else ""
            read = f"--offset {earliest}" if earliest else ""
            return "what is still there: " + ", or ".join(filter(None, (start, read)))
    return ""


def _conflict_hint(code: str | None, place: str, bucket: str) -> str:
    match code:
        case "stream-exists" | "content-type-mismatch":
            return f"what is there: tailrace head {place}"
        case "bucket-not-empty":
            return f"remove its streams first: tailrace ls {bucket}"
        case "snapshot-conflict":
            return "publish at a later offset"
    return ""

"""Messages and hints for errors of the client, in terms of the command that was run."""

from typing import TYPE_CHECKING

from tailrace.cli.failures import Failure
from tailrace.client import (
    AnswerInvalid,
    Conflict,
    NotFound,
    OffsetGone,
    ProducerFenced,
    ProducerReused,
    Refused,
    TailraceError,
    Unauthorized,
    Unreachable,
)

if TYPE_CHECKING:
    from tailrace.cli.connection import Location

__all__ = ["failure_for"]


def failure_for(error: TailraceError, location: "Location", missing: str | None = None) -> Failure:
    """
    The failure to report for an error.

    `missing` is the hint for a location that does not exist: by default how to create it, and none
    if it is empty.
    """
    hint = error.hint
    match error:
        case Unreachable():
            message = f"cannot reach {error.url}: {error.reason}"
        case AnswerInvalid():
            message = str(error)
        case Refused():
            reason = _reason(error, location) or error.detail or "the server refused it"
            message = f"{location.name}: {reason} ({error.status})"
            hint = hint or _hint(error, location, missing)
        case _:
            message = f"{location.name}: {error}"
    return Failure(message, error.exit_code, hint)


def _reason(error: Refused, location: "Location") -> str:
    """The reason in the command's terms; empty where that of the server is better."""
    match error:
        case ProducerReused():
            return "this producer id was used in this epoch before"
        case NotFound(code="bucket-not-found"):
            return "no such bucket"
        case NotFound(code="fork-source-not-found"):
            return "no such stream"
        case NotFound() if error.code == "stream-not-found" or not error.detail:
            return "no such stream" if location.path else "no such bucket"
        case Unauthorized() if not error.detail:
            return "not authorized"
        case Conflict(code="bucket-not-empty"):
            return "the bucket contains streams"
    if 300 <= error.status < 400:
        return f"the server redirects to {error.headers.get('location', 'an unknown URL')}"
    return ""


def _hint(error: Refused, location: "Location", missing: str | None) -> str:
    match error:
        case NotFound():
            return _missing_hint(error.code, location, missing)
        case Conflict(code="stream-exists" | "content-type-mismatch"):
            return f"see the existing stream: {location.command('head')}"
        case Conflict(code="bucket-exists"):
            return "to accept an existing bucket, use --exist-ok"
        case Conflict(code="bucket-not-empty"):
            return f"delete its streams first: {location.bucket_command('ls')}"
        case Conflict(code="snapshot-conflict"):
            return "publish at a later offset"
        case ProducerFenced():
            epoch = (error.epoch or 0) + 1
            return f"another process uses this producer id; to take it back: --epoch {epoch}"
        case Unauthorized():
            # A 403 is for a token that was sent.
            return "send a token: --token, or TAILRACE_TOKEN" if error.status == 401 else ""
        case OffsetGone():
            in_bucket = location.path and location.bucket
            bootstrap = location.command("bootstrap") if in_bucket else ""
            offset = f"--offset {error.earliest_offset}" if error.earliest_offset else ""
            return "read what is retained: " + ", or ".join(filter(None, (bootstrap, offset)))
    return "use the new URL: --url" if 300 <= error.status < 400 else ""


def _missing_hint(code: str | None, location: "Location", missing: str | None) -> str:
    if missing == "":
        return ""
    if code == "snapshot-not-found":
        put = location.command("snapshot put", "--offset", "OFFSET", file="FILE")
        return f"publish one: {put}"
    if code == "bucket-not-found" or not location.path:
        return f"create it first: {location.bucket_command('bucket create')}"
    return missing or f"create it first: {location.command('create')}"

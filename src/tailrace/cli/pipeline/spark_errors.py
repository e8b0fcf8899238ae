"""
What failed, behind all that Spark wraps around it.

An error of a task arrives as text: Java's stack, and somewhere in it Python's. Its last line names
the class and what it said. Classes of ours have the exit codes that they have everywhere.
"""

import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any, Final

from tailrace.cli.error_messages import Subject, explain
from tailrace.cli.failures import ExitCode, Failure
from tailrace.client import (
    AnswerInvalid,
    Conflict,
    NotFound,
    OffsetGone,
    ProducerFenced,
    Refused,
    Unauthorized,
    Unreachable,
)

__all__ = ["Cause", "cause_in", "failure_of"]

_TRACEBACK: Final = "Traceback (most recent call last):"
_LAST_LINE: Final = re.compile(r"^(?P<kind>[A-Za-z_][\w.]*)(?:: (?P<text>.*))?$")
_CODES: Final = {
    NotFound: ExitCode.NOT_FOUND,
    Conflict: ExitCode.CONFLICT,
    ProducerFenced: ExitCode.CONFLICT,
    Unreachable: ExitCode.UNREACHABLE,
    Unauthorized: ExitCode.UNAUTHORIZED,
    OffsetGone: ExitCode.GONE,
}
# By name: these are of modules that need Spark's libraries.
_CODES_BY_NAME: Final = {
    **dict.fromkeys(
        ("FoldInvalid", "FormatUnknown", "OptionInvalid", "PathAwkward", "PathUnsupported"),
        ExitCode.USAGE,
    ),
    **dict.fromkeys(
        ("BucketMissing", "StreamMissing", "StreamVanished", "TableMissing"), ExitCode.NOT_FOUND
    ),
    **dict.fromkeys(
        (
            *("BatchDiffers", "CheckpointTaken", "SchemaConflict", "SourceChanged", "SourceTaken"),
            *("TableBusy", "TableMismatch", "TableShared", "MirrorChanged", "ReplayChanged"),
            *("ReplayAmbiguous", "SchemaInexact"),
            *("SinkClosed", "SinkFenced", "SinkGap", "TypeConflict"),
        ),
        ExitCode.CONFLICT,
    ),
    "SinkUnauthorized": ExitCode.UNAUTHORIZED,
    **dict.fromkeys(("MessagesGone", "StreamGone", "StreamReplaced"), ExitCode.GONE),
}
_VERBOSE: Final = "see all that Spark says: --verbose"


class Cause:
    """A Python error that was told in a text."""

    def __init__(self, kind: str, text: str) -> None:
        self.kind = kind
        self.text = text

    @property
    def name(self) -> str:
        return self.kind.rpartition(".")[2]

    @property
    def is_ours(self) -> bool:
        return self.kind.startswith("tailrace.")

    def type(self) -> type[Any] | None:
        """The class, if it is one of ours."""
        module, _, name = self.kind.rpartition(".")
        if not self.is_ours:
            return None
        try:
            found = getattr(import_module(module), name)
        except (ImportError, AttributeError):
            return None
        return found if isinstance(found, type) else None


def failure_of(error: Exception, subject: str) -> Failure:
    """What to tell of an error of a job."""
    if isinstance(error, Refused | Unreachable | AnswerInvalid):
        return explain(error, Subject(subject, "", subject, (), missing=""))
    kind = type(error)
    if kind.__module__.startswith("tailrace."):
        return _told(Cause(f"{kind.__module__}.{kind.__qualname__}", str(error)))
    for text in _texts(error):
        if (cause := cause_in(text)) is not None:
            return _told(cause)
    said = next((line.strip() for line in str(error).splitlines() if line.strip()), kind.__name__)
    return Failure(said, hint=_VERBOSE)


def _texts(error: BaseException) -> Iterator[str]:
    """All that an error of Spark says of itself, the innermost last."""
    seen: BaseException | None = error
    while seen is not None:
        yield str(seen)
        for name in ("_stackTrace", "stackTrace"):
            if isinstance(text := getattr(seen, name, None), str):
                yield text
        inner = getattr(seen, "cause", None) or getattr(seen, "_cause", None)
        seen = inner if isinstance(inner, BaseException) else seen.__cause__
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while java is not None:
        yield str(java.toString())
        java = java.getCause()


def cause_in(text: str) -> Cause | None:
    """The last Python error that a text tells of."""
    _, mark, rest = text.rpartition(_TRACEBACK)
    if not mark:
        return None
    for line in rest.splitlines():
        if line and not line[0].isspace() and (found := _LAST_LINE.match(line)):
            return Cause(found["kind"], (found["text"] or "").strip())
    return None


def _told(cause: Cause) -> Failure:
    if not cause.is_ours:
        return Failure(f"{cause.name}: {cause.text}" if cause.text else cause.name, hint=_VERBOSE)
    kind = cause.type() or Exception
    known = (code for base, code in _CODES.items() if issubclass(kind, base))
    code = _CODES_BY_NAME.get(cause.name) or next(known, ExitCode.FAILED)
    hint = "is the server running?" if code is ExitCode.UNREACHABLE else ""
    return Failure(cause.text or cause.name, code, hint)

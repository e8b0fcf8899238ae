"""
The cause of an error that Spark raises.

An error in a task arrives as text: a Java stack trace that contains a Python traceback. The last
line of the traceback has the class and its message, and the class has the exit code.
"""

import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any, Final, NamedTuple

from tailrace.cli.connection import Location
from tailrace.cli.error_messages import failure_for
from tailrace.cli.failures import Failure
from tailrace.client import AnswerInvalid, Refused, Unreachable
from tailrace.exceptions import TailraceError

__all__ = ["PythonError", "find_python_error", "job_failure"]

_TRACEBACK: Final = "Traceback (most recent call last):"
_LAST_LINE: Final = re.compile(r"^(?P<kind>[A-Za-z_][\w.]*)(?:: (?P<text>.*))?$")
_PACKAGE: Final = "tailrace."
_VERBOSE: Final = "to see the output of Spark, use --verbose"


class PythonError(NamedTuple):
    """A Python error in a text."""

    kind: str
    """Its class, with the module."""
    message: str


def job_failure(error: Exception, location: Location) -> Failure:
    """The failure to report for an error of a job."""
    if isinstance(error, Refused | Unreachable | AnswerInvalid):
        return failure_for(error, location, missing="")
    kind = type(error)
    if kind.__module__.startswith(_PACKAGE):
        return _tailrace_failure(kind, str(error))
    for text in _texts(error):
        if (cause := find_python_error(text)) is not None:
            return _cause_failure(cause)
    lines = (line.strip() for line in str(error).splitlines())
    return Failure(next(filter(None, lines), kind.__name__), hint=_VERBOSE)


def _texts(error: BaseException) -> Iterator[str]:
    """All texts of an error of Spark, the innermost last."""
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


def find_python_error(text: str) -> PythonError | None:
    """The last Python error in a text."""
    _, found, rest = text.rpartition(_TRACEBACK)
    if not found:
        return None
    for line in rest.splitlines():
        if line and not line[0].isspace() and (match := _LAST_LINE.match(line)):
            return PythonError(match["kind"], (match["text"] or "").strip())
    return None


def _cause_failure(cause: PythonError) -> Failure:
    module, _, name = cause.kind.rpartition(".")
    if not cause.kind.startswith(_PACKAGE):
        return Failure(f"{name}: {cause.message}" if cause.message else name, hint=_VERBOSE)
    try:
        kind = getattr(import_module(module), name)
    except (ImportError, AttributeError):
        kind = Exception
    return _tailrace_failure(kind, cause.message or name)


def _tailrace_failure(kind: Any, message: str) -> Failure:
    if isinstance(kind, type) and issubclass(kind, TailraceError):
        return Failure(message, kind.exit_code, kind.hint)
    return Failure(message)

"""
The errors of a read: a stream that cannot be read, and data that is missing.

Missing data ends a query, unless `failOnDataLoss` is false.
"""

from typing import Final

from tailrace.exceptions import ExitCode, TailraceError
from tailrace.spark.options import ReadOptions

__all__ = [
    "DataLost",
    "MessagesGone",
    "SourceFailed",
    "StreamGone",
    "StreamReplaced",
    "report_loss",
]

_HINT: Final = (
    "Set failOnDataLoss=false to continue with the remaining data, or start again with another "
    "checkpoint."
)


class SourceFailed(TailraceError):
    """A stream cannot be read, although nothing is missing."""

    message = "stream {stream!r} cannot be read: {detail}"
    stream: str
    detail: str


class DataLost(TailraceError):
    """Messages that this query had not read yet are gone."""

    message = "stream {stream!r} is gone. " + _HINT
    exit_code = ExitCode.GONE
    stream: str
    offset: str


class StreamGone(DataLost):
    """404: the stream was deleted, or has expired."""

    message = (
        "stream {stream!r} was read up to {offset} and does not exist any more "
        "(deleted, or expired). " + _HINT
    )


class StreamReplaced(DataLost):
    """The stream was deleted and created again: the query's offsets are of the old one."""

    message = (
        "stream {stream!r} was read up to {offset}; then it was deleted and created again. " + _HINT
    )


class MessagesGone(DataLost):
    """410: a snapshot covers the next messages."""

    message = (
        "stream {stream!r} has no messages from {offset} on: a snapshot covers them "
        "(bootstrap=true reads it). " + _HINT
    )


def report_loss(options: ReadOptions, lost: DataLost) -> None:
    """Raise an error about missing data, unless `failOnDataLoss` is false."""
    if options.fail_on_data_loss:
        raise lost from None

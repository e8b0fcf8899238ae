"""What was to be read and is not there: ends a query, unless `failOnDataLoss` is false."""

from typing import Final

__all__ = ["DataLost", "MessagesGone", "SourceFailed", "StreamGone", "StreamReplaced"]

_HINT: Final = (
    "Set failOnDataLoss=false to go on with what there is, or start anew with another checkpoint"
)


class SourceFailed(Exception):
    """A stream cannot be read, and not because something is gone."""

    def __init__(self, stream: str, detail: str) -> None:
        super().__init__(stream, detail)
        self.stream = stream
        self.detail = detail

    def __str__(self) -> str:
        return f"stream {self.stream!r} cannot be read: {self.detail}"


class DataLost(Exception):
    """Messages that this query had not read yet are gone."""

    def __init__(self, stream: str, offset: str) -> None:
        super().__init__(stream, offset)
        self.stream = stream
        self.offset = offset

    def _what(self) -> str:
        return "is gone"

    def __str__(self) -> str:
        return f"stream {self.stream!r} {self._what()}. {_HINT}."


class StreamGone(DataLost):
    """404: the stream was deleted, or has expired."""

    def _what(self) -> str:
        return f"was read up to {self.offset} and is not there any more (deleted, or expired)"


class StreamReplaced(DataLost):
    """The stream was deleted and created again: its offsets are of another one."""

    def _what(self) -> str:
        return f"was read up to {self.offset}; then it was deleted and created again"


class MessagesGone(DataLost):
    """410: a snapshot covers what was to be read next."""

    def _what(self) -> str:
        return (
            f"has no messages from {self.offset} on: a snapshot covers them "
            "(bootstrap=true would read that)"
        )

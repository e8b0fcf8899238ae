"""
Where output goes, and so what it looks like: readable on a terminal, plain in a pipe.

Bytes are written as they are, texts as UTF-8: what a pipe gets does not depend on a locale.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

import click

from tailrace.cli.failures import ExitCode, Failure, one_line
from tailrace.protocol.content_type import essence, is_json, is_text
from tailrace.protocol.errors import ContentTypeInvalid

__all__ = [
    "Output",
    "age",
    "as_json",
    "counted",
    "fields_of",
    "human_bytes",
    "json_type",
    "on_terminal",
    "report",
    "short_type",
    "table",
    "text_type",
]

_STEP: Final = 1024
_LOOK_BYTES: Final = 4096


def on_terminal() -> bool:
    """Whether somebody looks at what is printed."""
    return sys.stdout.isatty()


class Output:
    """Standard output, for bytes."""

    def __init__(self, content_type: str = "text/plain", *, force: bool = False) -> None:
        self.terminal = on_terminal()
        self._careful = self.terminal and not force and not text_type(content_type)
        self._file = sys.stdout.buffer
        self._last = b"\n"

    def write(self, data: bytes) -> None:
        """
        Write bytes.

        Raises:
            Failure: They would upset the terminal.
        """
        if not data:
            return
        if self._careful and _is_binary(data):
            raise Failure(
                "this is binary, and could upset your terminal",
                ExitCode.USAGE,
                "write it to a file, pipe it to xxd, or insist with --force",
            )
        self._file.write(data)
        self._last = data[-1:]

    def line(self, data: bytes) -> None:
        self._file.write(data + b"\n")

    def json(self, value: Any) -> None:
        self.line(as_json(value))

    def flush(self) -> None:
        self._file.flush()

    def finish(self) -> None:
        """On a terminal the prompt goes on a line of its own."""
        if self.terminal and self._last != b"\n":
            self._file.write(b"\n")
        self.flush()


def _is_binary(data: bytes) -> bool:
    head = data[:_LOOK_BYTES]
    return any(byte < 32 and byte not in b"\t\n\r\x1b" for byte in head)


def text_type(content_type: str) -> bool:
    """Whether a stream of this type is text."""
    try:
        return is_text(content_type)
    except ContentTypeInvalid:
        return False


def json_type(content_type: str) -> bool:
    """Whether a stream of this type has messages of JSON."""
    try:
        return is_json(content_type)
    except ContentTypeInvalid:
        return False


def short_type(content_type: str) -> str:
    """Without its parameters."""
    try:
        return essence(content_type)
    except ContentTypeInvalid:
        return content_type


def as_json(value: Any) -> bytes:
    """One line of JSON."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace")


def fields_of(value: Any) -> dict[str, Any]:
    """What is known of something: its fields that have a value."""
    return {name: field for name, field in asdict(value).items() if field is not None}


def report(text: str) -> None:
    """Say what was done, to somebody who looks; a script has the exit code."""
    if on_terminal():
        click.echo(one_line(text))


def counted(count: int) -> str:
    """So many messages."""
    return "1 message" if count == 1 else f"{count:,} messages"


def table(rows: Iterable[Sequence[str]], widths: list[int]) -> Iterable[str]:
    """Rows in columns; `widths` is kept, so that further rows can go below these."""
    found = [[one_line(cell) for cell in row] for row in rows]
    for row in found:
        widths[:] = [max(*pair) for pair in zip(widths, map(len, row), strict=True)]
    for row in found:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


def human_bytes(size: float) -> str:
    """1536 is 1.5 KiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < _STEP:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= _STEP
    return f"{size:.1f} TiB"


def age(then_ms: int, now: datetime | None = None) -> str:
    """How long ago, in its largest unit."""
    moment = now or datetime.now(UTC)
    seconds = max(0, int(moment.timestamp() - then_ms / 1000))
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds // length}{unit} ago"
    return f"{seconds}s ago"

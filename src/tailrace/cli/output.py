"""
Standard output: readable on a terminal, plain in a pipe.

Bytes are written unchanged and text as UTF-8, whatever the locale is.
"""

import json
import re
import select
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

import click

from tailrace.cli.failures import Failure, one_line
from tailrace.cli.stdio import OutputEnded, discard
from tailrace.exceptions import ExitCode
from tailrace.protocol.content_type import essence, is_json, is_text
from tailrace.protocol.errors import ContentTypeInvalid

__all__ = [
    "Output",
    "age",
    "as_json",
    "counted",
    "fields_of",
    "flush_output",
    "force_option",
    "human_bytes",
    "json_type",
    "on_terminal",
    "output_errors",
    "print_lines",
    "report",
    "short_type",
    "table",
    "text_type",
    "visible",
]

_STEP: Final = 1024
# Except tabs and line ends. Those above 127 are two bytes in UTF-8.
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]")
_C1_PREFIX: Final = b"\xc2"

force_option = click.option(
    "--force",
    is_flag=True,
    help="Print binary data and control characters to a terminal unchanged.",
)


def on_terminal() -> bool:
    return sys.stdout.isatty()


class Output:
    """
    Standard output, for bytes.

    On a terminal, control characters in text are shown (^[) and binary data is refused, unless
    `force` is true.
    """

    def __init__(
        self, content_type: str = "text/plain", *, force: bool = False, forcible: bool = True
    ) -> None:
        self.terminal = on_terminal()
        self._filters = self.terminal and not force
        self._is_text = text_type(content_type)
        self._forcible = forcible
        self._file = sys.stdout.buffer
        self._held = b""
        self._last = b"\n"

    def write(self, data: bytes) -> None:
        """
        Write bytes.

        Raises:
            Failure: They are binary and this is a terminal, or they cannot be written.
            OutputEnded: The reader has left.
        """
        if self._filters:
            data = self._filtered(data)
        if data:
            self._put(data)
            self._last = data[-1:]

    def line(self, data: bytes | str) -> None:
        if isinstance(data, str):
            data = data.encode("utf-8", "backslashreplace")
        self._put((visible(data) if self._filters else data) + b"\n")

    def flush(self) -> None:
        flush_output()

    def finish(self) -> None:
        """Flush. On a terminal, end the last line, so that the prompt begins a new one."""
        self._put(self._held)
        if self.terminal and self._last != b"\n":
            self._put(b"\n")
        self.flush()

    def _filtered(self, data: bytes) -> bytes:
        if self._is_text:
            # The two bytes of a control character may come in two writes.
            data = self._held + data
            self._held = data[-1:] if data.endswith(_C1_PREFIX) else b""
            return visible(data.removesuffix(_C1_PREFIX))
        if _CONTROL.search(data):
            force = ", or use --force" if self._forcible else ""
            raise Failure(
                "the data is binary and is not printed to a terminal",
                ExitCode.USAGE,
                f"write it to a file, or pipe it to xxd{force}",
            )
        return data

    def _put(self, data: bytes) -> None:
        """Write all of it; an unbuffered write (PYTHONUNBUFFERED) may be partial."""
        left = memoryview(data)
        with output_errors():
            while left:
                try:
                    taken = self._file.write(left) or 0
                except BlockingIOError as error:
                    taken = error.characters_written
                left = left[taken:]
                if left:
                    _wait()


def _wait() -> None:
    """Wait until a non-blocking pipe accepts more."""
    select.select([], [sys.stdout.fileno()], [])


@contextmanager
def output_errors() -> Iterator[None]:
    """Raise errors of standard output as `Output.write` does, and discard later output."""
    try:
        yield
    except BrokenPipeError as error:
        discard(sys.stdout)
        raise OutputEnded from error
    except OSError as error:
        discard(sys.stdout)
        raise Failure(f"standard output: {error.strerror or error}") from error


def flush_output() -> None:
    """Flush standard output; errors are those of `Output.write`."""
    with output_errors():
        while True:
            try:
                sys.stdout.flush()
            except BlockingIOError:
                _wait()
            else:
                return


def visible(data: bytes) -> bytes:
    """Text with visible control characters: ^[ for an escape."""
    return _CONTROL.sub(_caret, data)


def _caret(found: "re.Match[bytes]") -> bytes:
    code = found[0][-1]
    return b"M-^%c" % (code - 64) if code >= 128 else b"^%c" % (code ^ 64)


def _valid(check: Callable[[str], bool], content_type: str) -> bool:
    try:
        return check(content_type)
    except ContentTypeInvalid:
        return False


def text_type(content_type: str) -> bool:
    """Whether a stream of this type is text."""
    return _valid(is_text, content_type)


def json_type(content_type: str) -> bool:
    """Whether a stream of this type has JSON messages."""
    return _valid(is_json, content_type)


def short_type(content_type: str) -> str:
    """A content type without its parameters."""
    try:
        return essence(content_type)
    except ContentTypeInvalid:
        return content_type


def as_json(value: Any) -> bytes:
    """A value as one line of JSON."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace")


def fields_of(value: Any) -> dict[str, Any]:
    """The fields of a dataclass that are not None."""
    return {name: field for name, field in asdict(value).items() if field is not None}


def report(text: str) -> None:
    """Print a result to a terminal only; scripts use the exit code."""
    if on_terminal():
        print_lines(one_line(text))


def print_lines(*lines: bytes | str) -> None:
    """Print lines, and flush them."""
    output = Output()
    for line in lines:
        output.line(line)
    output.flush()


def counted(count: int, what: str = "message") -> str:
    """A number with its unit: "1 message", "2,000 messages"."""
    return f"1 {what}" if count == 1 else f"{count:,} {what}s"


def table(rows: Iterable[Sequence[str]], widths: list[int]) -> Iterable[str]:
    """Rows in columns; updates `widths`, so that later rows line up with these."""
    cells = [[one_line(cell) for cell in row] for row in rows]
    for row in cells:
        widths[:] = [max(*pair) for pair in zip(widths, map(len, row), strict=True)]
    for row in cells:
        padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(padded).rstrip()


def human_bytes(size: float) -> str:
    """A size in its largest unit: 1536 is 1.5 KiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < _STEP:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= _STEP
    return f"{size:.1f} TiB"


def age(then_ms: int, now: datetime | None = None) -> str:
    """The time since then in its largest unit: 2h ago."""
    moment = now or datetime.now(UTC)
    seconds = max(0, int(moment.timestamp() - then_ms / 1000))
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds // length}{unit} ago"
    return f"{seconds}s ago"

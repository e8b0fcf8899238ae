"""
Where output goes, and so what it looks like: readable on a terminal, plain in a pipe.

Bytes are written as they are, texts as UTF-8: what a pipe gets does not depend on a locale.
"""

import json
import re
import select
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

from tailrace.cli.failures import ExitCode, Failure, one_line
from tailrace.cli.stdio import OutputEnded, forget
from tailrace.protocol.content_type import essence, is_json, is_text
from tailrace.protocol.errors import ContentTypeInvalid

__all__ = [
    "Output",
    "age",
    "as_json",
    "counted",
    "fields_of",
    "flush_output",
    "human_bytes",
    "json_type",
    "on_terminal",
    "output_errors",
    "report",
    "short_type",
    "table",
    "text_type",
    "visible",
]

_STEP: Final = 1024
# All but the ends of lines and tabs; those above 127 are two bytes in UTF-8.
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]")
_C1_MARK: Final = b"\xc2"


def on_terminal() -> bool:
    """Whether somebody looks at what is printed."""
    return sys.stdout.isatty()


class Output:
    """
    Standard output, for bytes.

    On a terminal it lets nothing through that plays with it, unless that is insisted on: of texts
    controls are shown (^[), and what is binary is refused.
    """

    def __init__(
        self, content_type: str = "text/plain", *, force: bool = False, forcible: bool = True
    ) -> None:
        self.terminal = on_terminal()
        self._careful = self.terminal and not force
        self._is_text = text_type(content_type)
        self._forcible = forcible
        self._file = sys.stdout.buffer
        self._held = b""
        self._last = b"\n"

    def write(self, data: bytes) -> None:
        """
        Write bytes.

        Raises:
            Failure: They would upset the terminal; or it cannot be written.
            OutputEnded: Nobody reads it any more.
        """
        if self._careful:
            data = self._tamed(data)
        if data:
            self._put(data)
            self._last = data[-1:]

    def line(self, data: bytes) -> None:
        self._put((visible(data) if self._careful else data) + b"\n")

    def json(self, value: Any) -> None:
        self.line(as_json(value))

    def flush(self) -> None:
        flush_output()

    def finish(self) -> None:
        """On a terminal the prompt goes on a line of its own."""
        self._put(self._held)
        if self.terminal and self._last != b"\n":
            self._put(b"\n")
        self.flush()

    def _tamed(self, data: bytes) -> bytes:
        if self._is_text:
            # A control of two bytes may come in two pieces.
            data = self._held + data
            self._held = data[-1:] if data.endswith(_C1_MARK) else b""
            return visible(data.removesuffix(_C1_MARK))
        if _CONTROL.search(data):
            insist = ", or insist with --force" if self._forcible else ""
            raise Failure(
                "this is binary, and could upset your terminal",
                ExitCode.USAGE,
                f"write it to a file, or pipe it to xxd{insist}",
            )
        return data

    def _put(self, data: bytes) -> None:
        """All of it: without a buffer (PYTHONUNBUFFERED) a write may take less than it is given."""
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
    """Until a pipe that does not block takes more."""
    select.select([], [sys.stdout.fileno()], [])


@contextmanager
def output_errors() -> Iterator[None]:
    """
    What goes wrong with standard output; after it, output goes nowhere.

    Raises:
        Failure, OutputEnded: As `Output.write` does.
    """
    try:
        yield
    except BrokenPipeError as error:
        forget(sys.stdout)
        raise OutputEnded from error
    except OSError as error:
        forget(sys.stdout)
        raise Failure(f"standard output: {error.strerror or error}") from error


def flush_output() -> None:
    """
    Let go of all that is written.

    Raises:
        Failure, OutputEnded: As `Output.write` does.
    """
    with output_errors():
        while True:
            try:
                sys.stdout.flush()
            except BlockingIOError:
                _wait()
            else:
                return


def visible(data: bytes) -> bytes:
    """Text whose controls are shown, and not obeyed: ^[ for an escape."""
    return _CONTROL.sub(_caret, data)


def _caret(found: "re.Match[bytes]") -> bytes:
    code = found[0][-1]
    return b"M-^%c" % (code - 64) if code >= 128 else b"^%c" % (code ^ 64)


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
        output = Output()
        output.line(one_line(text).encode())
        output.flush()


def counted(count: int, what: str = "message") -> str:
    """So many messages."""
    return f"1 {what}" if count == 1 else f"{count:,} {what}s"


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

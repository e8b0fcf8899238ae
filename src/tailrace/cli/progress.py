"""How far a long command is: a bar on a terminal, lines where they were asked for elsewhere."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

import click

from tailrace.cli.output import counted, human_bytes
from tailrace.cli.stdio import columns, tell

__all__ = ["Progress", "progress_option", "shown"]

_LINE_EVERY_S: Final = 1.0
_BAR_EVERY_S: Final = 0.1
_BAR_WIDTH: Final = 20

progress_option = click.option(
    "--progress/--no-progress",
    default=None,
    help="Tell on standard error how far it is.  [default: on a terminal]",
)


class Progress:
    """Counts bytes and messages; this one tells nobody."""

    def __init__(self, label: str, total: int | None) -> None:
        self.label = label
        self.total = total
        self.bytes = 0
        self.messages = 0
        self._started = time.monotonic()

    def advance(self, size: int, messages: int = 1) -> None:
        self.bytes += size
        self.messages += messages

    def text(self) -> str:
        """What there is to say."""
        return ", ".join(self.parts())

    def parts(self) -> list[str]:
        """What there is to say, the most important first."""
        of_total = "" if self.total is None else f" of {human_bytes(self.total)}"
        rate = f"{human_bytes(self.bytes / self.elapsed_s)}/s"
        messages = [counted(self.messages)] if self.messages else []
        return [f"{human_bytes(self.bytes)}{of_total}", *messages, rate]

    @property
    def elapsed_s(self) -> float:
        return max(time.monotonic() - self._started, 0.001)


class _Bar(Progress):
    """As a bar, on one line of a terminal, of which it is never wider."""

    def __init__(self, label: str, total: int | None) -> None:
        super().__init__(label, total)
        self._next = 0.0

    def advance(self, size: int, messages: int = 1) -> None:
        super().advance(size, messages)
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _BAR_EVERY_S
            self.tell()

    def tell(self, end: str = "") -> None:
        # The last column is left free: some terminals begin a new line there.
        room = columns(sys.stderr) - 1
        tell(f"\r{self.line(room)}\x1b[K", end)

    def line(self, room: int) -> str:
        """As much as there is room for."""
        line = self.label
        for part in (*self._bar(), self.text(), *self.parts()[:1]):
            if len(line) + 2 + len(part) <= room and part not in line:
                line += "  " + part
        return line[:room]

    def _bar(self) -> list[str]:
        if not self.total:
            return []
        share = min(self.bytes / self.total, 1.0)
        left_s = self.elapsed_s * (1 - share) / share if share else 0.0
        done = int(share * _BAR_WIDTH)
        left = f"{timedelta(seconds=int(left_s))} left" if 0 < share < 1 else ""
        bar = "#" * done + "-" * (_BAR_WIDTH - done)
        return [f"{share:4.0%}", f"[{bar}]", *filter(None, [left])]


class _Lines(Progress):
    """A line now and then, for logs."""

    def __init__(self, label: str, total: int | None) -> None:
        super().__init__(label, total)
        self._next = time.monotonic() + _LINE_EVERY_S

    def advance(self, size: int, messages: int = 1) -> None:
        super().advance(size, messages)
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _LINE_EVERY_S
            self.tell()

    def tell(self) -> None:
        tell(f"{self.label}: {self.text()}")


@contextmanager
def shown(label: str, total: int | None, wanted: bool | None) -> Iterator[Progress]:
    """Progress as it is wanted; by default, if somebody looks."""
    terminal = sys.stderr.isatty()
    if wanted is False or (wanted is None and not terminal):
        yield Progress(label, total)
        return
    if terminal and os.environ.get("TERM", "dumb") != "dumb":
        bar = _Bar(label, total)
        try:
            yield bar
        finally:
            bar.tell("\n")
    else:
        lines = _Lines(label, total)
        try:
            yield lines
        finally:
            lines.tell()

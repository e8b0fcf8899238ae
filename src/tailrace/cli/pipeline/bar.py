"""How far a job is, in messages: a bar on a terminal, lines where they were asked for elsewhere."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

from tailrace.cli.output import counted
from tailrace.cli.stdio import columns, tell

__all__ = ["Bar", "Messages", "shown_messages"]

_LINE_EVERY_S: Final = 2.0
_BAR_WIDTH: Final = 20


class Messages:
    """Messages done, against messages to do; this one tells nobody."""

    def __init__(
        self, label: str, total: int | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.label = label
        self.total = total
        self.done = 0
        self._clock = clock
        # Of the work itself: Spark takes its time to start.
        self._started: float | None = None

    def __call__(self, done: int) -> None:
        """So many are done now."""
        if self._started is None:
            self._started = self._clock()
        self.done = max(self.done, done)

    def parts(self) -> list[str]:
        """What there is to say, the most important first."""
        if self._started is None:
            return ["starting Spark"]
        of_total = f"{self.done:,} of {counted(self.total)}" if self.total else counted(self.done)
        return [of_total, f"{self.rate:,.0f}/s"]

    @property
    def rate(self) -> float:
        started = self._clock() if self._started is None else self._started
        return self.done / max(self._clock() - started, 0.001)

    @property
    def share(self) -> float:
        return min(self.done / self.total, 1.0) if self.total else 0.0

    @property
    def left(self) -> str:
        """How long it will take, if that can be told."""
        if not self.total or not 0 < self.share < 1:
            return ""
        return f"{timedelta(seconds=round((self.total - self.done) / self.rate))} left"


class Bar(Messages):
    """On one line of a terminal, of which it is never wider."""

    def __call__(self, done: int) -> None:
        super().__call__(done)
        self.tell()

    def tell(self, end: str = "") -> None:
        # The last column is left free: some terminals begin a new line there.
        tell(f"\r{self.line(columns(sys.stderr) - 1)}\x1b[K", end)

    def line(self, room: int) -> str:
        """As much as there is room for."""
        line = self.label
        filled = int(self.share * _BAR_WIDTH)
        bar = f"[{'#' * filled}{'-' * (_BAR_WIDTH - filled)}]"
        known = [f"{self.share:4.0%}", bar] if self.total else []
        for part in (*known, self.left, ", ".join(self.parts())):
            if part and len(line) + 2 + len(part) <= room:
                line += "  " + part
        return line[:room]


class _Lines(Messages):
    """A line now and then, for logs."""

    def __init__(
        self, label: str, total: int | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(label, total, clock)
        self._next = clock() + _LINE_EVERY_S

    def __call__(self, done: int) -> None:
        before = self.done
        super().__call__(done)
        if self._clock() >= self._next and self.done > before:
            self._next = self._clock() + _LINE_EVERY_S
            self.tell()

    def tell(self) -> None:
        tell(f"{self.label}: {', '.join(filter(None, (*self.parts(), self.left)))}")


@contextmanager
def shown_messages(label: str, total: int | None, wanted: bool | None) -> Iterator[Messages]:
    """Progress as it is wanted; by default, if somebody looks."""
    terminal = sys.stderr.isatty()
    if wanted is False or (wanted is None and not terminal):
        yield Messages(label, total)
        return
    told = Bar if terminal and os.environ.get("TERM", "dumb") != "dumb" else _Lines
    shown = told(label, total)
    shown.tell()
    try:
        yield shown
    finally:
        if isinstance(shown, Bar):
            shown.tell("\n")
        else:
            shown.tell()

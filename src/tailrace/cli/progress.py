"""
Progress of a long command, on standard error.

A terminal shows a bar. Elsewhere nothing is shown, or a line now and then if `--progress` is given.
"""

import io
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final, TypeVar, cast

import click

from tailrace.cli.output import counted, human_bytes
from tailrace.cli.signals import exit_on_signals
from tailrace.cli.stdio import print_stderr

__all__ = ["JobProgress", "Progress", "progress_option", "show_progress"]

_LINE_EVERY_S: Final = 1.0
_BAR_EVERY_S: Final = 0.1
_BAR_WIDTH: Final = 20

progress_option = click.option(
    "--progress/--no-progress",
    default=None,
    help="Show progress on standard error.  [default: on a terminal]",
)


class Progress:
    """Counts bytes, and the messages in them."""

    started = True

    def __init__(
        self, label: str, total: int | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.label = label
        self.total = total
        self.bytes = 0
        self.messages = 0
        self.changed: Callable[[], object] = lambda: None
        self._clock = clock
        self._start = clock()

    def advance(self, size: int, messages: int = 0) -> None:
        self.bytes += size
        self.messages += messages
        self.changed()

    @property
    def done(self) -> int:
        return self.bytes

    def text(self) -> str:
        of_total = "" if self.total is None else f" of {human_bytes(self.total)}"
        messages = counted(self.messages) if self.messages else ""
        rate = f"{human_bytes(self._rate)}/s"
        return _joined(f"{human_bytes(self.bytes)}{of_total}", messages, rate, self._time_left)

    @property
    def _rate(self) -> float:
        return self.done / max(self._clock() - self._start, 0.001)

    @property
    def _time_left(self) -> str:
        if not self.total or not 0 < self.done < self.total:
            return ""
        return f"{timedelta(seconds=round((self.total - self.done) / self._rate))} left"


class JobProgress(Progress):
    """Counts messages of a Spark job. Its time starts when Spark has started."""

    started = False

    def __call__(self, done: int) -> None:
        """Set the number of messages; it never decreases."""
        if not self.started:
            self.started = True
            self._start = self._clock()
        self.messages = max(self.messages, done)
        self.changed()

    @property
    def done(self) -> int:
        return self.messages

    def text(self) -> str:
        if not self.started:
            return "starting Spark"
        of_total = f"{self.messages:,} of " if self.total else ""
        count = counted(self.total or self.messages)
        return _joined(f"{of_total}{count}", f"{self._rate:,.0f}/s", self._time_left)


def _joined(*parts: str) -> str:
    return ", ".join(filter(None, parts))


_AnyProgress = TypeVar("_AnyProgress", bound=Progress)


@contextmanager
def show_progress(progress: _AnyProgress, wanted: bool | None) -> Iterator[_AnyProgress]:
    """Show progress while the block runs; `wanted` is the value of `--progress`."""
    is_terminal = sys.stderr.isatty()
    if wanted is False or (wanted is None and not is_terminal):
        yield progress
        return
    shown = _bar if is_terminal and os.environ.get("TERM", "dumb") != "dumb" else _lines
    with shown(progress):
        yield progress


@contextmanager
def _lines(progress: Progress) -> Iterator[None]:
    def show() -> None:
        print_stderr(f"{progress.label}: {progress.text()}")

    if not progress.started:
        show()
    progress.changed = _throttled(show, _LINE_EVERY_S)
    try:
        yield
    finally:
        show()


@contextmanager
def _bar(progress: Progress) -> Iterator[None]:
    # Imported where a bar is shown, because it takes long.
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(_BAR_WIDTH),
        TaskProgressColumn(),
        TextColumn("{task.fields[text]}", markup=False),
    )
    bar = Bar(
        *columns,
        console=Console(file=cast("Any", _StandardError())),
        # Without a thread of its own: nothing is drawn while Spark starts and file 2 is a log.
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    task = bar.add_task(progress.label, total=progress.total, text=progress.text())

    def show() -> None:
        bar.update(task, total=progress.total, completed=progress.done, text=progress.text())
        bar.refresh()

    progress.changed = _throttled(show, _BAR_EVERY_S)
    # The bar hides the cursor: a signal must not leave it hidden.
    with exit_on_signals(), bar:
        try:
            yield
        finally:
            show()


def _throttled(show: Callable[[], None], every_s: float) -> Callable[[], None]:
    due = time.monotonic() + every_s

    def call() -> None:
        nonlocal due
        now = time.monotonic()
        if now >= due:
            due = now + every_s
            show()

    return call


class _StandardError(io.TextIOBase):
    """Standard error for `rich`: a write that fails does not end the command."""

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return sys.stderr.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return sys.stderr.encoding

    def write(self, text: str) -> int:
        print_stderr(text, "")
        return len(text)

"""How far a long command is: a bar on a terminal, lines where they were asked for elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import repeat
from typing import Any, Final

import click

from tailrace.cli.output import counted, human_bytes

__all__ = ["Progress", "progress_option", "shown"]

_LINE_EVERY_S: Final = 1.0
_STEP_BYTES: Final = 64 << 10

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
        elapsed = max(time.monotonic() - self._started, 0.001)
        of_total = "" if self.total is None else f" of {human_bytes(self.total)}"
        done = f"{human_bytes(self.bytes)}{of_total}"
        return f"{done}, {counted(self.messages)}, {human_bytes(self.bytes / elapsed)}/s"


class _Bar(Progress):
    """As a bar."""

    def __init__(self, label: str, total: int | None, bar: Any) -> None:
        super().__init__(label, total)
        self._bar = bar
        bar.item_show_func = lambda _: self.text()

    def advance(self, size: int, messages: int = 1) -> None:
        super().advance(size, messages)
        self._bar.update(size)


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
        click.echo(f"{self.label}: {self.text()}", err=True)


@contextmanager
def shown(label: str, total: int | None, wanted: bool | None) -> Iterator[Progress]:
    """Progress as it is wanted; by default, if somebody looks."""
    terminal = sys.stderr.isatty()
    if wanted is False or (wanted is None and not terminal):
        yield Progress(label, total)
    elif terminal:
        with click.progressbar(
            None if total is not None else repeat(None),
            length=total,
            label=label,
            file=sys.stderr,
            update_min_steps=max(_STEP_BYTES, (total or 0) // 200),
            width=20,
        ) as bar:
            yield _Bar(label, total, bar)
    else:
        lines = _Lines(label, total)
        try:
            yield lines
        finally:
            lines.tell()

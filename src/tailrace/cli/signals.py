"""
Signals that end a command.

SIGINT raises KeyboardInterrupt, which is Python's default. A signal that the parent ignores
(`nohup`, background jobs of a non-interactive shell) stays ignored, as in other Unix tools: Python
installs no handler for SIGINT then, and this module none for the others.
"""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["exit_on_signals"]


@contextmanager
def exit_on_signals() -> Iterator[None]:
    """Have SIGTERM and SIGHUP exit by an exception, so that everything is cleaned up."""

    def stop(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)

    handled = [
        number
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is signal.SIG_DFL
    ]
    for number in handled:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, signal.SIG_DFL)

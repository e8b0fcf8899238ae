"""Signals that ask us to stop."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["ending_on_signals"]


@contextmanager
def ending_on_signals() -> Iterator[None]:
    """What asks us to stop stops us in the usual way: everything is cleaned up first."""

    def stop(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)

    # One that is ignored stays so: nohup.
    asked = [
        number
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is signal.SIG_DFL
    ]
    for number in asked:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in asked:
            signal.signal(number, signal.SIG_DFL)

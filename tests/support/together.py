"""Concurrent actions that lose no failure and do not hang."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

# Not an assertion about speed: a longer wait is a hang.
HANG_S = 60.0

Result = TypeVar("Result")


def together(actions: Sequence[Callable[[], Result]]) -> list[Result]:
    """Run all actions in threads that start at once; returns the results or raises a failure."""
    barrier = threading.Barrier(len(actions))

    def run(action: Callable[[], Result]) -> Result:
        barrier.wait(HANG_S)
        return action()

    with ThreadPoolExecutor(len(actions)) as pool:
        futures = [pool.submit(run, action) for action in actions]
        return [future.result() for future in futures]


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until a condition is true; fail if it never is."""
    end = time.monotonic() + HANG_S
    while not condition():
        assert time.monotonic() < end, "the condition never became true"
        time.sleep(0.01)

"""Doing things at the same time, without losing a failure or waiting for ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

# No assertion about speed: what takes longer will never come.
HANG_S = 60.0

Result = TypeVar("Result")


def together(actions: Sequence[Callable[[], Result]]) -> list[Result]:
    """Run all in threads that start at the same moment; their results, or the first failure."""
    barrier = threading.Barrier(len(actions))

    def run(action: Callable[[], Result]) -> Result:
        barrier.wait(HANG_S)
        return action()

    with ThreadPoolExecutor(len(actions)) as pool:
        futures = [pool.submit(run, action) for action in actions]
        return [future.result() for future in futures]


def wait_until(what: Callable[[], bool]) -> None:
    """Wait until something is so; an error if it never is."""
    end = time.monotonic() + HANG_S
    while not what():
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.01)

"""Run an action in a thread while a block runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeAlias

from tests.support.together import wait_until

__all__ = ["Wait", "alongside"]

Wait: TypeAlias = Callable[[Callable[[], bool]], None]


@contextmanager
def alongside(action: Callable[[Wait], None]) -> Iterator[None]:
    """
    Run `action` in a thread; at the end of the block, wait for it and raise its error.

    The action gets a function that waits for a condition. It fails when the block has ended,
    because the condition can no longer become true.
    """
    ended = threading.Event()

    def wait(condition: Callable[[], bool]) -> None:
        wait_until(lambda: condition() or ended.is_set())
        assert condition(), "the block ended first"

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(action, wait)
        try:
            yield
        finally:
            ended.set()
        future.result()

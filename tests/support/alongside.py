"""One thing in another thread, for as long as a block runs."""

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

    It gets a function to wait for something that the block does. That gives up when the block has
    ended: what did not happen in it never will.
    """
    ended = threading.Event()

    def wait(what: Callable[[], bool]) -> None:
        wait_until(lambda: what() or ended.is_set())
        assert what(), "the block ended before"

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(action, wait)
        try:
            yield
        finally:
            ended.set()
        future.result()

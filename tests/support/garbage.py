"""
Tests that reach the recursion limit run without automatic garbage collection.

A collection that starts inside a decoder near the limit calls finalizers and weak reference
callbacks of unrelated objects, as `WeakSet._remove`. These then raise RecursionError, which pytest
reports as an unraisable exception.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["garbage_collection_disabled"]


@contextmanager
def garbage_collection_disabled() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()

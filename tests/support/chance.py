"""Chance that can be had again: a failed test names its seed, and a variable sets it.

TAILRACE_TEST_SEED=123 pytest tests/crash
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager

SEED_VARIABLE = "TAILRACE_TEST_SEED"


@contextmanager
def seeded(*scope: object) -> Iterator[random.Random]:
    """A random generator for one test; when the test fails, the report ends with the seed."""
    seed = os.environ.get(SEED_VARIABLE) or str(random.SystemRandom().randrange(1 << 32))
    try:
        yield derive(seed, *scope)
    except BaseException as error:
        error.add_note(f"to try the same again: {SEED_VARIABLE}={seed}")
        raise


def derive(*scope: object) -> random.Random:
    """A generator whose numbers depend on these values alone."""
    return random.Random("/".join(map(str, scope)))

"""
Reproducible randomness: a test that fails prints its seed, and a variable sets it.

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
    """A random generator for one test. If the test fails, the report ends with the seed."""
    seed = os.environ.get(SEED_VARIABLE) or str(random.SystemRandom().randrange(1 << 32))
    try:
        yield derive(seed, *scope)
    except BaseException as error:
        error.add_note(f"to reproduce: {SEED_VARIABLE}={seed}")
        raise


def derive(*scope: object) -> random.Random:
    """A generator whose numbers depend only on these values."""
    return random.Random("/".join(map(str, scope)))

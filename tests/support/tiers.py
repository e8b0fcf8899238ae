"""Parameters of which `make test` runs some, and `make test-all` all (see `tests/conftest.py`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest

__all__ = ["slow_but"]


def slow_but(quick: Collection[Any], values: Iterable[Any]) -> list[Any]:
    """Values for `parametrize`, of which all but the quick ones are marked slow."""
    found: list[Any] = []
    for value in values:
        if value in quick:
            found.append(value)
        else:
            arguments = value if isinstance(value, tuple) else (value,)
            found.append(pytest.param(*arguments, marks=pytest.mark.slow))
    return found

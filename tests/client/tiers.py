"""Which cases of a test run in `make test`; all of them run in `make test-all`."""

from __future__ import annotations

from typing import Any

import pytest


def slow(*values: Any) -> Any:
    """A case of a parametrized test that runs in `make test-all` only."""
    return pytest.param(*values, marks=pytest.mark.slow)


sync_first = pytest.mark.parametrize("kind", ["sync", slow("async")])
async_first = pytest.mark.parametrize("kind", ["async", slow("sync")])

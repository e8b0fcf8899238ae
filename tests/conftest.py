"""
Two tiers of tests.

`make test` runs what a contributor runs before each push. `make test-all` passes `--all-tests` and
runs everything: tests marked `slow`, and every kind of server.
"""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--all-tests",
        action="store_true",
        help="run tests marked slow, and every kind of server",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--all-tests"):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]

"""
Two tiers of tests, and the surroundings that every test may rely on.

`make test` runs what a contributor runs before each push. `make test-all` passes `--all-tests` and
runs everything: tests marked `slow`, and every kind of server.
"""

from __future__ import annotations

import resource
import signal
import threading

import pytest

# What a shell with `nohup` or `&` leaves ignored, and a process started by a test must not.
RESTORED_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
OPEN_FILES_MIN = 4096


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--all-tests",
        action="store_true",
        help="run tests marked slow, and every kind of server",
    )


def pytest_configure(config: pytest.Config) -> None:
    restore_signals()
    raise_open_files()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--all-tests"):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]


def restore_signals() -> None:
    """
    Start processes with default signal dispositions, even if this one ignores signals.

    A process that is started inherits an ignored signal as ignored, and a handled one as default.
    A handler that does nothing keeps this process deaf and its children as users run them.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    for number in RESTORED_SIGNALS:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, _do_nothing)


def _do_nothing(number: int, frame: object) -> None:
    """Handle a signal that the parent asked to ignore."""


def raise_open_files() -> None:
    """Allow enough open files, and let no process that is killed leave a core file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < OPEN_FILES_MIN:
        wanted = OPEN_FILES_MIN if hard == resource.RLIM_INFINITY else min(OPEN_FILES_MIN, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))

"""
`tailrace serve` on a disk whose fsync is slow, always or sometimes.

The engine commits differently on a fast and on a slow disk. Real disks change between the two
rarely; this one does so all the time.

Run it as the server: `python -m tests.support.uneven_disk serve …`.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping

from tailrace.cli import main
from tailrace.engine.rocks.store import RocksStore
from tests.support.server import ServerProcess

ALWAYS_VARIABLE = "TAILRACE_TEST_DISK_ALWAYS_SLOW"
PERIOD_S = 1.2
SLOW_S = 0.1
DELAY_S = 0.008


class UnevenDiskServer(ServerProcess):
    """A server process on a disk that is sometimes slow."""

    def _command(self, port: int) -> list[str]:
        command = super()._command(port)
        at = command.index("tailrace")
        return [*command[:at], "tests.support.uneven_disk", *command[at + 1 :]]


class SlowDiskServer(UnevenDiskServer):
    """A server process on a disk that is always slow."""

    def _extra_env(self) -> Mapping[str, str]:
        return {ALWAYS_VARIABLE: "1"}


def _slow_down(*, always: bool) -> None:
    sync = RocksStore.sync

    def slow_sync(self: RocksStore) -> None:
        sync(self)
        if always:
            time.sleep(DELAY_S)
        elif time.monotonic() % PERIOD_S < SLOW_S:
            time.sleep(random.uniform(0, DELAY_S))

    RocksStore.sync = slow_sync  # type: ignore[method-assign]


if __name__ == "__main__":
    _slow_down(always=ALWAYS_VARIABLE in os.environ)
    main()

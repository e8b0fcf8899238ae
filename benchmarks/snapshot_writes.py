"""Where should a large snapshot be written, so that appends do not wait for it?

    python -m benchmarks.snapshot_writes [DIRECTORY [CHUNKS_A_SECOND]]

Batches of 32 appends of 240 bytes go through RocksDB, each fsynced, as fast as
they can, while a thread writes 1 GiB in chunks of 1 MiB: into a column family
of the same database, or into a file that is synced more or less often. The
times are weighted by their length ("by time"), so that a long stall counts for
all the appends that it would delay. There is no HTTP and no server: this is the
experiment behind docs/decisions/0004; `make bench` measures the whole server.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

from rocksdict import Cache, Rdict, WriteBatch

from tailrace.engine.rocks.options import family_options

CHUNK = random.Random(1).randbytes(1 << 20)
CHUNKS = 1024
PACE = int(sys.argv[2]) if len(sys.argv) > 2 else 150
"""Chunks per second, at most: about as many as a server accepts beside appends."""
ALONE_SECONDS = 5.0

Write = Callable[[Rdict, Path], None]


def _alone(_database: Rdict, _directory: Path) -> None:
    time.sleep(ALONE_SECONDS)


def _into_column_family(database: Rdict, _directory: Path) -> None:
    handle = database.get_column_family_handle("snapshots")
    began = time.monotonic()
    for number in range(CHUNKS):
        batch = WriteBatch(raw_mode=True)
        batch.put(number.to_bytes(8, "big"), CHUNK, handle)
        database.write(batch)
        _pause(began, number)
    database.flush_wal(True)


def _into_file(sync_every: int) -> Write:
    def write(_database: Rdict, directory: Path) -> None:
        began = time.monotonic()
        with (directory / "snapshot").open("wb", buffering=0) as file:
            for number in range(CHUNKS):
                file.write(CHUNK)
                if (number + 1) % sync_every == 0:
                    os.fdatasync(file.fileno())
                _pause(began, number)
            os.fsync(file.fileno())

    return write


def _pause(began: float, number: int) -> None:
    time.sleep(max(0.0, began + (number + 1) / PACE - time.monotonic()))


VARIANTS: dict[str, Write] = {
    "alone": _alone,
    "into a column family": _into_column_family,
    "into a file, synced at the end": _into_file(CHUNKS),
    "into a file, synced every 64 MiB": _into_file(64),
    "into a file, synced every 8 MiB": _into_file(8),
    "into a file, synced every 2 MiB": _into_file(2),
    "into a file, synced every 1 MiB": _into_file(1),
}


def main() -> int:
    """Measure each variant once, and print a table."""
    parent = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.gettempdir())
    print(f"{'':34}{'batches/s':>10}{'p50':>9}{'p90':>9}{'p99':>9}{'max':>9}  ms, by time")
    for name, write in VARIANTS.items():
        directory = Path(tempfile.mkdtemp(prefix="tailrace-bench-", dir=parent))
        try:
            times = _append_beside(write, directory)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        figures = "".join(f"{_by_time(times, share) * 1000:9.2f}" for share in (0.5, 0.9, 0.99, 1))
        print(f"{name:34}{len(times) / sum(times):10,.0f}{figures}", flush=True)
    return 0


def _append_beside(write: Write, directory: Path) -> list[float]:
    """The seconds that each batch of appends took while a snapshot was written."""
    cache = Cache(64 << 20)
    families = {name: family_options(name, cache) for name in ("records", "snapshots")}
    database = Rdict(str(directory / "database"), family_options("default", cache), families)
    handle = database.get_column_family_handle("records")
    thread = threading.Thread(target=write, args=(database, directory))
    times: list[float] = []
    number = 0
    thread.start()
    while thread.is_alive():
        before = time.monotonic()
        batch = WriteBatch(raw_mode=True)
        for _ in range(32):
            batch.put(number.to_bytes(16, "big"), b"x" * 240, handle)
            number += 1
        database.write(batch)
        database.flush_wal(True)
        times.append(time.monotonic() - before)
    return times


def _by_time(times: list[float], share: float) -> float:
    """The duration that the batches of this share of the total time did not exceed."""
    ordered = sorted(times)
    wanted = share * sum(times)
    for one, reached in zip(ordered, accumulate(ordered), strict=True):
        if reached >= wanted:
            return one
    return ordered[-1]


if __name__ == "__main__":
    sys.exit(main())

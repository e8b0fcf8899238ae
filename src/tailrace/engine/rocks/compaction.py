"""
`tailrace compact`: delete everything that is no longer needed, and return its space to the disk.

A server does the same in the background, in steps: it rewrites a table, or a blob file, when enough
of it is garbage. This rewrites all of them.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from rocksdict import BottommostLevelCompaction, CompactOptions, Rdict

from tailrace.engine.base import Store
from tailrace.engine.rocks.snapshot_files import SNAPSHOTS

__all__ = ["compact_families", "reclaim_all", "stored_bytes"]

_GARBAGE_STEP: Final = 256
_ALL_BLOBS: Final = {"blob_garbage_collection_age_cutoff": "1.0"}
_WITH_BLOBS: Final = ("records", "snapshots")


def reclaim_all(store: Store, advance: Callable[[int], object]) -> int:
    """
    Delete all garbage of a store that is not in use otherwise; returns its bytes.

    Raises:
        OSError: A file cannot be removed.
        Exception: The database cannot be written.
    """
    reclaimed = 0
    while garbage := store.garbage(_GARBAGE_STEP):
        transaction = store.begin()
        for entry in garbage:
            if entry.file:
                # Before its entry is deleted: a crash must not leave a file without an entry.
                store.unlink(entry)
            transaction.reclaim(entry)
            reclaimed += entry.bytes
            advance(entry.bytes)
        store.write(transaction)
        store.sync()
    return reclaimed


def compact_families(families: dict[str, Rdict], done: Callable[[str], object]) -> None:
    """
    Rewrite all tables and blob files; `done` is called with the name of each family.

    Raises:
        Exception: One cannot be written.
    """
    options = CompactOptions()
    # The lowest level too, which has most of the data.
    options.set_bottommost_level_compaction(BottommostLevelCompaction.force())
    for name, family in families.items():
        family.flush(True)
        if name in _WITH_BLOBS:
            family.set_options(_ALL_BLOBS)
        family.compact_range(None, None, options)
        done(name)


def stored_bytes(directory: Path) -> int:
    """The bytes of a data directory, without RocksDB's own log files."""
    kinds = ("*.sst", "*.blob", "*.log", "MANIFEST-*", f"{SNAPSHOTS}/*")
    paths = (path for kind in kinds for path in directory.glob(kind))
    return sum(path.stat().st_size for path in paths)

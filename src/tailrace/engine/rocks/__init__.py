"""The durable store: RocksDB, embedded."""

from tailrace.engine.rocks.store import RocksStore

__all__ = ["RocksStore"]

"""
Upgrades from format 2, whose buckets had no bytes, to later ones: they are counted once.

The format is raised before anything else is written, with a mark that the counting is not done.
After a crash the mark is still there, and the next start counts again. An older version refuses the
directory from then on, and never reads a row that it does not know.
"""

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from tailrace.protocol.bucket import BucketState, stream_bytes

if TYPE_CHECKING:
    from tailrace.engine.rocks.store import RocksStore

__all__ = ["UNCOUNTED", "count_bytes"]

UNCOUNTED: Final = b"uncounted"
"""The mark, beside `format`, while the bytes of buckets are not counted."""
STEP: Final = 1000
"""At most this many names in memory, and buckets in a batch, at a time."""

# A name without a state, and errors of decoding damaged bytes.
_UNREADABLE: Final = (
    AssertionError, LookupError, TypeError, ValueError, struct.error, msgspec.MsgspecError,
)  # fmt: skip

log = structlog.get_logger("tailrace")


def count_bytes(store: "RocksStore") -> None:
    """Count the bytes of all buckets, and store them."""
    log.info("storage format 4: counting the bytes of buckets, once")
    buckets = streams = 0
    after = b""
    while names := store.bucket_names(b"", after, STEP):
        transaction = store.begin()
        for name in names:
            created_at, count = store.bucket_row(name)[:2]
            size = sum(_sizes(store, name))
            transaction.put_bucket(name, BucketState(created_at, count, size))
            streams += count
        store.write(transaction)
        buckets += len(names)
        after = names[-1]
    store.sync()
    log.info("counted the bytes of buckets", buckets=buckets, streams=streams)


def _sizes(store: "RocksStore", bucket: bytes) -> Iterator[int]:
    stem = bucket + b"\0"
    after = b""
    while names := store.names(stem, after, STEP):
        for name in names:
            try:
                state = store.load(name)
            except Exception as error:  # rocksdict raises plain Exception
                if not _is_damage(error):
                    # The mark stays: the next start counts again.
                    raise
                # It can neither be read nor deleted, so its bytes will never be subtracted.
                log.error("a stream cannot be read, and is not counted", error=str(error))
                continue
            if state is not None:
                yield stream_bytes(state)
        after = names[-1]


def _is_damage(error: Exception) -> bool:
    """Whether the error is permanent, unlike a failing disk or a lack of memory."""
    return isinstance(error, _UNREADABLE) or "Corruption" in str(error)

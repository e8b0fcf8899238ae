"""
The engine's own counters, as plain numbers.

Rule 1: counting costs a few additions, without labels and locks. Everything is counted on the event
loop, except the time of an fsync, and there is one at a time.

Rule 2: memory is bounded. The first buckets are counted by name, for the life of the process; all
others are counted together.
"""

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from tailrace.protocol.bucket import BucketState

if TYPE_CHECKING:
    from tailrace.engine.base import Store
    from tailrace.engine.commit import CommitBatch

__all__ = ["COMMIT_RECORDS", "LATENCY_S", "OTHER", "Histogram", "Meters"]

COMMIT_RECORDS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
LATENCY_S: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
    10.0,
)  # fmt: skip
"""From the fsync of a fast disk to the timeouts of clients."""
OTHER: Final = "other"
"""The label of buckets that are not counted by name. A bucket of this name is one of them."""
BUCKETS_STEP: Final = 1024


class Histogram:
    """The number of values up to each bound; the last count is of those above all bounds."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum: float = 0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class Meters:
    """The engine's numbers since it was opened."""

    def __init__(self) -> None:
        self.commits = 0
        self.commit_records = Histogram(COMMIT_RECORDS)
        self.sync_s = Histogram(LATENCY_S)
        self.appended_bytes = 0
        self.appended_messages = 0
        self.reclaimed_bytes = 0
        self.buckets = 0
        self.bucketed_streams = 0
        self.bucketed_bytes = 0
        self.buckets_max = 0
        """This many are counted by name, the others in `other_appends`."""
        self.bucket_appends: dict[bytes, int] = {}
        self.other_appends = 0

    def count_buckets(self, store: "Store", buckets_max: int) -> None:
        """Count the existing buckets, once, before anything is committed."""
        self.buckets_max = buckets_max
        after = b""
        while names := store.bucket_names(b"", after, BUCKETS_STEP):
            for name in names:
                self._bucket_changed(name, None, store.bucket(name))
            after = names[-1]

    def committed(self, batch: "CommitBatch") -> int:
        """
        Count a durable batch before it is published: its buckets have their previous states.

        Returns the number of its appends.
        """
        # First, so that a bucket is known when its first appends are counted.
        for changed, state in batch.buckets.items():
            self._bucket_changed(changed.key, changed.durable, state)
        by_bucket = self.bucket_appends
        for stream, change in batch.changes.items():
            count = len(change.records)
            if not count or stream.bucket is None:
                continue
            bucket = stream.bucket.key
            if bucket in by_bucket:
                by_bucket[bucket] += count
            else:
                self.other_appends += count
        self.commits += 1
        self.appended_messages += batch.messages
        self.appended_bytes += batch.bytes
        if batch.appends:
            self.commit_records.observe(batch.appends)
        return batch.appends

    def _bucket_changed(
        self, key: bytes, before: BucketState | None, after: BucketState | None
    ) -> None:
        if before is not None:
            self.buckets -= 1
            self.bucketed_streams -= before.streams
            self.bucketed_bytes -= before.bytes
        if after is not None:
            self.buckets += 1
            self.bucketed_streams += after.streams
            self.bucketed_bytes += after.bytes
            is_new = before is None and key != OTHER.encode()
            if is_new and len(self.bucket_appends) < self.buckets_max:
                self.bucket_appends.setdefault(key, 0)

"""
The RocksDB store: one shared log, one put per append, one fsync for everything in a batch.

Column families, all keys big-endian so that they sort as numbers:

    default    what the database is: `format`, `next_id`, `store_id`
    records    (stream id u64, byte offset u64)  ->  a record, see `codec`
    states     (stream id u64)                   ->  a checkpoint, see `codec`
    names      name key                          ->  stream id u64
    buckets    bucket id                         ->  (created at, streams, bytes), MessagePack
    snapshots  (snapshot id u64)                 ->  its bytes, or nothing if it is a file
    expiry     (deadline u64, stream id u64)     ->  name key
    garbage    (id u64)                          ->  size in bytes u64, `f` if it is a file
               (stream id u64, until u64)        ->  size in bytes u64
    held       what is kept for forks, and what is to be released, see `forks`
    subscriptions  bucket id, NUL, id            ->  a subscription, see `codec`
                   0xff, name                    ->  key material
    links      (subscription id u64) path        ->  a link, see `codec`

`write` puts a batch into RocksDB's log buffer and memtables, holding the GIL; `sync` is the fsync,
which releases it. A write that was not synced may be lost or kept by a crash, but whole: RocksDB
checks each batch of the log by its checksum.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec
from rocksdict import Cache, CompactOptions, Rdict, WriteBatch

from tailrace.engine.base import Due, Garbage, Spool, Store, Transaction, new_store_id
from tailrace.engine.codec import (
    HEAD,
    decode_link,
    decode_record,
    decode_state,
    decode_subscription,
)
from tailrace.engine.errors import EngineError, StorageDamaged
from tailrace.engine.restore import RESTORED
from tailrace.engine.rocks.backup import RocksCopy, remove_copies
from tailrace.engine.rocks.compaction import compact_families
from tailrace.engine.rocks.keys import ID, PAIR, SECRET, after_prefix, items, keys
from tailrace.engine.rocks.options import (
    BLOB_GC_SHARE,
    BLOCK_CACHE_BYTES,
    COMPACTION_BYTES_MAX,
    FAMILIES,
    cache_lookups,
    family_options,
)
from tailrace.engine.rocks.repair import is_manifest_endless, repair_logs
from tailrace.engine.rocks.snapshot_files import SNAPSHOTS, SnapshotFiles
from tailrace.engine.rocks.transaction import NEXT_ID, RocksTransaction, decode_garbage
from tailrace.engine.rocks.upgrade import UNCOUNTED, count_bytes
from tailrace.protocol.bucket import BucketState
from tailrace.protocol.machine import apply_append
from tailrace.protocol.state import SnapshotInfo, StreamState
from tailrace.protocol.subscription import Link, SubscriptionState

__all__ = ["FORMAT_VERSION", "RocksStore"]

FORMAT_VERSION: Final = 4
# 1 had no buckets and no snapshots, 2 had no bytes of buckets, 3 had no forks and no subscriptions;
# the rest is the same.
_FORMATS_UPGRADED: Final = (b"1", b"2", b"3")
_FORMATS_UNCOUNTED: Final = (b"1", b"2")
_FORMAT: Final = b"format"
_STORE_ID: Final = b"store_id"
# On a small disk the reserve is limited to this part of it.
_RESERVE_SHARE_MAX: Final = 10


class RocksStore(Store):
    """Streams in a directory on disk."""

    durable = True

    def __init__(self, directory: Path, reserve_bytes: int = 0) -> None:
        """
        Open or create the database.

        Raises:
            EngineError: Another process has it open, or its format is newer, or it is damaged.
        """
        self._directory = directory
        self._reserve_bytes = reserve_bytes
        self._interrupted = False
        cache = Cache(BLOCK_CACHE_BYTES)
        families = {name: family_options(name, cache) for name in FAMILIES}
        self._options = family_options("default", cache)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            if is_manifest_endless(directory):
                raise EngineError("Corruption: its MANIFEST is damaged: restore it from a backup")
            self.cut_bytes = repair_logs(directory)
            self._db = Rdict(str(directory), self._options, families)
        except Exception as error:  # rocksdict raises plain Exception
            raise EngineError(_why_not_open(directory, str(error))) from error
        self.families = {name: self._db.get_column_family(name) for name in FAMILIES}
        self._records = self.families["records"]
        self._states = self.families["states"]
        self._names = self.families["names"]
        self._buckets = self.families["buckets"]
        self._snapshots = self.families["snapshots"]
        self._expiry = self.families["expiry"]
        self._garbage = self.families["garbage"]
        self.handles = {name: self._db.get_column_family_handle(name) for name in FAMILIES}
        self._check_format()
        self._snapshot_files = SnapshotFiles(directory / SNAPSHOTS)
        self._snapshot_files.remove_orphans(self._has_snapshot)
        remove_copies(directory)
        stored = self._db.get(NEXT_ID)
        self.next_id = 1 if stored is None else ID.unpack(stored)[0]
        self.store_id = self._identify()

    def _check_format(self) -> None:
        stored = self._db.get(_FORMAT)
        current = str(FORMAT_VERSION).encode()
        if stored is None or stored in _FORMATS_UPGRADED:
            batch = WriteBatch(raw_mode=True)
            batch.put(_FORMAT, current)
            if stored in _FORMATS_UNCOUNTED:
                batch.put(UNCOUNTED, b"")
            self._db.write(batch)
            self._db.flush_wal(True)
        elif stored != current:
            self.close()
            raise EngineError(
                f"{self._directory} has storage format {stored.decode(errors='replace')}, this "
                f"version of tailrace knows format {FORMAT_VERSION}: run the version that wrote it"
            )
        if UNCOUNTED in self._db:
            self._count_bytes()

    def _identify(self) -> str:
        """The id of this store; a new one if content that readers have seen may be missing."""
        stored: bytes | None = self._db.get(_STORE_ID)
        restored = self._directory / RESTORED
        if stored is not None and not self.cut_bytes and not restored.exists():
            return stored.decode()
        store_id = new_store_id()
        self._db[_STORE_ID] = store_id.encode()
        self._db.flush_wal(True)
        # Only when it is durable: after a crash there must not be the id of the backup. If the file
        # stays, the next start makes yet another id.
        with suppress(OSError):
            restored.unlink(missing_ok=True)
        return store_id

    def _count_bytes(self) -> None:
        try:
            count_bytes(self)
        except Exception as error:  # rocksdict raises plain Exception
            self.close()
            raise EngineError(f"{self._directory} cannot be upgraded: {error}") from error
        del self._db[UNCOUNTED]
        self._db.flush_wal(True)

    def begin(self) -> "RocksTransaction":
        return RocksTransaction(self)

    def write(self, transaction: Transaction) -> None:
        assert isinstance(transaction, RocksTransaction)
        transaction.finish()
        self._db.write(transaction.batch)

    def sync(self) -> None:
        self._db.flush_wal(True)

    def load(self, key: bytes) -> StreamState | None:
        stream_id: bytes | None = self._names.get(key)
        if stream_id is None:
            return None
        checkpoint: bytes | None = self._states.get(stream_id)
        assert checkpoint is not None, "a name without a state"
        state = decode_state(checkpoint)
        if state.closed:
            return state
        start = PAIR.pack(state.id, state.tail.byte)
        if start not in self._records:
            # A record starts where the one before it ends, so there are no more.
            return state
        for _, value in items(self._records, start, ID.pack(state.id + 1)):
            state = apply_append(state, decode_record(value)[1])
        return state

    def scan(self, stream_id: int, start: int, end: int) -> Iterator[bytes]:
        first = PAIR.pack(stream_id, start)
        found = items(self._records, first, PAIR.pack(stream_id, end))
        # Without a `get` first, which would read the record twice.
        key, value = next(found, (b"", b""))
        if key != first:
            # Inside of a batch of messages: step back to the record that contains it.
            at = self._records.iter()
            at.seek_for_prev(first)
            if at.valid() and at.key()[:8] == first[:8]:
                yield at.value()
            at.status()
        if key:
            yield value
        for _, value in found:
            yield value

    def due(self, now: int, count_max: int) -> list[Due]:
        due = []
        for at, key in islice(items(self._expiry, b"", ID.pack(now + 1)), count_max):
            deadline, stream_id = PAIR.unpack(at)
            due.append(Due(deadline, stream_id, key))
        return due

    def bucket(self, bucket: bytes) -> BucketState | None:
        row = self.bucket_row(bucket)
        return BucketState(*row) if row else None

    def bucket_row(self, bucket: bytes) -> tuple[int, ...]:
        """The stored row of a bucket: shorter in an earlier format, empty if there is none."""
        stored: bytes | None = self._buckets.get(bucket)
        return () if stored is None else msgspec.msgpack.decode(stored, type=tuple[int, ...])

    def bucket_names(self, prefix: bytes, after: bytes, count_max: int) -> list[bytes]:
        found = keys(self._buckets, max(prefix, after + b"\0"), after_prefix(prefix))
        return list(islice(found, count_max))

    def names(self, prefix: bytes, after: bytes, count_max: int) -> list[bytes]:
        # The first key after another one is that one and a zero byte.
        found = keys(self._names, max(prefix, after + b"\0"), after_prefix(prefix))
        return list(islice(found, count_max))

    def held(self, first: bytes, end: bytes, count_max: int) -> list[tuple[bytes, bytes]]:
        return list(islice(items(self.families["held"], first, end), count_max))

    def subscriptions(self) -> Iterator[tuple[bytes, SubscriptionState]]:
        for key, value in items(self.families["subscriptions"], b"", SECRET):
            yield key, decode_subscription(value)

    def links(self) -> Iterator[tuple[int, bytes, Link]]:
        for key, value in items(self.families["links"], b"", None):
            yield ID.unpack_from(key)[0], key[ID.size :], decode_link(value)

    def secret(self, name: bytes) -> bytes | None:
        stored: bytes | None = self.families["subscriptions"].get(SECRET + name)
        return stored

    def spool(self, snapshot_id: int) -> Spool:
        return self._snapshot_files.spool(snapshot_id)

    def read_snapshot(self, snapshot: SnapshotInfo, index: int) -> bytes:
        if not snapshot.inline:
            return self._snapshot_files.read(snapshot, index)
        content: bytes | None = self._snapshots.get(ID.pack(snapshot.id))
        if content is None or len(content) != snapshot.size:
            raise StorageDamaged(snapshot.offset.token())
        return content

    def garbage(
        self, count_max: int, allow: Callable[[Garbage], bool] = lambda _: True
    ) -> list[Garbage]:
        entries = (decode_garbage(key, value) for key, value in items(self._garbage, b"", None))
        return list(islice(filter(allow, entries), count_max))

    def unlink(self, garbage: Garbage) -> None:
        self._snapshot_files.unlink(garbage.id)

    def cut(self, stream_id: int, until: int) -> int:
        """The start of the record that contains this byte, or the byte itself."""
        at = self._records.iter()
        at.seek_for_prev(PAIR.pack(stream_id, until))
        found = until
        if at.valid() and at.key()[:8] == ID.pack(stream_id):
            value = at.value()
            _, _, _, head, _, _, first_byte, _ = HEAD.unpack_from(value)
            if first_byte + len(value) - head > until:
                found = first_byte
        at.status()
        return found

    def record_keys(self, first: bytes, end: bytes, count_max: int) -> list[bytes]:
        """The keys of records from one key to before another, up to a number."""
        return list(islice(keys(self._records, first, end), count_max))

    def compact(self, first: tuple[int, int], last: tuple[int, int]) -> None:
        options = CompactOptions()
        # In parallel to other compactions, so that writers never wait for this one.
        options.set_exclusive_manual_compaction(False)
        try:
            # The log is deleted only when no family needs it any more.
            for family in self._families():
                family.flush(True)
            self._records.compact_range(PAIR.pack(*first), PAIR.pack(*last), options)
            self._snapshots.compact_range(ID.pack(first[0]), ID.pack(last[0] + 1), options)
        except Exception:  # rocksdict raises plain Exception
            # Interrupted when the process ends, or the disk fails, which writes will notice.
            return

    def compact_all(self, done: Callable[[str], object]) -> None:
        """Rewrite everything that is needed; `done` is called with the name of each family."""
        compact_families(dict(zip(("default", *FAMILIES), self._families(), strict=True)), done)

    def free_bytes(self) -> int | None:
        disk = os.statvfs(self._directory)
        reserve = min(self._reserve_bytes, disk.f_blocks * disk.f_frsize // _RESERVE_SHARE_MAX)
        if self._reserve_bytes:
            # Memtables will be written once more, as tables.
            reserve += sum(_number(item, "cur-size-all-mem-tables") for item in self._families())
            # A compaction writes its output before it deletes its input.
            rewritten = 0
            for family in (self._records, self._snapshots):
                rewritten += _number(family, "total-sst-files-size")
                rewritten += int(BLOB_GC_SHARE * _number(family, "total-blob-file-size"))
            reserve += min(rewritten, COMPACTION_BYTES_MAX)
        return disk.f_bavail * disk.f_frsize - reserve

    def sizes(self) -> dict[str, int]:
        families = self._families()
        return {
            "tables": sum(_number(item, "total-sst-files-size") for item in families),
            "blobs": sum(_number(item, "total-blob-file-size") for item in families),
            "memtables": sum(_number(item, "cur-size-all-mem-tables") for item in families),
            "snapshots": self._snapshot_files.size,
        }

    def log_bytes(self) -> int:
        size = 0
        with os.scandir(self._directory) as entries:
            for entry in entries:
                # A log may be deleted meanwhile.
                if entry.name.endswith(".log"):
                    with suppress(FileNotFoundError):
                        size += entry.stat().st_size
        return size

    def cache_lookups(self) -> tuple[int, int]:
        return cache_lookups(self._options)

    def _families(self) -> tuple[Rdict, ...]:
        return (self._db, *self.families.values())

    def _has_snapshot(self, snapshot_id: int) -> bool:
        return ID.pack(snapshot_id) in self._snapshots

    def copy(self) -> RocksCopy:
        return RocksCopy(self._directory, self._families(), FORMAT_VERSION, self._has_snapshot)

    def interrupt(self) -> None:
        self._interrupted = True
        self._db.cancel_all_background(True)

    def close(self) -> None:
        errors = [error for family in reversed(self._families()) if (error := _close(family))]
        # RocksDB unlocks the directory when nothing refers to it any more.
        del self._records, self._states, self._names, self._buckets, self._snapshots
        del self._expiry, self._garbage, self._db
        self.families.clear()
        self.handles.clear()
        # After an interruption, the log has what was not flushed.
        if errors and not self._interrupted:
            raise errors[0]


def _close(family: Rdict) -> Exception | None:
    """Flush and close a family; returns the error, since the others must be closed as well."""
    try:
        family.close()
    except Exception as error:  # rocksdict raises plain Exception
        return error
    return None


def _number(family: Rdict, name: str) -> int:
    return family.property_int_value(f"rocksdb.{name}") or 0


def _why_not_open(directory: Path, error: str) -> str:
    if "While lock file" in error or "lock hold by current process" in error:
        return (
            f"{directory} is in use by another tailrace server: stop that one, or choose another "
            "directory with --data-dir"
        )
    if "No space left" in error:
        return f"the disk of {directory} is full: free some space and start again"
    return f"{directory} cannot be opened: {error}"

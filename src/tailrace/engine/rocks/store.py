"""
The RocksDB store: one shared log, one put per append, one fsync for everything in a batch.

Column families, all keys big-endian so that they sort as numbers:

    default   what the database is: `format`, `next_id`
    records   (stream id u64, byte offset u64)  ->  a record, see `codec`
    states    (stream id u64)                   ->  a checkpoint, see `codec`
    names     name key                          ->  stream id u64
    expiry    (deadline u64, stream id u64)     ->  name key
    garbage   (stream id u64)                   ->  size in bytes u64

`write` puts a batch into RocksDB's log buffer and memtables, holding the GIL; `sync` is the fsync,
which releases it. A write that was not synced may be lost or kept by a crash, but whole: RocksDB
checks each batch of the log by its checksum.
"""

import os
import struct
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from rocksdict import Cache, CompactOptions, Rdict, ReadOptions, WriteBatch

from tailrace.engine.base import Due, Garbage, Store, Transaction
from tailrace.engine.codec import decode_record, decode_state, encode_record, encode_state
from tailrace.engine.errors import EngineError
from tailrace.engine.rocks.mend import mend_logs
from tailrace.engine.rocks.options import (
    BLOB_GC_SHARE,
    BLOCK_CACHE_BYTES,
    COMPACTION_BYTES_MAX,
    FAMILIES,
    family_options,
)
from tailrace.protocol.machine import apply_appended
from tailrace.protocol.offset import Offset
from tailrace.protocol.state import Appended, StreamState

__all__ = ["FORMAT_VERSION", "RocksStore"]

FORMAT_VERSION: Final = 1

_ID: Final = struct.Struct(">Q")
_PAIR: Final = struct.Struct(">QQ")
_FORMAT: Final = b"format"
_NEXT_ID: Final = b"next_id"
# Below this many records a stream is deleted key by key: range tombstones slow scans down.
_POINT_DELETES_MAX: Final = 256
# On a small disk the reserve must not be the disk.
_RESERVE_SHARE_MAX: Final = 10


class RocksStore(Store):
    """Streams in a directory of this machine's disk."""

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
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self.cut_bytes = mend_logs(directory)
            self._db = Rdict(str(directory), family_options("default", cache), families)
        except Exception as error:  # rocksdict raises plain Exception
            raise EngineError(_why_not_open(directory, str(error))) from error
        self._records = self._db.get_column_family("records")
        self._states = self._db.get_column_family("states")
        self._names = self._db.get_column_family("names")
        self._expiry = self._db.get_column_family("expiry")
        self._garbage = self._db.get_column_family("garbage")
        self.handles = {name: self._db.get_column_family_handle(name) for name in FAMILIES}
        self._check_format()
        stored = self._db.get(_NEXT_ID)
        self.next_id = 1 if stored is None else _ID.unpack(stored)[0]

    def _check_format(self) -> None:
        stored = self._db.get(_FORMAT)
        if stored is None:
            self._db[_FORMAT] = str(FORMAT_VERSION).encode()
            self._db.flush_wal(True)
        elif stored != str(FORMAT_VERSION).encode():
            self.close()
            raise EngineError(
                f"{self._directory} has storage format {stored.decode(errors='replace')}, this "
                f"version of tailrace knows format {FORMAT_VERSION}: run the version that wrote it"
            )

    def begin(self) -> "RocksTransaction":
        return RocksTransaction(self)

    def write(self, transaction: Transaction) -> None:
        assert isinstance(transaction, RocksTransaction)
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
        start = _PAIR.pack(state.id, state.tail.byte)
        if start not in self._records:
            # A record starts where the one before it ends, so there is none after it.
            return state
        for _, value in _items(self._records, start, _ID.pack(state.id + 1)):
            state = apply_appended(state, decode_record(value)[1])
        return state

    def scan(self, stream_id: int, start: int, end: int) -> Iterator[bytes]:
        first = _PAIR.pack(stream_id, start)
        if first not in self._records:
            # Inside a batch of messages: step back to the record that holds it.
            at = self._records.iter()
            at.seek_for_prev(first)
            if at.valid() and at.key()[:8] == first[:8]:
                yield at.value()
            at.status()
        for _, value in _items(self._records, first, _PAIR.pack(stream_id, end)):
            yield value

    def due(self, now: int, count_max: int) -> list[Due]:
        due = []
        for at, key in islice(_items(self._expiry, b"", _ID.pack(now + 1)), count_max):
            deadline, stream_id = _PAIR.unpack(at)
            due.append(Due(deadline, stream_id, key))
        return due

    def garbage(self, count_max: int) -> list[Garbage]:
        entries = islice(_items(self._garbage, b"", None), count_max)
        return [Garbage(_ID.unpack(at)[0], _ID.unpack(size)[0]) for at, size in entries]

    def record_keys(self, stream_id: int, count_max: int) -> list[bytes]:
        """The keys of a stream's records, up to a number."""
        items = _items(self._records, _ID.pack(stream_id), _ID.pack(stream_id + 1))
        return [key for key, _ in islice(items, count_max)]

    def compact(self, first_id: int, last_id: int) -> None:
        options = CompactOptions()
        # Beside other compactions, so that writers never wait for this one.
        options.set_exclusive_manual_compaction(False)
        try:
            # The log goes only when no family needs it any more.
            for family in self._families():
                family.flush(True)
            self._records.compact_range(_ID.pack(first_id), _ID.pack(last_id + 1), options)
        except Exception:  # rocksdict raises plain Exception
            # Interrupted at the end of the process, or the disk fails, which writes will notice.
            return

    def free_bytes(self) -> int | None:
        disk = os.statvfs(self._directory)
        reserve = min(self._reserve_bytes, disk.f_blocks * disk.f_frsize // _RESERVE_SHARE_MAX)
        if self._reserve_bytes:
            # What is in memtables, and so in the log, will be written once more, as tables.
            reserve += sum(_number(item, "cur-size-all-mem-tables") for item in self._families())
            # A compaction writes its output before it gives up its input.
            rewritten = _number(self._records, "total-sst-files-size")
            rewritten += int(BLOB_GC_SHARE * _number(self._records, "total-blob-file-size"))
            reserve += min(rewritten, COMPACTION_BYTES_MAX)
        return disk.f_bavail * disk.f_frsize - reserve

    def _families(self) -> tuple[Rdict, ...]:
        return (self._db, self._records, self._states, self._names, self._expiry, self._garbage)

    def interrupt(self) -> None:
        self._interrupted = True
        self._db.cancel_all_background(True)

    def close(self) -> None:
        for family in reversed(self._families()):
            self._close(family)
        # RocksDB lets go of the directory when nothing refers to it any more.
        del self._records, self._states, self._names, self._expiry, self._garbage, self._db
        self.handles.clear()

    def _close(self, family: Rdict) -> None:
        """Flush memtables and let go; once interrupted, the log has what they hold."""
        try:
            family.close()
        except Exception:  # rocksdict raises plain Exception
            if not self._interrupted:
                raise


class RocksTransaction(Transaction):
    """A `WriteBatch` that speaks of streams."""

    def __init__(self, store: RocksStore) -> None:
        self.batch = WriteBatch(raw_mode=True)
        self._store = store
        # The store's own dict, which is empty once that is closed.
        self._handles = store.handles
        self._put = self.batch.put

    def create(self, key: bytes, state: StreamState) -> None:
        self._put(key, _ID.pack(state.id), self._handles["names"])
        self.checkpoint(key, state)

    def append(self, stream_id: int, at: Offset, record: Appended) -> None:
        self._put(
            _PAIR.pack(stream_id, at.byte), encode_record(at, record), self._handles["records"]
        )

    def checkpoint(self, key: bytes, state: StreamState) -> None:
        self._put(_ID.pack(state.id), encode_state(key, state), self._handles["states"])

    def delete(self, key: bytes, state: StreamState) -> None:
        self.batch.delete(key, self._handles["names"])
        self.batch.delete(_ID.pack(state.id), self._handles["states"])
        self._put(_ID.pack(state.id), _ID.pack(state.tail.byte), self._handles["garbage"])

    def schedule(self, due: Due) -> None:
        self._put(_PAIR.pack(due.deadline, due.id), due.key, self._handles["expiry"])

    def unschedule(self, due: Due) -> None:
        self.batch.delete(_PAIR.pack(due.deadline, due.id), self._handles["expiry"])

    def reserve_ids(self, until: int) -> None:
        self._put(_NEXT_ID, _ID.pack(until))

    def reclaim(self, garbage: Garbage) -> None:
        keys = self._store.record_keys(garbage.id, _POINT_DELETES_MAX)
        if len(keys) < _POINT_DELETES_MAX:
            for key in keys:
                self.batch.delete(key, self._handles["records"])
        else:
            self.batch.delete_range(
                _ID.pack(garbage.id), _ID.pack(garbage.id + 1), self._handles["records"]
            )
        self.batch.delete(_ID.pack(garbage.id), self._handles["garbage"])


def _items(family: Rdict, start: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
    """
    What lies from one key to before another.

    Not by `Rdict.items` and its like: those end without a word where a block cannot be read, and
    a stream would seem to be shorter than it is.

    Raises:
        Exception: A block is damaged or cannot be read.
    """
    options = ReadOptions()
    if end is not None:
        # The iterator only points to its bound: `options` must live as long as it does.
        options.set_iterate_upper_bound(end)
    at = family.iter(options)
    at.seek(start)
    while at.valid():
        yield at.key(), at.value()
        at.next()
    at.status()


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

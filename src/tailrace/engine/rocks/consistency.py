"""
Checks that the contents of a database are consistent.

    states     each is the result of its records (`replay`), and has its name and its snapshot
    names      each has a state
    records    each is of a stream, or garbage
    buckets    each has as many streams and bytes as its row has
    expiry     each stream that expires has an entry
    garbage    none of it is in use
    subscriptions, links   see `subscription_check`
    ids        all are below the next id
    forks      see `fork_check`

Memory: eight bytes for each stream that expires or has a snapshot, and one entry for each bucket.
"""

import hashlib
from array import array
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec
from rocksdict import Rdict

from tailrace.engine.base import SNAPSHOT_CHUNK_BYTES
from tailrace.engine.codec import decode_state, key_of_state
from tailrace.engine.errors import StorageDamaged
from tailrace.engine.rocks.findings import Damage, Finding, Report, stream_name
from tailrace.engine.rocks.fork_check import ForkCheck
from tailrace.engine.rocks.keys import ID, PAIR, items, keys
from tailrace.engine.rocks.replay import replay
from tailrace.engine.rocks.salvage_reader import SalvageReader, has
from tailrace.engine.rocks.snapshot_files import SNAPSHOTS, SnapshotFiles
from tailrace.engine.rocks.subscription_check import SubscriptionCheck
from tailrace.engine.rocks.transaction import NEXT_ID, decode_garbage
from tailrace.engine.rocks.upgrade import UNCOUNTED
from tailrace.protocol.bucket import stream_bytes
from tailrace.protocol.names import bucket_of
from tailrace.protocol.state import SnapshotInfo, StreamState

__all__ = ["FORMAT", "Consistency"]

FORMAT: Final = b"format"
_CRC_BYTES: Final = 4


class Consistency:
    def __init__(
        self,
        directory: Path,
        families: dict[str, Rdict],
        report: Report,
        advance: Callable[[int], object],
    ) -> None:
        self.streams = self.records = 0
        self._directory = directory
        self._snapshot_files = SnapshotFiles(directory / SNAPSHOTS)
        self._reader = SalvageReader(families, report, advance)
        self._report = report
        self._advance = advance
        self._expiring = array("Q")
        self._snapshots = array("Q")
        self._inherited_snapshots: set[int] = set()
        self._buckets: dict[bytes, list[int]] = {}
        self._highest_id = 0
        self._first_record: int | None = None
        self._forks = ForkCheck(self._reader, report)

    def check(self) -> None:
        self._read_expiry()
        self._check_states()
        self._check_names()
        self._forks.check()
        self._check_snapshots()
        self._check_garbage()
        self._check_subscriptions()
        if not self._reader.partial:
            self._check_buckets()
        self._check_next_id()

    # -- streams -----------------------------------------------------------------------------

    def _check_states(self) -> None:
        before = 0
        for key, value in self._reader.walk("states"):
            (stream_id,) = ID.unpack(key)
            self._check_orphans(before, stream_id)
            before = stream_id + 1
            try:
                name, state = key_of_state(value), decode_state(value)
            except Exception as error:  # damaged bytes can fail in any way
                self._reader.report(f"the checkpoint of stream {stream_id} cannot be read: {error}")
                self._reader.partial = True
                continue
            self.streams += 1
            self._check_stream(stream_id, name, state)
        if not self._reader.partial:
            self._check_orphans(before, None)

    def _check_stream(self, stream_id: int, key: bytes, state: StreamState) -> None:
        name = stream_name(key)
        self._highest_id = max(self._highest_id, stream_id)
        if state.id != stream_id or self._reader.get("names", key) != ID.pack(stream_id):
            self._report(Finding("its name and its checkpoint do not belong together", stream=name))
        final = state
        self._first_record = None
        try:
            final = replay(state, self._records_of(stream_id))
        except Damage as damage:
            self._report(Finding(damage.reason, stream=name, offset=damage.offset))
            self._reader.partial = True
        except Exception as error:  # rocksdict raises plain Exception
            self._report(Finding(f"its records cannot be read: {error}", stream=name))
            self._reader.partial = True
        self._forks.add(key, final, self._first_record)
        if state.snapshot is not None and (
            state.own_snapshot is not None or state.snapshot.id not in self._inherited_snapshots
        ):
            if state.own_snapshot is None:
                # Many forks may inherit one snapshot: it is read once.
                self._inherited_snapshots.add(state.snapshot.id)
            self._check_snapshot(name, state.snapshot)
        expires = (state.ttl_s, state.expires_at) != (None, None) and not state.deleted
        if expires and not has(self._expiring, stream_id):
            self._report(Finding("it expires, and is not in the expiry index", stream=name))
        if bucket := bucket_of(key):
            counted = self._buckets.setdefault(bucket, [0, 0])
            counted[0] += 1
            counted[1] += stream_bytes(final)

    def _records_of(self, stream_id: int) -> Iterator[tuple[int, bytes]]:
        first, end = ID.pack(stream_id), ID.pack(stream_id + 1)
        for key, value in items(self._reader.families["records"], first, end):
            self.records += 1
            self._advance(len(value))
            byte = PAIR.unpack(key)[1]
            if self._first_record is None:
                self._first_record = byte
            yield byte, value

    def _check_orphans(self, first: int, end: int | None) -> None:
        """Check that records between two streams are garbage."""
        seen = -1
        if first == end:
            return
        try:
            stop = None if end is None else ID.pack(end)
            for key in keys(self._reader.families["records"], ID.pack(first), stop):
                stream_id = PAIR.unpack(key)[0]
                if stream_id == seen:
                    continue
                seen = stream_id
                self._highest_id = max(self._highest_id, seen)
                if self._reader.get("garbage", ID.pack(seen)) is None:
                    self._reader.report(f"there are records of stream {seen}, which does not exist")
        except Exception as error:  # rocksdict raises plain Exception
            self._reader.fail("records", error)

    def _check_names(self) -> None:
        for key, value in self._reader.walk("names"):
            state = self._reader.get("states", value)
            if state is None:
                if not self._reader.partial:
                    self._report(Finding("its checkpoint is missing", stream=stream_name(key)))
            elif not _is_of(state, key):
                problem = "its checkpoint is that of a stream of another name"
                self._report(Finding(problem, stream=stream_name(key)))

    # -- snapshots ---------------------------------------------------------------------------

    def _check_snapshot(self, name: str, snapshot: SnapshotInfo) -> None:
        self._snapshots.append(snapshot.id)
        self._highest_id = max(self._highest_id, snapshot.id)
        file = "" if snapshot.inline else f"{SNAPSHOTS}/{snapshot.id:020d}"
        try:
            problem = self._snapshot_problem(snapshot)
        except StorageDamaged:
            problem = "its snapshot is not what was stored"
        except Exception as error:  # rocksdict raises plain Exception
            problem = f"its snapshot cannot be read: {error}"
        if problem:
            at = None if file else snapshot.offset.byte
            self._report(Finding(problem, file=file, stream=name, offset=at))

    def _snapshot_problem(self, snapshot: SnapshotInfo) -> str:
        stored = self._reader.get("snapshots", ID.pack(snapshot.id), raises=True)
        if stored is None:
            return "its snapshot is missing"
        chunks: Iterable[bytes] = [stored]
        if not snapshot.inline:
            path = self._directory / SNAPSHOTS / f"{snapshot.id:020d}"
            count = -(-snapshot.size // SNAPSHOT_CHUNK_BYTES)
            if not path.is_file():
                return "the file of its snapshot is missing"
            if path.stat().st_size != snapshot.size + _CRC_BYTES * count:
                return "the file of its snapshot has another size"
            chunks = (self._snapshot_files.read(snapshot, index) for index in range(count))
        size, check = 0, hashlib.sha256()
        for chunk in chunks:
            size += len(chunk)
            check.update(chunk)
            self._advance(len(chunk))
        is_same = (size, check.digest()) == (snapshot.size, snapshot.digest)
        return "" if is_same else "its snapshot is not what was stored"

    def _check_snapshots(self) -> None:
        """Check that each snapshot is of a stream, or garbage."""
        self._snapshots = array("Q", sorted(self._snapshots))
        for key in self._reader.keys("snapshots"):
            (snapshot_id,) = ID.unpack(key)
            self._highest_id = max(self._highest_id, snapshot_id)
            if self._reader.partial or has(self._snapshots, snapshot_id):
                continue
            if has(self._forks.held_snapshots, snapshot_id):
                continue
            if self._reader.get("garbage", key) is None:
                self._reader.report(f"there is a snapshot {snapshot_id} of no stream")

    # -- the rest ----------------------------------------------------------------------------

    def _read_expiry(self) -> None:
        found = (PAIR.unpack(key)[1] for key in self._reader.keys("expiry"))
        self._expiring = array("Q", sorted(found))
        self._highest_id = max([self._highest_id, *self._expiring[-1:]])

    def _check_garbage(self) -> None:
        for key, value in self._reader.walk("garbage"):
            entry = decode_garbage(key, value)
            self._highest_id = max(self._highest_id, entry.id)
            stored = self._reader.get("states", ID.pack(entry.id))
            if entry.until is None:
                if stored is not None or has(self._snapshots, entry.id):
                    self._reader.report(f"id {entry.id} is in use, and listed as garbage")
            elif stored is not None and (
                decode_state(stored).earliest.byte < entry.until
                or self._forks.needs(entry.id, entry.until)
            ):
                name = stream_name(key_of_state(stored))
                self._report(Finding("records that it retains are listed as garbage", stream=name))

    def _check_buckets(self) -> None:
        counts_bytes = self._reader.get("default", UNCOUNTED) is None
        for key, value in self._reader.walk("buckets"):
            row = msgspec.msgpack.decode(value, type=tuple[int, ...])
            counted = self._buckets.pop(key, [0, 0])
            stored = list(row[1:3]) if counts_bytes and len(row) > 2 else [row[1], counted[1]]
            if stored != counted:
                streams, size = counted
                self._reader.report(
                    f"bucket {key.decode(errors='backslashreplace')} has {streams} streams of "
                    f"{size} bytes, and its row has {stored[0]} of {stored[1]}"
                )
        for key in self._buckets if not self._reader.partial else ():
            self._reader.report(
                f"bucket {key.decode(errors='backslashreplace')} has streams and is missing"
            )

    def _check_subscriptions(self) -> None:
        subscriptions = SubscriptionCheck(self._reader)
        subscriptions.check()
        self._highest_id = max(self._highest_id, subscriptions.highest_id)

    def _check_next_id(self) -> None:
        stored = self._reader.get("default", NEXT_ID)
        next_id = 1 if stored is None else ID.unpack(stored)[0]
        if self._highest_id >= next_id:
            self._reader.report(f"id {self._highest_id} is in use, and the next id is {next_id}")


def _is_of(state: bytes, key: bytes) -> bool:
    """Whether a checkpoint has this name; an unreadable one was reported before."""
    try:
        return key_of_state(state) == key
    except Exception:  # damaged bytes can fail in any way
        return True

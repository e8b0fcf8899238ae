"""
The contract of `engine.base` once more: buckets, names in order, snapshots, and what they leave.

Streams alone are in `test_store`.
"""

import hashlib
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rocksdict import Cache, Rdict, WriteBatch

from tailrace.engine.base import SNAPSHOT_CHUNK_BYTES, Due, Garbage, Store
from tailrace.engine.codec import decode_record, encode_record
from tailrace.engine.errors import StorageDamaged
from tailrace.engine.memory import MemoryStore
from tailrace.engine.pins import Pins
from tailrace.engine.read import read_slice
from tailrace.engine.rocks import RocksStore
from tailrace.engine.rocks.keys import ID, PAIR, after_prefix
from tailrace.engine.rocks.options import family_options
from tailrace.protocol.bucket import BucketState
from tailrace.protocol.machine import apply
from tailrace.protocol.offset import START, Offset
from tailrace.protocol.producer import ProducerHeaders
from tailrace.protocol.state import AppendRecord, PublishRecord, SnapshotInfo, StreamState
from tests.contract.test_store import append, batch, create, new_state, scan

# Bytes at the ends of their range, so that bounds are met often.
EDGES = st.lists(st.sampled_from([0, 1, 0x7F, 0xFE, 0xFF]), max_size=4).map(bytes)
BIG = SNAPSHOT_CHUNK_BYTES * 2 + 5


def content_of(size: int, seed: int = 1) -> bytes:
    """Bytes that are the same nowhere, so that a chunk in a wrong place shows."""
    return random.Random(seed).randbytes(size)


def snapshot_of(
    snapshot_id: int, offset: Offset, content: bytes, *, inline: bool = True
) -> SnapshotInfo:
    digest = hashlib.sha256(content).digest()
    return SnapshotInfo(offset, snapshot_id, len(content), "a/b; c=d", digest, inline, time=9)


def spool(store: Store, snapshot_id: int, content: bytes) -> None:
    """What an upload does before its record is made."""
    made = store.spool(snapshot_id)
    for at in range(0, len(content), SNAPSHOT_CHUNK_BYTES):
        made.write(content[at : at + SNAPSHOT_CHUNK_BYTES])
    made.finish()


def publish(
    store: Store,
    key: bytes,
    before: StreamState,
    offset: Offset,
    *,
    snapshot_id: int,
    content: bytes = b"snapshot",
    inline: bool = True,
) -> StreamState:
    """Publish a snapshot; the state after it."""
    snapshot = snapshot_of(snapshot_id, offset, content, inline=inline)
    if not inline:
        spool(store, snapshot_id, content)
    record = PublishRecord(snapshot, content if inline else None)
    after = apply(before, record)
    assert after is not None
    transaction = store.begin()
    transaction.publish(key, before, after, record.content)
    store.write(transaction)
    return after


def read_back(store: Store, snapshot: SnapshotInfo | None) -> bytes:
    """All of a snapshot, chunk by chunk."""
    assert snapshot is not None
    chunks = 1 if snapshot.inline else -(-snapshot.size // SNAPSHOT_CHUNK_BYTES)
    return b"".join(store.read_snapshot(snapshot, index) for index in range(chunks))


def read_stream(store: Store, state: StreamState) -> bytes:
    """All that is retained, as a reader gets it."""
    piece = read_slice(store, state, state.earliest, 1 << 30)
    assert piece.end == state.tail
    return b"".join(piece.parts)


def unlink(store: Store, *garbage: Garbage) -> None:
    for entry in garbage:
        store.unlink(entry)


def reclaim(store: Store, *garbage: Garbage) -> None:
    unlink(store, *garbage)
    transaction = store.begin()
    for entry in garbage:
        transaction.reclaim(entry)
    store.write(transaction)


def delete(store: Store, key: bytes, state: StreamState) -> None:
    transaction = store.begin()
    transaction.delete(key, state)
    store.write(transaction)


def put_bucket(store: Store, bucket: bytes, state: BucketState | None) -> None:
    transaction = store.begin()
    transaction.put_bucket(bucket, state)
    store.write(transaction)


class TestBuckets:
    def test_a_bucket_that_was_never_put_is_none(self, store: Store) -> None:
        assert store.bucket(b"abcd") is None

    def test_a_stored_bucket_is_loaded(self, store: Store) -> None:
        for state in [
            BucketState(0),
            BucketState(1_700_000_000_000, 1),
            BucketState(2**50, 10**12),
        ]:
            put_bucket(store, b"abcd", state)
            assert store.bucket(b"abcd") == state
            assert store.bucket(b"abc") is None
            assert store.bucket(b"abcde") is None

    def test_the_last_put_counts(self, store: Store) -> None:
        for streams in range(5):
            put_bucket(store, b"abcd", BucketState(1, streams))
        assert store.bucket(b"abcd") == BucketState(1, 4)

    def test_none_forgets_it(self, store: Store) -> None:
        put_bucket(store, b"abcd", BucketState(1, 2))
        put_bucket(store, b"efgh", BucketState(2, 3))
        put_bucket(store, b"abcd", None)
        assert store.bucket(b"abcd") is None
        assert store.bucket(b"efgh") == BucketState(2, 3)

    def test_what_is_not_there_can_be_forgotten(self, store: Store) -> None:
        put_bucket(store, b"abcd", None)
        assert store.bucket(b"abcd") is None

    def test_the_last_of_several_changes_in_one_transaction_counts(self, store: Store) -> None:
        transaction = store.begin()
        transaction.put_bucket(b"gone", BucketState(1))
        transaction.put_bucket(b"gone", None)
        transaction.put_bucket(b"here", None)
        transaction.put_bucket(b"here", BucketState(1))
        transaction.put_bucket(b"here", BucketState(1, 1))
        assert store.bucket(b"here") is None
        store.write(transaction)
        assert store.bucket(b"gone") is None
        assert store.bucket(b"here") == BucketState(1, 1)

    def test_buckets_and_streams_do_not_share_names(self, store: Store) -> None:
        put_bucket(store, b"abcd", BucketState(1))
        create(store, b"efgh\0s", new_state(1))
        assert store.load(b"abcd") is None
        assert store.bucket(b"efgh") is None
        assert store.bucket(b"efgh\0s") is None


class TestBucketNames:
    """Buckets that begin with `prefix` and come after another one, in order."""

    IDS = (b"----", b"0000", b"____", b"abcd", b"abcd-", b"abcde", b"zzzz")

    @pytest.fixture
    def named(self, store: Store) -> Store:
        for name in random.Random(3).sample(self.IDS, len(self.IDS)):
            put_bucket(store, name, BucketState(1))
        create(store, b"efgh\0s", new_state(1))
        return store

    def test_prefix_and_cursor(self, named: Store) -> None:
        for prefix, after, most, found in [
            (b"", b"", 99, sorted(self.IDS)),
            (b"", b"", 3, sorted(self.IDS)[:3]),
            (b"", b"abcd", 99, [b"abcd-", b"abcde", b"zzzz"]),
            (b"abcd", b"", 99, [b"abcd", b"abcd-", b"abcde"]),
            (b"abcd", b"abcd", 1, [b"abcd-"]),
            (b"abcd", b"zzzz", 99, []),
            (b"zzzz", b"a", 99, [b"zzzz"]),
            (b"efgh", b"", 99, []),
            (b"\xff", b"", 99, []),
        ]:
            assert named.bucket_names(prefix, after, most) == found

    def test_a_deleted_bucket_is_gone(self, named: Store) -> None:
        put_bucket(named, b"abcd", None)
        assert named.bucket_names(b"abcd", b"", 99) == [b"abcd-", b"abcde"]


class TestNames:
    """Keys of streams that begin with `prefix` and come after another key, in order."""

    IDS = (b"a", b"a\x01", b"aa", b"ab", b"b", b"\x7f", "é".encode(), "€".encode(), "😀".encode())

    @pytest.fixture
    def named(self, store: Store) -> Store:
        """Streams in three buckets whose ids begin alike, and on the base surface."""
        keys = [b"buck\0" + name for name in self.IDS]
        keys += [b"buc-\0a", b"buck-\0a", b"bucka\0a", b"bucl\0a", b"\0buck", b"\0a", b"\0b/a"]
        random.Random(2).shuffle(keys)
        for at, key in enumerate(keys, 1):
            create(store, key, new_state(at))
        return store

    def of(self, store: Store, prefix: bytes = b"", after: bytes = b"", most: int = 99) -> object:
        cursor = b"buck\0" + after if after else b""
        names = store.names(b"buck\0" + prefix, cursor, most)
        assert all(name.startswith(b"buck\0") for name in names)
        return [name[5:] for name in names]

    def test_in_the_order_of_their_bytes(self, named: Store) -> None:
        assert self.of(named) == sorted(self.IDS)

    def test_a_bucket_without_streams(self, named: Store) -> None:
        assert named.names(b"none\0", b"", 99) == []
        assert named.names(b"none\0", b"none\0a", 99) == []

    def test_the_number_of_names_is_limited(self, named: Store) -> None:
        for most in [1, 2, 8, 9, 10]:
            assert self.of(named, most=most) == sorted(self.IDS)[:most]

    def test_the_base_surface_has_no_bucket(self, named: Store) -> None:
        assert named.names(b"\0", b"", 99) == [b"\0a", b"\0b/a", b"\0buck"]
        assert named.names(b"\0b", b"\0b/a", 99) == [b"\0buck"]

    def test_prefix(self, named: Store) -> None:
        for prefix, found in [
            (b"a", [b"a", b"a\x01", b"aa", b"ab"]),
            (b"aa", [b"aa"]),
            (b"a\x01", [b"a\x01"]),
            (b"a\0", []),
            (b"aaa", []),
            (b"\x7f", [b"\x7f"]),
            (b"\xc3", ["é".encode()]),
            (b"\xe2\x82", ["€".encode()]),
            (b"\xf0", ["😀".encode()]),
            (b"\xff", []),
            (b"\xff\xff\xff", []),
            (b"A", []),
        ]:
            assert self.of(named, prefix) == found

    def test_after_another_key(self, named: Store) -> None:
        """Exclusive; it need not be the key of a stream, nor begin with the prefix."""
        for prefix, after, found in [
            (b"a", b"a", [b"a\x01", b"aa", b"ab"]),
            (b"a", b"aa", [b"ab"]),
            (b"a", b"ab", []),
            (b"a", b"b", []),
            (b"a", b"\xff", []),
            (b"b", b"a", [b"b"]),
            (b"b", b"ab", [b"b"]),
            (b"b", b"b", []),
            (b"a", b"a\x00", [b"a\x01", b"aa", b"ab"]),
            (b"", b"b", [b"\x7f", "é".encode(), "€".encode(), "😀".encode()]),
            (b"", "€".encode(), ["😀".encode()]),
            (b"", "😀".encode(), []),
        ]:
            assert self.of(named, prefix, after) == found

    def test_a_cursor_of_a_later_bucket_finds_nothing(self, named: Store) -> None:
        assert named.names(b"buck\0", b"bucl\0a", 99) == []
        assert len(named.names(b"buck\0", b"buc-\0a", 99)) == len(self.IDS)

    def test_deleted_names_are_gone_and_may_come_again(self, named: Store) -> None:
        state = named.load(b"buck\0aa")
        assert state is not None
        delete(named, b"buck\0aa", state)
        assert self.of(named, b"a") == [b"a", b"a\x01", b"ab"]
        assert self.of(named, b"a", b"aa") == [b"ab"]
        create(named, b"buck\0aa", new_state(77))
        assert self.of(named, b"a") == [b"a", b"a\x01", b"aa", b"ab"]

    def test_delete_and_create_of_one_name_in_one_transaction(self, named: Store) -> None:
        state = named.load(b"buck\0aa")
        assert state is not None
        transaction = named.begin()
        transaction.delete(b"buck\0aa", state)
        transaction.create(b"buck\0aa", new_state(77))
        transaction.create(b"buck\0new", new_state(78))
        transaction.delete(b"buck\0new", new_state(78))
        named.write(transaction)
        assert self.of(named) == sorted(self.IDS)

    def test_the_last_name_of_a_bucket(self, store: Store) -> None:
        state = create(store, b"buck\0s", new_state(1))
        delete(store, b"buck\0s", state)
        assert self.of(store) == []
        create(store, b"buck\0t", new_state(2))
        assert self.of(store) == [b"t"]

    @settings(max_examples=100, deadline=None)
    @given(
        names=st.sets(st.binary(min_size=1, max_size=4).map(lambda b: b.replace(b"\0", b"\xff"))),
        gone=st.sets(st.binary(min_size=1, max_size=2)),
        prefix=st.binary(max_size=2),
        after=st.binary(max_size=3),
        most=st.integers(1, 6),
    )
    def test_memory_is_a_sorted_list(
        self, names: set[bytes], gone: set[bytes], prefix: bytes, after: bytes, most: int
    ) -> None:
        store = MemoryStore()
        for at, name in enumerate(names, 1):
            create(store, b"buck\0" + name, new_state(at))
        for name in names & gone:
            delete(store, b"buck\0" + name, new_state(1))
        left = sorted(names - gone)
        expected = [name for name in left if name.startswith(prefix) and name > after][:most]
        assert self.of(store, prefix, after, most) == expected

    @given(prefix=EDGES, key=EDGES)
    def test_the_bound_of_a_prefix(self, prefix: bytes, key: bytes) -> None:
        """`after_prefix`: everything from the prefix to before it begins with the prefix."""
        end = after_prefix(prefix)
        assert (prefix <= key and (end is None or key < end)) == key.startswith(prefix)


class TestPublish:
    @pytest.fixture
    def state(self, store: Store) -> StreamState:
        """Records at 0, 3 (of three messages: 3, 4, 6), 10, to 12."""
        state = create(store, b"buck\0s", new_state(4))
        return append(store, state, batch(3), batch(1, 2, 4), batch(2))

    @pytest.mark.parametrize("size", [0, 1, 100, 40_000, 256 << 10])
    def test_inline(self, store: Store, state: StreamState, size: int) -> None:
        """Its bytes and the state that shows it come together."""
        content = content_of(size)
        after = publish(store, b"buck\0s", state, Offset(1, 3), snapshot_id=9, content=content)
        assert store.load(b"buck\0s") == after
        assert (after.earliest, after.tail) == (Offset(1, 3), state.tail)
        assert read_back(store, after.snapshot) == content

    @pytest.mark.parametrize(
        "size",
        [
            1,
            SNAPSHOT_CHUNK_BYTES - 1,
            SNAPSHOT_CHUNK_BYTES,
            SNAPSHOT_CHUNK_BYTES + 1,
            2 * SNAPSHOT_CHUNK_BYTES,
            BIG,
        ],
    )
    def test_spooled(self, store: Store, state: StreamState, size: int) -> None:
        """Chunk by chunk, whole, whatever its size is to that of a chunk."""
        content = content_of(size)
        after = publish(
            store, b"buck\0s", state, Offset(1, 3), snapshot_id=9, content=content, inline=False
        )
        assert store.load(b"buck\0s") == after
        assert read_back(store, after.snapshot) == content
        assert after.snapshot is not None
        start = (size - 1) // SNAPSHOT_CHUNK_BYTES * SNAPSHOT_CHUNK_BYTES
        last = store.read_snapshot(after.snapshot, start // SNAPSHOT_CHUNK_BYTES)
        assert last == content[start:]

    def test_nothing_is_visible_before_it_is_written(
        self, store: Store, state: StreamState
    ) -> None:
        snapshot = snapshot_of(9, Offset(1, 3), b"x")
        after = apply(state, PublishRecord(snapshot, b"x"))
        assert after is not None
        transaction = store.begin()
        transaction.publish(b"buck\0s", state, after, b"x")
        assert store.load(b"buck\0s") == state
        assert store.garbage(9) == []
        del transaction
        store.write(store.begin())
        assert store.load(b"buck\0s") == state

    def test_several_at_the_same_time(self, store: Store) -> None:
        """Uploads run beside each other, and none takes bytes of another."""
        contents = {at: content_of(SNAPSHOT_CHUNK_BYTES + at, at) for at in (21, 22, 23)}
        spools = {at: store.spool(at) for at in contents}
        for start in (0, SNAPSHOT_CHUNK_BYTES):
            for at, made in spools.items():
                made.write(contents[at][start : start + SNAPSHOT_CHUNK_BYTES])
        for made in spools.values():
            made.finish()
        for at, content in contents.items():
            snapshot = snapshot_of(at, START, content, inline=False)
            assert read_back(store, snapshot) == content

    def test_appends_go_on_after_it(self, store: Store, state: StreamState) -> None:
        """The checkpoint that a publication stores is where a replay begins."""
        after = publish(store, b"buck\0s", state, state.tail, snapshot_id=9)
        after = append(store, after, batch(5, time=20), batch(1, 1, time=21))
        assert store.load(b"buck\0s") == after
        reclaim(store, *store.garbage(9))
        assert store.load(b"buck\0s") == after
        assert read_stream(store, after) == b"aaaaaab"

    def test_of_a_closed_stream(self, store: Store, state: StreamState) -> None:
        """Also at its very end, where the record that closed it lies."""
        claim = ProducerHeaders("p", 1, 0)
        state = append(store, state, AppendRecord(5, b"", (), claim, None, True))
        after = publish(store, b"buck\0s", state, state.tail, snapshot_id=9, content=b"all")
        reclaim(store, *store.garbage(9))
        assert store.load(b"buck\0s") == after
        assert (after.closed, after.closed_by) == (True, claim)
        assert read_back(store, after.snapshot) == b"all"
        assert read_stream(store, after) == b""

    def test_at_the_very_beginning_nothing_is_trimmed(
        self, store: Store, state: StreamState
    ) -> None:
        """An offset at which nothing has been written yet is one, too."""
        after = publish(store, b"buck\0s", state, START, snapshot_id=9)
        assert store.garbage(9) == []
        assert store.load(b"buck\0s") == after
        assert read_stream(store, after) == b"aaaabbccccaa"


class TestGarbageKinds:
    @pytest.fixture
    def state(self, store: Store) -> StreamState:
        """Records at 0, 3 (of three messages: 3, 4, 6), 10, to 12; neighbours on each side."""
        for stream_id in (3, 4, 5):
            state = create(store, b"buck\0%d" % stream_id, new_state(stream_id))
            append(store, state, batch(3), batch(1, 2, 4), batch(2))
        found = store.load(b"buck\0004")
        assert found is not None
        return found

    def neighbours(self, store: Store) -> list[list[int]]:
        return [scan(store, stream_id, 0, 12) for stream_id in (3, 5)]

    def test_the_beginning_of_a_stream(self, store: Store, state: StreamState) -> None:
        publish(store, b"buck\0004", state, Offset(4, 10), snapshot_id=9)
        trim = Garbage(4, 10, until=10)
        assert store.garbage(9) == [trim]
        # A reader that began before may still finish.
        assert scan(store, 4, 0, 12) == [0, 3, 10]
        reclaim(store, trim)
        assert store.garbage(9) == []
        assert scan(store, 4, 10, 12) == [10]
        assert scan(store, 4, 0, 10) == []
        assert self.neighbours(store) == [[0, 3, 10], [0, 3, 10]]

    @pytest.mark.parametrize(
        ("offset", "kept", "rest"),
        [
            (Offset(1, 3), [3, 10], b"abbccccaa"),
            (Offset(2, 4), [3, 10], b"bbccccaa"),
            (Offset(3, 6), [3, 10], b"ccccaa"),
            (Offset(4, 10), [10], b"aa"),
            (Offset(5, 12), [], b""),
        ],
    )
    def test_a_trim_inside_a_batch_keeps_the_record_of_that_batch(
        self, store: Store, state: StreamState, offset: Offset, kept: list[int], rest: bytes
    ) -> None:
        """Only what lies wholly before the offset goes: the rest of a batch is still read."""
        after = publish(store, b"buck\0004", state, offset, snapshot_id=9)
        assert read_stream(store, after) == rest
        reclaim(store, *store.garbage(9))
        assert read_stream(store, after) == rest
        found = [decode_record(value)[0].byte for value in store.scan(4, 0, 12)]
        assert found == kept
        assert store.load(b"buck\0004") == after
        assert self.neighbours(store) == [[0, 3, 10], [0, 3, 10]]

    def test_trims_of_one_stream_are_notes_of_their_own(
        self, store: Store, state: StreamState
    ) -> None:
        """Each with its share of the bytes; in any order, the last decides what is left."""
        first = publish(store, b"buck\0004", state, Offset(1, 3), snapshot_id=8)
        second = publish(store, b"buck\0004", first, Offset(3, 6), snapshot_id=9)
        trims = [Garbage(4, 3, until=3), Garbage(4, 3, until=6)]
        assert sorted(store.garbage(9), key=str) == sorted([*trims, Garbage(8, 8)], key=str)
        reclaim(store, trims[1])
        reclaim(store, trims[0])
        assert store.garbage(9) == [Garbage(8, 8)]
        assert read_stream(store, second) == b"ccccaa"

    @pytest.mark.parametrize("inline", [True, False])
    def test_a_superseded_snapshot(self, store: Store, state: StreamState, inline: bool) -> None:
        first = publish(
            store, b"buck\0004", state, START, snapshot_id=8, content=b"first", inline=inline
        )
        second = publish(store, b"buck\0004", first, START, snapshot_id=9, content=b"second")
        (garbage,) = store.garbage(9)
        assert garbage[:3] == (8, 5, None)
        if store.durable:
            # The store in memory has no files at all.
            assert garbage.file is not inline
        # A reader may finish.
        assert read_back(store, first.snapshot) == b"first"
        reclaim(store, garbage)
        assert store.garbage(9) == []
        assert read_back(store, second.snapshot) == b"second"
        assert store.load(b"buck\0004") == second

    @pytest.mark.parametrize("inline", [True, False])
    def test_a_deleted_stream_leaves_records_and_snapshot(
        self, store: Store, state: StreamState, inline: bool
    ) -> None:
        after = publish(
            store, b"buck\0004", state, Offset(2, 4), snapshot_id=9, content=b"all", inline=inline
        )
        delete(store, b"buck\0004", after)
        left = sorted(store.garbage(9), key=str)
        assert [entry[:3] for entry in left] == [(4, 4, 4), (4, 8, None), (9, 3, None)]
        assert read_back(store, after.snapshot) == b"all"
        reclaim(store, *left)
        assert store.garbage(9) == []
        assert scan(store, 4, 0, 12) == []
        assert self.neighbours(store) == [[0, 3, 10], [0, 3, 10]]

    def test_a_trim_that_is_reclaimed_after_its_stream(
        self, store: Store, state: StreamState
    ) -> None:
        """The order in which notes are worked off does not matter."""
        after = publish(store, b"buck\0004", state, Offset(2, 4), snapshot_id=9)
        delete(store, b"buck\0004", after)
        for entry in sorted(store.garbage(9), key=lambda entry: entry.until is not None):
            reclaim(store, entry)
        assert store.garbage(9) == []
        assert self.neighbours(store) == [[0, 3, 10], [0, 3, 10]]

    @pytest.mark.parametrize("count", [255, 256, 257, 600])
    def test_a_trim_of_any_number_of_records(self, store: Store, count: int) -> None:
        """Few are deleted one by one, many as a range; the last batch stays."""
        states = {}
        for stream_id in (1, 2, 3):
            made = create(store, b"buck\0%d" % stream_id, new_state(stream_id))
            states[stream_id] = append(store, made, *[batch(2)] * count, batch(1, 1))
        offset = Offset(count + 1, 2 * count + 1)
        after = publish(store, b"buck\0002", states[2], offset, snapshot_id=9)
        reclaim(store, *store.garbage(9))
        whole = 2 * count + 2
        lengths = [len(scan(store, stream_id, 0, whole)) for stream_id in (1, 2, 3)]
        assert lengths == [count + 1, 1, count + 1]
        assert read_stream(store, after) == b"b"

    def test_large_records_are_trimmed_too(self, store: Store) -> None:
        """More bytes than the store looks at one by one."""
        made = create(store, b"buck\0s", new_state(1))
        records = [AppendRecord(2, bytes([65 + at]) * (1 << 20)) for at in range(6)]
        state = append(store, made, *records)
        after = publish(store, b"buck\0s", state, Offset(5, 5 << 20), snapshot_id=9)
        reclaim(store, *store.garbage(9))
        assert scan(store, 1, 0, 6 << 20) == [5 << 20]
        assert read_stream(store, after) == b"F" * (1 << 20)

    def test_only_what_is_allowed(self, store: Store, state: StreamState) -> None:
        """`garbage`: what is not reclaimed yet and may be; the number counts only that."""
        after = publish(store, b"buck\0004", state, Offset(1, 3), snapshot_id=8)
        after = publish(store, b"buck\0004", after, Offset(2, 4), snapshot_id=9)
        delete(store, b"buck\0004", after)
        every = store.garbage(99)
        assert len(every) == 5
        seen: list[Garbage] = []

        def never(garbage: Garbage) -> bool:
            seen.append(garbage)
            return False

        assert store.garbage(99, never) == []
        assert seen == every
        assert [entry.id for entry in store.garbage(99, lambda entry: entry.id > 4)] == [8, 9]
        trims = store.garbage(1, lambda entry: entry.until == 4)
        assert trims == [Garbage(4, 1, until=4)]
        assert store.garbage(99) == every

    def test_pinned_garbage_is_passed_over_and_not_waited_for(
        self, store: Store, state: StreamState
    ) -> None:
        """One long download must not keep everything else from being reclaimed."""
        pins = Pins()
        release = pins.hold(state)
        delete(store, b"buck\0004", state)
        other = store.load(b"buck\0005")
        assert other is not None
        delete(store, b"buck\0005", other)
        assert store.garbage(1, pins.allow) == [Garbage(5, 12)]
        release()
        assert store.garbage(9, pins.allow) == [Garbage(4, 12), Garbage(5, 12)]


class TestUnlink:
    def test_a_second_call_has_no_effect(self, store: Store) -> None:
        state = create(store, b"buck\0s", new_state(1))
        after = publish(
            store, b"buck\0s", state, START, snapshot_id=8, content=content_of(BIG), inline=False
        )
        publish(store, b"buck\0s", after, START, snapshot_id=9)
        garbage = store.garbage(9)
        for _ in range(2):
            unlink(store, *garbage)
        assert store.garbage(9) == garbage
        reclaim(store, *garbage)
        unlink(store, *garbage)
        assert store.garbage(9) == []

    def test_what_has_no_file_is_left_alone(self, store: Store) -> None:
        """Inline snapshots and records go by the log alone."""
        state = append(store, create(store, b"buck\0s", new_state(1)), batch(3))
        first = publish(store, b"buck\0s", state, Offset(1, 3), snapshot_id=8)
        publish(store, b"buck\0s", first, Offset(1, 3), snapshot_id=9)
        unlink(store, *store.garbage(9))
        assert read_back(store, first.snapshot) == b"snapshot"
        assert scan(store, 1, 0, 3) == [0]


class TestSpool:
    """A large snapshot that is written: invisible until published, and it can be cancelled."""

    @pytest.mark.parametrize("chunks", [0, 1, 3])
    @pytest.mark.parametrize("finished", [False, True])
    def test_discard_leaves_nothing(
        self, kind: str, store: Store, tmp_path: Path, chunks: int, finished: bool
    ) -> None:
        made = store.spool(7)
        for at in range(chunks):
            made.write(content_of(SNAPSHOT_CHUNK_BYTES, at))
        if finished and chunks:
            made.finish()
        made.discard()
        # A second time, and for the same id, too.
        made.discard()
        assert store.garbage(9) == []
        assert files(tmp_path / "data") == []
        if kind == "memory":
            assert isinstance(store, MemoryStore)
            assert store.snapshots == {}
        spool(store, 7, b"again")
        assert read_back(store, snapshot_of(7, START, b"again", inline=False)) == b"again"

    def test_one_that_is_discarded_takes_no_other_along(self, store: Store) -> None:
        spool(store, 6, b"kept")
        made = store.spool(7)
        made.write(b"x")
        made.discard()
        assert read_back(store, snapshot_of(6, START, b"kept", inline=False)) == b"kept"

    def test_it_touches_no_disk_before_its_first_write(self, store: Store, tmp_path: Path) -> None:
        store.spool(7)
        assert not (tmp_path / "data" / "snapshots").exists()


def files(directory: Path) -> list[int]:
    """The ids of snapshots that have a file."""
    found = (directory / "snapshots").glob("*")
    return sorted(int(path.name) for path in found)


def crashed(directory: Path, copy: Path) -> RocksStore:
    """The store as a crash at this moment leaves it, opened again."""
    shutil.copytree(directory, copy, ignore=shutil.ignore_patterns("LOCK"))
    return RocksStore(copy)


class TestRocks:
    """What only a store on a disk can show."""

    @pytest.fixture
    def directory(self, tmp_path: Path) -> Path:
        return tmp_path / "data"

    @pytest.fixture
    def rocks(self, directory: Path) -> Iterator[RocksStore]:
        store = RocksStore(directory)
        yield store
        if store.handles:
            store.close()

    @pytest.mark.parametrize("end", ["close", "crash", "compact"])
    def test_all_of_it_is_there_after_a_restart(
        self, rocks: RocksStore, directory: Path, tmp_path: Path, end: str
    ) -> None:
        """Buckets, names, snapshots of both kinds, garbage of every kind, and trimmed streams."""
        put_bucket(rocks, b"buck", BucketState(5, 3))
        put_bucket(rocks, b"gone", BucketState(6))
        put_bucket(rocks, b"gone", None)
        large = content_of(BIG)
        states: dict[bytes, StreamState] = {}
        for at, name in enumerate((b"inline", b"file", b"none"), 1):
            state = create(rocks, b"buck\0" + name, new_state(at))
            states[name] = append(rocks, state, batch(3), batch(1, 2, 4), batch(2))
        states[b"inline"] = publish(
            rocks, b"buck\0inline", states[b"inline"], Offset(2, 4), snapshot_id=11
        )
        old = states[b"file"] = publish(
            rocks, b"buck\0file", states[b"file"], START, snapshot_id=12, content=b"o", inline=False
        )
        states[b"file"] = publish(
            rocks, b"buck\0file", old, Offset(3, 6), snapshot_id=13, content=large, inline=False
        )
        states[b"file"] = append(rocks, states[b"file"], batch(7, time=30))
        reclaim(rocks, Garbage(1, 4, until=4))
        garbage = rocks.garbage(99)
        assert garbage == [Garbage(2, 6, until=6), Garbage(12, 1, file=True)]
        rocks.sync()
        if end == "compact":
            rocks.compact((0, 0), (99, 0))
        if end == "crash":
            again = crashed(directory, tmp_path / "copy")
            directory = tmp_path / "copy"
        else:
            rocks.close()
            again = RocksStore(directory)
        assert again.bucket(b"buck") == BucketState(5, 3)
        assert again.bucket(b"gone") is None
        assert again.names(b"buck\0", b"", 9) == [b"buck\0file", b"buck\0inline", b"buck\0none"]
        for name, state in states.items():
            assert again.load(b"buck\0" + name) == state
        assert read_back(again, states[b"inline"].snapshot) == b"snapshot"
        assert read_back(again, states[b"file"].snapshot) == large
        # Not visible any more, but not reclaimed either: a reader may still use it.
        assert read_back(again, old.snapshot) == b"o"
        assert read_stream(again, states[b"inline"]) == b"bbccccaa"
        assert read_stream(again, states[b"file"]) == b"ccccaaaaaaaaa"
        assert read_stream(again, states[b"none"]) == b"aaaabbccccaa"
        assert again.garbage(99) == garbage
        assert files(directory) == [12, 13]
        reclaim(again, *garbage)
        again.compact((0, 0), (99, 0))
        assert files(directory) == [13]
        assert read_stream(again, states[b"file"]) == b"ccccaaaaaaaaa"
        again.close()

    def test_orphans_are_removed_and_what_is_referred_to_is_kept(
        self, rocks: RocksStore, directory: Path, tmp_path: Path
    ) -> None:
        """What a crash left of uploads: one cut off, one whole but not published."""
        state = create(rocks, b"buck\0s", new_state(1))
        content = content_of(BIG)
        after = publish(
            rocks, b"buck\0s", state, START, snapshot_id=2, content=content, inline=False
        )
        half = rocks.spool(3)
        half.write(content[:SNAPSHOT_CHUNK_BYTES])
        spool(rocks, 4, content)
        rocks.sync()
        again = crashed(directory, tmp_path / "copy")
        assert files(tmp_path / "copy") == [2]
        assert read_back(again, after.snapshot) == content
        again.close()
        half.discard()

    @pytest.mark.parametrize("name", ["notes.txt", "7", "0" * 19, "9" * 21, "9" * 20])
    def test_a_file_that_cannot_be_ours_is_left_alone(
        self, rocks: RocksStore, directory: Path, name: str
    ) -> None:
        """It neither goes nor keeps the store from opening; the last is too large for an id."""
        spool(rocks, 3, b"orphan")
        foreign = directory / "snapshots" / name
        foreign.write_bytes(b"x")
        rocks.close()
        RocksStore(directory).close()
        assert list((directory / "snapshots").iterdir()) == [foreign]

    def test_the_id_of_an_orphan_can_be_used_again(
        self, rocks: RocksStore, directory: Path, tmp_path: Path
    ) -> None:
        """The crash may have come before the id was durably taken."""
        rocks.spool(3).write(b"cut off")
        again = crashed(directory, tmp_path / "copy")
        spool(again, 3, b"whole")
        assert read_back(again, snapshot_of(3, START, b"whole", inline=False)) == b"whole"
        again.close()

    def test_files_that_are_gone_already_do_not_keep_it_from_opening(
        self, rocks: RocksStore, directory: Path, tmp_path: Path
    ) -> None:
        """A crash between `unlink` and `reclaim`: the note is still there, and worked off."""
        state = create(rocks, b"buck\0s", new_state(1))
        after = publish(
            rocks, b"buck\0s", state, START, snapshot_id=2, content=b"old", inline=False
        )
        after = publish(rocks, b"buck\0s", after, START, snapshot_id=3, content=b"new")
        garbage = rocks.garbage(9)
        unlink(rocks, *garbage)
        rocks.sync()
        again = crashed(directory, tmp_path / "copy")
        assert again.garbage(9) == garbage == [Garbage(2, 3, file=True)]
        reclaim(again, *garbage)
        assert again.garbage(9) == []
        assert again.load(b"buck\0s") == after
        again.close()

    def test_the_bytes_of_a_reclaimed_snapshot_are_not_there_any_more(
        self, rocks: RocksStore, directory: Path
    ) -> None:
        state = create(rocks, b"buck\0s", new_state(1))
        snapshots = []
        for snapshot_id, inline in ((5, True), (6, False), (7, True)):
            state = publish(rocks, b"buck\0s", state, START, snapshot_id=snapshot_id, inline=inline)
            snapshots.append(state.snapshot)
        reclaim(rocks, *rocks.garbage(9))
        for gone in snapshots[:2]:
            assert gone is not None
            with pytest.raises(StorageDamaged):
                rocks.read_snapshot(gone, 0)
        assert read_back(rocks, snapshots[2]) == b"snapshot"
        assert files(directory) == []

    @pytest.mark.parametrize("where", ["first", "middle", "last", "check"])
    def test_a_damaged_file_is_reported_and_never_served(
        self, rocks: RocksStore, directory: Path, where: str
    ) -> None:
        """Every chunk is checked: a flipped bit is `StorageDamaged`, the others are good."""
        content = content_of(BIG)
        spool(rocks, 5, content)
        snapshot = snapshot_of(5, START, content, inline=False)
        path = directory / "snapshots" / f"{5:020d}"
        stored = bytearray(path.read_bytes())
        assert stored[:BIG] == content
        at, chunk = {
            "first": (0, 0),
            "middle": (SNAPSHOT_CHUNK_BYTES, 1),
            "last": (BIG - 1, 2),
            "check": (BIG + 4, 1),
        }[where]
        stored[at] ^= 1
        path.write_bytes(stored)
        for index in range(3):
            if index == chunk:
                with pytest.raises(StorageDamaged):
                    rocks.read_snapshot(snapshot, index)
            else:
                start = index * SNAPSHOT_CHUNK_BYTES
                whole = content[start : start + SNAPSHOT_CHUNK_BYTES]
                assert rocks.read_snapshot(snapshot, index) == whole

    @pytest.mark.parametrize("size", [0, 3, SNAPSHOT_CHUNK_BYTES, BIG, BIG + 8])
    def test_a_truncated_file_is_reported(
        self, rocks: RocksStore, directory: Path, size: int
    ) -> None:
        content = content_of(BIG)
        spool(rocks, 5, content)
        path = directory / "snapshots" / f"{5:020d}"
        path.write_bytes(path.read_bytes()[:size])
        with pytest.raises(StorageDamaged):
            read_back(rocks, snapshot_of(5, START, content, inline=False))

    def test_compaction_loses_nothing_and_brings_nothing_back(
        self, rocks: RocksStore, directory: Path
    ) -> None:
        """Many streams, half of them deleted or trimmed, compacted in pieces and as a whole."""
        expected: dict[bytes, tuple[StreamState, bytes, bytes]] = {}
        for at in range(1, 61):
            key = b"buck\0%03d" % at
            state = create(rocks, key, new_state(at))
            # Above and below the size from which values lie in blob files.
            sizes = (10 + at, 40_000 if at % 5 == 0 else 50, 7)
            state = append(rocks, state, *(batch(size) for size in sizes))
            content = content_of(50_000 if at % 7 == 0 else 90, at)
            if at % 3 == 0:
                offset = Offset(1, sizes[0])
                state = publish(rocks, key, state, offset, snapshot_id=1000 + at, content=content)
            if at % 4 == 0:
                delete(rocks, key, state)
            else:
                expected[key] = (state, read_stream(rocks, state), content)
        reclaim(rocks, *rocks.garbage(999))
        for first, last in (((1, 0), (9, 0)), ((15, 0), (15, 25)), ((1010, 0), (1030, 0))):
            rocks.compact(first, last)
        rocks.compact((0, 0), (9999, 0))
        for store in self.twice(rocks, directory):
            assert store.names(b"buck\0", b"", 99) == sorted(expected)
            assert store.garbage(9) == []
            for at in range(1, 61):
                key = b"buck\0%03d" % at
                if key not in expected:
                    assert store.load(key) is None
                    assert scan(store, at, 0, 1 << 30) == []
                    continue
                state, retained, content = expected[key]
                assert store.load(key) == state
                assert read_stream(store, state) == retained
                if state.snapshot is not None:
                    assert read_back(store, state.snapshot) == content

    def twice(self, store: RocksStore, directory: Path) -> Iterator[RocksStore]:
        """The same store now and after a restart."""
        yield store
        store.close()
        again = RocksStore(directory)
        yield again
        again.close()


FAMILIES_1 = ("records", "states", "names", "expiry", "garbage")


def write_format_1(directory: Path) -> None:
    """
    A database as the first format has it: no families for buckets and snapshots, states without
    a snapshot, and garbage that is always a whole stream.
    """
    cache = Cache(1 << 20)
    families = {name: family_options(name, cache) for name in FAMILIES_1}
    db = Rdict(str(directory), family_options("default", cache), families)
    handles = {name: db.get_column_family_handle(name) for name in FAMILIES_1}
    changes = WriteBatch(raw_mode=True)
    changes.put(b"format", b"1")
    changes.put(b"next_id", ID.pack(1025))
    for stream_id, key in ((1, b"\0plain"), (2, b"\0a/b/c")):
        state: list[object] = [key, stream_id, "text/plain", 5, 6, 6, None, None]
        state += [[0, 0], [0, 0], False, None, None, {"p": [3, 4]}]
        changes.put(key, ID.pack(stream_id), handles["names"])
        changes.put(ID.pack(stream_id), msgspec.msgpack.encode(state), handles["states"])
        for at, record in ((START, batch(3)), (Offset(1, 3), batch(1, 2, time=8))):
            value = encode_record(at, record)
            changes.put(PAIR.pack(stream_id, at.byte), value, handles["records"])
    changes.put(PAIR.pack(77, 2), b"\0a/b/c", handles["expiry"])
    changes.put(PAIR.pack(3, 0), encode_record(START, batch(9)), handles["records"])
    changes.put(ID.pack(3), ID.pack(9), handles["garbage"])
    db.write(changes)
    db.flush_wal(True)
    db.close()


class TestFormat1:
    """A directory of the version before buckets and snapshots: opening it is upgrading it."""

    def check_streams(self, store: RocksStore) -> None:
        for stream_id, key in ((1, b"\0plain"), (2, b"\0a/b/c")):
            state = store.load(key)
            assert state is not None
            assert (state.id, state.tail) == (stream_id, Offset(3, 6))
            assert (state.earliest, state.snapshot) == (START, None)
            assert state.producers.get("p") == (3, 4)
            assert read_stream(store, state) == b"aaaabb"

    def test_its_streams_are_kept(self, tmp_path: Path) -> None:
        write_format_1(tmp_path / "data")
        store = RocksStore(tmp_path / "data")
        self.check_streams(store)
        assert store.next_id == 1025
        assert store.due(100, 9) == [Due(77, 2, b"\0a/b/c")]
        assert store.garbage(9) == [Garbage(3, 9)]
        reclaim(store, Garbage(3, 9))
        assert scan(store, 3, 0, 9) == []
        store.close()

    def test_it_takes_buckets_and_snapshots_from_then_on(self, tmp_path: Path) -> None:
        write_format_1(tmp_path / "data")
        store = RocksStore(tmp_path / "data")
        put_bucket(store, b"buck", BucketState(1, 1))
        state = append(store, create(store, b"buck\0s", new_state(2000)), batch(4), batch(2))
        content = content_of(BIG)
        after = publish(
            store, b"buck\0s", state, Offset(1, 4), snapshot_id=2001, content=content, inline=False
        )
        store.close()
        again = RocksStore(tmp_path / "data")
        self.check_streams(again)
        assert again.bucket(b"buck") == BucketState(1, 1)
        assert again.names(b"buck\0", b"", 9) == [b"buck\0s"]
        assert again.load(b"buck\0s") == after
        assert read_back(again, after.snapshot) == content
        again.close()

    def test_it_is_upgraded_once_and_for_good(self, tmp_path: Path) -> None:
        """Also by a process that only opens it and crashes: an old version must refuse it then."""
        write_format_1(tmp_path / "data")
        store = RocksStore(tmp_path / "data")
        assert store._db.get(b"format") == b"4"
        again = crashed(tmp_path / "data", tmp_path / "copy")
        assert again._db.get(b"format") == b"4"
        self.check_streams(again)
        again.close()
        store.close()


class TestPins:
    """`engine.pins`: what long responses still read is not reclaimed until they are done."""

    STATE = new_state(4, tail=Offset(9, 90), earliest=Offset(2, 20))

    def test_without_readers_everything_may_be_reclaimed(self) -> None:
        pins = Pins()
        for garbage in (Garbage(4, 9), Garbage(4, 9, until=5), Garbage(4, 9, file=True)):
            assert pins.allow(garbage)

    def test_a_stream_that_is_read_is_kept_whole(self) -> None:
        pins = Pins()
        release = pins.hold(self.STATE)
        assert not pins.allow(Garbage(4, 70))
        assert pins.allow(Garbage(5, 70))
        assert pins.allow(Garbage(3, 70))
        release()
        assert pins.allow(Garbage(4, 70))

    @pytest.mark.parametrize(
        ("until", "allowed"), [(1, True), (20, True), (21, False), (90, False)]
    )
    def test_data_before_a_pinned_state_may_be_reclaimed(self, until: int, allowed: bool) -> None:
        """Up to its earliest offset, which the reader began at or after."""
        pins = Pins()
        release = pins.hold(self.STATE)
        assert pins.allow(Garbage(4, 5, until=until)) is allowed
        release()
        assert pins.allow(Garbage(4, 5, until=until))

    @pytest.mark.parametrize("file", [False, True])
    def test_the_snapshot_of_that_state_is_kept_and_no_other(self, file: bool) -> None:
        pins = Pins()
        snapshot = snapshot_of(8, Offset(2, 20), b"x", inline=not file)
        release = pins.hold(msgspec.structs.replace(self.STATE, snapshot=snapshot))
        assert not pins.allow(Garbage(8, 1, file=file))
        assert pins.allow(Garbage(7, 1, file=file))
        assert not pins.allow(Garbage(4, 70))
        release()
        assert pins.allow(Garbage(8, 1, file=file))

    def test_the_slowest_reader_decides(self) -> None:
        pins = Pins()
        early = pins.hold(self.STATE)
        late = pins.hold(msgspec.structs.replace(self.STATE, earliest=Offset(6, 60)))
        trim = Garbage(4, 40, until=60)
        assert not pins.allow(trim)
        early()
        assert pins.allow(trim)
        assert not pins.allow(Garbage(4, 30, until=61))
        assert not pins.allow(Garbage(4, 30))
        late()
        assert pins.allow(Garbage(4, 30))

    def test_readers_of_the_same_state_are_counted(self) -> None:
        """Each lets go for itself, and more than once is as good as once."""
        pins = Pins()
        releases = [pins.hold(self.STATE) for _ in range(3)]
        for release in releases[:2]:
            release()
            release()
        assert not pins.allow(Garbage(4, 70))
        releases[2]()
        assert pins.allow(Garbage(4, 70))
        releases[2]()
        again = pins.hold(self.STATE)
        releases[0]()
        assert not pins.allow(Garbage(4, 70))
        again()

    @given(
        steps=st.lists(st.tuples(st.sampled_from([1, 2]), st.integers(0, 9)), max_size=12),
        released=st.sets(st.integers(0, 11)),
        stream_id=st.sampled_from([1, 2]),
        until=st.one_of(st.none(), st.integers(0, 9)),
    )
    def test_allowed_is_what_no_reader_left_needs(
        self,
        steps: list[tuple[int, int]],
        released: set[int],
        stream_id: int,
        until: int | None,
    ) -> None:
        pins = Pins()
        releases = [
            pins.hold(new_state(key, tail=Offset(9, 9), earliest=Offset(start, start)))
            for key, start in steps
        ]
        for at, release in enumerate(releases):
            if at in released:
                release()
        needed = [start for at, (key, start) in enumerate(steps)
                  if at not in released and key == stream_id]  # fmt: skip
        allowed = all(until is not None and start >= until for start in needed)
        assert pins.allow(Garbage(stream_id, 1, until=until)) is allowed

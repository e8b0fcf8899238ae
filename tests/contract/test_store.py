"""The contract of `engine.base`, on stores alone: every sentence of its docstrings."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tailrace.engine.base import Due, Garbage, Store
from tailrace.engine.codec import decode_record
from tailrace.engine.memory import MemoryStore
from tailrace.engine.rocks import RocksStore
from tailrace.protocol.machine import apply
from tailrace.protocol.offset import START, Offset
from tailrace.protocol.producer import ProducerHeaders
from tailrace.protocol.state import AppendRecord, StreamState
from tests.contract.harness import open_store


def new_state(stream_id: int, **changes: object) -> StreamState:
    state = StreamState(
        id=stream_id,
        content_type="text/plain",
        json=False,
        created_at=1,
        touched_at=1,
        written_at=1,
    )
    return replace(state, **changes)


def create(store: Store, key: bytes, state: StreamState) -> StreamState:
    transaction = store.begin()
    transaction.create(key, state)
    store.write(transaction)
    return state


def append(store: Store, state: StreamState, *records: AppendRecord) -> StreamState:
    transaction = store.begin()
    for record in records:
        transaction.append(state.id, state.tail, record)
        after = apply(state, record)
        assert after is not None
        state = after
    store.write(transaction)
    return state


def batch(*lengths: int, time: int = 2) -> AppendRecord:
    payload = b"".join(bytes([97 + at % 26]) * size for at, size in enumerate(lengths))
    return AppendRecord(time, payload, lengths if len(lengths) > 1 else ())


def scan(store: Store, stream_id: int, start: int, end: int) -> list[int]:
    """The byte offsets of the records that a scan returns."""
    return [decode_record(value)[0].byte for value in store.scan(stream_id, start, end)]


class TestLoad:
    def test_a_name_that_was_never_given_is_none(self, store: Store) -> None:
        assert store.load(b"nobody") is None

    def test_a_created_stream(self, store: Store) -> None:
        state = create(store, b"k", new_state(5, ttl_s=7, expires_at=9))
        assert store.load(b"k") == state

    def test_the_checkpoint_and_the_records_after_it_folded(self, store: Store) -> None:
        """`Store.load`: also where no checkpoint was stored after the records."""
        state = create(store, b"k", new_state(5))
        claim = ProducerHeaders("p", 1, 0)
        first = AppendRecord(2, b"ab", (1, 1), claim, "s")
        state = append(
            store, state, first, AppendRecord(3, b"c"), AppendRecord(4, b"", closes=True)
        )
        assert (state.tail, state.closed, state.touched_at) == (Offset(3, 3), True, 4)
        assert store.load(b"k") == state

    def test_a_checkpoint_between_records(self, store: Store) -> None:
        state = append(store, create(store, b"k", new_state(5)), batch(3), batch(2, 2))
        transaction = store.begin()
        transaction.checkpoint(b"k", state)
        store.write(transaction)
        assert store.load(b"k") == state
        state = append(store, state, batch(9, time=8))
        assert store.load(b"k") == state

    def test_a_checkpoint_of_a_closed_stream_is_not_closed_twice(self, store: Store) -> None:
        """The closing record without bytes lies at the tail, where a replay would begin."""
        claim = ProducerHeaders("p", 0, 0)
        state = create(store, b"k", new_state(5))
        state = append(store, state, batch(4), AppendRecord(3, b"", (), claim, None, True))
        transaction = store.begin()
        transaction.checkpoint(b"k", replace(state, touched_at=77))
        store.write(transaction)
        assert store.load(b"k") == replace(state, touched_at=77)

    def test_neighbours_do_not_leak_into_each_other(self, store: Store) -> None:
        states = [create(store, b"k%d" % at, new_state(at)) for at in (255, 256, 257)]
        states = [append(store, state, batch(at + 1)) for at, state in enumerate(states)]
        states[1] = append(store, states[1], batch(10))
        for at, state in zip((255, 256, 257), states, strict=True):
            assert store.load(b"k%d" % at) == state

    @pytest.mark.parametrize("key", [b"", b"\x00", b"\xff" * 40, "ключ".encode(), b"a" * 1024])
    def test_any_bytes_are_a_name(self, store: Store, key: bytes) -> None:
        state = create(store, key, new_state(1))
        assert store.load(key) == state
        assert store.load(key + b"x") is None


class TestTransaction:
    def test_nothing_is_visible_before_it_is_written(self, store: Store) -> None:
        """`Transaction`: changes become visible together, or not at all."""
        transaction = store.begin()
        transaction.create(b"k", new_state(1))
        transaction.append(1, START, batch(3))
        transaction.schedule(Due(5, 1, b"k"))
        assert store.load(b"k") is None
        assert scan(store, 1, 0, 3) == []
        assert store.due(10, 10) == []
        store.write(transaction)
        loaded = store.load(b"k")
        assert loaded is not None and loaded.tail == (1, 3)
        assert store.due(10, 10) == [Due(5, 1, b"k")]

    def test_one_that_is_dropped_leaves_nothing(self, store: Store) -> None:
        transaction = store.begin()
        transaction.create(b"k", new_state(1))
        del transaction
        store.write(store.begin())
        assert store.load(b"k") is None

    def test_delete_and_create_of_one_name_in_one(self, store: Store) -> None:
        old = append(store, create(store, b"k", new_state(1)), batch(3))
        transaction = store.begin()
        transaction.delete(b"k", old)
        transaction.create(b"k", new_state(2))
        transaction.append(2, START, batch(5))
        store.write(transaction)
        loaded = store.load(b"k")
        assert loaded is not None
        assert (loaded.id, loaded.tail) == (2, Offset(1, 5))
        assert store.garbage(9) == [Garbage(1, 3)]

    def test_create_and_delete_of_one_name_in_one(self, store: Store) -> None:
        state = new_state(1)
        transaction = store.begin()
        transaction.create(b"k", state)
        transaction.delete(b"k", state)
        store.write(transaction)
        assert store.load(b"k") is None
        assert store.garbage(9) == [Garbage(1, 0)]


class TestScan:
    """Stored records that lie in these bytes, from the one that contains `start` on."""

    @pytest.fixture
    def filled(self, store: Store) -> Store:
        """Records at 0, 3, 7 (of three messages: 7, 8, 10), 14, to 15; neighbours on each side."""
        for stream_id in (6, 7, 8):
            state = create(store, b"k%d" % stream_id, new_state(stream_id))
            append(store, state, batch(3), batch(4), batch(1, 2, 4), batch(1))
        return store

    def test_boundaries(self, filled: Store) -> None:
        for start, end, found in [
            (0, 15, [0, 3, 7, 14]),
            (0, 1, [0]),
            (0, 3, [0]),
            (0, 4, [0, 3]),
            (1, 15, [0, 3, 7, 14]),
            (3, 15, [3, 7, 14]),
            (6, 15, [3, 7, 14]),
            (8, 15, [7, 14]),
            (13, 14, [7]),
            (14, 15, [14]),
        ]:
            assert scan(filled, 7, start, end) == found

    def test_a_stream_without_records(self, store: Store) -> None:
        create(store, b"k", new_state(3))
        assert scan(store, 3, 0, 100) == []
        assert scan(store, 99, 0, 100) == []

    def test_the_first_stream_does_not_fall_into_the_one_before_it(self, filled: Store) -> None:
        create(filled, b"empty", new_state(9))
        assert scan(filled, 9, 0, 100) == []
        assert scan(filled, 9, 5, 100) == []

    def test_it_may_be_dropped_half_way(self, filled: Store) -> None:
        assert decode_record(next(iter(filled.scan(7, 0, 15))))[0] == START
        append(filled, new_state(7, tail=Offset(6, 15)), batch(2))
        assert scan(filled, 7, 0, 17) == [0, 3, 7, 14, 15]

    def test_large_records_come_back_whole(self, store: Store) -> None:
        """Above the size from which a store may keep them elsewhere."""
        state = create(store, b"k", new_state(1))
        records = [AppendRecord(2, bytes([at]) * (20_000 * (at + 1))) for at in range(6)]
        end = append(store, state, *records).tail.byte
        found = [decode_record(value)[1] for value in store.scan(1, 0, end)]
        assert found == records


class TestDue:
    def test_entries_are_due_at_their_time_earliest_first(self, store: Store) -> None:
        entries = [Due(50, 1, b"a"), Due(10, 300, b"b"), Due(10, 2, b"c"), Due(2**40, 3, b"d")]
        transaction = store.begin()
        for entry in entries:
            transaction.schedule(entry)
        store.write(transaction)
        assert store.due(9, 10) == []
        assert store.due(10, 10) == [entries[2], entries[1]]
        assert store.due(50, 10) == [entries[2], entries[1], entries[0]]
        assert store.due(50, 2) == [entries[2], entries[1]]
        assert store.due(2**41, 10) == [entries[2], entries[1], entries[0], entries[3]]

    def test_unschedule_takes_out_one_entry(self, store: Store) -> None:
        transaction = store.begin()
        for entry in (Due(1, 1, b"a"), Due(1, 2, b"b"), Due(2, 1, b"a")):
            transaction.schedule(entry)
        store.write(transaction)
        transaction = store.begin()
        transaction.unschedule(Due(1, 1, b"a"))
        store.write(transaction)
        assert store.due(9, 9) == [Due(1, 2, b"b"), Due(2, 1, b"a")]

    def test_the_same_entry_twice_is_one(self, store: Store) -> None:
        """The sweeper may look twice before what it wrote is visible."""
        for _ in range(2):
            transaction = store.begin()
            transaction.schedule(Due(1, 1, b"a"))
            store.write(transaction)
        assert store.due(9, 9) == [Due(1, 1, b"a")]

    def test_what_is_not_there_can_be_taken_out(self, store: Store) -> None:
        """For the same reason."""
        transaction = store.begin()
        transaction.unschedule(Due(1, 1, b"a"))
        store.write(transaction)
        assert store.due(9, 9) == []

    @settings(max_examples=30, deadline=None)
    @given(
        entries=st.sets(st.tuples(st.integers(0, 40), st.integers(1, 9)), max_size=20),
        gone=st.sets(st.tuples(st.integers(0, 40), st.integers(1, 9)), max_size=20),
        now=st.integers(0, 40),
        count_max=st.integers(1, 8),
    )
    def test_memory_is_a_sorted_list(
        self,
        entries: set[tuple[int, int]],
        gone: set[tuple[int, int]],
        now: int,
        count_max: int,
    ) -> None:
        store = MemoryStore()
        transaction = store.begin()
        for deadline, stream_id in entries:
            transaction.schedule(Due(deadline, stream_id, b"%d" % stream_id))
        for deadline, stream_id in gone & entries:
            transaction.unschedule(Due(deadline, stream_id, b"%d" % stream_id))
        store.write(transaction)
        expected = sorted((d, i) for d, i in entries - gone if d <= now)[:count_max]
        assert [(due.deadline, due.id) for due in store.due(now, count_max)] == expected


class TestGarbage:
    def test_delete_forgets_the_name_and_keeps_the_records_until_reclaimed(
        self, store: Store
    ) -> None:
        state = append(store, create(store, b"k", new_state(4)), batch(3), batch(1, 1))
        other = append(store, create(store, b"other", new_state(5)), batch(2))
        transaction = store.begin()
        transaction.delete(b"k", state)
        store.write(transaction)
        assert store.load(b"k") is None
        assert store.garbage(10) == [Garbage(4, 5)]
        # A reader that began before may still finish.
        assert scan(store, 4, 0, 5) == [0, 3]
        transaction = store.begin()
        transaction.reclaim(Garbage(4, 5))
        store.write(transaction)
        assert store.garbage(10) == []
        assert scan(store, 4, 0, 5) == []
        assert store.load(b"other") == other
        assert scan(store, 5, 0, 2) == [0]

    @pytest.mark.parametrize("count", [1, 255, 256, 257, 600])
    def test_reclaim_of_any_number_of_records(self, store: Store, count: int) -> None:
        """Few are deleted one by one, many as a range: neither may touch the neighbours."""
        states = {}
        for stream_id in (1, 2, 3):
            states[stream_id] = create(store, b"%d" % stream_id, new_state(stream_id))
            states[stream_id] = append(store, states[stream_id], *[batch(2)] * count)
        transaction = store.begin()
        transaction.delete(b"2", states[2])
        store.write(transaction)
        transaction = store.begin()
        transaction.reclaim(Garbage(2, 2 * count))
        store.write(transaction)
        for stream_id, left in ((1, count), (2, 0), (3, count)):
            assert len(scan(store, stream_id, 0, 2 * count)) == left

    def test_at_most_as_many_as_asked_for(self, store: Store) -> None:
        for stream_id in range(1, 6):
            state = create(store, b"%d" % stream_id, new_state(stream_id))
            transaction = store.begin()
            transaction.delete(b"%d" % stream_id, state)
            store.write(transaction)
        assert [entry.id for entry in store.garbage(3)] == [1, 2, 3]
        assert len(store.garbage(99)) == 5


def test_ids_start_at_1_and_what_is_reserved_is_not_given_again(store: Store) -> None:
    assert store.next_id == 1
    transaction = store.begin()
    transaction.reserve_ids(1025)
    store.write(transaction)


def test_calls_that_need_nothing_done_are_allowed(store: Store) -> None:
    store.write(store.begin())
    store.sync()
    store.sync()
    store.compact((1, 0), (3, 0))
    room = store.free_bytes()
    assert room is None or room > 0


@pytest.mark.parametrize("compacted", [False, True])
def test_all_of_it_is_there_after_a_restart(tmp_path: Path, compacted: bool) -> None:
    """Names, states, records, the expiry index, garbage and reserved ids."""
    directory = tmp_path / "data"
    store = RocksStore(directory)
    state = append(store, create(store, b"k", new_state(1)), batch(3), batch(1, 2))
    gone = create(store, b"gone", new_state(2))
    transaction = store.begin()
    transaction.delete(b"gone", gone)
    transaction.schedule(Due(5, 1, b"k"))
    transaction.reserve_ids(1025)
    store.write(transaction)
    store.sync()
    if compacted:
        store.compact((1, 0), (3, 0))
    store.close()
    del store, transaction
    again = open_store("rocks", directory)
    assert again.load(b"k") == state
    assert again.load(b"gone") is None
    assert scan(again, 1, 0, 6) == [0, 3]
    assert again.due(5, 9) == [Due(5, 1, b"k")]
    assert again.garbage(9) == [Garbage(2, 0)]
    assert again.next_id == 1025
    again.close()

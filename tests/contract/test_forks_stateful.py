"""
Random forks, appends, snapshots, deletions and expiries against a model in which a fork is a copy.

The engine keeps three streams in memory, and is reopened at will. After every step each stream has
exactly the messages of the model, each source as many references as it has forks, and the bucket
counts what the model counts. At the end everything is deleted, and nothing is left in the store.
"""

import hashlib
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from tailrace.engine.engine import Outcome
from tailrace.engine.memory import MemoryStore
from tailrace.engine.read import read_records
from tailrace.engine.rocks import RocksStore
from tailrace.protocol.errors import StreamNotFound, StreamSoftDeleted
from tailrace.protocol.state import Append, Create, Delete, ForkRequest, Publish, SnapshotInfo
from tests.contract.fork_model import ForkModel, ModelStream
from tests.contract.harness import World, result
from tests.operations.building import no_damage
from tests.support.tiers import slow_but

BUCKET = b"rooms"
KEYS = [BUCKET + b"\0" + bytes([letter]) for letter in b"abcdef"]
TEXT, JSON = "text/plain", "application/json"

keys = st.sampled_from(KEYS)
numbers = st.integers(0, 9)


class ForksAgainstModel(RuleBasedStateMachine):
    kind = "memory"

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="forks-"))
        self.world = World(self.kind, self.directory / "data", streams_cached_max=3)
        self.model = ForkModel()
        self._create_bucket()
        # Something to fork, or most steps would find nothing.
        self.create(KEYS[0], json=True, ttl_s=None)
        self.create(KEYS[1], json=False, ttl_s=None)
        for key in KEYS[:2]:
            self.append(key, [1, 22, 333])
            self.append(key, [4444, 5])

    def _create_bucket(self) -> None:
        async def create() -> None:
            self.world.engine.buckets.create(BUCKET, lambda outcome: None)

        self.world.run(create())
        self.world.settle()

    def teardown(self) -> None:
        try:
            self.check_all()
            self.delete_all()
        finally:
            self.world.close()
            directory = self.directory / "data"
            del self.world
            if self.kind == "rocks":
                no_damage(directory)
            shutil.rmtree(self.directory)

    def do(self, key: bytes, command: Create | Append | Delete | Publish) -> str:
        told: Outcome = self.world.do(key, command)
        return result(told)

    # -- rules -------------------------------------------------------------------------------

    @rule(key=keys, json=st.booleans(), ttl_s=st.sampled_from([None, None, 2]))
    def create(self, key: bytes, json: bool, ttl_s: int | None) -> None:
        expected = self.model.create(key, json=json, ttl_s=ttl_s, now=self.world.now)
        command = Create(
            id=self.world.engine.new_id(), content_type=JSON if json else TEXT, ttl_s=ttl_s
        )
        assert self.do(key, command) == expected

    @rule(key=keys, values=st.lists(st.integers(0, 10_000), min_size=1, max_size=4))
    def append(self, key: bytes, values: list[int]) -> None:
        stream = self.model.streams.get(key)
        texts = [str(value).encode() for value in values]
        if stream is not None and stream.json:
            expected = self.model.append(key, [text + b"," for text in texts])
            command = Append(b"[" + b",".join(texts) + b"]", JSON)
        else:
            expected = self.model.append(key, texts[:1])
            command = Append(texts[0], TEXT)
        assert self.do(key, command) == expected

    @rule(data=st.data(), at=st.none() | numbers, sub=st.sampled_from([0, 0, 0, 1, 2, 5]))
    def fork_new(self, data: st.DataObject, at: int | None, sub: int) -> None:
        """Mostly something that exists, to a name that is free."""
        sources = [key for key in KEYS if self.model.visible(key)] or KEYS
        free = [key for key in KEYS if key not in self.model.streams] or KEYS
        key, source = data.draw(st.sampled_from(free)), data.draw(st.sampled_from(sources))
        self.fork(key, source, at, sub)

    @rule(key=keys, source=keys, at=st.none() | numbers, sub=st.sampled_from([0, 0, 0, 1, 2, 5]))
    def fork(self, key: bytes, source: bytes, at: int | None, sub: int) -> None:
        stream = self.model.streams.get(source)
        offset = None
        if stream is not None and at is not None:
            at = min(at, len(stream.messages))
            offset = stream.offset(at)
        expected = self.model.fork(key, source, at, sub, self.world.now)
        command = Create(
            id=self.world.engine.new_id(),
            content_type=None,
            fork=ForkRequest(source, offset, sub),
        )
        assert self.do(key, command) == expected
        if expected == "created":
            # The same request again is no conflict, and no second reference.
            assert self.do(key, command) == "existed"

    @rule(steps=st.lists(st.tuples(keys, st.sampled_from("fafadc"), keys), min_size=2, max_size=8))
    def one_turn(self, steps: list[tuple[bytes, str, bytes]]) -> None:
        """Commands that arrive together: each is decided upon states that are not stored yet."""
        expected: list[str] = []
        replies: dict[int, Outcome] = {}
        engine = self.world.engine

        async def submit() -> None:
            for at, (key, kind, source) in enumerate(steps):
                command, word = self._step(key, kind, source)
                expected.append(word)
                engine.submit(key, command, lambda told, at=at: replies.update({at: told}))  # type: ignore[misc]

        self.world.run(submit())
        self.world.until(lambda: len(replies) == len(steps))
        assert [result(replies[at]) for at in range(len(steps))] == expected

    def _step(self, key: bytes, kind: str, source: bytes) -> tuple[Create | Append | Delete, str]:
        """A command, and what its client must learn."""
        number, now = self.world.engine.new_id(), self.world.now
        if kind == "d":
            return Delete(), self.model.delete(key)
        if kind == "c":
            word = self.model.create(key, json=True, ttl_s=None, now=now)
            return Create(id=number, content_type=JSON), word
        if kind == "a":
            stream = self.model.streams.get(key)
            if stream is not None and not stream.json:
                return Append(b"t", TEXT), self.model.append(key, [b"t"])
            return Append(b"[7,8]", JSON), self.model.append(key, [b"7,", b"8,"])
        # At the tail: nothing that is not stored yet has to be read.
        word = self.model.fork(key, source, None, 0, now)
        return Create(id=number, content_type=None, fork=ForkRequest(source)), word

    @rule(key=keys)
    def delete(self, key: bytes) -> None:
        assert self.do(key, Delete()) == self.model.delete(key)

    @rule(key=keys, at=numbers, content=st.binary(min_size=1, max_size=9))
    def publish(self, key: bytes, at: int, content: bytes) -> None:
        stream = self.model.visible(key)
        if stream is None:
            return
        at = min(at, len(stream.messages))
        expected = self.model.publish(key, at, content)
        snapshot = SnapshotInfo(
            stream.offset(at),
            self._take_id(),
            len(content),
            TEXT,
            hashlib.sha256(content).digest(),
            inline=True,
        )
        stream_id = self.world.find(key).id
        assert self.do(key, Publish(stream_id, snapshot, content)) == expected

    def _take_id(self) -> int:
        async def take() -> int:
            return self.world.engine.take_id()

        return self.world.run(take())

    @rule(milliseconds=st.sampled_from([1, 1000, 2000]))
    def wait(self, milliseconds: int) -> None:
        self.world.now += milliseconds
        self.world.sweep()
        self.model.expire(self.world.now)

    @rule()
    def evict(self) -> None:
        self.world.evict()

    @rule()
    def sweep(self) -> None:
        self.world.sweep()

    @rule()
    def reopen(self) -> None:
        self.world.reopen()

    # -- comparison --------------------------------------------------------------------------

    @rule()
    def check_all(self) -> None:
        self.world.settle()
        for key in KEYS:
            stream = self.model.streams.get(key)
            if stream is None:
                with pytest.raises(StreamNotFound):
                    self.world.find(key)
                continue
            state = self.world.engine.stream(key).durable
            assert state is not None
            assert state.forks == self.model.forks(stream)
            assert state.held == stream.held
            if stream.deleted:
                with pytest.raises(StreamSoftDeleted):
                    self.world.find(key)
                assert self.world.engine.peek(key) is None
            else:
                self._compare(key, stream)
        bucket = self.world.engine.buckets.entry(BUCKET).durable
        assert bucket is not None
        assert bucket.streams == len(self.model.streams)
        assert bucket.bytes == sum(stream.bytes for stream in self.model.streams.values())

    def _compare(self, key: bytes, stream: ModelStream) -> None:
        state = self.world.find(key)
        assert (state.tail, state.earliest) == (stream.tail, stream.offset(stream.earliest))
        retained = b"".join(stream.messages[stream.earliest :])
        assert self.world.read(key, state.earliest)[0] == retained
        # In small pieces, from every boundary.
        at = state.earliest
        for count in range(stream.earliest, len(stream.messages)):
            assert at == stream.offset(count)
            piece, at = self.world.read(key, at, 1)
            assert piece == stream.messages[count]
        if state.earliest != state.tail:
            rows = read_records(
                self.world.store, state, state.earliest, state.tail, 1 << 20, 1 << 20
            )
            assert b"".join(rows.parts) == retained
            lengths = [length for record in rows.lengths for length in record]
            assert lengths == [len(message) for message in stream.messages[stream.earliest :]]
        if state.snapshot is not None:
            assert self.world.store.read_snapshot(state.snapshot, 0) == stream.snapshot

    def delete_all(self) -> None:
        """Forks of forks at last: everything is reclaimed, and the bucket can be deleted."""
        for key in KEYS:
            if self.model.visible(key) is not None:
                assert self.do(key, Delete()) == self.model.delete(key)
        assert not self.model.streams
        replies: list[Outcome] = []

        async def delete() -> None:
            self.world.engine.buckets.delete(BUCKET, replies.append)

        self.world.run(delete())
        self.world.settle()
        assert [result(told) for told in replies] == ["deleted"]
        for _ in range(4):
            self.world.sweep()
        store = self.world.store
        assert store.held(b"", b"\xff", 9) == []
        assert store.garbage(9) == []
        if isinstance(store, MemoryStore):
            assert (store.records, store.snapshots) == ({}, {})
        else:
            assert isinstance(store, RocksStore)
            for family in ("records", "snapshots", "states", "names"):
                assert list(store.families[family].keys()) == [], family


class RocksForksAgainstModel(ForksAgainstModel):
    kind = "rocks"


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("machine", "examples"),
    slow_but(
        [(ForksAgainstModel, 40), (RocksForksAgainstModel, 4)],
        [
            (ForksAgainstModel, 40),
            (RocksForksAgainstModel, 4),
            (ForksAgainstModel, 300),
            (RocksForksAgainstModel, 30),
        ],
    ),
)
def test_forks_are_like_copies(machine: type[ForksAgainstModel], examples: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )

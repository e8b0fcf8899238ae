"""
Random commands on a handful of streams, with evictions and restarts, against the naive model.

The engine keeps three streams hot at most, so that most commands meet a stream that was just
forgotten; the responses, and every byte, must be those of a model that never forgets.
"""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from tailrace.engine.engine import Outcome
from tailrace.protocol.errors import StreamNotFound
from tailrace.protocol.offset import START, Offset
from tailrace.protocol.state import Append, Create, Delete
from tests.contract.harness import World, result
from tests.protocol.model import APPENDS, CREATES, AppendCase, CreateCase, Model
from tests.support.tiers import slow_but

KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"e", b"f"])
COMMANDS = st.tuples(KEYS, st.one_of(CREATES, APPENDS, APPENDS, APPENDS, st.none()))


class EngineAgainstModel(RuleBasedStateMachine):
    """Subclasses say which store, and whether the TTL slides."""

    kind = "memory"
    sliding = False
    slow_disk = False

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="contract-"))
        self.world = World(
            self.kind, self.directory / "data", sliding=self.sliding, streams_cached_max=3
        )
        self.models: dict[bytes, Model] = {}
        self.ids: dict[bytes, int] = {}
        self.used: set[int] = set()
        self._slow()

    def _slow(self) -> None:
        if self.slow_disk:
            self.world.slow_disk()

    def teardown(self) -> None:
        try:
            self.check_all()
        finally:
            self.world.close()
            del self.world
            shutil.rmtree(self.directory)

    def model(self, key: bytes) -> Model:
        model = self.models.setdefault(key, Model())
        model.expire(self.world.now, sliding=self.sliding)
        return model

    # -- rules -------------------------------------------------------------------------------

    @rule(commands=st.lists(COMMANDS, min_size=1, max_size=8))
    def one_turn(self, commands: list[tuple[bytes, CreateCase | AppendCase | None]]) -> None:
        """Commands that arrive together, on any streams; deletes and creates among them."""
        replies: dict[int, Outcome] = {}
        expected: list[str] = []
        engine, now = self.world.engine, self.world.now

        async def submit() -> None:
            for at, (key, case) in enumerate(commands):
                model = self.model(key)
                command: Create | Append | Delete
                if isinstance(case, CreateCase):
                    expected.append(model.create(case, now))
                    command = Create(
                        id=engine.new_id(),
                        content_type=case.content_type,
                        ttl_s=case.ttl_s,
                        closed=case.closed,
                        body=case.body.raw,
                    )
                elif isinstance(case, AppendCase):
                    expected.append(model.append(case, now))
                    body = case.body.raw
                    command = Append(body, case.content_type, case.closes, case.claim, case.seq)
                else:
                    expected.append(model.delete())
                    command = Delete()
                engine.submit(key, command, lambda told, at=at: replies.update({at: told}))  # type: ignore[misc]

        self.world.run(submit())
        self.world.until(lambda: len(replies) == len(commands))
        responses = [replies[at] for at in range(len(commands))]
        assert [result(response) for response in responses] == expected
        for (key, _), response in zip(commands, responses, strict=True):
            if result(response) == "created":
                assert isinstance(response, tuple) and response[1] is not None
                assert response[1].id not in self.used
                self.used.add(response[1].id)
                self.ids[key] = response[1].id

    @rule(key=KEYS, limit=st.integers(0, 60), data=st.data())
    def read(self, key: bytes, limit: int, data: st.DataObject) -> None:
        model = self.model(key)
        if not model.exists:
            with pytest.raises(StreamNotFound):
                self.world.find(key)
            return
        count = data.draw(st.integers(0, len(model.stored)), label="from message")
        skipped = b"".join(model.stored[:count])
        start = Offset(count, len(skipped))
        got, end = self.world.read(key, start, limit)
        rest = model.stored[count:]
        taken = 0
        while taken < len(rest) and (taken == 0 or len(b"".join(rest[: taken + 1])) <= limit):
            taken += 1
        assert got == b"".join(rest[:taken])
        assert end == Offset(count + taken, start.byte + len(got))

    @rule(key=KEYS)
    def touch(self, key: bytes) -> None:
        model = self.model(key)
        if model.exists:
            self.world.touch(key)
            if self.sliding and model.ttl_s is not None:
                model.touched_at = self.world.now

    @rule(milliseconds=st.sampled_from([1, 500, 999, 1000, 1999, 2000, 30_000]))
    def wait(self, milliseconds: int) -> None:
        # A restart may forget touches of the last second (documented): not tested here.
        self.world.settle()
        self.world.now += milliseconds

    @rule()
    def evict(self) -> None:
        self.world.evict()

    @rule()
    def sweep(self) -> None:
        self.world.sweep()
        for model in self.models.values():
            model.expire(self.world.now, sliding=self.sliding)

    @rule()
    def reopen(self) -> None:
        if self.sliding:
            # Writes down what only memory knows; the last second of touches is not promised.
            self.world.evict()
        self.world.reopen()
        self._slow()
        self.check_all()

    # -- the whole -----------------------------------------------------------------------------

    def check_all(self) -> None:
        for key in self.models:
            model = self.model(key)
            if not model.exists:
                with pytest.raises(StreamNotFound):
                    self.world.find(key)
                continue
            state = self.world.find(key)
            assert state.id == self.ids[key]
            assert (state.content_type, state.json) == (model.content_type, model.json)
            assert (state.ttl_s, state.created_at) == (model.ttl_s, model.created_at)
            assert state.tail == Offset(*model.tail)
            assert (state.closed, state.closed_by) == (model.closed, model.closer)
            assert (state.stream_seq or "").encode("latin-1") == (model.seq or b"")
            assert dict(state.producers.items()) == model.producers
            assert self.world.read(key, START) == (b"".join(model.stored), state.tail)


class Memory(EngineAgainstModel):
    pass


class MemorySliding(EngineAgainstModel):
    sliding = True


class Rocks(EngineAgainstModel):
    kind = "rocks"


class RocksSlidingSlow(EngineAgainstModel):
    kind = "rocks"
    sliding = True
    slow_disk = True


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("machine", "examples"),
    slow_but(
        [(Memory, 60), (MemorySliding, 60)],
        [(Memory, 60), (MemorySliding, 60), (Rocks, 20), (RocksSlidingSlow, 15)],
    ),
)
def test_any_history_gives_the_responses_of_the_model(
    machine: type[EngineAgainstModel], examples: int
) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )

"""The state machine against the naive model, and against itself from the records alone."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tailrace.protocol.errors import Refusal
from tailrace.protocol.machine import apply, decide
from tailrace.protocol.offset import Offset
from tailrace.protocol.state import (
    Append,
    Command,
    Create,
    Delete,
    Expire,
    Record,
    StreamState,
    Touch,
)
from tests.protocol.model import APPENDS, CREATES, AppendCase, CreateCase, Model

START_MS = 1_700_000_000_000


class MachineAgainstModel(RuleBasedStateMachine):
    """
    Any commands in any order: the same responses, the same stream.

    Goal: `decide` and `apply` implement the rules. Method: run each command on both and compare
    the results for the client and the whole state; then fold the records again from
    nothing, which must give the very same state (Rule 2: `apply` never refuses).
    """

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.state: StreamState | None = None
        self.records: list[Record] = []
        self.now = START_MS
        self.next_id = 1

    def run(self, command: Command) -> str:
        before = self.state
        try:
            verdict = decide(self.state, command, self.now)
        except Refusal as refusal:
            return refusal.code
        assert self.state is before
        assert decide(self.state, command, self.now) == verdict
        if verdict.record is not None:
            self.state = apply(self.state, verdict.record)
            self.records.append(verdict.record)
        return verdict.effect.value

    @rule(case=CREATES)
    def create(self, case: CreateCase) -> None:
        command = Create(
            id=self.next_id,
            content_type=case.content_type,
            ttl_s=case.ttl_s,
            closed=case.closed,
            body=case.body.raw,
        )
        effect = self.run(command)
        assert effect == self.model.create(case, self.now)
        if effect == "created":
            assert self.state is not None and self.state.id == self.next_id
            self.next_id += 1

    @rule(cases=st.lists(APPENDS, min_size=1, max_size=4))
    def append(self, cases: list[AppendCase]) -> None:
        for case in cases:
            command = Append(case.body.raw, case.content_type, case.closes, case.claim, case.seq)
            assert self.run(command) == self.model.append(case, self.now)

    @rule()
    def delete(self) -> None:
        assert self.run(Delete()) == self.model.delete()

    @rule(sliding=st.booleans())
    def expire(self, sliding: bool) -> None:
        over = self.model.expire(self.now, sliding=sliding)
        assert self.run(Expire(sliding)) == ("deleted" if over else "nothing")

    @rule()
    def touch(self) -> None:
        touched = self.model.exists and self.model.ttl_s is not None
        assert self.run(Touch()) == ("touched" if touched else "nothing")
        if touched:
            self.model.touched_at = self.now

    @rule(milliseconds=st.integers(0, 3000))
    def wait(self, milliseconds: int) -> None:
        self.now += milliseconds

    @invariant()
    def the_same_stream(self) -> None:
        state, model = self.state, self.model
        assert (state is not None) == model.exists
        if state is None:
            return
        assert (state.content_type, state.json) == (model.content_type, model.json)
        assert (state.ttl_s, state.created_at) == (model.ttl_s, model.created_at)
        assert state.touched_at == model.touched_at
        assert state.tail == Offset(*model.tail)
        assert (state.closed, state.closed_by) == (model.closed, model.closer)
        assert (state.stream_seq or "").encode("latin-1") == (model.seq or b"")
        assert dict(state.producers.items()) == model.producers

    def teardown(self) -> None:
        state: StreamState | None = None
        for record in self.records:
            state = apply(state, record)
        assert state == self.state


TestMachineAgainstModel = MachineAgainstModel.TestCase
TestMachineAgainstModel.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)

"""Short ways to build streams and to ask them things, shared by the tests of the core."""

import pytest

from tailrace.protocol.errors import Refusal
from tailrace.protocol.machine import Effect, apply, decide
from tailrace.protocol.producer import ProducerHeaders
from tailrace.protocol.state import Append, Command, Create, StreamState
from tests.protocol.model import JSON, TEXT

__all__ = [
    "NOW_MS",
    "Told",
    "appended",
    "closed_stream",
    "code",
    "json_stream",
    "run",
    "text_stream",
]

NOW_MS = 1_700_000_000_000

Told = tuple[Effect, StreamState]


def run(state: StreamState | None, command: Command, now: int = NOW_MS) -> Told:
    """Decide and apply; the stream must exist afterwards."""
    verdict = decide(state, command, now)
    if verdict.record is not None:
        state = apply(state, verdict.record)
    assert state is not None
    return verdict.effect, state


def code(state: StreamState | None, command: Command, now: int = NOW_MS) -> tuple[int, str]:
    """Status and code of the refusal that a command must meet."""
    with pytest.raises(Refusal) as caught:
        decide(state, command, now)
    return caught.value.status, caught.value.code


def text_stream(**changes: object) -> StreamState:
    return run(None, Create(id=1, content_type=TEXT, **changes))[1]  # type: ignore[arg-type]


def json_stream() -> StreamState:
    return run(None, Create(id=1, content_type=JSON))[1]


def appended(
    state: StreamState,
    body: bytes = b"x",
    *,
    closes: bool = False,
    claim: ProducerHeaders | None = None,
    seq: str | None = None,
) -> StreamState:
    """The stream after an append that must be accepted."""
    command = Append(body, state.content_type, closes, claim, seq)
    effect, after = run(state, command)
    assert effect is (Effect.APPENDED if body else Effect.CLOSED)
    return after


def closed_stream(claim: ProducerHeaders | None = None) -> StreamState:
    return appended(text_stream(), b"last", closes=True, claim=claim)

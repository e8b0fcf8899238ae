"""What streams must hold after a crash, given what was sent and what was acknowledged.

A request that got a response has one fate. One that was cut off has two: stored whole, or not at
all. The first look after a restart decides which, and from then on it must stay so.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass
from enum import Enum

from tests.support.payloads import Message, unpack_all, unpack_json_all
from tests.support.reading import Content

# A writer whose name ends so sends without waiting for a response: its order is not defined.
UNORDERED = "~"


class Fate(Enum):
    """What is known of a request."""

    UNKNOWN = "sent, no response"
    STORED = "acknowledged, or seen after a crash"
    ABSENT = "refused, or not there after a crash"


Key = tuple[str, int]
"""A message: its writer, and its place among that writer's messages."""


@dataclass(slots=True)
class Sent:
    """A message that was sent, and what became of it."""

    digest: bytes
    closes: bool
    fate: Fate = Fate.UNKNOWN
    # Where it ends in the stream, if the response said so.
    end: int | None = None
    # A producer will send it again until it is acknowledged.
    retried: bool = False


class Log:
    """One life of a shared stream, which several clients write to at once."""

    def __init__(self, path: str, *, json: bool) -> None:
        self.path = path
        self.json = json
        self.lock = threading.Lock()
        self.created = Fate.ABSENT
        # Of all close requests without a body.
        self.closed = Fate.ABSENT
        self.sent: dict[Key, Sent] = {}
        # What a reader was shown.
        self.seen_end = 0
        self.seen_closed = False

    def check(self, content: Content | None) -> None:
        """Compare what is there after a crash with what must be, and settle what was unknown."""
        if content is None:
            assert self.created is not Fate.STORED, f"{self.path} was created and is lost"
            # It has no writes, because every client creates it first.
            self.created = Fate.ABSENT
            return
        assert self.created is not Fate.ABSENT, f"{self.path} exists, but was not created"
        self.created = Fate.STORED
        messages = messages_of(content)
        self._check_order(messages)
        self._check_acknowledged(messages)
        self._check_closed(messages, content)

    def _check_order(self, messages: list[Message]) -> None:
        last: dict[str, int] = {}
        for message in messages:
            before = last.get(message.writer, -1)
            if not message.writer.endswith(UNORDERED):
                assert message.seq > before, f"{self.path}: {message} came after seq {before}"
            last[message.writer] = message.seq
        counts = Counter((message.writer, message.seq) for message in messages)
        twice = [key for key, count in counts.items() if count > 1]
        assert not twice, f"{self.path}: stored twice: {twice}"

    def _check_acknowledged(self, messages: list[Message]) -> None:
        present = {(message.writer, message.seq): message for message in messages}
        for key, message in present.items():
            sent = self.sent.get(key)
            assert sent is not None, f"{self.path}: {message} was never sent"
            assert sent.digest == message.digest, f"{self.path}: {message} is not what was sent"
            assert sent.fate is not Fate.ABSENT, f"{self.path}: {message} was not stored before"
            if sent.end is not None:
                assert sent.end == message.end, f"{self.path}: {message} should end at {sent.end}"
            sent.fate = Fate.STORED
        lost = [
            key
            for key, sent in self.sent.items()
            if sent.fate is Fate.STORED and key not in present
        ]
        assert not lost, f"{self.path}: acknowledged and lost: {lost}; there: {len(messages)}"
        end = messages[-1].end if messages else 0
        assert end >= self.seen_end, f"{self.path}: ends at {end}, was read to {self.seen_end}"
        for sent in self.sent.values():
            if sent.fate is Fate.UNKNOWN and not sent.retried:
                sent.fate = Fate.ABSENT

    def _check_closed(self, messages: list[Message], content: Content) -> None:
        closing = [
            index
            for index, message in enumerate(messages)
            if self.sent[message.writer, message.seq].closes
        ]
        if content.closed:
            reason = closing or self.closed is not Fate.ABSENT
            assert reason, f"{self.path} is closed, but no request closed it"
        else:
            assert self.closed is not Fate.STORED, f"{self.path} was closed and is open again"
            assert not self.seen_closed, f"{self.path} was read as closed and is open again"
            assert not closing, f"{self.path} has its last message and is open"
        assert closing in ([], [len(messages) - 1]), f"{self.path}: more came after the last"
        if content.closed:
            self.seen_closed = True
        self.closed = Fate.STORED if content.closed and not closing else Fate.ABSENT


@dataclass(frozen=True, slots=True)
class Life:
    """What a stream with one owner is at one moment; None stands for one that does not exist."""

    contents: tuple[bytes, ...] = ()
    closed: bool = False


class Owned:
    """A stream that one client alone creates, fills, closes and deletes, again and again."""

    def __init__(self, path: str, *, json: bool) -> None:
        self.path = path
        self.json = json
        self.now: Life | None = None
        # What it is if the request under way was carried out; the same if there is none.
        self.then: Life | None = None
        self.seq = 0

    def settle(self, *, done: bool) -> None:
        """The request under way got a response."""
        if done:
            self.now = self.then
        self.then = self.now

    def check(self, content: Content | None) -> None:
        found: Life | None = None
        if content is not None:
            digests = tuple(message.digest for message in messages_of(content))
            found = Life(digests, content.closed)
        assert found in (self.now, self.then), (
            f"{self.path}: found {describe(found)}, expected {describe(self.now)} "
            f"or {describe(self.then)}"
        )
        self.now = self.then = found


def describe(life: Life | None) -> str:
    if life is None:
        return "no stream"
    return f"{len(life.contents)} messages, {'closed' if life.closed else 'open'}"


def messages_of(content: Content) -> list[Message]:
    """The messages of a stream; a JSON batch counts as one."""
    if content.elements or content.content_type == "application/json":
        found = unpack_json_all(content.elements)
    else:
        found = unpack_all(content.raw)
    # Where the stream says that it ends is where its messages end.
    end = int(content.next_offset.partition("_")[2])
    assert end == (found[-1].end if found else 0), (content.next_offset, found[-1:])
    return found

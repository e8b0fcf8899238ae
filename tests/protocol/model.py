"""
A stream as one would write it on a whiteboard: lists, sets, no cleverness.

It shares no code with the protocol but the names of commands, so that a mistake in one is not a
mistake in both. Bodies come with the messages that they stand for: the model never parses.
"""

from dataclasses import dataclass, field
from typing import Final

from hypothesis import strategies as st

from tailrace.protocol.producer import ProducerHeaders

__all__ = [
    "APPENDS",
    "BINARY",
    "CREATES",
    "JSON",
    "TEXT",
    "AppendCase",
    "Body",
    "CreateCase",
    "Model",
]

JSON: Final = "application/json"
TEXT: Final = "text/plain"
BINARY: Final = "application/octet-stream"


@dataclass(frozen=True)
class Body:
    """A request's body, and what it stands for in JSON mode; None is not JSON at all."""

    raw: bytes
    messages: tuple[bytes, ...] | None


@dataclass(frozen=True)
class CreateCase:
    content_type: str
    ttl_s: int | None
    closed: bool
    body: Body


@dataclass(frozen=True)
class AppendCase:
    body: Body
    content_type: str | None
    closes: bool
    claim: ProducerHeaders | None
    seq: str | None


_BODIES: Final = st.sampled_from(
    [
        Body(b"", ()),
        Body(b"[]", ()),
        Body(b" [ ] ", ()),
        Body(b"{", None),
        Body(b"\x00\xff", None),
        Body(b"1", (b"1",)),
        Body(b' {"b": 1, "a": 1e2}\n', (b'{"b": 1, "a": 1e2}',)),
        Body(b"[1, 2]", (b"1", b"2")),
        Body(b'[ "x,y" ,[1, 2],\t{"k": []} ]', (b'"x,y"', b"[1, 2]", b'{"k": []}')),
        Body(b"[[]]", (b"[]",)),
    ]
)
_GOOD_BODIES: Final = _BODIES.filter(lambda body: bool(body.messages))
_SPELLINGS: Final = {
    JSON: [JSON, "Application/JSON; charset=utf-8"],
    TEXT: [TEXT, "text/plain;charset=utf-8"],
    BINARY: [BINARY],
}
_TYPES: Final = st.sampled_from([JSON, TEXT, BINARY]).flatmap(
    lambda name: st.sampled_from(_SPELLINGS[name])
)
_CLAIMS: Final = st.builds(
    ProducerHeaders, st.sampled_from(["p", "q"]), st.integers(0, 2), st.integers(0, 4)
)

CREATES: Final = st.builds(
    CreateCase,
    _TYPES,
    st.sampled_from([None, None, 2, 60]),
    st.sampled_from([False, False, False, True]),
    _BODIES,
)
APPENDS: Final = st.builds(
    AppendCase,
    st.one_of(_BODIES, _GOOD_BODIES),
    st.one_of(st.none(), _TYPES),
    st.sampled_from([False] * 7 + [True]),
    st.one_of(st.none(), _CLAIMS),
    st.one_of(st.none(), st.none(), st.sampled_from(["1", "10", "2", "é", "z"])),
)


def _plain(content_type: str) -> str:
    return content_type.split(";")[0].strip().lower()


@dataclass
class Model:
    """One URL. Every method returns the result for the client: an effect, or a refusal's code."""

    exists: bool = False
    content_type: str = ""
    ttl_s: int | None = None
    created_at: int = 0
    touched_at: int = 0
    messages: list[bytes] = field(default_factory=list)
    closed: bool = False
    closer: ProducerHeaders | None = None
    accepted: list[ProducerHeaders] = field(default_factory=list)
    seq: bytes | None = None

    @property
    def json(self) -> bool:
        return _plain(self.content_type) == JSON

    @property
    def tail(self) -> tuple[int, int]:
        return len(self.messages), sum(map(len, self.stored))

    @property
    def stored(self) -> list[bytes]:
        return [message + b"," for message in self.messages] if self.json else self.messages

    @property
    def producers(self) -> dict[str, tuple[int, int]]:
        return {claim.id: (claim.epoch, claim.seq) for claim in self.accepted}

    def create(self, case: CreateCase, now: int) -> str:
        if self.exists:
            same = (
                _plain(self.content_type) == _plain(case.content_type)
                and self.ttl_s == case.ttl_s
                and self.closed == case.closed
            )
            return "existed" if same else "stream-exists"
        if _plain(case.content_type) == JSON and case.body.raw and case.body.messages is None:
            return "json-invalid"
        self.__init__(exists=True, content_type=case.content_type)  # type: ignore[misc]
        self.ttl_s = case.ttl_s
        self.created_at = self.touched_at = now
        self.closed = case.closed
        self._take(case.body)
        return "created"

    def append(self, case: AppendCase, now: int) -> str:
        if not self.exists:
            return "stream-not-found"
        claim = case.claim
        epoch = -1
        if claim is not None:
            epoch = max([c.epoch for c in self.accepted if c.id == claim.id], default=-1)
            if claim.epoch < epoch:
                return "producer-fenced"
        if self.closed:
            if claim is None and case.closes and not case.body.raw:
                return "closed"
            return "duplicate" if claim is not None and claim == self.closer else "stream-closed"
        if claim is not None and claim in self.accepted:
            return "duplicate"
        if case.body.raw:
            if case.content_type is None:
                return "content-type-missing"
            if _plain(case.content_type) != _plain(self.content_type):
                return "content-type-mismatch"
            if self.json and not case.body.messages:
                return "json-invalid"
        elif not case.closes:
            return "body-empty"
        if claim is not None:
            mine = [c for c in self.accepted if c.id == claim.id and c.epoch == claim.epoch]
            if not mine and epoch >= 0 and claim.seq != 0:
                return "producer-epoch-start"
            if claim.seq != len(mine):
                return "producer-gap"
        if case.seq is not None:
            if self.seq is not None and case.seq.encode("latin-1") <= self.seq:
                return "seq-regression"
            self.seq = case.seq.encode("latin-1")
        if claim is not None:
            self.accepted.append(claim)
        self.touched_at = now
        self._take(case.body)
        if case.closes:
            self.closed, self.closer = True, claim
        return "appended" if case.body.raw else "closed"

    def delete(self) -> str:
        if not self.exists:
            return "stream-not-found"
        self.exists = False
        return "deleted"

    def expire(self, now: int, *, sliding: bool) -> bool:
        """Whether the stream's life was over, and is now."""
        if not self.exists or self.ttl_s is None:
            return False
        if now < (self.touched_at if sliding else self.created_at) + self.ttl_s * 1000:
            return False
        self.exists = False
        return True

    def _take(self, body: Body) -> None:
        if self.json:
            self.messages.extend(body.messages or ())
        elif body.raw:
            self.messages.append(body.raw)

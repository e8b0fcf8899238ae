"""
The state machine: every rule of the protocol that depends on what a stream is.

Rule 1: only `decide` judges a command, and makes its record; only `apply` changes a state. Both are
pure.

Rule 2: `apply` never refuses. What `decide` accepted is a fact, also after a crash.

Rule 3: a verdict may be sent to the client only when its record, and every record that it was
decided upon, is durable. That is the caller's duty; see `engine.engine`.

The order of checks on an append is public behaviour:

    the stream exists            404; 410 if it is soft-deleted
    producer: stale epoch        403
    producer: retry              204, unless the stream is closed and this did not close it
    the stream is closed         409 with Stream-Closed
    content type                 400 if missing, 409 if another
    body                         400 if empty or not JSON
    producer: in order           409 for a gap, 400 for a new epoch that does not start at 0
    Stream-Seq                   409 unless it grows

A snapshot (X§2.2) is refused in this order:

    the stream exists            404; 410 if it is soft-deleted
    the offset is past the tail  409
    it is no longer retained     410
    one is published there       204 if it is the same, else 409

The order for a fork is in `fork_rules`.
"""

from enum import Enum

from msgspec import Struct
from msgspec.structs import replace

from tailrace.protocol.content_type import essence, is_json
from tailrace.protocol.errors import (
    BodyEmpty,
    ContentTypeMismatch,
    ContentTypeMissing,
    JsonInvalid,
    OffsetGone,
    SeqRegression,
    SnapshotBeyondTail,
    SnapshotConflict,
    StreamClosed,
    StreamExists,
    StreamHeld,
    StreamNotFound,
    StreamSoftDeleted,
)
from tailrace.protocol.fork_rules import check_same_fork, inherit, life
from tailrace.protocol.json_mode import split_messages
from tailrace.protocol.offset import START, Offset
from tailrace.protocol.producer import ProducerState, admit, is_retry
from tailrace.protocol.state import (
    Append,
    AppendRecord,
    Command,
    Create,
    CreateRecord,
    Delete,
    DeleteRecord,
    Expire,
    Publish,
    PublishRecord,
    Record,
    ReferenceRecord,
    SoftDeleteRecord,
    StreamState,
    Touch,
    TouchRecord,
)

__all__ = ["Effect", "Verdict", "apply", "apply_append", "decide"]


class Effect(Enum):
    """What an allowed command did."""

    CREATED = "created"
    EXISTED = "existed"
    APPENDED = "appended"
    DUPLICATE = "duplicate"
    CLOSED = "closed"
    DELETED = "deleted"
    PUBLISHED = "published"
    TOUCHED = "touched"
    NOTHING = "nothing"


class Verdict(Struct, frozen=True, gc=False):
    """An allowed command: what it did, and the record to commit if it changes anything."""

    effect: Effect
    record: Record | None = None


_tuple = tuple.__new__

_EXISTED = Verdict(Effect.EXISTED)
_DUPLICATE = Verdict(Effect.DUPLICATE)
_CLOSED_BEFORE = Verdict(Effect.CLOSED)
_NOTHING = Verdict(Effect.NOTHING)


def decide(state: StreamState | None, command: Command, now: int) -> Verdict:
    """
    Judge a command against a stream; `None` is a stream that does not exist.

    Raises:
        Refusal: One of the classes in `errors`; nothing changes.
    """
    if type(command) is Append:
        return _decide_append(state, command, now)
    if type(command) is Create:
        return _decide_create(state, command, now)
    if state is None:
        if type(command) is Delete or type(command) is Publish:
            raise StreamNotFound
        return _NOTHING
    match command:
        case Delete():
            return _decide_delete(state, now)
        case Expire(sliding, read_at):
            if not state.expired(now, sliding, read_at):
                return _NOTHING
            return _decide_delete(state, now)
        case Publish():
            return _decide_publish(state, command, now)
        case Touch():
            if state.ttl_s is None or state.deleted:
                return _NOTHING
            return Verdict(Effect.TOUCHED, TouchRecord(now))
    raise AssertionError(f"unknown command {command!r}")


def _decide_delete(state: StreamState, now: int) -> Verdict:
    """What forks inherit stays: the source of one is removed when its last fork is."""
    if state.deleted:
        raise StreamSoftDeleted
    return Verdict(Effect.DELETED, SoftDeleteRecord(now) if state.forks else DeleteRecord(now))


def _decide_create(state: StreamState | None, command: Create, now: int) -> Verdict:
    if state is not None:
        return _decide_existing(state, command)
    forked = None if command.fork is None else inherit(command, command.fork)
    content_type = command.content_type
    if content_type is None:
        assert forked is not None
        content_type = forked.source.content_type
    payload: bytes = command.body
    lengths: tuple[int, ...] = ()
    if payload and is_json(content_type):
        payload, lengths = _json_messages(payload)
    if forked is not None and forked.piece:
        # Never in JSON mode, where a sub-offset is a message boundary.
        payload = forked.piece + payload
    content = None
    if payload or command.closed:
        content = AppendRecord(now, payload, lengths, closes=command.closed)
    ttl_s, expires_at = life(command)
    created = CreateRecord(
        time=now,
        id=command.id,
        content_type=content_type,
        ttl_s=ttl_s,
        expires_at=expires_at,
        content=content,
    )
    if forked is not None:
        source = forked.source
        created = replace(
            created, fork=forked.origin, earliest=source.earliest, snapshot=source.snapshot
        )
    return Verdict(Effect.CREATED, created)


def _decide_existing(state: StreamState, command: Create) -> Verdict:
    """§5.1: the same configuration and closure status is a success, anything else a conflict."""
    if state.deleted:
        raise StreamHeld
    check_same_fork(state.fork, command.fork)
    if command.content_type is not None and (
        essence(state.content_type) != essence(command.content_type)
    ):
        raise StreamExists(f"Content-Type: it is {state.content_type}")
    ttl_s, expires_at = life(command)
    if state.ttl_s != ttl_s:
        raise StreamExists("Stream-TTL")
    if state.expires_at != expires_at:
        raise StreamExists("Stream-Expires-At")
    if state.closed != command.closed:
        raise StreamExists(f"closure: it is {'closed' if state.closed else 'open'}")
    return _EXISTED


def _decide_append(state: StreamState | None, command: Append, now: int) -> Verdict:
    if state is None:
        raise StreamNotFound
    if state.deleted:
        raise StreamSoftDeleted
    claim = command.producer
    known: ProducerState | None = None
    retry = False
    if claim is not None:
        known = state.producers.get(claim.id)
        retry = is_retry(known, claim)
    if state.closed:
        return _decide_closed(state, command, known)
    if retry:
        return _DUPLICATE
    payload = b""
    lengths: tuple[int, ...] = ()
    if command.body:
        # §5.2: a body must be of the stream's type; the type of an empty body is ignored.
        if command.content_type is None:
            raise ContentTypeMissing
        if command.content_type != state.content_type and (
            essence(command.content_type) != essence(state.content_type)
        ):
            raise ContentTypeMismatch(state.content_type, command.content_type)
        payload = command.body
        if state.json:
            payload, lengths = _json_messages(payload)
            if not payload:
                # §7.1: an empty array is no append.
                raise JsonInvalid("an empty JSON array appends nothing")
    elif not command.closes:
        raise BodyEmpty
    if claim is not None:
        admit(known, claim)
    seq = command.stream_seq
    # Header values are Latin-1, whose order is that of their bytes.
    if seq is not None and state.stream_seq is not None and seq <= state.stream_seq:
        raise SeqRegression(state.stream_seq, seq)
    effect = Effect.APPENDED if payload else Effect.CLOSED
    return Verdict(effect, AppendRecord(now, payload, lengths, claim, seq, command.closes))


def _decide_closed(state: StreamState, command: Append, known: ProducerState | None) -> Verdict:
    """§5.2.1: the closing request again, or a close-only without a producer, is no conflict."""
    claim = command.producer
    if claim is None:
        if command.closes and not command.body:
            return _CLOSED_BEFORE
    elif claim == state.closed_by:
        return _DUPLICATE
    if known is None:
        raise StreamClosed(state.tail.token())
    raise StreamClosed(state.tail.token(), known.epoch, known.last_seq)


def _decide_publish(state: StreamState, command: Publish, now: int) -> Verdict:
    """X§2.2. That the offset is a message boundary was checked before, in the stored records."""
    if state.id != command.stream_id:
        # During the upload the stream was deleted, and another one created under its name.
        raise StreamNotFound
    if state.deleted:
        raise StreamSoftDeleted
    wanted, current = command.snapshot, state.snapshot
    token = wanted.offset.token()
    if wanted.offset > state.tail:
        raise SnapshotBeyondTail(token, state.tail.token())
    if wanted.offset < state.earliest:
        raise OffsetGone(token, state.earliest.token())
    if current is not None and current.offset == wanted.offset:
        # Clients that have seen a snapshot must not see another one at its offset.
        if (current.digest, current.size, current.content_type) != (
            wanted.digest, wanted.size, wanted.content_type,
        ):  # fmt: skip
            raise SnapshotConflict(token)
        return _EXISTED
    return Verdict(Effect.PUBLISHED, PublishRecord(replace(wanted, time=now), command.content))


def _json_messages(body: bytes) -> tuple[bytes, tuple[int, ...]]:
    """The stored form of a JSON body, and the lengths of its messages, if there are several."""
    messages = split_messages(body)
    if not messages:
        return b"", ()
    # The trailing empty piece gives the last message its comma too.
    payload = b",".join([*messages, b""])
    if len(messages) == 1:
        return payload, ()
    return payload, tuple([length + 1 for length in map(len, messages)])


def apply(state: StreamState | None, record: Record) -> StreamState | None:
    """The stream after a record. Records of one stream must be applied in their order."""
    if type(record) is AppendRecord:
        assert state is not None
        return apply_append(state, record)
    match record:
        case CreateRecord():
            created = StreamState(
                id=record.id,
                content_type=record.content_type,
                json=is_json(record.content_type),
                created_at=record.time,
                touched_at=record.time,
                written_at=record.time,
                ttl_s=record.ttl_s,
                expires_at=record.expires_at,
                tail=START if record.fork is None else record.fork.point,
                earliest=record.earliest,
                snapshot=record.snapshot,
                fork=record.fork,
            )
            return created if record.content is None else apply_append(created, record.content)
        case DeleteRecord():
            return None
        case PublishRecord(snapshot):
            assert state is not None
            held = state.superseded(snapshot.offset) if state.forks else 0
            return replace(
                state,
                held=state.held + held,
                snapshot=snapshot,
                # X§2.2: the server MUST treat it as the new earliest retained offset.
                earliest=snapshot.offset,
                touched_at=max(state.touched_at, snapshot.time),
            )
        case TouchRecord(time):
            assert state is not None
            return replace(state, touched_at=max(state.touched_at, time))
        case SoftDeleteRecord():
            assert state is not None
            return replace(state, deleted=True)
        case ReferenceRecord(change):
            assert state is not None
            forks = state.forks + change
            return replace(state, forks=forks, held=state.held if forks else 0)
    raise AssertionError(f"unknown record {record!r}")


def apply_append(state: StreamState, record: AppendRecord) -> StreamState:
    """`apply` for an append."""
    tail = state.tail
    time = record.time
    after = replace(
        state,
        # Not `Offset(…)`, whose constructor is Python: this runs for every append.
        tail=_tuple(Offset, (tail[0] + record.count, tail[1] + len(record.payload))),
        touched_at=time if time > state.touched_at else state.touched_at,
        written_at=time,
    )
    claim, seq = record.producer, record.stream_seq
    if claim is not None:
        after = replace(after, producers=state.producers.put(claim))
    if seq is not None:
        after = replace(after, stream_seq=seq)
    if record.closes:
        after = replace(after, closed=True, closed_by=claim)
    return after

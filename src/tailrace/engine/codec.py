"""
The stored form of records and of state checkpoints: bytes, versioned, little-endian.

A record's value, as `docs/storage.md` has it for readers:

    offset  size  field
    0       1     version, 1
    1       1     flags: 1 closes, 2 has a producer claim, 4 has a Stream-Seq, 8 has lengths
    2       2     zero
    4       4     length of this header, and so where the payload starts
    8       4     number of messages
    12      8     number of the first message
    20      8     byte offset of the first message
    28      8     commit time, milliseconds since 1970
    36            producer claim: u64 epoch, u64 seq, u16 length of the id, the id in UTF-8
                  Stream-Seq: u16 length, the text in UTF-8
                  lengths: u32 for each message, only where there are two or more
"""

import struct
import sys
from array import array
from operator import attrgetter
from typing import Final

import msgspec
from msgspec.structs import astuple, replace

from tailrace.protocol.content_type import is_json
from tailrace.protocol.fork import ForkOrigin
from tailrace.protocol.offset import Offset
from tailrace.protocol.producer import NO_PRODUCERS, ProducerHeaders, Producers, ProducerState
from tailrace.protocol.state import AppendRecord, SnapshotInfo, StreamState
from tailrace.protocol.subscription import Link, SubscriptionState

__all__ = [
    "HEAD",
    "cut_record",
    "decode_link",
    "decode_record",
    "decode_state",
    "decode_subscription",
    "encode_link",
    "encode_record",
    "encode_state",
    "encode_subscription",
    "key_of_state",
    "lengths_of",
    "producer_of",
]

HEAD: Final = struct.Struct("<BBHIIQQQ")
_CLAIM: Final = struct.Struct("<QQH")
_TEXT: Final = struct.Struct("<H")

_VERSION: Final = 1
_CLOSES: Final = 1
_PRODUCER: Final = 2
_STREAM_SEQ: Final = 4
_LENGTHS: Final = 8

# Lengths are copied as they are in memory.
assert array("I").itemsize == 4
assert sys.byteorder == "little"


def encode_record(at: Offset, record: AppendRecord) -> bytes:
    """The value stored at `at`, the tail before the record."""
    flags = _CLOSES if record.closes else 0
    extra = b""
    if record.producer is None and record.stream_seq is None and not record.lengths:
        # Most appends have only the fixed part.
        count = 1 if record.payload else 0
        return (
            HEAD.pack(_VERSION, flags, 0, HEAD.size, count, at.message, at.byte, record.time)
            + record.payload
        )
    if record.producer is not None:
        flags |= _PRODUCER
        producer_id = record.producer.id.encode()
        extra = _CLAIM.pack(record.producer.epoch, record.producer.seq, len(producer_id))
        extra += producer_id
    if record.stream_seq is not None:
        flags |= _STREAM_SEQ
        text = record.stream_seq.encode()
        extra += _TEXT.pack(len(text)) + text
    if record.lengths:
        flags |= _LENGTHS
        extra += array("I", record.lengths).tobytes()
    head = HEAD.pack(
        _VERSION, flags, 0, HEAD.size + len(extra), record.count, at.message, at.byte, record.time
    )
    return b"".join((head, extra, record.payload))


def decode_record(value: bytes) -> tuple[Offset, AppendRecord]:
    """A stored record and its offset: the inverse of `encode_record`."""
    version, flags, _, start, count, message, byte, time = HEAD.unpack_from(value)
    if version != _VERSION:
        raise ValueError(f"record version {version} is not known")
    at = HEAD.size
    producer = None
    if flags & _PRODUCER:
        epoch, seq, size = _CLAIM.unpack_from(value, at)
        at += _CLAIM.size
        producer = ProducerHeaders(value[at : at + size].decode(), epoch, seq)
        at += size
    stream_seq = None
    if flags & _STREAM_SEQ:
        (size,) = _TEXT.unpack_from(value, at)
        at += _TEXT.size
        stream_seq = value[at : at + size].decode()
    lengths = lengths_of(value, start, count) if flags & _LENGTHS else ()
    closes = bool(flags & _CLOSES)
    record = AppendRecord(time, value[start:], tuple(lengths), producer, stream_seq, closes)
    return Offset(message, byte), record


def cut_record(value: bytes, end: Offset) -> bytes:
    """A stored record up to a message boundary inside of it."""
    at, record = decode_record(value)
    count = end.message - at.message
    lengths = record.lengths[:count] if count > 1 else ()
    payload = record.payload[: end.byte - at.byte]
    return encode_record(at, replace(record, payload=payload, lengths=lengths, closes=False))


def lengths_of(value: bytes, start: int, count: int) -> "array[int] | tuple[int, ...]":
    """The stored length of each message of a record; they end where the payload starts."""
    if count < 2:
        return (len(value) - start,)
    lengths = array("I")
    lengths.frombytes(value[start - 4 * count : start])
    return lengths


def producer_of(value: bytes) -> str | None:
    """The id of the producer of a record, if it has one."""
    if not value[1] & _PRODUCER:
        return None
    _, _, size = _CLAIM.unpack_from(value, HEAD.size)
    at = HEAD.size + _CLAIM.size
    return value[at : at + size].decode()


class _Checkpoint(msgspec.Struct, array_like=True):
    """A state as stored; new fields go to the end and have defaults."""

    key: bytes
    id: int
    content_type: str
    created_at: int
    touched_at: int
    written_at: int
    ttl_s: int | None
    expires_at: int | None
    tail: Offset
    earliest: Offset
    closed: bool
    closed_by: ProducerHeaders | None
    stream_seq: str | None
    producers: dict[str, ProducerState]
    snapshot: tuple[int, int, int, int, str, bytes, bool, int] | None = None
    fork: ForkOrigin | None = None
    forks: int = 0
    deleted: bool = False
    held: int = 0


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Checkpoint).decode
# The fields that a state and its checkpoint have in common: all between `key` and `producers`.
_COMMON: Final = _Checkpoint.__struct_fields__[1 : _Checkpoint.__struct_fields__.index("producers")]
_common: Final = attrgetter(*_COMMON)


def encode_state(key: bytes, state: StreamState) -> bytes:
    """A checkpoint: MessagePack, the fields of `_Checkpoint` in their order."""
    producers = {} if state.producers is NO_PRODUCERS else dict(state.producers.items())
    snapshot = None
    if state.snapshot is not None:
        offset, *fields = astuple(state.snapshot)
        snapshot = (*offset, *fields)
    if state.fork is None and not state.forks and not state.deleted:
        return _encode((key, *_common(state), producers, snapshot))
    about_forks = (state.fork, state.forks, state.deleted, state.held)
    return _encode((key, *_common(state), producers, snapshot, *about_forks))


def decode_state(value: bytes) -> StreamState:
    stored = _decode(value)
    snapshot = None
    if stored.snapshot is not None:
        snapshot = SnapshotInfo(Offset(*stored.snapshot[:2]), *stored.snapshot[2:])
    return StreamState(
        **dict(zip(_COMMON, _common(stored), strict=True)),
        json=is_json(stored.content_type),
        producers=Producers.of(stored.producers) if stored.producers else NO_PRODUCERS,
        snapshot=snapshot,
        fork=stored.fork,
        forks=stored.forks,
        deleted=stored.deleted,
        held=stored.held,
    )


def key_of_state(value: bytes) -> bytes:
    """The name key that a checkpoint is stored with."""
    return _decode(value).key


def encode_subscription(state: SubscriptionState) -> bytes:
    """A row of a subscription: MessagePack, a map of its fields without those at their default."""
    return _encode(state)


decode_subscription: Final = msgspec.msgpack.Decoder(SubscriptionState).decode


def encode_link(link: Link) -> bytes:
    """A link: MessagePack, whether it is explicit, and the cursor if work is pending."""
    return _encode(link)


decode_link: Final = msgspec.msgpack.Decoder(Link).decode

"""
Replays the records of a stream and compares the result with its checkpoint.

Records that a snapshot covers are gone, so the replay begins with the first that is left. The
producers, `Stream-Seq` and closure that result must be in the checkpoint; if no record is gone, the
checkpoint must have nothing else.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from tailrace.engine.codec import decode_record, encode_record
from tailrace.engine.rocks.findings import Damage
from tailrace.protocol.machine import apply_append
from tailrace.protocol.offset import START, Offset
from tailrace.protocol.producer import NO_PRODUCERS
from tailrace.protocol.state import AppendRecord, StreamState

__all__ = ["replay"]


def replay(checkpoint: StreamState, values: Iterable[tuple[int, bytes]]) -> StreamState:
    """
    The state after all records, which come with the byte offsets that they are stored at.

    Raises:
        Damage: They do not follow each other, or do not lead to the checkpoint.
    """
    _check_state(checkpoint)
    # What is before the fork point is stored by other streams.
    begin = max(checkpoint.earliest.byte, checkpoint.begins.byte)
    state: StreamState | None = None
    begins_whole = reached = False
    count = 0
    for byte, value in values:
        at, record = _decode(byte, value)
        if state is None:
            if at.byte > begin:
                raise Damage(begin, f"records up to {at.byte} are missing")
            if at.byte < checkpoint.begins.byte:
                raise Damage(at.byte, "there is a record of its own before its fork point")
            begins_whole = at == checkpoint.begins
            state = _before(checkpoint, at)
        if at != state.tail:
            raise Damage(state.tail.byte, f"the next record is at {at.token()}")
        _check_messages(record, at, json=checkpoint.json)
        _check_earliest(checkpoint.earliest, record, at)
        if not reached and not checkpoint.closed and state.tail == checkpoint.tail:
            _compare(state, checkpoint, whole=begins_whole, count=count)
            reached = True
        if state.closed:
            raise Damage(at.byte, "there is a record after the one that closes the stream")
        state = apply_append(state, record)
        count += 1
    if state is None:
        if checkpoint.tail.byte != begin:
            raise Damage(begin, "all its records are missing")
        return checkpoint
    if not reached:
        if state.tail != checkpoint.tail:
            token = checkpoint.tail.token()
            raise Damage(state.tail.byte, f"its records do not lead to its checkpoint at {token}")
        _compare(state, checkpoint, whole=begins_whole, count=count)
    return replace(checkpoint, tail=state.tail, closed=state.closed)


def _check_state(state: StreamState) -> None:
    if not START <= state.earliest <= state.tail:
        raise Damage(state.tail.byte, "its checkpoint begins after its tail")
    if state.begins > state.tail:
        raise Damage(state.tail.byte, "its fork point is after its tail")
    if state.snapshot is not None and state.snapshot.offset != state.earliest:
        raise Damage(state.earliest.byte, "its snapshot is not where it begins")
    if state.touched_at < state.written_at:
        raise Damage(state.tail.byte, "its checkpoint was written to after it was touched")


def _before(checkpoint: StreamState, at: Offset) -> StreamState:
    """The state before the first record that is left, as far as it is known."""
    return replace(
        checkpoint,
        tail=at,
        touched_at=0,
        written_at=0,
        closed=False,
        closed_by=None,
        stream_seq=None,
        producers=NO_PRODUCERS,
    )


def _decode(byte: int, value: bytes) -> tuple[Offset, AppendRecord]:
    try:
        at, record = decode_record(value)
        whole = encode_record(at, record) == value
    except Exception as error:  # a damaged header can fail in any way
        raise Damage(byte, f"a record cannot be read: {error}") from error
    if not whole or at.byte != byte:
        raise Damage(byte, "a record is not of its form")
    return at, record


def _check_messages(record: AppendRecord, at: Offset, *, json: bool) -> None:
    if not record.payload and not record.closes:
        raise Damage(at.byte, "a record has neither messages nor closes the stream")
    if not json:
        if record.lengths:
            raise Damage(at.byte, "a record has several messages, and the stream is not JSON")
        return
    lengths = record.lengths or ((len(record.payload),) if record.payload else ())
    if sum(lengths) != len(record.payload):
        raise Damage(at.byte, "the lengths of a record's messages do not fit")
    end = 0
    for length in lengths:
        end += length
        # Each message ends with a comma.
        if length < 2 or record.payload[end - 1 : end] != b",":
            raise Damage(at.byte, "a record's messages do not end where they should")


def _check_earliest(earliest: Offset, record: AppendRecord, at: Offset) -> None:
    """Check that the earliest offset is a message boundary."""
    if not at.byte <= earliest.byte < at.byte + len(record.payload):
        return
    message, byte = at
    for length in record.lengths:
        if byte >= earliest.byte:
            break
        message, byte = message + 1, byte + length
    if (message, byte) != earliest:
        raise Damage(earliest.byte, "what is retained does not begin with a message")


def _compare(state: StreamState, checkpoint: StreamState, *, whole: bool, count: int) -> None:
    """Compare the result of `count` records with the checkpoint, as far as records are left."""
    producers = checkpoint.producers
    fits = (
        (not count or state.written_at == checkpoint.written_at)
        and (state.closed, state.closed_by) == (checkpoint.closed, checkpoint.closed_by)
        and all(producers.get(name) == last for name, last in state.producers.items())
        and state.stream_seq in (checkpoint.stream_seq, None)
    )
    if whole:
        fits = fits and len(state.producers) == len(producers)
        fits = fits and state.stream_seq == checkpoint.stream_seq
    if not fits:
        raise Damage(checkpoint.tail.byte, "its checkpoint is not what its records add up to")

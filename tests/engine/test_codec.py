"""The stored layout: round trips, and bytes that must never change within a format version."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.engine.codec import (
    HEAD,
    decode_record,
    decode_state,
    encode_record,
    encode_state,
    lengths_of,
)
from tailrace.engine.rocks.store import FORMAT_VERSION
from tailrace.protocol.fork import ForkOrigin, Segment, pack_segments
from tailrace.protocol.limits import (
    PRODUCER_ID_BYTES_MAX,
    PRODUCER_INTEGER_MAX,
    STREAM_SEQ_BYTES_MAX,
)
from tailrace.protocol.offset import Offset
from tailrace.protocol.producer import ProducerHeaders, Producers, ProducerState
from tailrace.protocol.state import AppendRecord, SnapshotInfo, StreamState

NUMBERS = st.integers(0, PRODUCER_INTEGER_MAX)
TIMES = st.integers(0, 2**45)
OFFSETS = st.builds(Offset, st.integers(0, 10**16 - 1), st.integers(0, 10**16 - 1))
# Header values arrive as Latin-1.
LATIN = st.text(st.characters(max_codepoint=255), max_size=20)
CLAIMS = st.builds(ProducerHeaders, LATIN.filter(bool), NUMBERS, NUMBERS)


@st.composite
def records(draw: st.DrawFn) -> AppendRecord:
    pieces = draw(st.lists(st.binary(min_size=1, max_size=9), max_size=5))
    return AppendRecord(
        draw(TIMES),
        b"".join(pieces),
        tuple(map(len, pieces)) if len(pieces) > 1 else (),
        draw(st.none() | CLAIMS),
        draw(st.none() | LATIN),
        draw(st.booleans()),
    )


STATES = st.builds(
    StreamState,
    id=st.integers(1, 2**63),
    content_type=st.just("Text/Plain; charset=utf-8"),
    json=st.just(False),
    created_at=TIMES,
    touched_at=TIMES,
    written_at=TIMES,
    ttl_s=st.none() | NUMBERS,
    expires_at=st.none() | TIMES,
    tail=OFFSETS,
    earliest=OFFSETS,
    closed=st.booleans(),
    closed_by=st.none() | CLAIMS,
    stream_seq=st.none() | LATIN,
    producers=st.dictionaries(LATIN, st.builds(ProducerState, NUMBERS, NUMBERS), max_size=5).map(
        Producers.of
    ),
)


@given(at=OFFSETS, record=records())
def test_a_record_is_decoded_as_it_was_encoded(at: Offset, record: AppendRecord) -> None:
    assert decode_record(encode_record(at, record)) == (at, record)


@given(at=OFFSETS, record=records())
def test_the_header_says_where_the_payload_and_its_messages_lie(
    at: Offset, record: AppendRecord
) -> None:
    """What reads use, without decoding the rest."""
    value = encode_record(at, record)
    version, _, zero, start, count, message, byte, time = HEAD.unpack_from(value)
    assert (version, zero, Offset(message, byte), time) == (1, 0, at, record.time)
    assert value[start:] == record.payload
    assert count == record.count
    if count:
        assert sum(lengths_of(value, start, count)) == len(record.payload)
        assert len(lengths_of(value, start, count)) == count


@given(key=st.binary(max_size=20), state=STATES)
def test_a_state_is_decoded_as_it_was_encoded(key: bytes, state: StreamState) -> None:
    again = decode_state(encode_state(key, state))
    assert again == state
    # Equal as tuples is not enough: callers use their names.
    assert isinstance(again.tail, Offset)
    assert isinstance(again.earliest, Offset)
    assert again.closed_by is None or isinstance(again.closed_by, ProducerHeaders)
    assert all(isinstance(known, ProducerState) for _, known in again.producers.items())


def test_the_longest_texts_fit_their_length_fields() -> None:
    """512 bytes of Latin-1 are up to 1024 of UTF-8."""
    record = AppendRecord(
        1,
        b"x",
        (),
        ProducerHeaders("ÿ" * PRODUCER_ID_BYTES_MAX, PRODUCER_INTEGER_MAX, PRODUCER_INTEGER_MAX),
        "ÿ" * STREAM_SEQ_BYTES_MAX,
    )
    assert decode_record(encode_record(Offset(0, 0), record))[1] == record


def test_many_messages() -> None:
    record = AppendRecord(1, b"1," * 100_000, (2,) * 100_000)
    assert decode_record(encode_record(Offset(7, 9), record)) == (Offset(7, 9), record)


def test_a_record_of_another_version_is_refused() -> None:
    value = bytearray(encode_record(Offset(0, 0), AppendRecord(1, b"x")))
    value[0] = 2
    with pytest.raises(ValueError, match="version 2"):
        decode_record(bytes(value))


class TestGoldenBytes:
    """
    Format version 4, byte by byte.

    Goal: a change of the layout cannot happen by accident. A change of these bytes must raise
    the format version and read the old one.
    """

    AT = Offset(message=7, byte=258)

    def test_the_format_version(self) -> None:
        assert FORMAT_VERSION == 4

    def test_a_plain_append(self) -> None:
        value = encode_record(self.AT, AppendRecord(1_700_000_000_000, b"hi"))
        assert value.hex(" ", -4) == (
            "01000000 24000000 01000000 07000000 00000000 02010000 00000000 0068e5cf 8b010000 6869"
        )

    def test_everything_at_once(self) -> None:
        record = AppendRecord(
            1_700_000_000_000, b"a,bc,", (2, 3), ProducerHeaders("é", 5, 6), "ÿ9", closes=True
        )
        assert encode_record(self.AT, record).hex(" ", -4) == (
            "010f0000 45000000 02000000 07000000 00000000 02010000 00000000 0068e5cf 8b010000 "
            "05000000 00000000 06000000 00000000 0200c3a9 0300c3bf 39020000 00030000 00612c62 632c"
        )

    def test_a_close_without_bytes(self) -> None:
        record = AppendRecord(1_700_000_000_000, b"", closes=True)
        assert encode_record(self.AT, record).hex(" ", -4) == (
            "01010000 24000000 00000000 07000000 00000000 02010000 00000000 0068e5cf 8b010000"
        )

    def test_a_state(self) -> None:
        state = StreamState(
            id=3,
            content_type="text/plain",
            json=False,
            created_at=1,
            touched_at=2,
            written_at=3,
            ttl_s=60,
            expires_at=None,
            tail=Offset(2, 300),
            earliest=Offset(1, 4),
            closed=True,
            closed_by=ProducerHeaders("p", 1, 2),
            stream_seq="é",
            producers=Producers.of({"p": ProducerState(1, 2)}),
        )
        golden = bytes.fromhex(
            "9fc4036b 657903aa 74657874 2f706c61 696e0102 033cc092 02cd012c 920104c3 93a17001"
            "02a2c3a9 81a17092 0102c0"
        )
        assert encode_state(b"key", state) == golden
        assert decode_state(golden) == state
        # As format 1 had it: without the field for a snapshot.
        assert decode_state(b"\x9e" + golden[1:-1]) == state

    def test_a_state_with_a_snapshot(self) -> None:
        state = StreamState(
            id=3,
            content_type="a/b",
            json=False,
            created_at=1,
            touched_at=2,
            written_at=3,
            tail=Offset(9, 300),
            earliest=Offset(2, 7),
            snapshot=SnapshotInfo(Offset(2, 7), 4, 500, "c/d", b"\xab" * 4, inline=True, time=5),
        )
        golden = bytes.fromhex(
            "9fc4036b 657903a3 612f6201 0203c0c0 9209cd01 2c920207 c2c0c080 98020704 cd01f4a3"
            "632f64c4 04ababab abc305"
        )
        assert encode_state(b"key", state) == golden
        assert decode_state(golden) == state

    def test_a_state_with_forks(self) -> None:
        point = Offset(1, 4)
        segments = pack_segments([Segment(1, point)])
        state = StreamState(
            id=3,
            content_type="text/plain",
            json=False,
            created_at=1,
            touched_at=2,
            written_at=3,
            tail=Offset(2, 300),
            fork=ForkOrigin(b"src", 1, point, 2, point, 9, segments),
            forks=5,
            deleted=True,
            held=258,
        )
        golden = bytes.fromhex(
            "dc0013c4 036b6579 03aa7465 78742f70 6c61696e 010203c0 c09202cd 012c9200 00c2c0c0"
            "80c097c4 03737263 01920104 02920104 09c41800 00000000 00000100 00000000 00000100"
            "00000000 00000405 c3cd0102"
        )
        assert encode_state(b"key", state) == golden
        assert decode_state(golden) == state

    def test_a_checkpoint_of_a_later_minor_version_can_be_read(self) -> None:
        """New fields go to the end: an older server skips them."""
        state = StreamState(
            id=1,
            content_type="Application/JSON; x",
            json=True,
            created_at=1,
            touched_at=1,
            written_at=1,
        )
        value = bytearray(encode_state(b"k", state))
        assert value[0] == 0x90 | 15
        later = b"\xdc\x00\x10" + bytes(value[1:]) + b"\xc0"
        assert decode_state(later) == state

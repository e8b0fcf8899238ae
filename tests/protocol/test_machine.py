"""Create, append, close, delete and expire (§5.1–§5.4), and the order in which checks are made."""

import pytest

from tailrace.protocol.errors import SeqRegression, StreamClosed, StreamExists
from tailrace.protocol.machine import Effect, Verdict, apply, decide
from tailrace.protocol.offset import Offset
from tailrace.protocol.producer import ProducerHeaders
from tailrace.protocol.state import (
    Append,
    AppendRecord,
    Create,
    CreateRecord,
    Delete,
    DeleteRecord,
    Expire,
    StreamState,
    Touch,
    TouchRecord,
)
from tests.protocol.model import BINARY, JSON, TEXT
from tests.protocol.streams import (
    NOW_MS,
    appended,
    closed_stream,
    code,
    json_stream,
    run,
    text_stream,
)


class TestCreate:
    """§5.1."""

    def test_a_new_stream_is_open_and_empty(self) -> None:
        effect, stream = run(None, Create(id=7, content_type=TEXT))
        assert effect is Effect.CREATED
        assert (stream.id, stream.content_type, stream.tail) == (7, TEXT, (0, 0))
        assert not stream.closed
        assert (stream.created_at, stream.touched_at, stream.written_at) == (NOW_MS,) * 3

    def test_initial_bytes_form_the_first_content(self) -> None:
        stream = text_stream(body=b"hello")
        assert stream.tail == (1, 5)

    def test_create_again_with_the_same_configuration_is_a_success(self) -> None:
        stream = appended(text_stream())
        again = Create(id=99, content_type="TEXT/Plain; charset=utf-8")
        assert run(stream, again, NOW_MS + 5) == (Effect.EXISTED, stream)

    def test_the_body_of_a_create_again_is_never_appended(self) -> None:
        stream = text_stream(body=b"a")
        again = Create(id=2, content_type=TEXT, body=b"a")
        assert run(stream, again) == (Effect.EXISTED, stream)

    @pytest.mark.parametrize(
        ("other", "difference"),
        [
            (Create(id=2, content_type=BINARY, ttl_s=60), "Content-Type"),
            (Create(id=2, content_type=TEXT), "Stream-TTL"),
            (Create(id=2, content_type=TEXT, ttl_s=61), "Stream-TTL"),
            (Create(id=2, content_type=TEXT, expires_at=NOW_MS), "Stream-TTL"),
            (Create(id=2, content_type=TEXT, ttl_s=60, closed=True), "closure"),
        ],
    )
    def test_create_again_with_another_configuration_is_409(
        self, other: Create, difference: str
    ) -> None:
        with pytest.raises(StreamExists) as caught:
            decide(text_stream(ttl_s=60), other, NOW_MS)
        assert caught.value.status == 409
        assert caught.value.difference.startswith(difference)

    def test_another_moment_of_expiry_is_409(self) -> None:
        stream = text_stream(expires_at=NOW_MS + 1)
        other = Create(id=2, content_type=TEXT, expires_at=NOW_MS + 2)
        assert code(stream, other) == (409, "stream-exists")

    def test_a_ttl_of_0_is_not_the_same_as_none(self) -> None:
        other = Create(id=2, content_type=TEXT, ttl_s=0)
        assert code(text_stream(), other) == (409, "stream-exists")

    @pytest.mark.parametrize(
        ("exists_closed", "asks_closed", "result"),
        [
            (False, False, "existed"),
            (True, False, "stream-exists"),
            (True, True, "existed"),
            (False, True, "stream-exists"),
        ],
    )
    def test_closure_status_matching(
        self, exists_closed: bool, asks_closed: bool, result: str
    ) -> None:
        """The four examples of §5.1."""
        stream = closed_stream() if exists_closed else text_stream()
        command = Create(id=2, content_type=TEXT, closed=asks_closed)
        if result == "existed":
            assert run(stream, command) == (Effect.EXISTED, stream)
        else:
            assert code(stream, command) == (409, result)

    def test_created_closed_and_empty(self) -> None:
        stream = text_stream(closed=True)
        assert (stream.closed, stream.tail) == (True, (0, 0))
        assert code(stream, Append(b"x", TEXT)) == (409, "stream-closed")

    def test_created_closed_the_body_is_the_complete_content(self) -> None:
        stream = text_stream(closed=True, body=b"all of it")
        assert (stream.closed, stream.tail) == (True, (1, 9))

    def test_a_body_that_is_not_json_creates_nothing(self) -> None:
        assert code(None, Create(id=1, content_type=JSON, body=b"{")) == (400, "json-invalid")

    def test_an_empty_array_creates_an_empty_stream(self) -> None:
        """§7.1."""
        effect, stream = run(None, Create(id=1, content_type=JSON, body=b" [ ] "))
        assert (effect, stream.tail) == (Effect.CREATED, (0, 0))

    def test_the_first_spelling_of_the_content_type_is_kept(self) -> None:
        stream = run(None, Create(id=1, content_type="Text/PLAIN ;x=1"))[1]
        assert appended(stream).content_type == "Text/PLAIN ;x=1"


class TestAppend:
    """§5.2."""

    def test_the_stream_must_exist(self) -> None:
        assert code(None, Append(b"x", TEXT)) == (404, "stream-not-found")

    def test_the_new_tail_is_one_message_and_its_bytes_further(self) -> None:
        assert appended(appended(text_stream(), b"abc"), b"de").tail == (2, 5)

    def test_content_type_must_match_when_a_body_is_provided(self) -> None:
        assert code(text_stream(), Append(b"x", BINARY)) == (409, "content-type-mismatch")

    def test_content_type_must_be_there_when_a_body_is_provided(self) -> None:
        assert code(text_stream(), Append(b"x", None)) == (400, "content-type-missing")

    @pytest.mark.parametrize("content_type", [None, BINARY, "nonsense", ""])
    def test_an_empty_body_is_never_rejected_by_its_content_type(
        self, content_type: str | None
    ) -> None:
        effect, stream = run(text_stream(), Append(b"", content_type, True))
        assert (effect, stream.closed) == (Effect.CLOSED, True)

    def test_an_empty_body_without_closure_is_400(self) -> None:
        assert code(text_stream(), Append(b"", TEXT)) == (400, "body-empty")

    @pytest.mark.parametrize("body", [b"[]", b" [ \n] "])
    @pytest.mark.parametrize("closes", [False, True])
    def test_an_empty_array_is_400_in_json_mode(self, body: bytes, closes: bool) -> None:
        """§7.1."""
        assert code(json_stream(), Append(body, JSON, closes)) == (400, "json-invalid")

    def test_an_empty_array_is_a_message_outside_json_mode(self) -> None:
        assert appended(text_stream(), b"[]").tail == (1, 2)

    def test_white_space_is_a_message_outside_json_mode_and_400_in_it(self) -> None:
        assert appended(text_stream(), b"  ").tail == (1, 2)
        assert code(json_stream(), Append(b"  ", JSON, True)) == (400, "json-invalid")

    def test_an_array_becomes_as_many_messages_as_it_has_elements(self) -> None:
        stream = appended(json_stream(), b"[1, 22, [3]]")
        # Each is stored with a comma after it.
        assert stream.tail == (3, 2 + 3 + 4)

    def test_the_record_holds_the_stored_form_and_its_boundaries(self) -> None:
        record = decide(json_stream(), Append(b'[ 1 ,{"a" :2}]', JSON), NOW_MS).record
        assert isinstance(record, AppendRecord)
        assert (record.payload, record.lengths) == (b'1,{"a" :2},', (2, 9))
        assert record.count == 2

    def test_one_message_needs_no_lengths(self) -> None:
        record = decide(json_stream(), Append(b"[1]", JSON), NOW_MS).record
        assert isinstance(record, AppendRecord)
        assert (record.payload, record.lengths, record.count) == (b"1,", (), 1)


class TestStreamSeq:
    """§5.2: byte-wise lexicographic, strictly increasing, scoped per stream."""

    def test_any_first_value_is_accepted(self) -> None:
        assert appended(text_stream(), seq="").stream_seq == ""

    @pytest.mark.parametrize(
        ("last", "received"),
        [("2", "10"), ("a", "B"), ("b", "b"), ("aa", "a"), ("é", "z"), ("0", ""), ("a", "a")],
    )
    def test_less_or_equal_is_409(self, last: str, received: str) -> None:
        stream = appended(text_stream(), seq=last)
        with pytest.raises(SeqRegression) as caught:
            decide(stream, Append(b"x", TEXT, stream_seq=received), NOW_MS)
        assert caught.value.status == 409
        assert (caught.value.last, caught.value.received) == (last, received)

    @pytest.mark.parametrize(
        ("last", "received"),
        [("10", "2"), ("B", "a"), ("a", "aa"), ("z", "é"), ("", "\x01"), ("é", "ÿ")],
    )
    def test_greater_is_accepted(self, last: str, received: str) -> None:
        stream = appended(appended(text_stream(), seq=last), seq=received)
        assert stream.stream_seq == received

    def test_an_append_without_one_leaves_the_last(self) -> None:
        stream = appended(appended(text_stream(), seq="5"))
        assert stream.stream_seq == "5"
        assert code(stream, Append(b"x", TEXT, stream_seq="5")) == (409, "seq-regression")

    def test_a_refused_append_does_not_move_it(self) -> None:
        stream = appended(text_stream(), seq="5")
        claim = ProducerHeaders("p", 0, 1)
        assert code(stream, Append(b"x", TEXT, False, claim, "9")) == (409, "producer-gap")
        appended(stream, seq="6")

    def test_it_is_scoped_per_stream_not_per_producer(self) -> None:
        stream = appended(text_stream(), claim=ProducerHeaders("p", 0, 0), seq="5")
        command = Append(b"x", TEXT, False, ProducerHeaders("q", 0, 0), "4")
        assert code(stream, command) == (409, "seq-regression")

    def test_a_close_without_a_body_counts(self) -> None:
        stream = appended(text_stream(), seq="5")
        assert code(stream, Append(b"", None, True, None, "5")) == (409, "seq-regression")
        assert appended(stream, b"", closes=True, seq="6").stream_seq == "6"


class TestOrderOfChecks:
    """
    Each request violates one rule and every later one; the first one decides the refusal.

    §5.2 recommends closure before type before sequence; the full order is public behaviour.
    """

    GAP = ProducerHeaders("p", 1, 9)
    STREAM = appended(text_stream(), claim=ProducerHeaders("p", 1, 0), seq="m")
    CLOSED = appended(STREAM, b"", closes=True)

    @pytest.mark.parametrize(
        ("stream", "command", "expected"),
        [
            (None, Append(b"", BINARY, False, GAP, "a"), (404, "stream-not-found")),
            (CLOSED, Append(b"x", BINARY, False, ProducerHeaders("p", 0, 9), "a"),
             (403, "producer-fenced")),
            (STREAM, Append(b"x", BINARY, False, ProducerHeaders("p", 0, 9), "a"),
             (403, "producer-fenced")),
            (CLOSED, Append(b"x", BINARY, False, ProducerHeaders("p", 1, 0), "a"),
             (409, "stream-closed")),
            (CLOSED, Append(b"x", BINARY, False, GAP, "a"), (409, "stream-closed")),
            (CLOSED, Append(b"", None, False, None, "a"), (409, "stream-closed")),
            (CLOSED, Append(b"x", TEXT, True), (409, "stream-closed")),
            (STREAM, Append(b"x", None, False, GAP, "a"), (400, "content-type-missing")),
            (STREAM, Append(b"x", BINARY, False, GAP, "a"), (409, "content-type-mismatch")),
            (STREAM, Append(b"", BINARY, False, GAP, "a"), (400, "body-empty")),
            (STREAM, Append(b"x", TEXT, False, GAP, "a"), (409, "producer-gap")),
            (STREAM, Append(b"x", TEXT, False, ProducerHeaders("p", 2, 1), "a"),
             (400, "producer-epoch-start")),
            (STREAM, Append(b"x", TEXT, False, ProducerHeaders("p", 1, 1), "a"),
             (409, "seq-regression")),
        ],
    )  # fmt: skip
    def test_the_first_violation_decides_the_refusal(
        self, stream: StreamState | None, command: Append, expected: tuple[int, str]
    ) -> None:
        assert code(stream, command) == expected

    def test_a_retry_is_acknowledged_before_type_body_and_stream_seq_are_looked_at(self) -> None:
        retry = Append(b"", BINARY, False, ProducerHeaders("p", 1, 0), "a")
        assert decide(self.STREAM, retry, NOW_MS) == Verdict(Effect.DUPLICATE)

    def test_json_is_judged_after_the_type_and_before_the_producer(self) -> None:
        stream = json_stream()
        assert code(stream, Append(b"{", TEXT, False, self.GAP))[1] == "content-type-mismatch"
        assert code(stream, Append(b"{", JSON, False, self.GAP))[1] == "json-invalid"


class TestClose:
    """§4.1, §5.3."""

    def test_close_appends_nothing(self) -> None:
        stream = appended(text_stream(), b"abc")
        effect, closed = run(stream, Append(b"", None, True))
        assert (effect, closed.closed, closed.tail) == (Effect.CLOSED, True, stream.tail)

    def test_close_with_a_body_is_one_step(self) -> None:
        effect, closed = run(text_stream(), Append(b"abc", TEXT, True))
        assert (effect, closed.closed, closed.tail) == (Effect.APPENDED, True, (1, 3))

    def test_closing_a_closed_stream_succeeds_and_changes_nothing(self) -> None:
        stream = closed_stream()
        assert decide(stream, Append(b"", BINARY, True), NOW_MS) == Verdict(Effect.CLOSED)

    def test_a_closed_stream_takes_no_more_and_says_where_it_ended(self) -> None:
        with pytest.raises(StreamClosed) as caught:
            decide(closed_stream(), Append(b"x", TEXT), NOW_MS)
        assert caught.value.status == 409
        assert caught.value.tail == Offset(1, 4).token()

    def test_a_failed_close_leaves_the_stream_open(self) -> None:
        stream = text_stream()
        assert code(stream, Append(b"x", BINARY, True)) == (409, "content-type-mismatch")
        assert not appended(stream).closed


class TestDelete:
    """§5.4."""

    def test_delete(self) -> None:
        verdict = decide(closed_stream(), Delete(), NOW_MS)
        assert verdict == Verdict(Effect.DELETED, DeleteRecord(NOW_MS))
        assert apply(closed_stream(), DeleteRecord(NOW_MS)) is None

    def test_a_stream_that_does_not_exist_cannot_be_deleted(self) -> None:
        assert code(None, Delete()) == (404, "stream-not-found")

    def test_the_same_url_may_be_created_again_and_remembers_nothing(self) -> None:
        old = appended(text_stream(), claim=ProducerHeaders("p", 5, 0), seq="z")
        assert apply(old, DeleteRecord(NOW_MS)) is None
        _, new = run(None, Create(id=2, content_type=JSON))
        assert (new.id, new.tail, new.stream_seq, len(new.producers)) == (2, (0, 0), None, 0)


class TestExpiry:
    """§5.1: TTL from creation, or sliding; absolute moments never slide."""

    def test_a_stream_without_an_end_never_expires(self) -> None:
        verdict = decide(text_stream(), Expire(sliding=True), NOW_MS * 2)
        assert verdict == Verdict(Effect.NOTHING)

    @pytest.mark.parametrize(("after_ms", "over"), [(0, False), (1999, False), (2000, True)])
    def test_ttl_counts_from_creation(self, after_ms: int, over: bool) -> None:
        stream = text_stream(ttl_s=2)
        verdict = decide(stream, Expire(sliding=False), NOW_MS + after_ms)
        assert (verdict.effect is Effect.DELETED) == over

    def test_a_ttl_of_0_is_over_at_once(self) -> None:
        verdict = decide(text_stream(ttl_s=0), Expire(sliding=False), NOW_MS)
        assert verdict == Verdict(Effect.DELETED, DeleteRecord(NOW_MS))

    @pytest.mark.parametrize("sliding", [False, True])
    def test_writes_do_not_move_an_absolute_expiry(self, sliding: bool) -> None:
        stream = text_stream(expires_at=NOW_MS + 100)
        record = decide(stream, Append(b"x", TEXT), NOW_MS + 90).record
        assert record is not None
        after = apply(stream, record)
        assert after is not None and after.deadline(sliding) == NOW_MS + 100
        assert decide(after, Touch(), NOW_MS + 95) == Verdict(Effect.NOTHING)

    def test_a_write_restarts_a_sliding_ttl_only(self) -> None:
        stream = text_stream(ttl_s=2)
        record = decide(stream, Append(b"x", TEXT), NOW_MS + 1500).record
        assert record is not None
        after = apply(stream, record)
        assert after is not None
        assert after.deadline(sliding=True) == NOW_MS + 3500
        assert after.deadline(sliding=False) == NOW_MS + 2000

    def test_a_read_restarts_a_sliding_ttl(self) -> None:
        stream = text_stream(ttl_s=2)
        assert decide(stream, Touch(), NOW_MS + 9) == Verdict(
            Effect.TOUCHED, TouchRecord(NOW_MS + 9)
        )
        after = apply(stream, TouchRecord(NOW_MS + 9))
        assert after is not None and after.deadline(sliding=True) == NOW_MS + 2009

    def test_a_touch_never_goes_back_in_time(self) -> None:
        stream = text_stream(ttl_s=2)
        assert apply(stream, TouchRecord(NOW_MS - 50)) == stream

    @pytest.mark.parametrize("command", [Expire(sliding=True), Touch()])
    def test_nothing_happens_to_what_does_not_exist(self, command: Expire | Touch) -> None:
        assert decide(None, command, NOW_MS) == Verdict(Effect.NOTHING)


def test_a_state_is_never_changed() -> None:
    stream = appended(text_stream(), claim=ProducerHeaders("p", 0, 0), seq="1")
    copy = StreamState(**{name: getattr(stream, name) for name in StreamState.__struct_fields__})
    appended(stream, claim=ProducerHeaders("p", 0, 1), seq="2", closes=True)
    assert stream == copy
    with pytest.raises(AttributeError):
        stream.closed = True  # type: ignore[misc]


def test_a_created_record_with_content_equals_create_then_append() -> None:
    """Replaying one record or two gives the same stream."""
    content = AppendRecord(NOW_MS, b"x", closes=True)
    whole = apply(None, CreateRecord(time=NOW_MS, id=1, content_type=TEXT, content=content))
    empty = apply(None, CreateRecord(time=NOW_MS, id=1, content_type=TEXT))
    assert whole == apply(empty, content)

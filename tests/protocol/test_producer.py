"""§5.2.1, the validation logic of idempotent producers, line by line."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.protocol.errors import (
    ProducerEpochStart,
    ProducerFenced,
    ProducerGap,
    Refusal,
    StreamClosed,
)
from tailrace.protocol.limits import PRODUCER_INTEGER_MAX
from tailrace.protocol.machine import Effect, apply, decide
from tailrace.protocol.producer import ProducerHeaders, Producers, ProducerState, admit, is_retry
from tailrace.protocol.state import Append, AppendRecord
from tests.protocol.model import TEXT
from tests.protocol.streams import NOW_MS, appended, closed_stream, run, text_stream


def claim(epoch: int, seq: int, producer_id: str = "p") -> ProducerHeaders:
    return ProducerHeaders(producer_id, epoch, seq)


def send(epoch: int, seq: int, body: bytes = b"x", *, closes: bool = False) -> Append:
    return Append(body, TEXT, closes, claim(epoch, seq))


class TestValidationLogic:
    """Each line of the specification's listing, on `is_retry` and `admit` alone."""

    def test_epoch_below_state_epoch_is_403_with_the_current_epoch(self) -> None:
        with pytest.raises(ProducerFenced) as caught:
            is_retry(ProducerState(5, 3), claim(4, 4))
        assert (caught.value.status, caught.value.epoch) == (403, 5)
        assert caught.value.received_epoch == 4

    def test_stale_epoch_is_403_even_for_a_batch_that_it_once_appended(self) -> None:
        with pytest.raises(ProducerFenced):
            is_retry(ProducerState(1, 0), claim(0, 0))

    def test_epoch_above_state_epoch_with_seq_other_than_0_is_400(self) -> None:
        assert not is_retry(ProducerState(1, 7), claim(2, 8))
        with pytest.raises(ProducerEpochStart) as caught:
            admit(ProducerState(1, 7), claim(2, 8))
        assert caught.value.status == 400

    def test_epoch_above_state_epoch_with_seq_0_is_accepted(self) -> None:
        assert not is_retry(ProducerState(1, 7), claim(9, 0))
        admit(ProducerState(1, 7), claim(9, 0))

    def test_seq_up_to_last_seq_is_a_duplicate(self) -> None:
        for seq in [0, 3, 7]:
            assert is_retry(ProducerState(1, 7), claim(1, seq))

    def test_seq_of_last_seq_plus_one_is_accepted(self) -> None:
        assert not is_retry(ProducerState(1, 7), claim(1, 8))
        admit(ProducerState(1, 7), claim(1, 8))

    def test_seq_beyond_last_seq_plus_one_is_409_with_expected_and_received(self) -> None:
        with pytest.raises(ProducerGap) as caught:
            admit(ProducerState(1, 7), claim(1, 9))
        assert caught.value.status == 409
        assert (caught.value.expected_seq, caught.value.received_seq) == (8, 9)

    def test_an_unknown_producer_may_start_at_any_epoch(self) -> None:
        for epoch in [0, 5, PRODUCER_INTEGER_MAX]:
            assert not is_retry(None, claim(epoch, 0))
            admit(None, claim(epoch, 0))

    def test_an_unknown_producer_starts_with_seq_0_only(self) -> None:
        for seq in [1, PRODUCER_INTEGER_MAX]:
            with pytest.raises(ProducerGap) as caught:
                admit(None, claim(3, seq))
            assert caught.value.expected_seq == 0

    def test_the_largest_integers_are_exact(self) -> None:
        last = ProducerState(PRODUCER_INTEGER_MAX, PRODUCER_INTEGER_MAX - 1)
        admit(last, claim(PRODUCER_INTEGER_MAX, PRODUCER_INTEGER_MAX))
        assert is_retry(last, claim(PRODUCER_INTEGER_MAX, PRODUCER_INTEGER_MAX - 1))


class TestFlows:
    """The flows of §5.2.1 on whole streams."""

    def test_initial_start_at_epoch_0_seq_0(self) -> None:
        stream = appended(text_stream(), claim=claim(0, 0))
        assert stream.producers.get("p") == ProducerState(0, 0)

    def test_a_duplicate_appends_nothing_and_changes_nothing(self) -> None:
        stream = appended(text_stream(), claim=claim(0, 0))
        assert run(stream, send(0, 0, b"other bytes")) == (Effect.DUPLICATE, stream)

    def test_a_restart_takes_the_next_epoch_and_starts_at_0(self) -> None:
        stream = appended(text_stream(), claim=claim(0, 0))
        stream = appended(stream, claim=claim(1, 0))
        assert stream.producers.get("p") == ProducerState(1, 0)

    def test_auto_claim_of_an_ephemeral_producer(self) -> None:
        """Refused with the epoch that holds the id; the next one above it is accepted."""
        stream = appended(text_stream(), claim=claim(5, 0))
        with pytest.raises(ProducerFenced) as caught:
            decide(stream, send(0, 0), NOW_MS)
        appended(stream, claim=claim(caught.value.epoch + 1, 0))

    def test_a_refused_batch_does_not_count_as_received(self) -> None:
        """A batch of the wrong type, then the same seq with the right one: it is new."""
        stream = text_stream()
        with pytest.raises(Refusal):
            decide(stream, Append(b"x", "image/png", False, claim(0, 0)), NOW_MS)
        assert run(stream, send(0, 0))[0] is Effect.APPENDED

    def test_producers_of_one_stream_do_not_know_of_each_other(self) -> None:
        stream = appended(text_stream(), claim=claim(7, 0, "p"))
        stream = appended(stream, claim=claim(0, 0, "q"))
        assert dict(stream.producers.items()) == {"p": (7, 0), "q": (0, 0)}

    def test_ids_differ_by_case_and_by_every_character(self) -> None:
        stream = appended(text_stream(), claim=claim(0, 0, "p"))
        stream = appended(stream, claim=claim(0, 0, "P"))
        stream = appended(stream, claim=claim(0, 0, "p "))
        assert len(stream.producers) == 3


class TestClosure:
    """§5.2.1, stream closure with idempotent producers."""

    def test_close_with_final_append_is_deduplicated_and_atomic(self) -> None:
        stream = closed_stream(claim(0, 0))
        assert (stream.closed, stream.tail) == (True, (1, 4))
        assert run(stream, send(0, 0, b"last", closes=True)) == (Effect.DUPLICATE, stream)

    def test_close_without_append_counts_as_a_batch_of_its_producer(self) -> None:
        stream = appended(appended(text_stream(), claim=claim(0, 0)), b"", closes=True,
                          claim=claim(0, 1))  # fmt: skip
        assert stream.producers.get("p") == ProducerState(0, 1)
        assert run(stream, send(0, 1, b"", closes=True))[0] is Effect.DUPLICATE

    def test_the_closing_claim_is_a_duplicate_with_any_body(self) -> None:
        """§5.2.1: only `(producerId, epoch, seq)` identifies the request."""
        stream = closed_stream(claim(0, 0))
        assert run(stream, send(0, 0, b"other"))[0] is Effect.DUPLICATE

    @pytest.mark.parametrize(
        ("epoch", "seq"), [(0, 0), (0, 2), (1, 0), (1, 5)], ids=["earlier", "next", "new", "gap"]
    )
    def test_otherwise_409_with_what_is_known_of_the_producer(self, epoch: int, seq: int) -> None:
        stream = appended(text_stream(), claim=claim(0, 0))
        stream = appended(stream, closes=True, claim=claim(0, 1))
        with pytest.raises(StreamClosed) as caught:
            decide(stream, send(epoch, seq, closes=True), NOW_MS)
        assert (caught.value.epoch, caught.value.last_seq) == (0, 1)
        assert caught.value.tail == stream.tail.token()

    def test_a_stale_epoch_on_a_closed_stream_is_403(self) -> None:
        with pytest.raises(ProducerFenced):
            decide(closed_stream(claim(1, 0)), send(0, 0), NOW_MS)

    def test_a_producer_cannot_repeat_a_close_that_was_not_its_own(self) -> None:
        stream = closed_stream()
        with pytest.raises(StreamClosed) as caught:
            decide(stream, send(0, 0, b"", closes=True), NOW_MS)
        assert (caught.value.epoch, caught.value.last_seq) == (None, None)

    def test_another_producer_with_the_same_numbers_did_not_close_it(self) -> None:
        stream = closed_stream(claim(0, 0))
        with pytest.raises(StreamClosed):
            decide(stream, Append(b"", None, True, claim(0, 0, "q")), NOW_MS)


ARRIVALS = st.lists(
    st.builds(ProducerHeaders, st.sampled_from(["p", "q"]), st.integers(0, 3), st.integers(0, 6)),
    max_size=60,
)


@given(arrivals=ARRIVALS)
def test_any_network_yields_each_batch_once_and_in_order(arrivals: list[ProducerHeaders]) -> None:
    """
    Retries, reordering and loss never duplicate a batch nor leave a hole.

    Goal: exactly-once within an epoch. Method: throw arbitrary claims at a stream, keep what it
    accepts, and look at the log alone: epochs only grow, and each holds 0, 1, 2, …
    """
    stream = text_stream()
    log: list[ProducerHeaders] = []
    for arrival in arrivals:
        try:
            verdict = decide(stream, Append(b"x", TEXT, False, arrival), NOW_MS)
        except Refusal:
            continue
        if isinstance(verdict.record, AppendRecord):
            after = apply(stream, verdict.record)
            assert after is not None
            stream = after
            log.append(arrival)
        else:
            assert arrival in log
    for producer_id in ("p", "q"):
        epochs: dict[int, list[int]] = {}
        order = [entry.epoch for entry in log if entry.id == producer_id]
        assert order == sorted(order)
        for entry in log:
            if entry.id == producer_id:
                epochs.setdefault(entry.epoch, []).append(entry.seq)
        assert all(seqs == list(range(len(seqs))) for seqs in epochs.values())


@settings(max_examples=60, deadline=None)
@given(data=st.data(), batches=st.integers(1, 8))
def test_a_client_that_retries_appends_everything_once(data: st.DataObject, batches: int) -> None:
    """
    With pipelining, loss of requests and of responses, the log ends up as exactly what was sent.

    Goal: the responses lead a client to the end. Method: send any batch that is not confirmed, in
    any order; a gap tells where to resend from; stop when all are confirmed.
    """
    stream = text_stream()
    log: list[int] = []
    confirmed: set[int] = set()
    while len(confirmed) < batches:
        waiting = sorted(set(range(batches)) - confirmed)
        seq = data.draw(st.sampled_from(waiting), label="arrives")
        try:
            verdict = decide(stream, send(0, seq, b"%d" % seq), NOW_MS)
        except ProducerGap as gap:
            seq = gap.expected_seq
            verdict = decide(stream, send(0, seq), NOW_MS)
        if verdict.record is not None:
            after = apply(stream, verdict.record)
            assert after is not None
            stream = after
            log.append(seq)
        if not data.draw(st.booleans(), label="response is lost"):
            confirmed.add(seq)
    assert log == list(range(batches))


class TestProducers:
    """The map of producers behaves as a dict that is never changed."""

    @given(claims=st.lists(st.builds(ProducerHeaders, st.text(max_size=3), st.integers(0, 3),
                                     st.integers(0, 3)), max_size=80))  # fmt: skip
    def test_it_is_a_dict(self, claims: list[ProducerHeaders]) -> None:
        producers = Producers()
        expected: dict[str, ProducerState] = {}
        for entry in claims:
            before, size = dict(producers.items()), len(producers)
            grown = producers.put(entry)
            assert (dict(producers.items()), len(producers)) == (before, size)
            producers = grown
            expected[entry.id] = ProducerState(entry.epoch, entry.seq)
        assert dict(producers.items()) == expected
        assert len(producers) == len(expected)
        assert producers == Producers.of(expected)
        assert hash(producers) == hash(Producers.of(expected))
        assert all(producers.get(name) == state for name, state in expected.items())
        assert producers.get("never sent") is None

    def test_it_equals_nothing_but_producers(self) -> None:
        assert Producers() != {}

"""Exactly-once appends by both clients, against the reference server of the protocol (§5.2.1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tailrace.client import (
    Conflict,
    NotFound,
    ProducerClaim,
    ProducerFenced,
    ProducerGap,
    ProducerReused,
    Refused,
    StreamClosed,
)
from tests.client.conftest import connected
from tests.client.reference.writing import JSON, PATIENT, TEXT, numbers
from tests.client.tiers import slow
from tests.support.reference import ReferenceProcess


@pytest.fixture
def stream(kind: str, reference: ReferenceProcess) -> Iterator[Any]:
    """A JSON stream with a unique name."""
    with connected(kind, reference.url, retry=PATIENT, timeout_s=5.0) as client:
        made = client.stream(f"p/{next(numbers)}")
        made.create(JSON)
        yield made


def values(stream: Any) -> list[Any]:
    return [item.value for item in stream.read_json()]


class TestClaims:
    """Appends with claims, one at a time."""

    def test_a_second_time_changes_nothing(self, stream: Any) -> None:
        claim = ProducerClaim("p", 0, 0)
        first = stream.append_json(1, 2, claim=claim)
        again = stream.append_json(1, 2, claim=claim)
        assert (first.duplicate, again.duplicate) == (False, True)
        assert first.next_offset == stream.head().next_offset
        # This server does not say where a duplicate went.
        assert again.next_offset is None
        assert values(stream) == [1, 2]

    def test_a_gap(self, stream: Any) -> None:
        stream.append_json(1, claim=ProducerClaim("p", 0, 0))
        with pytest.raises(ProducerGap) as caught:
            stream.append_json(2, claim=ProducerClaim("p", 0, 5))
        assert (caught.value.expected_seq, caught.value.received_seq) == (1, 5)
        assert values(stream) == [1]

    def test_a_stale_epoch(self, stream: Any) -> None:
        stream.append_json(1, claim=ProducerClaim("p", 3, 0))
        with pytest.raises(ProducerFenced) as caught:
            stream.append_json(2, claim=ProducerClaim("p", 2, 0))
        assert caught.value.epoch == 3
        assert values(stream) == [1]

    def test_a_new_epoch_begins_at_zero(self, stream: Any) -> None:
        stream.append_json(1, claim=ProducerClaim("p", 0, 0))
        with pytest.raises(Refused) as caught:
            stream.append_json(2, claim=ProducerClaim("p", 1, 1))
        assert caught.value.status == 400
        stream.append_json(2, claim=ProducerClaim("p", 1, 0))
        assert values(stream) == [1, 2]

    def test_the_last_one_closes(self, stream: Any) -> None:
        claim = ProducerClaim("p", 0, 0)
        first = stream.append_json(1, close=True, claim=claim)
        again = stream.append_json(1, close=True, claim=claim)
        assert (first.closed, first.duplicate) == (True, False)
        assert (again.closed, again.duplicate) == (True, True)
        with pytest.raises(StreamClosed):
            stream.append_json(2, claim=ProducerClaim("p", 0, 1))
        assert values(stream) == [1]


class TestProducer:
    def test_batches_arrive_whole_and_in_order(self, stream: Any) -> None:
        """Several in flight at once: those that arrive too early are rejected and sent again."""
        with stream.producer(batch_count_max=20) as producer:
            deliveries = [producer.append_json(at) for at in range(2000)]
            producer.flush()
            assert not any(delivery.result().duplicate for delivery in deliveries)
        assert values(stream) == list(range(2000))

    @pytest.mark.slow
    def test_text(self, kind: str, reference: ReferenceProcess) -> None:
        with connected(kind, reference.url) as client:
            stream = client.stream(f"p/{next(numbers)}")
            stream.create(TEXT)
            with stream.producer(content_type=TEXT, batch_bytes_max=50) as producer:
                for at in range(300):
                    producer.append(f"{at},")
            found = b"".join(chunk.data for chunk in stream.read())
        assert found.decode() == "".join(f"{at}," for at in range(300))

    @pytest.mark.parametrize(
        "fault",
        [
            {"dropConnection": True, "count": 4},
            slow({"status": 503, "count": 4}),
            slow({"status": 429, "count": 4, "retryAfter": 0}),
            slow({"delayMs": 300, "count": 3}),
        ],
        ids=["lost connections", "failures", "rate limit", "delays"],
    )
    def test_over_failures(
        self, stream: Any, reference: ReferenceProcess, fault: dict[str, Any]
    ) -> None:
        with stream.producer(batch_count_max=10) as producer:
            for at in range(300):
                if at in (0, 100, 200):
                    reference.fail_next(stream.url, method="POST", **fault)
                producer.append_json(at)
        assert values(stream) == list(range(300))

    @pytest.mark.slow
    def test_a_response_after_the_timeout(self, kind: str, reference: ReferenceProcess) -> None:
        """It is sent again while the first attempt is still in progress, and stored once."""
        with connected(kind, reference.url, retry=PATIENT, timeout_s=0.25) as client:
            stream = client.stream(f"p/{next(numbers)}")
            stream.create(JSON)
            reference.fail_next(stream.url, method="POST", delayMs=700, count=2)
            with stream.producer() as producer:
                producer.append_json(1)
                producer.flush()
                producer.append_json(2)
        assert values_of(reference, stream.url) == [1, 2]

    def test_an_id_may_be_named(self, stream: Any) -> None:
        with stream.producer("me", epoch=7) as producer:
            producer.append_json(1)
            producer.flush()
            producer.append_json(2)
        assert producer.epoch == 7
        assert values(stream) == [1, 2]

    @pytest.mark.slow
    def test_a_used_id_is_an_error(self, stream: Any) -> None:
        with stream.producer("me") as producer:
            producer.append_json(1)
        second = stream.producer("me")
        second.append_json(2)
        with pytest.raises(ProducerReused):
            second.close()
        assert second.undelivered() == [b"2"]
        assert values(stream) == [1]

    def test_a_used_id_can_be_claimed(self, stream: Any) -> None:
        for value in range(3):
            with stream.producer("me", auto_claim=True) as producer:
                producer.append_json(value)
            assert producer.epoch == value
        assert values(stream) == [0, 1, 2]

    @pytest.mark.slow
    def test_the_earlier_holder_is_fenced(self, stream: Any) -> None:
        errors: list[Exception] = []
        first = stream.producer("me", on_error=errors.append)
        first.append_json(1)
        first.flush()
        with stream.producer("me", auto_claim=True) as second:
            second.append_json(2)
        first.append_json(3)
        with pytest.raises(ProducerFenced) as caught:
            first.flush()
        assert caught.value.epoch == 1
        assert errors == [caught.value]
        assert first.undelivered() == [b"3"]
        with pytest.raises(ProducerFenced):
            first.append_json(4)
        with pytest.raises(ProducerFenced):
            first.close()
        assert values(stream) == [1, 2]

    def test_the_earlier_holder_does_not_claim_the_id_back(self, stream: Any) -> None:
        first = stream.producer("me", auto_claim=True)
        first.append_json(1)
        first.flush()
        with stream.producer("me", auto_claim=True) as second:
            second.append_json(2)
        first.append_json(3)
        with pytest.raises(ProducerFenced) as caught:
            first.close()
        assert (caught.value.epoch, first.epoch, second.epoch) == (1, 0, 1)
        assert values(stream) == [1, 2]

    def test_it_closes_the_stream(self, stream: Any) -> None:
        with stream.producer() as producer:
            producer.append_json(1)
            producer.close_stream()
        assert stream.head().closed
        assert [item.value for item in stream.tail_json()] == [1]

    def test_it_closes_an_empty_stream(self, stream: Any) -> None:
        with stream.producer("me") as producer:
            producer.close_stream()
        assert stream.head().closed
        assert values(stream) == []

    @pytest.mark.slow
    def test_it_closes_over_failures(self, stream: Any, reference: ReferenceProcess) -> None:
        with stream.producer() as producer:
            producer.append_json(1)
            producer.flush()
            reference.fail_next(stream.url, method="POST", dropConnection=True, count=3)
            producer.close_stream()
        assert stream.head().closed

    def test_a_closed_stream_ends_it(self, stream: Any) -> None:
        stream.close()
        producer = stream.producer()
        producer.append_json(1)
        with pytest.raises(StreamClosed):
            producer.close()
        assert producer.undelivered() == [b"1"]

    @pytest.mark.slow
    def test_a_missing_stream_ends_it(self, stream: Any) -> None:
        stream.delete()
        producer = stream.producer()
        delivery = producer.append_json(1)
        with pytest.raises(NotFound):
            producer.flush()
        with pytest.raises(NotFound):
            delivery.result()
        with pytest.raises(NotFound):
            producer.close()

    def test_a_rejected_batch_ends_it(self, stream: Any) -> None:
        """Of another type than the stream."""
        producer = stream.producer(content_type="text/plain")
        producer.append(b"no JSON")
        with pytest.raises(Conflict) as caught:
            producer.close()
        assert caught.value.detail == "Content-type mismatch"
        assert values(stream) == []


def values_of(reference: ReferenceProcess, url: str) -> list[Any]:
    """By a client with a long timeout."""
    with connected("sync", reference.url) as client:
        return values(client.stream(url.partition("/v1/stream/")[2]))

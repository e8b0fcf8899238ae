"""JSON strings with half of a surrogate pair, as a cut JavaScript string has."""

from __future__ import annotations

from itertools import islice
from typing import Any

JSON = "application/json"
HALF = "\ud83d"


def test_they_are_appended_and_read_as_they_are(stream: Any) -> None:
    stream.create(JSON)
    stream.append_json({"text": HALF}, HALF + "a")
    (chunk,) = stream.read()
    assert chunk.data == b'[{"text":"\\ud83d"},"\\ud83da"]'
    assert [item.value for item in stream.read_json()] == [{"text": HALF}, HALF + "a"]
    assert [item.value for item in islice(stream.tail_json(), 2)] == [{"text": HALF}, HALF + "a"]


def test_encoded_ones_are_stored_as_sent(stream: Any) -> None:
    stream.create(JSON)
    stream.append(b'["\\uD83D", 1.0]', JSON)
    (chunk,) = stream.read()
    assert chunk.data == b'["\\uD83D",1.0]'


def test_a_producer_sends_them(stream: Any) -> None:
    stream.create(JSON)
    producer = stream.producer("p")
    producer.append_json(HALF)
    producer.append(b'"\\udc00"')
    producer.close()
    assert [item.value for item in stream.read_json()] == [HALF, "\udc00"]

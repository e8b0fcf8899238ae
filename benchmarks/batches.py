"""Batches of JSON messages, as one POST carries them."""

from __future__ import annotations

import json

from benchmarks.blocking import Connection, make_request

MESSAGES = 1_000
MESSAGE_BYTES = 190
CONTENT_TYPE = "application/json"


def batch_request(path: str) -> bytes:
    """A POST of a JSON array of 1,000 messages of 190 bytes each."""
    messages = [_message(number) for number in range(MESSAGES)]
    return make_request(
        "POST", path, content_type=CONTENT_TYPE, body=b"[" + b",".join(messages) + b"]"
    )


def count_messages(connection: Connection, path: str) -> tuple[int, int]:
    """Read a JSON stream to its end: the number of messages and of body bytes."""
    messages = 0

    def count(page: bytes) -> None:
        nonlocal messages
        messages += len(json.loads(page))

    length = connection.read_stream(path, count)
    return messages, length


def _message(number: int) -> bytes:
    """One message of exactly 190 bytes."""
    start = f'{{"id":"{number:06d}","type":"order.updated","at":"2025-01-01T00:00:00Z","note":"'
    end = '"}'
    return (start + "n" * (MESSAGE_BYTES - len(start) - len(end)) + end).encode("ascii")

"""Streams under live writers, one bucket for each fold, and what their snapshots must be."""

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tailrace.client import Client, ProducerClaim, Retry, Unreachable
from tailrace.protocol.offset import parse_offset
from tests.spark.folds.histories import (
    exactly,
    naive_array,
    naive_last,
    naive_patch,
    naive_state,
    naive_words,
)

JSON = "application/json"
STREAMS_EACH = 2
PAUSE_S = 0.05
SPELT = ["1", "1.0", "10e-1", "1e2", "12345678901234567890123", '"a"', '"\\u0061"', '"é"', "true"]


def _keyed(chance: random.Random) -> str:
    return f'{{"n": {chance.random()}, "id":{chance.choice(SPELT)}}}'


def _change(chance: random.Random) -> str:
    operation = chance.choice(["insert", "update", "update", "upsert", "delete", "reset"])
    if operation == "reset" and chance.random() < 0.2:
        return '{"headers":{"control":"reset"}}'
    value = f', "value" : {chance.choice(SPELT)}'
    operation = operation.replace("reset", "delete")
    return (
        f'{{"type": "t", "key":"{chance.randrange(9)}"{value}, '
        f'"headers":{{"operation":"{operation}"}}}}'
    )


def _patch(chance: random.Random, depth: int = 0) -> str:
    if depth == 3 or (depth and chance.random() < 0.5):
        return chance.choice([*SPELT, "null", "null", "[ 1,null]"])
    names = chance.sample(["a", "b", "\\u0062", "é"], 2)
    members = (f'"{name}": {_patch(chance, depth + 1)}' for name in names)
    return "{" + ", ".join(members) + "}"


def _any(chance: random.Random) -> str:
    return chance.choice([*SPELT, "null", "{}", '{"a": [1e2]}'])


def _bytes(chance: random.Random) -> bytes:
    return chance.randbytes(chance.randrange(1, 30))


@dataclass(frozen=True)
class Living:
    """A fold, messages for it, and what it must make of them."""

    fold: str
    key: str | None
    content_type: str
    message: Callable[[random.Random], str | bytes]
    naive: Callable[[Sequence[bytes]], Any]
    read: Callable[[bytes], Any] = bytes
    """What of a snapshot is compared with the naive fold: its bytes, if nothing else is said."""


LIVING = {
    "fold-last": Living("last-write-wins", "/id", JSON, _keyed, naive_last(("id",))),
    "fold-state": Living("state", None, JSON, _change, naive_state),
    "fold-patch": Living("merge-patch", None, JSON, _patch, naive_patch, exactly),
    "fold-array": Living("concat", None, JSON, _any, naive_array),
    "fold-bytes": Living("concat", None, "image/png", _bytes, b"".join),
    "fold-words": Living("tests.spark.folds.histories:count_words", None, JSON, _any, naive_words),
    "fold-longest": Living(
        "tests.spark.folds.histories:longest",
        None,
        "text/plain",
        _bytes,
        lambda history: max([b"", *history], key=len),
    ),
}


class Writer:
    """One stream that grows; each message is stored once, through every failure."""

    def __init__(self, url: str, bucket: str, stream: str, seed: str) -> None:
        self.living = LIVING[bucket]
        self.bucket = bucket
        self.stream = stream
        self.sent: list[bytes] = []
        """All that was ever sent, in order; the server has it, or will have it."""
        self._chance = random.Random(f"{seed}/{bucket}/{stream}")
        self._seq = 0
        self._url = url

    def prepare(self, client: Client) -> None:
        client.bucket(self.bucket).stream(self.stream).create(self.living.content_type)

    def run(self, ended: threading.Event) -> None:
        with Client(self._url, retry=Retry(first_s=0.02, longest_s=0.2)) as client:
            while not ended.wait(PAUSE_S):
                self._append(client)

    def _append(self, client: Client) -> None:
        stream = client.bucket(self.bucket).stream(self.stream)
        is_json = self.living.content_type == JSON
        made = [self.living.message(self._chance) for _ in range(self._chance.randrange(1, 20))]
        batch = [each.encode() if isinstance(each, str) else each for each in made]
        batch = batch if is_json else batch[:1]
        body = b"[" + b",".join(batch) + b"]" if is_json else batch[0]
        claim = ProducerClaim("writer", 0, self._seq)
        self.sent.extend(batch)
        while True:
            try:
                stream.append(body, self.living.content_type, claim=claim)
                break
            except Unreachable:
                # Killed: it comes back, and takes the same append once.
                continue
        self._seq += 1

    def check(self, client: Client) -> int:
        """A bootstrap is the naive fold of what its snapshot covers, and the rest; returns that."""
        found = client.bucket(self.bucket).stream(self.stream).bootstrap()
        covered = 0
        if found.snapshot is not None:
            covered = parse_offset(found.snapshot.offset).message
            naive = self.living.naive(self.sent[:covered])
            assert self.living.read(found.snapshot.data) == naive, (self.bucket, covered)
        after = covered + len(found.messages)
        assert found.messages == self.sent[covered:after], (self.bucket, covered)
        return after - covered


class Load:
    """Writers to all buckets, in threads."""

    def __init__(self, url: str, seed: str) -> None:
        self.writers = [
            Writer(url, bucket, f"s-{number}", seed)
            for bucket in LIVING
            for number in range(STREAMS_EACH)
        ]
        self._url = url
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=writer.run, args=(self._ended,)) for writer in self.writers
        ]

    def start(self) -> None:
        with Client(self._url) as client:
            for bucket in LIVING:
                client.bucket(bucket).create()
            for writer in self.writers:
                writer.prepare(client)
        for thread in self._threads:
            thread.start()

    def has_grown(self, sent: Sequence[int]) -> bool:
        """Whether every stream has more than this many messages."""
        return all(
            len(writer.sent) > count for writer, count in zip(self.writers, sent, strict=True)
        )

    def stop(self) -> None:
        """End; all that was sent is stored then, so the server must be there."""
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def check(self) -> list[int]:
        """See all streams; returns how many messages of each no snapshot covers."""
        with Client(self._url) as client:
            return [writer.check(client) for writer in self.writers]

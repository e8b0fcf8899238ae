"""A torn end of the write-ahead log: recovery keeps all before it, and never half a message."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.model import Life, describe, messages_of
from tests.support.chance import derive, seeded
from tests.support.http import Connection
from tests.support.payloads import digest, pack, pack_json, size_of_message
from tests.support.reading import JSON, OCTETS, read_all
from tests.support.server import ServerProcess
from tests.support.tiers import slow_but

STREAMS = 8
STEPS = 50
# RocksDB's log format: blocks of this size, and records with a header of checksum, length, type.
BLOCK_BYTES = 32 << 10
HEADER_BYTES = 7

World = dict[str, Life]
"""All streams that exist, by path."""


class Writer:
    """One client, one request at a time: every acknowledged step makes the next world."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.worlds: list[World] = [{}]
        # Beside each world: the last sequence number of the producer of each stream.
        self._produced: list[dict[str, int]] = [{}]
        self._seq = 0

    @property
    def world(self) -> World:
        return self.worlds[-1]

    def step(self, connection: Connection) -> None:
        """Create, fill, close or delete some stream."""
        chance = self._chance
        path = f"/v1/stream/torn/{chance.randrange(STREAMS)}"
        life = self.world.get(path)
        content_type = JSON if path[-1] in "02468" else OCTETS
        headers = {"Content-Type": content_type}
        world, produced = dict(self.world), dict(self._produced[-1])
        if life is None:
            closes = chance.random() < 0.1
            body, contents = self._body(content_type)
            method, status = "PUT", 201
        elif life.closed or chance.random() < 0.05:
            assert connection.request("DELETE", path).status == 204
            del world[path]
            produced.pop(path, None)
            self._append(world, produced)
            return
        else:
            closes = chance.random() < 0.06
            body, contents = self._body(content_type)
            method, status = "POST", 204
            if chance.random() < 0.4:
                # A new one is expected: what is known of a producer goes back with the data.
                seq = produced[path] = produced.get(path, -1) + 1
                headers |= {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": str(seq)}
                status = 200
            contents = (*life.contents, *contents)
        if closes:
            headers["Stream-Closed"] = "true"
        response = connection.request(method, path, headers, body)
        assert response.status == status, response
        world[path] = Life(contents, closes)
        self._append(world, produced)

    def _append(self, world: World, produced: dict[str, int]) -> None:
        self.worlds.append(world)
        self._produced.append(produced)

    def _body(self, content_type: str) -> tuple[bytes, tuple[bytes, ...]]:
        self._seq += 1
        chance = self._chance
        if content_type == JSON:
            fillers = [chance.randbytes(chance.randrange(99)) for _ in range(chance.randint(1, 6))]
            elements = pack_json("w", self._seq, fillers)
            return b"[" + b",".join(elements) + b"]", (digest(b"\n".join(elements)),)
        body = pack("w", self._seq, chance.randbytes(size_of_message(chance)))
        return body, (digest(body),)

    def find(self, connection: Connection) -> int:
        """Which of the worlds this is: how many steps have survived."""
        found: World = {}
        for number in range(STREAMS):
            path = f"/v1/stream/torn/{number}"
            content = read_all(connection, path)
            if content is not None:
                digests = tuple(message.digest for message in messages_of(content))
                found[path] = Life(digests, content.closed)
        for survived in range(len(self.worlds) - 1, -1, -1):
            if self.worlds[survived] == found:
                return survived
        shape = {path: describe(life) for path, life in found.items()}
        raise AssertionError(f"this is none of {len(self.worlds)} moments: {shape}")

    def rewind(self, survived: int) -> None:
        """Go on from the world that a crash has left."""
        del self.worlds[survived + 1 :]
        del self._produced[survived + 1 :]


def last_record(log: bytes) -> int:
    """Where the last record of a log begins."""
    at = last = 0
    while at + HEADER_BYTES <= len(log):
        room = BLOCK_BYTES - at % BLOCK_BYTES
        length = int.from_bytes(log[at + 4 : at + 6], "little")
        if room < HEADER_BYTES or (log[at + 6] == 0 and length == 0):
            at += room
            continue
        last = at
        at += HEADER_BYTES + length
    return last


def flip(log: bytes, at: int, bits: int = 0x40) -> bytes:
    return log[:at] + bytes([log[at] ^ bits]) + log[at + 1 :]


def garbage(chance: random.Random, kind: int) -> bytes:
    """Random bytes that begin like a record of this type, in this block and in those after it."""
    raw = bytearray(chance.randbytes(4 * BLOCK_BYTES))
    raw[6::7] = bytes([kind]) * len(raw[6::7])
    return bytes(raw)


Damage = Callable[[bytes, random.Random], bytes]

# The damage, and whether it leaves all that was acknowledged as it is.
DAMAGES: dict[str, tuple[Damage, bool]] = {
    "one byte short": (lambda log, _: log[:-1], False),
    "some bytes short": (lambda log, chance: log[: -chance.randrange(2, 60)], False),
    "cut in the last header": (lambda log, _: log[: last_record(log) + 3], False),
    "cut after the last header": (lambda log, _: log[: last_record(log) + HEADER_BYTES], False),
    "cut anywhere": (lambda log, chance: log[: chance.randrange(len(log))], False),
    "last payload flipped": (lambda log, _: flip(log, len(log) - 1), False),
    "last checksum flipped": (lambda log, _: flip(log, last_record(log)), False),
    "last length flipped": (lambda log, _: flip(log, last_record(log) + 4), False),
    "last type flipped": (lambda log, _: flip(log, last_record(log) + 6), False),
    # The type of a recycled log's record, in a log that is not recycled.
    "last type made recyclable": (lambda log, _: flip(log, last_record(log) + 6, 0x04), False),
    "flipped anywhere": (lambda log, chance: flip(log, chance.randrange(len(log))), False),
    "one byte of garbage": (lambda log, _: log + b"\x7f", True),
    "much garbage": (lambda log, chance: log + garbage(chance, 0x55), True),
    "garbage like a recycled record": (lambda log, chance: log + garbage(chance, 5), True),
    "a few zeros": (lambda log, _: log + bytes(5), True),
    "many zeros": (lambda log, _: log + bytes(5 * BLOCK_BYTES), True),
}


@pytest.mark.parametrize("name", slow_but(["one byte short", "much garbage"], DAMAGES))
def test_torn_log(tmp_path: Path, name: str) -> None:
    """
    Goal: after a crash that also tore or damaged the end of the log, the server starts, holds
    exactly what it held after some acknowledged step, and goes on from there.

    Method: one client creates, fills, closes and deletes streams, one request at a time, so that
    every moment is known. After SIGKILL the newest log is damaged and the server started; what it
    holds must be one of those moments, and the last one where nothing acknowledged was damaged.
    Then it takes a new stream, which survives one more restart. Twice over, because the second
    damage meets a database that recovered from the first.
    """
    damage, harmless = DAMAGES[name]
    with seeded("torn", name) as chance, ServerProcess(tmp_path / "data") as server:
        writer = Writer(derive(chance.random()))
        for turn in range(2):
            with Connection.to(server.url) as connection:
                for _ in range(STEPS):
                    writer.step(connection)
            server.kill()
            log = max(server.data_dir.glob("*.log"), key=lambda file: int(file.stem))
            before = log.read_bytes()
            log.write_bytes(damage(before, chance))
            server.start()
            with Connection.to(server.url) as connection:
                survived = writer.find(connection)
                if harmless:
                    assert survived == len(writer.worlds) - 1, "undamaged steps are lost"
                elif "last" in name or "short" in name:
                    assert survived >= len(writer.worlds) - 2, "more than the damaged step is lost"
                writer.rewind(survived)
                after = f"/v1/stream/after/{turn}"
                created = connection.request("PUT", after, {"Content-Type": OCTETS}, b"one")
                assert created.status == 201
                appended = connection.request("POST", after, {"Content-Type": OCTETS}, b"two")
                assert appended.status == 204
            server.restart()
            with Connection.to(server.url) as connection:
                assert writer.find(connection) == len(writer.worlds) - 1
                content = read_all(connection, after)
                assert content is not None
                assert content.raw == b"onetwo"

"""
Messages that identify themselves, so that a reader can prove that each is whole and stored once.

A message has the name of its writer, a sequence number, random bytes of a stated length, and a
checksum over all of it.
"""

from __future__ import annotations

import json
import random
import zlib
from dataclasses import dataclass
from hashlib import blake2b

BLOB_BYTES = 64 << 10


class DamagedMessage(AssertionError):
    """A stream holds bytes that no writer wrote, or a part of a message."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message as found in a stream."""

    writer: str
    seq: int
    digest: bytes
    # The position of its end in the stored bytes.
    end: int


def digest(raw: bytes) -> bytes:
    return blake2b(raw, digest_size=16).digest()


def size_of_message(chance: random.Random) -> int:
    """Mostly small, some kilobytes, and sometimes one that RocksDB stores in a blob file."""
    match chance.choices(("small", "medium", "large", "blob"), (80, 14, 4, 2))[0]:
        case "small":
            return chance.randrange(0, 600)
        case "medium":
            return chance.randrange(1 << 10, 30 << 10)
        case "large":
            return chance.randrange(30 << 10, BLOB_BYTES)
        case _:
            return chance.randrange(BLOB_BYTES, 4 * BLOB_BYTES)


def pack(writer: str, seq: int, filler: bytes) -> bytes:
    """A message for a stream of bytes."""
    label = f"{writer} {seq} {len(filler)}"
    checksum = zlib.crc32(label.encode() + filler)
    return f"<{label} {checksum:08x}>".encode() + filler


def unpack_all(raw: bytes) -> list[Message]:
    """
    The messages of a stream of bytes.

    Raises:
        DamagedMessage: The bytes are not a sequence of whole messages.
    """
    found: list[Message] = []
    at = 0
    while at < len(raw):
        mark = raw.find(b">", at, at + 200)
        try:
            if raw[at : at + 1] != b"<" or mark < 0:
                raise ValueError
            writer, seq, size, checksum = raw[at + 1 : mark].decode("ascii").split(" ")
            end = mark + 1 + int(size)
            filler = raw[mark + 1 : end]
            label = f"{writer} {seq} {size}"
            if end > len(raw) or zlib.crc32(label.encode() + filler) != int(checksum, 16):
                raise ValueError
        except ValueError:
            start = raw[at : at + 80]
            raise DamagedMessage(f"at byte {at} of {len(raw)}: {start!r}") from None
        found.append(Message(writer, int(seq), digest(raw[at:end]), end))
        at = end
    return found


def pack_json(writer: str, seq: int, fillers: list[bytes]) -> list[bytes]:
    """The elements of one batch for a JSON stream; each has the size of the batch."""
    elements = []
    for index, filler in enumerate(fillers):
        label = f"{writer} {seq} {index} {len(fillers)}"
        checksum = zlib.crc32(label.encode() + filler)
        element = {"of": label, "crc": checksum, "data": filler.hex()}
        elements.append(json.dumps(element).encode())
    return elements


def unpack_json_all(elements: list[bytes]) -> list[Message]:
    """
    The batches of a JSON stream, each as one message.

    Raises:
        DamagedMessage: An element is damaged, or a batch is incomplete or mixed with another.
    """
    found: list[Message] = []
    batch: list[bytes] = []
    end = 0
    for raw in elements:
        element = json.loads(raw)
        label, filler = element["of"], bytes.fromhex(element["data"])
        if zlib.crc32(label.encode() + filler) != element["crc"]:
            raise DamagedMessage(f"JSON element {label!r} has the wrong checksum")
        writer, seq, index, count = label.split(" ")
        if int(index) != len(batch):
            raise DamagedMessage(f"JSON element {label!r} came after {len(batch)} of its batch")
        batch.append(raw)
        # A stored element counts one byte more than its text.
        end += len(raw) + 1
        if len(batch) == int(count):
            found.append(Message(writer, int(seq), digest(b"\n".join(batch)), end))
            batch = []
    if batch:
        raise DamagedMessage(f"a JSON batch ends after {len(batch)} elements: {batch[-1][:80]!r}")
    return found

"""`check` finds a flipped byte anywhere in what is stored."""

from __future__ import annotations

import hashlib
import random
import shutil
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tailrace.engine.rocks.check import check
from tailrace.engine.rocks.compaction import reclaim_all
from tailrace.engine.rocks.findings import Finding
from tailrace.engine.rocks.keys import items
from tailrace.engine.rocks.readonly import opened
from tailrace.engine.rocks.store import FORMAT_VERSION
from tailrace.protocol.state import Publish, SnapshotInfo
from tests.contract.harness import World
from tests.operations.building import BLOB_BYTES, no_damage
from tests.support.chance import derive
from tests.support.publishing import TEXT

RANDOM_COUNT = 40
LOG_BLOCK_BYTES, LOG_HEADER_BYTES = 32 << 10, 7
TABLE_FOOTER_BYTES = 53
BLOB_HEADER_BYTES, BLOB_RECORD_BYTES, BLOB_FOOTER_BYTES = 14, 32, 32
"""Of the header of a blob file, the part that is read."""
BLOB_FLAGS_AT = 12
"""RocksDB reads one bit of this byte; the others mean nothing."""
SAMPLE = slice(1000, 1100)
DELETED, TRIMMED = b"\0deleted", b"\0trimmed"
RECORDS = 400
DIGEST = hashlib.sha256(b"s").digest()
# RocksDB writes them for people, or again at each start, and reads none of them to serve.
EXEMPT = ("LOG", "LOCK", "IDENTITY", "OPTIONS-")


class _Found(Exception):
    """One finding is enough."""


def is_found(directory: Path) -> bool:
    """Whether there is a finding, or something was not checked."""

    def note(finding: Finding) -> None:
        raise _Found

    try:
        checked = check(directory, FORMAT_VERSION, note, lambda _: None)
    except _Found:
        return True
    return any("not checked" in remark.remark for remark in checked.remarks)


def live_values(directory: Path) -> list[bytes]:
    """A sample of each value in a blob file that a stream needs."""
    with opened(directory, {}) as families:
        garbage = {int.from_bytes(key[:8]) for key, _ in items(families["garbage"], b"", None)}
        return [
            value[SAMPLE]
            for family in ("records", "snapshots")
            for key, value in items(families[family], b"", None)
            if len(value) >= BLOB_BYTES and int.from_bytes(key[:8]) not in garbage
        ]


def files_that_matter(directory: Path) -> Iterator[Path]:
    """All but those that are exempt, and those that nothing refers to."""
    with opened(directory, {}) as families:
        tables = {file["name"].lstrip("/") for file in families["default"].live_files()}
    values = live_values(directory)
    for path in sorted(directory.iterdir()):
        if path.suffix == ".sst":
            if path.name in tables:
                yield path
        elif path.suffix == ".blob":
            data = path.read_bytes()
            if any(value in data for value in values):
                yield path
        elif path.is_file() and not path.name.startswith(EXEMPT) and path.stat().st_size:
            yield path


def positions(path: Path, data: bytes, chance: random.Random) -> list[int]:
    """Where to flip: at random, and in each part that the form of a file has."""
    size = len(data)
    if path.suffix == ".blob":
        return sorted(blob_positions(path, data, chance))
    found = {0, size - 1, *(chance.randrange(size) for _ in range(RANDOM_COUNT))}
    if path.suffix == ".log" or path.name.startswith("MANIFEST-"):
        headers = list(log_headers(data))
        for at in {headers[0], headers[-1], chance.choice(headers)}:
            found.update(range(at, at + LOG_HEADER_BYTES + 1))
    elif path.suffix == ".sst":
        found.update(chance.sample(range(size - TABLE_FOOTER_BYTES, size), 12))
        # Filter, index and properties lie before it.
        found.update(chance.sample(range(max(0, size - 1200), size), 12))
    elif size < 64:
        found.update(range(size))
    return sorted(found)


def blob_positions(path: Path, data: bytes, chance: random.Random) -> set[int]:
    """In values that a stream needs, in their headers, and in those of the file."""
    found = set(chance.sample(range(BLOB_HEADER_BYTES), 8)) - {BLOB_FLAGS_AT}
    found.update(chance.sample(range(len(data) - BLOB_FOOTER_BYTES, len(data)), 10))
    for value in live_values(path.parent):
        at = data.find(value)
        if at >= 0:
            found.update(at + chance.randrange(BLOB_BYTES // 2) for _ in range(8))
            found.update(at - SAMPLE.start - chance.randrange(1, 8) for _ in range(4))
    return found


def log_headers(data: bytes) -> Iterator[int]:
    at = 0
    while at + LOG_HEADER_BYTES <= len(data):
        if LOG_BLOCK_BYTES - at % LOG_BLOCK_BYTES < LOG_HEADER_BYTES:
            at += LOG_BLOCK_BYTES - at % LOG_BLOCK_BYTES
            continue
        yield at
        at += LOG_HEADER_BYTES + struct.unpack_from("<H", data, at + 4)[0]


def flips(path: Path, chance: random.Random) -> Iterator[int]:
    """Flip one bit at a time, and put it back."""
    data = path.read_bytes()
    for at in positions(path, data, chance):
        with path.open("r+b") as file:
            file.seek(at)
            file.write(bytes([data[at] ^ 1 << chance.randrange(8)]))
        yield at
        with path.open("r+b") as file:
            file.seek(at)
            file.write(data[at : at + 1])


def unnoticed(directory: Path, paths: Iterable[Path], chance: random.Random) -> list[str]:
    return [
        f"{path.name} {at}"
        for path in paths
        for at in flips(path, chance)
        if not is_found(directory)
    ]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_flipped_bit_anywhere_is_found(copied: Path) -> None:
    """
    Goal: nothing that is stored can change unnoticed, in whatever file it lies.

    Method: one bit at a time, in tables, blob files, the log to its very end, MANIFEST, CURRENT and
    snapshots. The whole is sound before and after, so that each finding is of that one bit.
    """
    no_damage(copied)
    paths = [*files_that_matter(copied), *snapshot_files(copied)]
    assert unnoticed(copied, paths, derive(6, "flips")) == []
    no_damage(copied)


def test_a_flipped_bit_in_what_was_deleted_is_found(tmp_path: Path) -> None:
    """
    A deleted range hides data until it is compacted, which fails on damage and stops the server.

    One stream is deleted, another is covered by a snapshot; each has more records than are deleted
    one by one.
    """
    directory, chance = tmp_path / "data", derive(6, "deleted")
    bodies = {key: [chance.randbytes(200) for _ in range(RECORDS)] for key in (DELETED, TRIMMED)}
    with World("rocks", directory) as world:
        for key, records in bodies.items():
            world.create(key)
            for body in records:
                state = world.append(key, body)
        world.reopen()
        snapshot = SnapshotInfo(state.tail, world.engine.take_id(), 1, TEXT, DIGEST, inline=True)
        world.state(TRIMMED, Publish(state.id, snapshot, b"s"))
        world.delete(DELETED)
        world.settle()
        reclaim_all(world.store, lambda _: None)
    tables = [path for path in files_that_matter(directory) if path.suffix == ".sst"]
    table = max(tables, key=lambda path: path.stat().st_size)
    assert no_damage(directory).records == 0
    assert all(records[RECORDS // 2] in table.read_bytes() for records in bodies.values())
    assert unnoticed(directory, [table], chance) == []
    no_damage(directory)


def snapshot_files(directory: Path) -> Iterator[Path]:
    """Those that a stream refers to; others are garbage, and go at the next start."""
    with opened(directory, {}) as families:
        garbage = {int.from_bytes(key) for key, _ in items(families["garbage"], b"", None)}
    for path in sorted((directory / "snapshots").iterdir()):
        if int(path.name) not in garbage:
            yield path


@pytest.mark.parametrize("kind", ["*.sst", "*.blob", "MANIFEST-*", "CURRENT", "snapshots/*"])
def test_a_file_that_is_missing_is_found(copied: Path, kind: str) -> None:
    wanted = list(snapshot_files(copied)) if kind == "snapshots/*" else files_that_matter(copied)
    paths = [path for path in wanted if kind == "snapshots/*" or path.match(kind)]
    assert paths
    for path in paths:
        aside = path.with_name("aside")
        shutil.move(path, aside)
        assert is_found(copied), path.name
        shutil.move(aside, path)
    no_damage(copied)

"""What a backup and a restore leave is safe: files, and the directories that name them."""

from __future__ import annotations

import errno
import hashlib
import io
import os
from pathlib import Path

import pytest

from tailrace.cli.files import written
from tailrace.engine.backup_format import (
    DATA,
    END,
    MANIFEST,
    SUMS,
    head,
    make_manifest,
    padding,
    sums_text,
)
from tailrace.engine.base import CopiedFile
from tailrace.engine.restore import restore
from tailrace.engine.rocks.store import FORMAT_VERSION


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of what was synced, as they were named then."""
    found = []
    fsync = os.fsync

    def note(number: int) -> None:
        found.append(str(Path(f"/proc/self/fd/{number}").readlink()))
        fsync(number)

    monkeypatch.setattr(os, "fsync", note)
    return found


def small_backup() -> bytes:
    """Of one file, which is enough to be restored."""
    manifest = make_manifest(
        [CopiedFile("CURRENT", Path("CURRENT"), 1)],
        tailrace="0", storage_format=FORMAT_VERSION, time_ms=0, counters={},
    )  # fmt: skip
    sums = sums_text([(MANIFEST, sha256(manifest)), (DATA + "CURRENT", sha256(b"x"))])
    members = ((MANIFEST, manifest), (DATA + "CURRENT", b"x"), (SUMS, sums))
    whole = b"".join(head(name, len(data), 0) + data + padding(len(data)) for name, data in members)
    return whole + END


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_created_directories_are_synced(tmp_path: Path, synced: list[str]) -> None:
    directory = tmp_path / "one" / "two" / "data"
    source = io.BytesIO(small_backup())
    restore(source, directory, FORMAT_VERSION, lambda _: lambda _: None)
    assert (directory / "CURRENT").read_bytes() == b"x"
    assert {str(directory), *map(str, directory.parents[:3])} <= set(synced)


def test_a_file_is_synced_and_then_its_name(tmp_path: Path, synced: list[str]) -> None:
    with written(tmp_path / "backup.tar") as file:
        file.write(b"x")
    first, second = synced
    assert first.endswith(".part")
    assert second == str(tmp_path)


def test_a_directory_that_cannot_be_synced_is_not_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some file systems know no such thing."""
    fsync = os.fsync

    def refuse(number: int) -> None:
        if Path(f"/proc/self/fd/{number}").resolve().is_dir():
            raise OSError(errno.EINVAL, "Invalid argument")
        fsync(number)

    monkeypatch.setattr(os, "fsync", refuse)
    with written(tmp_path / "backup.tar") as file:
        file.write(b"x")
    assert (tmp_path / "backup.tar").read_bytes() == b"x"

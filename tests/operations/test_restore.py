"""`restore`: what was sent, all of it and exactly, or nothing."""

from __future__ import annotations

import io
import json
import os
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tailrace.engine.backup_format import MANIFEST, SUMS
from tailrace.engine.restore import BackupInvalid, DirectoryTaken, restore
from tailrace.engine.rocks.store import FORMAT_VERSION
from tests.operations.building import BLOB_BYTES, no_damage, run
from tests.support.chance import derive
from tests.support.http import Connection
from tests.support.publishing import OCTETS
from tests.support.server import ServerProcess


@pytest.fixture(scope="module")
def backup(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A backup of a small server, with a snapshot that is a file."""
    chance = derive(6, "restore")
    headers = {"Content-Type": OCTETS}
    with ServerProcess(tmp_path_factory.mktemp("restore")) as server:
        with Connection.to(server.url) as connection:
            assert connection.request("PUT", "/rooms").status == 201
            body = chance.randbytes(BLOB_BYTES)
            assert connection.request("PUT", "/rooms/one", headers, body).status == 201
            where = f"/rooms/one/snapshot/{1:016d}_{BLOB_BYTES:016d}"
            response = connection.request("PUT", where, headers, chance.randbytes(300_000))
            assert response.status == 204
            response = connection.request("POST", "/-/backup")
        assert response.status == 200
        assert response.headers["content-type"] == "application/x-tar"
        assert int(response.headers["content-length"]) == len(response.body)
        return response.body


def restored(data: bytes, directory: Path) -> None:
    restore(io.BytesIO(data), directory, FORMAT_VERSION, lambda _: lambda _: None)


def refused(data: bytes, directory: Path) -> str:
    """Why it is refused; nothing of it is left."""
    with pytest.raises(BackupInvalid) as caught:
        restored(data, directory)
    assert list(directory.parent.iterdir()) == []
    return str(caught.value)


def test_a_backup_is_a_tar_with_its_manifest_first_and_its_checksums_last(backup: bytes) -> None:
    with tarfile.open(fileobj=io.BytesIO(backup)) as tar:
        names = tar.getnames()
        manifest = json.load(tar.extractfile(MANIFEST) or io.BytesIO())
        sums = (tar.extractfile(SUMS) or io.BytesIO()).read().decode().splitlines()
    assert (names[0], names[-1]) == (MANIFEST, SUMS)
    assert names[1:-1] == [f"data/{file['name']}" for file in manifest["files"]]
    assert [line.split("  ")[1] for line in sums] == names[:-1]
    assert manifest["kind"] == "tailrace-backup"
    assert manifest["storage_format"] == FORMAT_VERSION
    assert manifest["counters"]["sequence"] > 0


def test_a_restored_backup_has_no_damage(backup: bytes, tmp_path: Path) -> None:
    restored(backup, tmp_path / "new" / "data")
    assert no_damage(tmp_path / "new" / "data").streams == 1
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["data"]


def test_a_truncated_backup_is_refused(backup: bytes, tmp_path: Path) -> None:
    chance = derive(6, "cut off")
    ends = [0, 1, 511, 512, len(backup) - 1, len(backup) - 512, len(backup) - 1024]
    for end in (*ends, *(chance.randrange(len(backup)) for _ in range(40))):
        assert refused(backup[:end], tmp_path / "data"), end


def test_a_backup_with_a_flipped_bit_is_refused(backup: bytes, tmp_path: Path) -> None:
    """Headers, padding and the end of the tar too."""
    chance = derive(6, "flipped")
    places = [*range(0, 512, 7), *range(148, 157), len(backup) - 1, len(backup) - 1500]
    for at in (*places, *(chance.randrange(len(backup)) for _ in range(80))):
        data = bytearray(backup)
        data[at] ^= 1 << chance.randrange(8)
        assert refused(bytes(data), tmp_path / "data"), at


def test_a_backup_with_bytes_after_its_end_is_refused(backup: bytes, tmp_path: Path) -> None:
    assert "after its end" in refused(backup + b"\0", tmp_path / "data")


Change = Callable[[list[tuple[tarfile.TarInfo, bytes]]], None]


def repacked(backup: bytes, change: Change) -> bytes:
    """The same with other members, and with checksums and sizes that fit."""
    members = []
    with tarfile.open(fileobj=io.BytesIO(backup)) as tar:
        for member in tar:
            file = tar.extractfile(member)
            members.append((member, file.read() if file is not None else b""))
    change(members)
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for member, data in members:
            member.size = len(data) if member.isreg() else 0
            tar.addfile(member, io.BytesIO(data))
    return target.getvalue()


def rename(members: list[tuple[tarfile.TarInfo, bytes]], name: str) -> None:
    """A file by another name, in the manifest as well."""
    manifest = json.loads(members[0][1])
    manifest["files"][0]["name"] = name
    members[0] = (members[0][0], json.dumps(manifest).encode())
    members[1][0].name = f"data/{name}"


def link(members: list[tuple[tarfile.TarInfo, bytes]], kind: bytes) -> None:
    members[1][0].type = kind
    members[1][0].linkname = "/etc/passwd"


def newer(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    manifest = json.loads(members[0][1])
    manifest["storage_format"] += 1
    members[0] = (members[0][0], json.dumps(manifest).encode())


def twice(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    manifest = json.loads(members[0][1])
    manifest["files"].insert(0, manifest["files"][0])
    members[0] = (members[0][0], json.dumps(manifest).encode())
    members.insert(1, members[1])


def extra(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    members.insert(1, (tarfile.TarInfo("data/extra"), b"x"))


MALICIOUS: dict[str, Change] = {
    "absolute": lambda members: rename(members, "/tmp/evil"),
    "upwards": lambda members: rename(members, "../evil"),
    "upwards below": lambda members: rename(members, "snapshots/../../evil"),
    "hidden": lambda members: rename(members, ".evil"),
    "a directory": lambda members: rename(members, "evil/one"),
    "a symbolic link": lambda members: link(members, tarfile.SYMTYPE),
    "a hard link": lambda members: link(members, tarfile.LNKTYPE),
    "a device": lambda members: link(members, tarfile.CHRTYPE),
    "a member twice": twice,
    "a member more": extra,
    "a member less": lambda members: members.__delitem__(2),
    "no checksums": lambda members: members.__delitem__(-1),
    "of a newer format": newer,
    "another order": lambda members: members.reverse(),
}


@pytest.mark.parametrize("kind", MALICIOUS)
def test_malicious_archives_are_refused(backup: bytes, tmp_path: Path, kind: str) -> None:
    assert repacked(backup, lambda _: None)
    assert refused(repacked(backup, MALICIOUS[kind]), tmp_path / "data")


def test_a_directory_that_is_not_empty_is_not_changed(backup: bytes, tmp_path: Path) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    restored(backup, directory)
    before = {path.name for path in directory.iterdir()}
    with pytest.raises(DirectoryTaken):
        restored(backup, directory)
    assert {path.name for path in directory.iterdir()} == before
    done = run("restore", "-", "--data-dir", directory, stdin=backup)
    assert done.returncode == 4
    assert b"is not empty" in done.stderr


def test_an_existing_directory_keeps_its_owner_and_permissions(
    backup: bytes, tmp_path: Path
) -> None:
    """Its rights and its owner, whose the files then are, too."""
    directory = tmp_path / "data"
    directory.mkdir()
    directory.chmod(0o750)
    if os.geteuid() == 0:
        os.chown(directory, 4321, 1234)
    before = directory.stat()
    restored(backup, directory)
    after = directory.stat()
    for name in ("st_ino", "st_mode", "st_uid", "st_gid"):
        assert getattr(after, name) == getattr(before, name)
    for path in directory.rglob("*"):
        assert (path.stat().st_uid, path.stat().st_gid) == (after.st_uid, after.st_gid)
    assert not any(directory.glob(".restore-*"))
    assert no_damage(directory).streams == 1


def test_a_refused_backup_leaves_an_empty_directory_empty(backup: bytes, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with pytest.raises(BackupInvalid):
        restored(backup[:-700], tmp_path / "data")
    assert [path.name for path in tmp_path.rglob("*")] == ["data"]


def test_a_new_directory_is_readable_by_its_owner_only(backup: bytes, tmp_path: Path) -> None:
    restored(backup, tmp_path / "data")
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700


@pytest.mark.parametrize("exists", [True, False])
def test_the_target_of_a_link_is_filled(backup: bytes, tmp_path: Path, exists: bool) -> None:
    if exists:
        (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    restored(backup, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert no_damage(tmp_path / "real").streams == 1


@pytest.mark.parametrize("kind", ["file", "loop"])
def test_a_path_that_is_not_a_directory_is_refused_first(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "data"
    if kind == "file":
        place.write_bytes(b"x")
    else:
        place.symlink_to("data")
    source = io.BytesIO(b"not read")
    with pytest.raises(OSError):
        restore(source, place, FORMAT_VERSION, lambda _: lambda _: None)
    assert source.tell() == 0
    assert list(tmp_path.iterdir()) == [place]


@pytest.mark.parametrize("size", [-1, -512])
def test_a_negative_size_is_refused_and_not_read_to_the_end(tmp_path: Path, size: int) -> None:
    member = tarfile.TarInfo(MANIFEST)
    member.size = size
    source = io.BytesIO(member.tobuf(tarfile.GNU_FORMAT) + bytes(10_000))
    with pytest.raises(BackupInvalid):
        restore(source, tmp_path / "data", FORMAT_VERSION, lambda _: lambda _: None)
    assert source.tell() == 512


def test_the_command_says_what_to_do_next(backup: bytes, tmp_path: Path) -> None:
    done = run("restore", "-", "--data-dir", tmp_path / "data", stdin=backup)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"tailrace serve --data-dir" in done.stdout
    no_damage(tmp_path / "data")
    done = run("restore", "-", "--data-dir", tmp_path / "other", stdin=backup[:-700])
    assert done.returncode == 1
    assert b"it was cut off" in done.stderr
    assert not (tmp_path / "other").exists()

"""
Restores a backup to a data directory: all of it, exactly as it was sent, or nothing.

Rule 1: nothing in a backup is trusted before it is checked. The manifest is compared with the name,
kind and size of each member, and the last member with the bytes of each.

Rule 2: only names that a data directory has are accepted. Links, directories, members that the
manifest does not name, and repeated members are refused.

Rule 3: the result becomes a database when everything is in it and durable. A directory that did not
exist is renamed to its path then. An existing one is filled, so that its owner, permissions and
mounts stay; CURRENT, without which there is no database, is moved last.
"""

import errno
import hashlib
import os
import re
import secrets
import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from tailrace.engine import backup_format
from tailrace.exceptions import ExitCode, TailraceError

__all__ = ["RESTORED", "BackupInvalid", "DirectoryTaken", "restore"]

_PIECE_BYTES: Final = 1 << 20
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}|snapshots/0[0-9]{19}", re.ASCII)
_CURRENT: Final = "CURRENT"
RESTORED: Final = "restored"
"""An empty file: the next start makes a new store id, since history may go another way."""
# The one field of a header that its checksum does not cover.
_CHECKSUM: Final = slice(148, 156)
_CHECKSUM_FORM: Final = re.compile(rb"[0-7]{6}\0 ")


class BackupInvalid(TailraceError):
    """The input is not a backup, or not a complete one."""

    message = "{reason}"
    reason: str


class DirectoryTaken(TailraceError):
    """The directory to restore to is not empty."""

    message = "{directory} is not empty, and nothing in it is overwritten"
    exit_code = ExitCode.CONFLICT
    hint = "restore to another directory, or move this one away first"
    directory: Path


def restore(
    source: BinaryIO,
    directory: Path,
    storage_format: int,
    started: Callable[[backup_format.Manifest], Callable[[int], object]],
) -> backup_format.Manifest:
    """
    Check a backup and write it to a directory, which must be empty or not exist.

    `storage_format` is the newest that can be served. `started` is called with the manifest, and
    returns a callback for the number of bytes written.

    Raises:
        BackupInvalid: Nothing was written.
        DirectoryTaken, NotADirectoryError: Nothing was written.
        OSError: The backup cannot be read, or the directory not be written.
    """
    # The target of a link, and not the link.
    directory = Path(os.path.realpath(directory))
    inside = _is_empty(directory)
    reader = _Reader(source)
    manifest = reader.manifest()
    _check_manifest(manifest, storage_format)
    advance = started(manifest)
    made = [] if inside else _make_parents(directory)
    part = (directory if inside else directory.parent) / f".restore-{secrets.token_hex(4)}"
    part.mkdir(mode=0o700)
    try:
        for file in manifest.files:
            path = part / file.name
            path.parent.mkdir(exist_ok=True)
            with path.open("xb") as target:
                for piece in reader.member(backup_format.DATA + file.name, file.size):
                    target.write(piece)
                    advance(len(piece))
        reader.finish()
        (part / RESTORED).touch()
        if inside:
            _give_to_owner(part, directory)
        _sync_all(part)
        if inside:
            _move_up(part, directory)
        else:
            part.rename(directory)
        for path in (directory, directory.parent, *made):
            _sync(path)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return manifest


def _is_empty(directory: Path) -> bool:
    """Whether there is an empty directory; otherwise there is nothing at the path."""
    if not os.path.lexists(directory):
        return False
    if not directory.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(directory))
    if any(directory.iterdir()):
        raise DirectoryTaken(directory)
    return True


def _make_parents(directory: Path) -> list[Path]:
    """Create missing parents; returns the directories that have new entries."""
    missing = [path for path in directory.parents if not path.exists()]
    directory.parent.mkdir(parents=True, exist_ok=True)
    return [path.parent for path in missing]


def _give_to_owner(part: Path, directory: Path) -> None:
    """Files belong to the owner of the directory: an administrator may restore for a server."""
    if os.geteuid() == 0:
        owner = directory.stat()
        for path in (part, *part.rglob("*")):
            os.chown(path, owner.st_uid, owner.st_gid)


def _check_manifest(manifest: backup_format.Manifest, storage_format: int) -> None:
    if manifest.kind != backup_format.KIND:
        raise BackupInvalid("it is not a backup of tailrace")
    if manifest.version != backup_format.VERSION or manifest.storage_format > storage_format:
        raise BackupInvalid(f"it was made by tailrace {manifest.tailrace}: restore it with that")
    names = [file.name for file in manifest.files]
    for name in names:
        if not _NAME.fullmatch(name):
            raise BackupInvalid(f"it has a file {name[:80]!r}, which no data directory has")
    if len(set(names)) != len(names):
        raise BackupInvalid("it has a file twice")
    if _CURRENT not in names or any(file.size < 0 for file in manifest.files):
        raise BackupInvalid("its manifest is not that of a data directory")


class _Reader:
    """Reads a tar archive in order; every byte of it must be as expected."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._sums: list[tuple[str, str]] = []

    def manifest(self) -> backup_format.Manifest:
        content = b"".join(self.member(backup_format.MANIFEST))
        try:
            return msgspec.json.decode(content, type=backup_format.Manifest)
        except msgspec.MsgspecError as error:
            raise BackupInvalid(f"its manifest cannot be read: {error}") from error

    def finish(self) -> None:
        """Check the checksums, and that nothing follows them."""
        sums = self._sums.copy()
        expected = backup_format.sums_text(sums)
        found = b"".join(self.member(backup_format.SUMS, len(expected)))
        if found != expected:
            lines = set(found.decode(errors="replace").splitlines())
            wrong = (name for name, digest in sums if f"{digest}  {name}" not in lines)
            raise BackupInvalid(f"{next(wrong, backup_format.SUMS)} is not what was sent")
        self._expect(backup_format.END, "its end")
        if self._source.read(1):
            raise BackupInvalid("there is something after its end")

    def member(self, name: str, size: int | None = None) -> Iterator[bytes]:
        """The content of the next member, which must have this name and size, in pieces."""
        left = self._head(name, size)
        if size is None and left > backup_format.MANIFEST_BYTES_MAX:
            raise BackupInvalid("it is not a backup of tailrace")
        after = backup_format.padding(left)
        check = hashlib.sha256()
        while left:
            piece = self._take(min(left, _PIECE_BYTES))
            check.update(piece)
            left -= len(piece)
            yield piece
        self._expect(after, f"the end of {name}")
        self._sums.append((name, check.hexdigest()))

    def _head(self, name: str, size: int | None) -> int:
        """Read the header of the next member; returns its size."""
        block = self._take(tarfile.BLOCKSIZE)
        try:
            found = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
        except (tarfile.HeaderError, UnicodeDecodeError):
            found = None
        if found is None or not _CHECKSUM_FORM.fullmatch(block[_CHECKSUM]):
            raise BackupInvalid(f"where {name} should begin, there is something else")
        fits = found.size >= 0 and size in (None, found.size)
        if found.name != name or not found.isreg() or not fits:
            raise BackupInvalid(f"where {name} should be, there is {found.name[:80]!r}")
        return found.size

    def _expect(self, expected: bytes, after: str) -> None:
        if self._take(len(expected)) != expected:
            raise BackupInvalid(f"there is something after {after}")

    def _take(self, size: int) -> bytes:
        pieces = []
        while size:
            piece = self._source.read(size)
            if not piece:
                raise BackupInvalid("it was cut off")
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)


def _move_up(part: Path, directory: Path) -> None:
    """Move the files to the directory, CURRENT last."""
    for path in sorted(part.iterdir(), key=lambda path: path.name == _CURRENT):
        if path.name == _CURRENT:
            _sync(directory)
        path.rename(directory / path.name)
    part.rmdir()


def _sync_all(root: Path) -> None:
    """Sync all files, and then their directories."""
    paths = list(root.rglob("*"))
    for path in (*sorted(paths, key=Path.is_dir), root):
        _sync(path)


def _sync(path: Path) -> None:
    number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    finally:
        os.close(number)

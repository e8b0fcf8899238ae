"""
The form of a backup: a tar archive.

    manifest.json       kind, version, time, and the name and size of each file
    data/…              the files of a data directory, in the order of the manifest
    SHA256SUMS          of all members before it, as `sha256sum -c` reads them

Its size is known in advance, and a backup without its last member is invalid: a truncated backup is
always noticed.
"""

import hashlib
import tarfile
from collections.abc import Iterable
from typing import Final

import msgspec

from tailrace.engine.base import CopiedFile

__all__ = [
    "DATA",
    "END",
    "KIND",
    "MANIFEST",
    "MANIFEST_BYTES_MAX",
    "SUMS",
    "VERSION",
    "Manifest",
    "ManifestFile",
    "archive_size",
    "head",
    "make_manifest",
    "padding",
    "sums_text",
]

KIND: Final = "tailrace-backup"
VERSION: Final = 1
MANIFEST: Final = "manifest.json"
DATA: Final = "data/"
SUMS: Final = "SHA256SUMS"
MANIFEST_BYTES_MAX: Final = 256 << 20
"""A manifest has about 60 bytes for each file of a large snapshot."""
_BLOCK: Final = tarfile.BLOCKSIZE
END: Final = bytes(2 * _BLOCK)
"""The end of the archive."""


class ManifestFile(msgspec.Struct, frozen=True):
    """A file of a backup; its name is relative to the data directory."""

    name: str
    size: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The first member of a backup."""

    kind: str
    version: int
    tailrace: str
    """The version of the server that made the backup."""
    storage_format: int
    time_ms: int
    """When it was taken, ms since 1970: everything acknowledged before this is in it."""
    counters: dict[str, int]
    """The counters of the store at that moment."""
    bytes: int
    """Of all files together."""
    files: list[ManifestFile]


def make_manifest(
    files: Iterable[CopiedFile], *, tailrace: str, storage_format: int, time_ms: int,
    counters: dict[str, int],
) -> bytes:  # fmt: skip
    """The first member, as JSON."""
    listed = [ManifestFile(file.name, file.size) for file in files]
    manifest = Manifest(
        kind=KIND,
        version=VERSION,
        tailrace=tailrace,
        storage_format=storage_format,
        time_ms=time_ms,
        counters=counters,
        bytes=sum(file.size for file in listed),
        files=listed,
    )
    return msgspec.json.format(msgspec.json.encode(manifest)) + b"\n"


def head(name: str, size: int, time_ms: int) -> bytes:
    """The tar header of a member."""
    member = tarfile.TarInfo(name)
    member.size = size
    member.mtime = time_ms // 1000
    member.mode = 0o600
    # Not `ustar`, which cannot have files above 8 GiB.
    return member.tobuf(tarfile.GNU_FORMAT)


def padding(size: int) -> bytes:
    """The bytes between a member and the next header."""
    return bytes(-size % _BLOCK)


def sums_text(sums: Iterable[tuple[str, str]]) -> bytes:
    """The last member: the SHA-256 and name of each member before it."""
    return "".join(f"{digest}  {name}\n" for name, digest in sums).encode()


def archive_size(manifest: bytes, files: Iterable[CopiedFile]) -> int:
    """The size of the whole archive."""
    members = [(MANIFEST, len(manifest)), *((DATA + file.name, file.size) for file in files)]
    digest = hashlib.sha256().hexdigest()
    sums = len(sums_text((name, digest) for name, _ in members))
    sizes = [*(size for _, size in members), sums]
    return sum(_BLOCK + size + len(padding(size)) for size in sizes) + len(END)

"""
The form of a backup: a tar that says at its beginning what it has, and at its end what that was.

    manifest.json       what this is, from where in time, and the name and size of each file
    data/…              the files of a data directory, in the order of the manifest
    SHA256SUMS          of all members before it, as `sha256sum -c` reads them

Its size is known before its first byte, and a backup without its last member is none: one that was
cut off is noticed, whatever it was cut off by.
"""

import tarfile
from collections.abc import Iterable
from typing import Final

import msgspec

from tailrace.engine.store_copy import CopiedFile

__all__ = [
    "DATA",
    "KIND",
    "MANIFEST",
    "MANIFEST_BYTES_MAX",
    "SUMS",
    "VERSION",
    "Manifest",
    "ManifestFile",
    "archive_size",
    "end",
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
"""A manifest names each file of a large snapshot: about 60 bytes each."""
_BLOCK: Final = tarfile.BLOCKSIZE
_DIGEST_CHARS: Final = 64


class ManifestFile(msgspec.Struct, frozen=True):
    """A file of a backup, by its name below the data directory."""

    name: str
    size: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The first member of a backup."""

    kind: str
    version: int
    tailrace: str
    """The version of the server that made it."""
    storage_format: int
    time_ms: int
    """When it was taken, ms since 1970: what was acknowledged before this is in it."""
    counters: dict[str, int]
    """Where the store was."""
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
    """What comes before the bytes of a member."""
    member = tarfile.TarInfo(name)
    member.size = size
    member.mtime = time_ms // 1000
    member.mode = 0o600
    # Not `ustar`, which knows no files above 8 GiB.
    return member.tobuf(tarfile.GNU_FORMAT)


def padding(size: int) -> bytes:
    """What comes after the bytes of a member."""
    return bytes(-size % _BLOCK)


def end() -> bytes:
    """What comes after the last member."""
    return bytes(2 * _BLOCK)


def sums_text(sums: Iterable[tuple[str, str]]) -> bytes:
    """The last member: names and SHA-256."""
    return "".join(f"{digest}  {name}\n" for name, digest in sums).encode()


def archive_size(manifest: bytes, files: Iterable[CopiedFile]) -> int:
    """The size of the whole."""
    names = [(MANIFEST, len(manifest)), *((DATA + file.name, file.size) for file in files)]
    sums = sum(_DIGEST_CHARS + 3 + len(name.encode()) for name, _ in names)
    members = [*names, (SUMS, sums)]
    return sum(_BLOCK + size + -size % _BLOCK for _, size in members) + len(end())

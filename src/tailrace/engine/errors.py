"""Errors of the storage: what a request receives, and why a store cannot be opened."""

from tailrace.exceptions import TailraceError
from tailrace.protocol.errors import Refusal

__all__ = ["DiskFull", "EngineError", "StorageDamaged", "StorageFailed"]


class StorageFailed(Refusal):
    """A write or an fsync failed; nothing is written any more until a restart."""

    status = 503
    code = "storage-failed"
    title = "Storage failed"
    message = (
        "the server's storage failed and it accepts no more writes; whether this request was "
        "stored is unknown: retry it with the same producer headers once the server is back"
    )


class StorageDamaged(Refusal):
    """Stored records are missing or unreadable: the disk is damaged, or files were removed."""

    status = 500
    code = "storage-damaged"
    title = "Stored data cannot be read"
    message = "what was stored after {after} cannot be read: restore the server from a backup"
    after: str


class DiskFull(Refusal):
    """The disk has no room for more; stored data stays readable, and deletes are allowed."""

    status = 507
    code = "disk-full"
    title = "Disk is full"
    message = "the server's disk is full: delete streams or free space, then retry"


class EngineError(TailraceError):
    """The store cannot be opened; the reason says what to do about it."""

    message = "{reason}"
    reason: str

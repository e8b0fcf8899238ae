"""What a failing or full disk means to a request, and what keeps a store from opening."""

from tailrace.protocol.errors import Refusal

__all__ = ["DiskFull", "EngineError", "StorageDamaged", "StorageFailed"]


class StorageFailed(Refusal):
    """A write or an fsync failed; nothing is written any more until a restart."""

    status = 503
    code = "storage-failed"
    title = "Storage failed"

    @property
    def detail(self) -> str:
        return (
            "the server's storage failed and it takes no more writes; whether this request was "
            "stored is unknown: retry it with the same producer headers once the server is back"
        )


class StorageDamaged(Refusal):
    """Records that were stored are not there: the disk is damaged, or files were removed."""

    status = 500
    code = "storage-damaged"
    title = "Stored data cannot be read"

    def __init__(self, token: str) -> None:
        super().__init__(token)
        self.token = token

    @property
    def detail(self) -> str:
        return (
            f"what was stored after {self.token} cannot be read: restore the server from a backup"
        )


class DiskFull(Refusal):
    """There is no room for more; what is stored stays readable, and deletes are allowed."""

    status = 507
    code = "disk-full"
    title = "Disk is full"

    @property
    def detail(self) -> str:
        return "the server's disk is full: delete streams or free space, then retry"


class EngineError(Exception):
    """The store cannot be opened; the message says what to do about it."""

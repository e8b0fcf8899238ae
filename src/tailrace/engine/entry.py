"""A stream as it is kept in memory while it is hot."""

from typing import TYPE_CHECKING, Any

from tailrace.protocol.state import StreamState

if TYPE_CHECKING:
    from tailrace.engine.engine import CommitBatch

__all__ = ["StreamEntry"]


class StreamEntry:
    """
    One name and the stream that it stands for, if any.

    `state` is what the next command is decided upon and runs ahead of the disk; `durable` is what
    readers may see. They are the same once `pending`, the last batch that changes this stream, is
    committed.
    """

    __slots__ = ("dirty_bytes", "dirty_records", "durable", "key", "live", "pending", "state",
                 "touched_at")  # fmt: skip

    def __init__(self, key: bytes, state: StreamState | None) -> None:
        self.key = key
        self.state = state
        self.durable = state
        self.pending: CommitBatch | None = None
        # Since the last checkpoint: what loading would have to replay.
        self.dirty_records = 0
        self.dirty_bytes = 0
        # A sliding TTL counts from here; written down about once a second.
        self.touched_at = 0
        # Whoever waits for this stream's next commit; owned by the server's `live` module.
        self.live: Any = None

    def __repr__(self) -> str:
        return f"StreamEntry({self.key!r})"

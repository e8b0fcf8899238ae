"""Reading that falls back to the snapshot, as a flow (X§2.2, X§3)."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

from tailrace.client.decoding import json_items, split_place
from tailrace.client.errors import NotFound, OffsetGone
from tailrace.client.flow import Flow, Give, Items, each
from tailrace.client.reading import BEGINNING
from tailrace.client.snapshots import SnapshotFlows
from tailrace.client.values import Chunk, Item, Snapshot

__all__ = ["RecoveryFlows"]

_Decode: TypeAlias = Callable[[str, int], Callable[[Chunk], Iterator[Any]]]
"""Makes the converter of chunks from an offset on, with a number of messages skipped."""


class RecoveryFlows(SnapshotFlows):
    """Reads that fall back to the snapshot."""

    def read_or_bootstrap(
        self, offset: str = BEGINNING, *, live: bool = False
    ) -> Items[Snapshot | Chunk]:
        """
        The content from an offset on; a `Snapshot` replaces what is no longer retained.

        When a snapshot comes, a reader discards its state so far and continues from the snapshot.
        With `live` it then follows the stream as `tail` does, and receives another snapshot if it
        falls behind one.

        Raises:
            NotFound: There is no such stream.
            OffsetGone: The offset is no longer retained, and there is no snapshot.
        """
        return Items(self._recover(offset, 0, live, lambda _, __: _each_chunk))

    def read_json_or_bootstrap(
        self, offset: str = BEGINNING, *, live: bool = False
    ) -> Items[Snapshot | Item]:
        """
        The same for the messages of a JSON stream. The snapshot is bytes, of any type.

        Raises:
            As `read_or_bootstrap` does; AnswerInvalid if it is no JSON stream.
        """
        start, skipped = split_place(offset)
        return Items(self._recover(start, skipped, live, partial(json_items, self.url)))

    def _recover(self, offset: str, skipped: int, live: bool, decode: _Decode) -> Flow[None]:
        last: str | None = None
        offset = yield from self._resolved(offset)
        while True:
            flow = self._tail(offset) if live else self._read(offset)
            try:
                yield from each(flow, decode(offset, skipped))
                return
            except OffsetGone as gone:
                try:
                    snapshot = yield from self.snapshot()
                except NotFound:
                    raise gone from None
                if snapshot.offset == last:
                    # The server does not retain what follows its own snapshot.
                    raise
            last, offset, skipped = snapshot.offset, snapshot.offset, 0
            yield Give((snapshot,))


def _each_chunk(chunk: Chunk) -> Iterator[Chunk]:
    yield chunk

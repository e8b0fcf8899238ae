"""Reading on where a stream was shortened: from its snapshot, as a flow (X§2.2, X§3)."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

from tailrace.client.decoding import json_items, split_place
from tailrace.client.errors import NotFound, OffsetGone
from tailrace.client.flow import Flow, Give
from tailrace.client.items import Items, each
from tailrace.client.reading import BEGINNING
from tailrace.client.snapshots import SnapshotFlows
from tailrace.client.values import Chunk, Item, Snapshot

__all__ = ["RecoveryFlows"]

_Decode: TypeAlias = Callable[[str, int], Callable[[Chunk], Iterator[Any]]]
"""How chunks from an offset on are handed out, so many messages left out."""


class RecoveryFlows(SnapshotFlows):
    """What readers do that want to arrive, whatever was dropped before they came."""

    def read_or_bootstrap(
        self, offset: str = BEGINNING, *, live: bool = False
    ) -> Items[Snapshot | Chunk]:
        """
        What is there from an offset on; a `Snapshot` comes instead of what is no longer retained.

        A reader drops what it made of the stream so far when a snapshot comes, and goes on from
        that. With `live` it then follows, as `tail` does, and meets a snapshot again if it falls
        behind one.

        Raises:
            NotFound: There is no such stream.
            OffsetGone: It is gone, and there is no snapshot instead.
        """
        return Items(self._recover(offset, 0, live, lambda _, __: _each_chunk))

    def read_json_or_bootstrap(
        self, offset: str = BEGINNING, *, live: bool = False
    ) -> Items[Snapshot | Item]:
        """
        The same, message by message, of a JSON stream. The snapshot is bytes, of any type.

        Raises:
            As `read_or_bootstrap` does; AnswerInvalid if it is no JSON stream.
        """
        start, skipped = split_place(offset)
        return Items(self._recover(start, skipped, live, partial(json_items, self.url)))

    def _recover(self, offset: str, skipped: int, live: bool, decode: _Decode) -> Flow[None]:
        met: str | None = None
        offset = yield from self._settled(offset)
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
                if snapshot.offset == met:
                    # A server that does not retain what follows its own snapshot.
                    raise
            met, offset, skipped = snapshot.offset, snapshot.offset, 0
            yield Give((snapshot,))


def _each_chunk(chunk: Chunk) -> Iterator[Chunk]:
    yield chunk

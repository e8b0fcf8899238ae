"""The end of an engine: what is pending is committed, and then it really ends."""

import asyncio
import time

from tailrace.engine.engine import Engine, Outcome
from tailrace.engine.memory import MemoryStore
from tailrace.protocol.state import Create


class SlowStore(MemoryStore):
    """A disk whose every fsync is slow."""

    durable = True

    def __init__(self) -> None:
        super().__init__()
        self.syncs = 0

    def sync(self) -> None:
        self.syncs += 1
        time.sleep(0.005)


def test_a_slow_disk_does_not_keep_an_engine_from_closing() -> None:
    """
    Goal: closing waits for what is pending, and makes no more work while it waits.

    Method: move the fsyncs to the thread by slow ones, close with a command under way, and count
    how many fsyncs that took; a loop that feeds itself would go on for ever.
    """
    store = SlowStore()
    replies: list[Outcome] = []

    async def run() -> None:
        engine = Engine(store, clock=lambda: 1)
        for number in range(3):
            create = Create(id=engine.new_id(), content_type="a/b")
            engine.submit(b"%d" % number, create, replies.append)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        await asyncio.wait_for(engine.close(), 30)

    asyncio.run(run())
    assert len(replies) == 3
    assert store.syncs <= 4

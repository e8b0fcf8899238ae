"""A backup of a server whose storage failed is refused, and waits for nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tailrace.engine.base import Store
from tailrace.engine.errors import StorageFailed
from tailrace.engine.settled import settled
from tailrace.protocol.state import Append
from tests.contract.harness import World, told
from tests.engine.proxy import StoreProxy
from tests.support.publishing import TEXT
from tests.support.together import HANG_S


@pytest.mark.parametrize("where", ["write", "sync"])
def test_the_moment_between_two_commits_does_not_come_after_a_failure(
    tmp_path: Path, where: str
) -> None:
    disks: list[StoreProxy] = []

    def wrap(store: Store) -> Store:
        disks.append(StoreProxy(store))
        return disks[-1]

    with World("memory", tmp_path, wrap=wrap) as world:
        world.create(b"s")
        setattr(disks[0], f"{where}_error", Exception("IO error: No such device"))
        assert told(world.do(b"s", Append(b"x", TEXT))) == "storage-failed"

        async def take() -> None:
            async with asyncio.timeout(HANG_S):
                await settled(world.engine.commit, lambda: pytest.fail("there is no such moment"))

        with pytest.raises(StorageFailed):
            world.run(take())

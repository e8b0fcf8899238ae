"""Engines over a store that can be held back."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tailrace.engine.base import Store
from tests.contract.harness import KINDS, World
from tests.engine.proxy import StoreProxy


class Held(NamedTuple):
    """A world, and the disk under it."""

    world: World
    disk: StoreProxy


@pytest.fixture(params=KINDS)
def held(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Held]:
    """An engine on a disk that a test can stop; a thread does every fsync."""
    proxies: list[StoreProxy] = []

    def wrap(store: Store) -> Store:
        proxies.append(StoreProxy(store))
        return proxies[-1]

    with World(request.param, tmp_path / "data", wrap=wrap) as world:
        world.slow_disk()
        yield Held(world, proxies[0])
        proxies[0].gate.set()


@pytest.fixture(params=["inline", "thread"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Held]:
    """The two ways of syncing, over a store in memory."""
    proxies: list[StoreProxy] = []

    def wrap(store: Store) -> Store:
        proxies.append(StoreProxy(store))
        return proxies[-1]

    with World("memory", tmp_path / "data", wrap=wrap) as world:
        if request.param == "thread":
            world.slow_disk()
        yield Held(world, proxies[0])

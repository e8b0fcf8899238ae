"""Every store, empty; and engines over each."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tailrace.engine.base import Store
from tests.contract.harness import KINDS, World, open_store


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    value: str = request.param
    return value


@pytest.fixture
def store(kind: str, tmp_path: Path) -> Iterator[Store]:
    opened = open_store(kind, tmp_path / "data")
    yield opened
    opened.close()


OpenWorld = Callable[..., World]


@pytest.fixture
def open_world(kind: str, tmp_path: Path) -> Iterator[OpenWorld]:
    """Make engines with options of one's own; all are closed at the end."""
    with ExitStack() as worlds:
        yield lambda **options: worlds.enter_context(World(kind, tmp_path / "data", **options))


@pytest.fixture
def world(open_world: OpenWorld) -> World:
    return open_world()

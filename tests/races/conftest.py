"""One server for all races of a kind; each test has streams of its own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from tests.support.server import ServerProcess
from tests.support.uneven_disk import UnevenDiskServer

_numbers = count()


@pytest.fixture(scope="package", params=["disk", "uneven-disk"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """A server on a real disk, and one whose disk is now quick, now slow."""
    kind = UnevenDiskServer if request.param == "uneven-disk" else ServerProcess
    with kind(tmp_path_factory.mktemp("races"), "--long-poll-s", "20") as process:
        yield process


@pytest.fixture
def path() -> str:
    """A stream that no other test uses."""
    return f"/v1/stream/race/{next(_numbers)}"

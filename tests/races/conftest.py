"""One server of each kind for all races; each test has its own streams."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from tests.support.server import ServerProcess
from tests.support.tiers import slow_but
from tests.support.uneven_disk import UnevenDiskServer

_numbers = count()


@pytest.fixture(scope="package", params=slow_but(["disk"], ["disk", "uneven-disk"]))
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """A server on a real disk, and one whose disk is sometimes fast and sometimes slow."""
    kind = UnevenDiskServer if request.param == "uneven-disk" else ServerProcess
    with kind(tmp_path_factory.mktemp("races"), "--long-poll-s", "20") as process:
        yield process


@pytest.fixture
def path() -> str:
    """A stream that no other test uses."""
    return f"/v1/stream/race/{next(_numbers)}"

"""The public conformance suite passes, whole, on every kind of server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance import suite
from tests.support import node
from tests.support.server import AsgiServerProcess, BaseServerProcess, ServerProcess

SUITE_TESTS = 338
# Tests that expect `--ttl sliding`, where a TTL counts from the last use. By default it counts from
# the stream's creation, and these tests fail.
SLIDING_TESTS = frozenset(
    f"TTL Expiration Behavior should extend TTL on {use} (sliding window)"
    for use in (
        "write",
        "read",
        "GET ?offset=now",
        "close-only POST",
        "producer close-only POST",
    )
) | {"Fork - TTL and Expiry should allow fork to outlive source via TTL renewal"}

ROCKSDB = ("--engine", "rocksdb")
MEMORY = ("--engine", "memory")
SLIDING = ("--ttl", "sliding")


@pytest.fixture(scope="session", autouse=True)
def node_packages() -> None:
    """Install them if `pytest` was not started by `make test`, which does."""
    node.install(suite.HERE)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("server_class", "options", "expected_failures"),
    [
        pytest.param(ServerProcess, ROCKSDB + SLIDING, frozenset(), id="rocksdb-sliding"),
        pytest.param(
            *(ServerProcess, ROCKSDB, SLIDING_TESTS), id="rocksdb-creation", marks=pytest.mark.slow
        ),
        pytest.param(
            *(ServerProcess, MEMORY + SLIDING, frozenset()),
            id="memory-sliding",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            *(AsgiServerProcess, ROCKSDB + SLIDING, frozenset()),
            id="asgi-sliding",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_suite_passes(
    tmp_path: Path,
    server_class: type[BaseServerProcess],
    options: tuple[str, ...],
    expected_failures: frozenset[str],
) -> None:
    long_poll = ("--long-poll-s", str(suite.LONG_POLL_S))
    with server_class(tmp_path / "data", *options, *long_poll) as server:
        result = suite.run(server.url, tmp_path / "result.json")
    assert set(result.failed) == expected_failures, result.report()
    assert result.ran == SUITE_TESTS, result.report()

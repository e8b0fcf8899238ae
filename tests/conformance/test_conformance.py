"""The public conformance suite passes on every kind of server that Tailrace offers.

Left out, by the name pattern in vitest.config.ts: the nine `Fork - …` groups and
`Reserved subscription APIs`, parts of the protocol that Tailrace does not offer.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance import suite
from tests.support.server import AsgiServerProcess, BaseServerProcess, ServerProcess

SUITE_TESTS = 250
# What the suite asks of a TTL and the default does not do: by default, a TTL counts from the
# stream's creation; with `--ttl sliding` it counts from the last use, as these tests expect.
SLIDING_TESTS = frozenset(
    f"TTL Expiration Behavior should extend TTL on {use} (sliding window)"
    for use in (
        "write",
        "read",
        "GET ?offset=now",
        "close-only POST",
        "producer close-only POST",
    )
)

ROCKSDB = ("--engine", "rocksdb")
MEMORY = ("--engine", "memory")
SLIDING = ("--ttl", "sliding")


@pytest.fixture(scope="session", autouse=True)
def node_packages() -> None:
    """`make test` has installed them; a bare `pytest` does so here."""
    suite.install()


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("server_class", "options", "expected_failures"),
    [
        pytest.param(ServerProcess, ROCKSDB + SLIDING, frozenset(), id="rocksdb-sliding"),
        pytest.param(ServerProcess, ROCKSDB, SLIDING_TESTS, id="rocksdb-creation"),
        pytest.param(ServerProcess, MEMORY + SLIDING, frozenset(), id="memory-sliding"),
        pytest.param(AsgiServerProcess, ROCKSDB + SLIDING, frozenset(), id="asgi-sliding"),
    ],
)
def test_suite(
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

"""One live server for the whole directory; every test makes its own streams."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.support.server import ServerProcess
from tests.support.streams import Api

BODY_BYTES_MAX = 64 << 10


def pytest_configure(config: pytest.Config) -> None:
    """Set the number of generated examples: more in `make test-all`."""
    wanted = os.environ.get("TAILRACE_FUZZ_EXAMPLES")
    settings.register_profile(
        "wire",
        max_examples=int(wanted or (200 if config.getoption("--all-tests") else 60)),
        derandomize=wanted is None,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )


@pytest.fixture(scope="session")
def wire_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """On RocksDB, so that appends take longer than reads, as in production."""
    data_dir = tmp_path_factory.mktemp("wire")
    # Strict, as in buckets: what is lenient is tested in tests/server.
    options = ("--body-bytes-max", str(BODY_BYTES_MAX), "--long-poll-s", "1", "--offsets", "strict")
    with ServerProcess(data_dir, *options) as server:
        yield server


@pytest.fixture
def api(wire_server: ServerProcess) -> Iterator[Api]:
    """Checks after each test that the server still runs and had no internal error."""
    api = Api(wire_server)
    lines = len(wire_server.log)
    yield api
    api.close()
    assert wire_server.running
    failures = [line for line in wire_server.log[lines:] if '"level": "error"' in line]
    assert not failures, failures

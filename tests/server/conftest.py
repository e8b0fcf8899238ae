"""
Servers for the whole directory; every test makes its own streams.

`make test` runs the tests on one kind of server, and those marked `every_kind` on all of them.
`make test-all` runs every test on every kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.server import AsgiServerProcess, BaseServerProcess, ServerProcess
from tests.support.streams import Api

# Short enough that a test can wait for the end of a long-poll or of an event stream.
SHORT = ("--long-poll-s", "0.4", "--sse-s", "0.8", "--chunk-bytes", "100",
         "--read-bytes-max", "100")  # fmt: skip
# Long enough that no long-poll or event stream ends before its test sends data.
LONG = ("--long-poll-s", "60", "--sse-s", "60")
SLIDING = ("--ttl", "sliding")

KINDS: dict[str, Callable[..., BaseServerProcess]] = {
    "wire-rocksdb": lambda path, *args: ServerProcess(path, "--engine", "rocksdb", *args),
    "wire-memory": lambda path, *args: ServerProcess(path, "--engine", "memory", *args),
    "asgi-rocksdb": lambda path, *args: AsgiServerProcess(path, "--engine", "rocksdb", *args),
    # Streams in buckets instead of the base surface (X§1.6).
    "bucketed": lambda path, *args: ServerProcess(path, "--engine", "rocksdb", *args),
}

OTHER_KINDS = list(KINDS)[1:]
HERE = Path(__file__).parent

Start = Callable[..., BaseServerProcess]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "every_kind: run on every kind of server in both tiers")
    settings.register_profile(
        "server",
        max_examples=40 if config.getoption("--all-tests") else 15,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--all-tests"):
        return
    repeats = {id(item) for item in items if _is_repeat(item)}
    if repeats:
        config.hook.pytest_deselected(items=[item for item in items if id(item) in repeats])
        items[:] = [item for item in items if id(item) not in repeats]


def _is_repeat(item: pytest.Item) -> bool:
    """Whether an item repeats a test of this directory on another kind of server."""
    if HERE not in item.path.parents or item.get_closest_marker("every_kind"):
        return False
    callspec = getattr(item, "callspec", None)
    return callspec is not None and callspec.params.get("kind") in OTHER_KINDS


@pytest.fixture(scope="session", params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    """The transport, engine and surface under test."""
    return str(request.param)


@pytest.fixture(scope="session")
def start(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Start a server of the kind under test, once per set of options."""
    running: dict[tuple[str, ...], BaseServerProcess] = {}

    def started(*options: str) -> BaseServerProcess:
        if options not in running:
            data_dir = tmp_path_factory.mktemp(kind)
            running[options] = KINDS[kind](data_dir, *options).start()
        return running[options]

    yield started
    for server in running.values():
        server.stop()


def _api(server: BaseServerProcess, kind: str) -> Iterator[Api]:
    api = Api(server)
    if kind == "bucketed":
        api.bucket = api.new_bucket()
    lines = len(server.log)
    yield api
    api.close()
    assert server.running
    failures = [line for line in server.log[lines:] if "error" in line.lower()]
    assert not failures, failures


@pytest.fixture
def api(start: Start, kind: str) -> Iterator[Api]:
    """A server with the default settings, except for longer waits."""
    yield from _api(start(*LONG), kind)


@pytest.fixture
def short(start: Start, kind: str) -> Iterator[Api]:
    """A server with short waits, short event streams and small chunks."""
    yield from _api(start(*SHORT), kind)


@pytest.fixture
def sliding(start: Start, kind: str) -> Iterator[Api]:
    """A server whose TTL restarts with every read and write."""
    yield from _api(start(*SLIDING), kind)

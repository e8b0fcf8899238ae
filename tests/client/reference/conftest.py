"""The reference server, and a client of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.client.conftest import connected
from tests.client.reference.writing import numbers
from tests.client.tiers import slow
from tests.support.reference import ReferenceProcess, install


@pytest.fixture(scope="package")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReferenceProcess]:
    """Has short timeouts and recycles often, so that every live read meets both."""
    install()
    options = ("--sse-ms", "300", "--long-poll-ms", "200")
    with ReferenceProcess(tmp_path_factory.mktemp("reference"), *options) as running:
        yield running


@pytest.fixture(params=["sync", slow("async")])
def kind(request: pytest.FixtureRequest) -> str:
    """The asynchronous client shares its flows: against this server it runs in `make test-all`."""
    return str(request.param)


@pytest.fixture
def client(kind: str, reference: ReferenceProcess) -> Iterator[Any]:
    with connected(kind, reference.url) as made:
        yield made


@pytest.fixture
def stream(client: Any) -> Any:
    """A unique name."""
    return client.stream(f"s/{next(numbers)}")

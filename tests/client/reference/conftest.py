"""The reference server, and a client of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.client.conftest import connected
from tests.client.reference.writing import numbers
from tests.support.reference import ReferenceProcess, install


@pytest.fixture(scope="package")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReferenceProcess]:
    """Times out and recycles often, so that every live read meets it."""
    install()
    options = ("--sse-ms", "300", "--long-poll-ms", "200")
    with ReferenceProcess(tmp_path_factory.mktemp("reference"), *options) as running:
        yield running


@pytest.fixture
def client(kind: str, reference: ReferenceProcess) -> Iterator[Any]:
    with connected(kind, reference.url) as made:
        yield made


@pytest.fixture
def stream(client: Any) -> Any:
    """A name that no other test uses."""
    return client.stream(f"s/{next(numbers)}")

"""Producers of both kinds behind a proxy with faults; a scenario is written once for both.

It is a coroutine. A blocking producer blocks it, while the producer's threads run.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tailrace.client import AsyncClient, Client, Retry
from tests.support.chance import seeded
from tests.support.fault_plan import POST_FAULTS, Fault, Plan
from tests.support.fault_proxy import FaultProxy
from tests.support.server import ServerProcess

JSON = "application/json"
RETRY = Retry(attempts_max=30, first_s=0.01, longest_s=0.2)


class Scene(NamedTuple):
    server: ServerProcess
    proxy: FaultProxy
    direct: Client
    """A client without the proxy."""

    def numbers(self) -> list[int]:
        """The numbers of the messages in stream `s`, in order."""
        return [item.value["n"] for item in self.direct.stream("s").read_json()]

    def assert_faults(self) -> None:
        """Every fault happened; otherwise the test proves nothing."""
        assert not [fault.name for fault in POST_FAULTS if not self.proxy.done[fault]]


@contextmanager
def served(
    tmp_path: Path, *seed: object, faults: Iterable[Fault] = Fault, patient: bool = True
) -> Iterator[Scene]:
    """A server behind a proxy."""
    with (
        seeded("producer", *seed) as chance,
        ServerProcess(tmp_path / "data") as server,
        Client(server.url, retry=RETRY) as direct,
        FaultProxy(server.url, Plan(chance.random(), faults=faults), patient=patient) as proxy,
    ):
        yield Scene(server, proxy, direct)


@asynccontextmanager
async def opened(kind: str, url: str, retry: Retry = RETRY) -> AsyncIterator[Any]:
    """A client of either kind."""
    if kind == "sync":
        with Client(url, retry=retry) as client:
            yield client
    else:
        async with AsyncClient(url, retry=retry) as client:
            yield client


async def done(made: Any) -> Any:
    """The result of a call, of either kind of client."""
    return await made if inspect.isawaitable(made) else made


def play(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)

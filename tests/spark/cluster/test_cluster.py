"""
Two attempts at once, and workers that die, on a standalone cluster: `make test-all`.

Speculation starts a second attempt while the first still runs. Both write; after a shuffle they
have the same rows in different orders.
"""

from collections import Counter
from dataclasses import asdict
from pathlib import Path

import pytest

from tailrace.client import Client
from tests.spark.cluster.standalone import HOSTS, Cluster
from tests.spark.faults.pipeline import TARGET, Pipeline, Source, stored, total
from tests.support.server import ServerProcess
from tests.support.streams import wait_until

pytestmark = pytest.mark.slow

COUNT = 2000


def speculate(
    cluster: Cluster, url: str, home: Path, slow_s: float, **options: str
) -> dict[str, list[int]]:
    """What is stored of numbers that two attempts at one task have written at once."""
    note = home / "note"
    arguments = {"url": url, "count": COUNT, "slow_s": slow_s, "options": options}
    with Client(url) as client:
        client.bucket(TARGET).create()
        client.bucket(TARGET).stream("s0").create("application/json")
        with cluster.run(
            home, "numbers", speculation=True, scratch=str(home), note=str(note), **arguments
        ) as driver:
            driver.finish()
        assert note.exists(), "there was no second attempt"
        return stored(client)


def test_two_attempts_at_once_with_rows_in_two_orders(
    cluster: Cluster, target: ServerProcess, tmp_path: Path
) -> None:
    """
    With orderBy, both cut the same requests: what both send is stored once.

    Method: small requests, so that the first attempt still sends when the second begins to.
    """
    options = {"orderBy": "n", "maxRequestBytes": "20"}
    found = speculate(cluster, target.url, tmp_path, 4, **options)
    assert found == {"s0": list(range(COUNT))}


def test_input_that_is_wrongly_declared_stable(
    cluster: Cluster, target: ServerProcess, tmp_path: Path
) -> None:
    """
    The control: the same rows with stableInput=true, which is not true here, and some are lost.

    So these tests would notice a sink that goes by the order in which rows come.
    """
    options = {"stableInput": "true", "maxRequestBytes": "200"}
    found = speculate(cluster, target.url, tmp_path, 20, **options)
    counts = Counter(found["s0"])
    lost = COUNT - len(counts)
    doubled = sum(counts.values()) - len(counts)
    assert lost > 0 and doubled > 0


@pytest.mark.parametrize("victim", ["executor", "worker"])
def test_executors_and_workers_that_are_killed(
    cluster: Cluster,
    server: ServerProcess,
    client: Client,
    target: ServerProcess,
    tmp_path: Path,
    victim: str,
) -> None:
    """A query continues with the remaining and the new executors."""
    source = Source(client)
    source.add(100)
    pipeline = Pipeline(server.url, target.url, str(tmp_path / "checkpoint"), limit=60)
    arguments = {"scratch": str(tmp_path), "pipeline": asdict(pipeline)}
    with Client(target.url) as sink, cluster.run(tmp_path, "query", **arguments) as driver:
        for host, bound in zip(HOSTS, (70, 250), strict=True):
            wait_until(
                "rows",
                lambda bound=bound: total(sink) >= bound or not driver.running,
                120,
            )
            assert driver.running, driver.text[-4000:]
            if victim == "executor":
                cluster.kill_executor(host)
            elif host == HOSTS[0]:
                cluster.kill_worker(host)
        driver.finish()
        assert stored(sink) == source.all
    if victim == "worker":
        cluster.start_worker(HOSTS[0]).wait_for("Successfully registered")

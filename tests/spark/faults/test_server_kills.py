"""SIGKILL of the servers that a query reads from and writes to, and a network that loses much."""

from typing import TYPE_CHECKING

import pytest

from tailrace.client import Client
from tests.spark.faults.pipeline import Pipeline, Source, stored, total
from tests.support.chance import seeded
from tests.support.fault_plan import Plan
from tests.support.fault_proxy import FaultProxy
from tests.support.server import ServerProcess
from tests.support.streams import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

ROUNDS = 3


def test_servers_that_are_killed_amid_batches(
    spark: "SparkSession",
    server: ServerProcess,
    target: ServerProcess,
    source: Source,
    sink: Client,
    pipeline: Pipeline,
) -> None:
    """The query continues without a restart as soon as the servers are back."""
    source.add(100)
    query = pipeline.start(pipeline.shaped(pipeline.read(spark)), now=False)
    try:
        with seeded("server-kills") as chance:
            for _ in range(ROUNDS):
                for killed in chance.sample([server, target], 2):
                    bound = min(total(sink) + chance.randrange(1, 60), source.total)
                    wait_until("rows", lambda bound=bound: total(sink) >= bound, 60)
                    killed.restart()
                source.add(20)
        wait_until("all rows", lambda: total(sink) >= source.total, 100)
        query.processAllAvailable()
    finally:
        query.stop()
    assert stored(sink) == source.all


def test_networks_that_cut_repeat_and_reorder(
    spark: "SparkSession",
    server: ServerProcess,
    target: ServerProcess,
    source: Source,
    sink: Client,
    pipeline: Pipeline,
) -> None:
    """Requests are lost, delivered twice or late, and responses are truncated, on both sides."""
    source.add(60)
    with (
        seeded("networks") as chance,
        FaultProxy(server.url, Plan(chance.random(), faults_max=60)) as before,
        FaultProxy(target.url, Plan(chance.random(), faults_max=120)) as after,
    ):
        pipeline.source_url, pipeline.target_url = before.url, after.url
        pipeline.run(spark)
    assert before.done and after.done
    assert stored(sink) == source.all

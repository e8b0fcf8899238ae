"""The example of Declarative Pipelines, run as its README says: `spark-pipelines run`."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from tailrace.client import Client
from tests.spark.cluster.launching import BIN, Launched
from tests.support.server import REPO_ROOT, ServerProcess

pytestmark = pytest.mark.slow

EXAMPLE = REPO_ROOT / "examples" / "pipelines"


def example(home: Path) -> Path:
    """A copy that keeps its checkpoints to itself; its tables are where it runs anyway."""
    copy = home / "example"
    shutil.copytree(EXAMPLE, copy)
    spec = copy / "spark-pipeline.yml"
    storage = f"storage: {(home / 'storage').as_uri()}"
    text, count = re.subn(r"(?m)^storage: .*$", storage, spec.read_text())
    assert count == 1
    spec.write_text(text)
    return copy


def run(place: Path, url: str, home: Path) -> None:
    conf = {
        "spark.sql.catalogImplementation": "hive",
        # Of tests only: little memory, and no other address than loopback.
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.ui.enabled": "false",
    }
    options = [word for item in conf.items() for word in ("--conf", "=".join(item))]
    command = [str(BIN / "spark-pipelines"), "run", *options]
    env = {"TAILRACE_URL": url, "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    with Launched(command, home / "run", "pipelines", env, cwd=place) as launched:
        launched.finish()


@pytest.mark.timeout(400)
def test_the_example_runs_and_continues(
    server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    client.bucket("orders").create()
    orders = client.bucket("orders")
    place = example(tmp_path)
    for day, first in (("monday", 0), ("tuesday", 10)):
        orders.stream(day).create("application/json")
        orders.stream(day).append_json(*[{"id": first + n, "amount": 50.0 * n} for n in range(5)])
        run(place, server.url, tmp_path)
    large = client.bucket("large-orders")
    found = {
        listed.stream_id: [item.value["id"] for item in large.stream(listed.stream_id).read_json()]
        for listed in large.streams()
    }
    assert found == {"monday": [2, 3, 4], "tuesday": [12, 13, 14]}

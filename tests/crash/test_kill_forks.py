"""SIGKILL amid forks, deletions and releases: nothing is lost, and every reference is exact."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.fork_load import BUCKET, ForkLoad
from tests.operations.building import no_damage
from tests.support.chance import seeded
from tests.support.http import Connection
from tests.support.server import ServerProcess
from tests.support.streams import wait_until

KILLS = 20
KILLS_QUICK = 2


@pytest.mark.timeout(600)
def test_kill_amid_forks(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """
    Goal: after a SIGKILL at any moment every fork reads what it inherited, and `check` finds that
    each source has as many references as forks, and that all it keeps is needed.

    Method: clients create, fork at random boundaries and inside of messages, append, publish
    snapshots and delete, mostly the newest streams: chains grow, and sources are deleted before
    their forks. After each kill the directory is checked, and every stream is compared with what
    its client sent. At the end all streams are deleted: the bucket must become empty.
    """
    kills = KILLS if pytestconfig.getoption("--all-tests") else KILLS_QUICK
    with seeded("kill-forks") as chance, ServerProcess(tmp_path / "data") as server:
        with Connection.to(server.url) as connection:
            assert connection.request("PUT", f"/{BUCKET}").status == 201
        load = ForkLoad(str(chance.random()))
        for _ in range(kills):
            load.run_until_killed(server, chance.uniform(0.1, 0.8))
            no_damage(server.data_dir)
            server.start()
            load.check(server.url)
        assert load.done > 10 * kills, "the load did next to nothing"
        load.delete_all(server.url)
        with Connection.to(server.url) as connection:
            wait_until(
                "the bucket is empty",
                lambda: connection.request("DELETE", f"/{BUCKET}").status == 204,
            )
        server.kill()
        no_damage(server.data_dir)

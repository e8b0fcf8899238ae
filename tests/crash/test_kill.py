"""SIGKILL at random moments under a mixed load: nothing acknowledged is lost, doubled or torn."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.crash.load import Load, Profile, kill_while_starting
from tests.support.chance import seeded
from tests.support.server import ServerProcess
from tests.support.tiers import slow_but

KILLS = int(os.environ.get("TAILRACE_TEST_KILLS", "11"))
KILLS_QUICK = 3

PROFILES = {
    "mixed": Profile(),
    "producers": Profile(append=5, batch=5, produce=80, own=5, close=3, cut=4),
    "lives": Profile(append=5, batch=5, produce=10, own=80, close=8, owned_per_client=6, slots=12),
    "batches": Profile(append=20, batch=60, produce=20, own=5, close=3),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", slow_but(["mixed"], PROFILES))
def test_kill_under_load(tmp_path: Path, name: str, pytestconfig: pytest.Config) -> None:
    """
    Goal: after a SIGKILL at any moment, what was acknowledged is there, once, in order and byte
    for byte; what was not acknowledged is there whole or not at all (§5.2, §5.2.1, §5.3, §5.4).

    Method: several clients append, send JSON batches, produce with retries, create, close and
    delete on about forty streams. The server is killed at a random moment, sometimes once more
    while it recovers, and started again on the same data; every stream is read and compared with
    a model of what was sent and received. Producers then retry what was cut off.
    """
    kills = KILLS if pytestconfig.getoption("--all-tests") else KILLS_QUICK
    with seeded("kill", name) as chance, ServerProcess(tmp_path / "data") as server:
        load = Load(str(chance.random()), PROFILES[name])
        for _ in range(kills):
            load.run_until_killed(server, chance.uniform(0.1, 1.0))
            if chance.random() < 0.25:
                kill_while_starting(server.data_dir, chance.uniform(0.05, 0.4))
            server.start()
            load.check(server.url)
        assert load.stored > 10 * kills, "the load did next to nothing"
        # Once more, with nothing in between: what recovery itself wrote must be recoverable.
        server.restart()
        load.check(server.url)


@pytest.mark.slow
def test_kill_while_a_new_database_is_made(tmp_path: Path) -> None:
    """
    Goal: a server that is killed while it makes its database can be started again.

    Method: kill the very first start after growing delays, each on the data of the one before
    and also on a directory of its own; then start in earnest, write and read.
    """
    for number in range(8):
        kill_while_starting(tmp_path / "shared", 0.06 + 0.03 * number)
        kill_while_starting(tmp_path / str(number), 0.06 + 0.03 * number)
    for name in ("shared", *map(str, range(8))):
        with ServerProcess(tmp_path / name) as server:
            load = Load(name, Profile(clients=1))
            load.run_until_killed(server, 0.05)
            server.start()
            load.check(server.url)

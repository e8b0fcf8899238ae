"""SIGKILL amid wakes and acks: no wake is owed and missing, no cursor moves back."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.crash.subscription_load import SubscriptionLoad
from tests.operations.building import no_damage
from tests.server.subscriptions.receiver import Receiver
from tests.support.chance import seeded
from tests.support.server import ServerProcess

KILLS = int(os.environ.get("TAILRACE_TEST_KILLS", "20"))
KILLS_QUICK = 2

# Every fifth append to a stream that is not pending leaves its cursor and its wake out.
FAULT = """
import itertools, runpy
from tailrace.engine.subscriptions.subscriptions import Subscriptions
original, calls = Subscriptions._appended, itertools.count(1)
def appended(self, *args):
    if next(calls) % 5:
        original(self, *args)
Subscriptions._appended = appended
runpy.run_module("tailrace", run_name="__main__", alter_sys=True)
"""


class FaultyServer(ServerProcess):
    """A server that leaves wakes out."""

    def _command(self, port: int) -> list[str]:
        return [sys.executable, "-c", FAULT, *super()._command(port)[3:]]


def kill_and_check(server: ServerProcess, kills: int, name: str) -> SubscriptionLoad:
    with seeded("kill subscriptions", name) as chance, Receiver() as receiver:
        load = SubscriptionLoad(str(chance.random()), receiver)
        load.prepare(server.url)
        for _ in range(kills):
            load.run_until_killed(server, chance.uniform(0.1, 0.8))
            no_damage(server.data_dir)
            server.start()
            load.check(server.url)
        load.drain(server.url)
        return load


@pytest.mark.timeout(600)
def test_kill_amid_wakes_and_acks(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """
    Goal: after a SIGKILL at any moment, an append that was acknowledged is pending or was
    acknowledged by a worker, and an acknowledged cursor stays where it is.

    Method: writers append, workers claim, read, ack, release and abandon, and a webhook answers
    well and badly. The server is killed at a random moment; `check` finds no work without a wake;
    after the restart every cursor is between what was confirmed and what was sent. In the end
    every message that was stored has been read by a worker.
    """
    kills = KILLS if pytestconfig.getoption("--all-tests") else KILLS_QUICK
    with ServerProcess(tmp_path / "data") as server:
        load = kill_and_check(server, kills, "sound")
        assert load.stored > 10 * kills, "the load did next to nothing"
        assert load.claims > kills


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_wake_that_is_left_out_is_found(tmp_path: Path) -> None:
    """The test above can fail: a server that forgets some wakes does not pass it."""
    with FaultyServer(tmp_path / "data") as server, pytest.raises(AssertionError):
        kill_and_check(server, 3, "faulty")

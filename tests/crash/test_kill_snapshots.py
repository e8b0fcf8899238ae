"""SIGKILL amid snapshots: what is visible is whole, and bootstraps miss and repeat nothing."""

from __future__ import annotations

import os
import random
from itertools import cycle, islice
from pathlib import Path

import pytest

from tests.crash.load import kill_while_starting
from tests.crash.snapshot_load import Moment, SnapshotLoad, SweepingServer, stored_files
from tests.support.chance import seeded
from tests.support.http import Connection
from tests.support.payloads import digest
from tests.support.reading import OCTETS
from tests.support.server import ServerProcess
from tests.support.tiers import slow_but
from tests.support.together import HANG_S
from tests.support.uneven_disk import UnevenDiskServer

# Of each kind of server; of each moment at least one.
KILLS = max(len(Moment), int(os.environ.get("TAILRACE_TEST_KILLS", "8")))

KINDS = {"disk": ServerProcess, "uneven-disk": UnevenDiskServer, "always-sweeping": SweepingServer}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", slow_but(["disk"], KINDS))
def test_kill_while_snapshots_are_published(tmp_path: Path, kind: str) -> None:
    """
    Goal: after a SIGKILL at any moment a stream shows the snapshot that was acknowledged last or a
    later one that was sent to its end, byte for byte; its bootstrap has every message after that
    once and in order, its beginning is gone, and no part of an upload is left. Buckets count what
    they list (X§1.3, X§2.2, X§3.2, X§3.4).

    Method: writers append, publishers send snapshots of all sizes, some break off, and others
    create and delete streams and buckets. The server is killed while uploads are under way, as
    soon as one is sent, as soon as one is acknowledged, and at any moment, sometimes once more
    while it recovers; then everything is read and compared with what was sent and received. On a
    server that always sweeps, kills fall amid reclaiming too.
    """
    with seeded("kill-snapshots", kind) as chance, KINDS[kind](tmp_path / "data") as server:
        load = SnapshotLoad(str(chance.random()))
        load.prepare(server.url)
        for number, moment in enumerate(islice(cycle(Moment), KILLS)):
            load.kill_at(server, moment, chance.uniform(0.05, 0.6))
            if chance.random() < 0.2:
                kill_while_starting(server.data_dir, chance.uniform(0.05, 0.4))
            server.start()
            load.check(server.url)
            load.check_files(server.data_dir)
            if kind == "always-sweeping" or number == 0:
                load.wait_for_files(server.data_dir)
        # The kills came when they hurt: otherwise all this proves little.
        assert load.kills_amid_uploads >= KILLS // 4, load.interrupted
        assert load.interrupted["sending"] > 0, load.interrupted
        if kind != "always-sweeping":
            assert load.leftovers > 0, "nothing was ever superseded when the server was killed"
        # Once more, with nothing in between: what recovery itself wrote must be recoverable.
        server.restart()
        load.check(server.url)
        load.wait_for_files(server.data_dir)


@pytest.mark.parametrize("size", slow_but([300 << 10], [0, 1000, 256 << 10, 300 << 10, 5 << 20]))
def test_kill_right_after_the_response(tmp_path: Path, size: int) -> None:
    """Goal: 204 means that the snapshot is on disk, and the one before it no longer needed."""
    first, second = random.Random(1).randbytes(700_000), random.Random(2).randbytes(size)
    with ServerProcess(tmp_path / "data") as server:
        with Connection.to(server.url, HANG_S) as connection:
            assert connection.request("PUT", "/bucket").status == 201
            created = connection.request("PUT", "/bucket/s", {"Content-Type": OCTETS}, b"one")
            path = f"/bucket/s/snapshot/{created.headers['stream-next-offset']}"
            assert connection.request("PUT", path, {}, first).status == 204
            added = connection.request("POST", "/bucket/s", {"Content-Type": OCTETS}, b"two")
            path = f"/bucket/s/snapshot/{added.headers['stream-next-offset']}"
            assert connection.request("PUT", path, {}, second).status == 204
            server.kill()
        server.start()
        with Connection.to(server.url, HANG_S) as connection:
            response = connection.request("GET", path)
            assert response.status == 200
            assert response.body == second
            assert connection.request("GET", "/bucket/s?offset=-1").status == 410
            if size > 256 << 10:
                assert digest(second) in stored_files(server.data_dir)

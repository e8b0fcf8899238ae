"""SIGKILL under load: the counters of a bucket equal the sums over its streams."""

from __future__ import annotations

import json
import random
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.chance import seeded
from tests.support.server import ServerProcess
from tests.support.streams import Api

BUCKETS = ("crash-a", "crash-b")
KILLS = 2
KILLS_SLOW = 4
CLIENTS = 4


def work(server: ServerProcess, seed: int, stop: threading.Event, done: list[int]) -> None:
    """One client: all kinds of changes, until the server is killed."""
    chance = random.Random(seed)
    api = Api(server)
    with suppress(OSError, AssertionError):
        while not stop.is_set():
            bucket = chance.choice(BUCKETS)
            path = api.in_bucket(bucket, f"s{chance.randrange(12)}")
            body = b"x" * chance.randrange(1, 400)
            action = chance.random()
            if action < 0.2:
                headers = {"Stream-TTL": "1"} if chance.random() < 0.3 else {}
                headers["Content-Type"] = "text/plain"
                api.request("PUT", path, headers, body)
            elif action < 0.8:
                api.post(path, body)
            elif action < 0.9:
                tail = api.head(path).headers.get("stream-next-offset")
                if tail is not None:
                    api.request("PUT", f"{path}/snapshot/{tail}", {"Content-Type": "a/b"}, body)
            elif action < 0.95:
                api.request("DELETE", path)
            else:
                api.post(path, body, {"Stream-Closed": "true"})
            done[0] += 1
    api.close()


def check(server: ServerProcess) -> int:
    """Compare each bucket with the listing of its streams; returns the bytes of all."""
    api = Api(server)
    total = 0
    for bucket in BUCKETS:
        # A stream may expire between the two responses: then both are requested again.
        deadline = time.monotonic() + 20
        while True:
            counters = json.loads(api.get(f"/{bucket}").body)
            page = json.loads(api.get(f"/{bucket}/streams").body)
            assert not page["has_more"]
            size = sum(
                item["tail_offset"]
                - int(item["earliest_offset"].partition("_")[2])
                + (item["snapshot_bytes"] or 0)
                for item in page["streams"]
            )
            if counters == json.loads(api.get(f"/{bucket}").body):
                break
            assert time.monotonic() < deadline
        assert (counters["streams"], counters["bytes"]) == (page["stream_count"], size)
        total += size
    api.close()
    return total


@pytest.mark.parametrize("kills", [KILLS, pytest.param(KILLS_SLOW, marks=pytest.mark.slow)])
def test_bytes_are_exact_after_a_crash(tmp_path: Path, kills: int) -> None:
    """
    Goal: rule 2 of `protocol/bucket.py`: counters are committed with the records that change them.

    Method: clients make all kinds of changes to a few streams. The server is killed at a random
    time and started again; the sums over the listing equal the counters.
    """
    with seeded("bucket-bytes") as chance, ServerProcess(tmp_path / "data") as server:
        api = Api(server)
        for bucket in BUCKETS:
            assert api.request("PUT", f"/{bucket}").status == 201
        api.close()
        done, seen = [0], 0
        for _ in range(kills):
            stop = threading.Event()
            seeds = [chance.randrange(1 << 30) for _ in range(CLIENTS)]
            enough = done[0] + chance.randrange(50, 500)
            threads = [
                threading.Thread(target=work, args=(server, seed, stop, done)) for seed in seeds
            ]
            for thread in threads:
                thread.start()
            # A number of requests, not a time: independent of the speed of the machine.
            deadline = time.monotonic() + 20
            while done[0] < enough:
                assert time.monotonic() < deadline
                time.sleep(0.002)
            server.kill()
            stop.set()
            for thread in threads:
                thread.join()
            server.start()
            seen += check(server)
        assert seen > 0, "the load did nothing"
        # After all streams are deleted, the counters are zero.
        api = Api(server)
        for bucket in BUCKETS:
            for item in json.loads(api.get(f"/{bucket}/streams").body)["streams"]:
                api.request("DELETE", api.in_bucket(bucket, item["stream_id"]))
            assert json.loads(api.get(f"/{bucket}").body)["bytes"] == 0
        api.close()

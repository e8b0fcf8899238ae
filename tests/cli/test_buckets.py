"""`bucket`, `ls`, `snapshot` and `bootstrap`."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tailrace.cli.output import age, human_bytes
from tailrace.client import Client
from tests.cli.conftest import Run


def test_the_life_of_a_bucket(run: Run, bucket: str) -> None:
    assert run("bucket", "create", bucket).code == 4
    assert run("bucket", "create", bucket, "--exist-ok").code == 0
    assert "streams: 0" in run("bucket", "info", bucket).lines
    run("create", "s", "-b", bucket)
    assert json.loads(run("bucket", "info", bucket, "--json").out)["streams"] == 1
    full = run("bucket", "rm", bucket)
    assert (full.code, f"tailrace ls {bucket}" in full.err) == (4, True)
    run("rm", "s", "-b", bucket)
    assert run("bucket", "rm", bucket).code == 0
    gone = run("bucket", "info", bucket)
    assert (gone.code, gone.err.splitlines()[1]) == (
        3,
        f"hint: create it first: tailrace bucket create {bucket}",
    )


def test_a_stream_in_a_bucket_that_does_not_exist(run: Run) -> None:
    done = run("create", "s", "-b", "nowhere")
    assert (done.code, "hint: create it first: tailrace bucket create nowhere" in done.err) == (
        3,
        True,
    )


def test_ls_prints_names_a_table_or_objects(run: Run, bucket: str) -> None:
    for stream in ("b", "a é", "ab"):
        run("append", stream, "-b", bucket, "--create", "x" * 2000)
    run("close", "b", "-b", bucket)
    assert run("ls", bucket).lines == ["a é", "ab", "b"]
    assert run("ls", bucket, "--prefix", "a").lines == ["a é", "ab"]
    assert run("ls", bucket, "--after", "a é").lines == ["ab", "b"]
    objects = [json.loads(line) for line in run("ls", bucket, "--json").lines]
    assert [(item["stream_id"], item["closed"], item["size"]) for item in objects] == [
        ("a é", False, 2000),
        ("ab", False, 2000),
        ("b", True, 2000),
    ]
    title, *rows = run("ls", bucket, "-l").lines
    assert title.split() == ["NAME", "TYPE", "SIZE", "STATE", "LAST", "WRITE"]
    assert rows[2].split()[:5] == ["b", "text/plain", "2.0", "KiB", "closed"]
    assert {row.index("text/plain") for row in rows} == {title.index("TYPE")}


def test_ls_of_an_empty_bucket_prints_nothing(run: Run, bucket: str) -> None:
    assert run("ls", bucket, "-l").out == b""
    assert run("ls", "nowhere").code == 3


def test_control_characters_in_a_name_are_replaced(run: Run, client: Client, bucket: str) -> None:
    client.bucket(bucket).stream("a\x1b[31m\nb").create("text/plain")
    (_, row) = run("ls", bucket, "-l").lines
    assert row.startswith("a?[31m b")


@pytest.fixture
def counted(run: Run, bucket: str) -> tuple[str, str]:
    """A bucket with a stream of three messages, and the offset after the second."""
    run("create", "s", "-b", bucket, "--json")
    offset = run("append", "s", "-b", bucket, "1", "1", "--print-offset").text.strip()
    run("append", "s", "-b", bucket, "[1]")
    return bucket, offset


def test_put_and_get_a_snapshot(run: Run, counted: tuple[str, str], tmp_path: Path) -> None:
    bucket, offset = counted
    stream = ("s", "-b", bucket)
    missing = run("snapshot", "get", *stream)
    assert (missing.code, "tailrace snapshot put s" in missing.err) == (3, True)
    put = ("snapshot", "put", *stream, "-", "--offset", offset, "--type", "application/json")
    assert run(*put, stdin=b'{"sum": 2.0}').code == 0
    assert run("snapshot", "get", *stream).out == b'{"sum": 2.0}'
    found = run("snapshot", "get", *stream, "--json")
    assert json.loads(found.out) == {
        "offset": offset,
        "content_type": "application/json",
        "value": {"sum": 2},
    }
    file = tmp_path / "snapshot"
    assert run("snapshot", "get", *stream, "-o", str(file)).code == 0
    assert file.read_bytes() == b'{"sum": 2.0}'
    assert list(tmp_path.iterdir()) == [file]
    other = run(*put, stdin=b"3")
    assert (other.code, other.err.splitlines()[1]) == (4, "hint: publish at a later offset")


def test_bootstrap_prints_the_snapshot_and_later_messages(
    run: Run, counted: tuple[str, str]
) -> None:
    bucket, offset = counted
    stream = ("s", "-b", bucket)
    assert run("bootstrap", *stream).lines == ["1", "1", "[1]"]
    run("snapshot", "put", *stream, "-", "--offset", offset, "--type", "text/plain", stdin=b"two")
    assert run("bootstrap", *stream).lines == ["two", "[1]"]
    found = json.loads(run("bootstrap", *stream, "--json").out)
    assert found["snapshot"] == {"offset": offset, "content_type": "text/plain", "text": "two"}
    assert found["messages"] == [{"value": [1]}]
    assert run("tail", *stream, "--offset", found["next_offset"]).out == b""


def test_a_binary_snapshot_in_json(run: Run, counted: tuple[str, str]) -> None:
    bucket, offset = counted
    run("snapshot", "put", "s", "-b", bucket, "-", "--offset", offset, stdin=b"\xff\x00")
    found = json.loads(run("snapshot", "get", "s", "-b", bucket, "--json").out)
    assert base64.b64decode(found["base64"]) == b"\xff\x00"


def test_messages_that_a_snapshot_covers_cannot_be_read(run: Run, counted: tuple[str, str]) -> None:
    bucket, offset = counted
    stream = ("s", "-b", bucket)
    run("snapshot", "put", *stream, "-", "--offset", offset, stdin=b"2")
    first = "0000000000000001_0000000000000002"
    done = run("read", *stream, "--offset", first)
    assert done.code == 7
    assert f"tailrace bootstrap s -b {bucket}, or --offset {offset}" in done.err
    assert run("read", *stream).code == 7
    assert run("read", *stream, "--offset", offset).lines == ["[1]"]
    assert run("tail", *stream).lines == ["[1]"]


def test_snapshots_need_a_bucket(run: Run, name: str) -> None:
    run("create", name)
    for args in (("snapshot", "get", name), ("bootstrap", name)):
        done = run(*args)
        assert (done.code, "--bucket" in done.err) == (2, True)


def test_readable_sizes_and_ages() -> None:
    assert [human_bytes(size) for size in (0, 1023, 1536, 1 << 20, 5 << 40)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "1.0 MiB",
        "5.0 TiB",
    ]
    now = datetime(2030, 1, 1, tzinfo=UTC)
    ages = [age(int((now.timestamp() - ago) * 1000), now) for ago in (-5, 59, 60, 7200, 200_000)]
    assert ages == ["0s ago", "59s ago", "1m ago", "2h ago", "2d ago"]

"""`tailrace subscription`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tailrace.client import Client
from tests.cli.conftest import Run, Start


@pytest.fixture
def made(run: Run, bucket: str) -> str:
    """A bucket with a pull-wake subscription `s` to the streams `a` and `b`."""
    assert run("create", "wakes", "-b", bucket, "--type", "application/json").code == 0
    options = ("--stream", "a", "--stream", "b", "--wake-stream", "wakes", "--lease-ms", "5000")
    assert run("subscription", "create", "s", "-b", bucket, *options).code == 0
    return bucket


def test_the_life_of_a_subscription(run: Run, made: str) -> None:
    where = ("-b", made)
    again = ("--stream", "b", "--stream", "a", "--wake-stream", "wakes", "--lease-ms", "5000")
    assert run("subscription", "create", "s", *where, *again).code == 0
    other = run("subscription", "create", "s", *where, "--stream", "a", "--wake-stream", "wakes")
    assert (other.code, "another configuration" in other.err) == (4, True)
    run("subscription", "add", "s", "c", "d", *where)
    run("subscription", "remove", "s", "a", "d", *where)
    shown = json.loads(run("subscription", "show", "s", "--json", *where).out)
    assert [item["path"] for item in shown["streams"]] == ["b", "c"]
    assert shown["lease_ttl_ms"] == 5000
    lines = run("subscription", "show", "s", *where).lines
    assert {"id: s", "type: pull-wake", "wake_stream: wakes", "status: active"} <= set(lines)
    assert lines[-1].startswith("stream: c explicit ")
    title, row = run("subscription", "list", *where).lines
    assert (title.split()[0], row.split()[:2]) == ("ID", ["s", "pull-wake"])
    (listed,) = run("subscription", "list", "--json", *where).lines
    assert json.loads(listed)["id"] == "s"
    assert run("subscription", "delete", "s", *where).code == 0
    gone = run("subscription", "show", "s", *where)
    assert (gone.code, "s: no such subscription (404)" in gone.err) == (3, True)
    assert run("subscription", "list", *where).out == b""


def test_a_webhook_on_the_base_surface(run: Run, name: str) -> None:
    id_ = name.replace("/", "-")
    options = ("--pattern", f"{name}/*", "--webhook", "https://example.org/hook")
    assert run("subscription", "create", id_, *options).code == 0
    assert f"pattern: {name}/*" in run("subscription", "show", id_).lines
    bad = run(
        "subscription", "create", f"{id_}-2", "--pattern", "a", "--webhook", "http://10.1.1.1"
    )
    assert (bad.code, "webhook.url" in bad.err) == (1, True)
    assert run("subscription", "delete", id_).code == 0


@pytest.mark.parametrize(
    "options",
    [
        ("--pattern", "a"),
        ("--wake-stream", "w"),
        ("--pattern", "a", "--wake-stream", "w", "--webhook", "https://example.org"),
    ],
)
def test_usage_errors(run: Run, options: tuple[str, ...]) -> None:
    done = run("subscription", "create", "s", *options)
    assert (done.code, "give" in done.err) == (2, True)


def test_a_bucket_that_does_not_exist(run: Run) -> None:
    options = ("--pattern", "a", "--wake-stream", "w")
    done = run("subscription", "create", "s", "-b", "nowhere", *options)
    assert (done.code, "tailrace bucket create nowhere" in done.err) == (3, True)


def test_work_prints_and_acknowledges(run: Run, made: str) -> None:
    assert run("subscription", "work", "s", "--once", "-b", made).out == b""
    run("append", "a", "-b", made, "--create", "hello")
    (line,) = run("subscription", "work", "s", "--once", "-b", made).lines
    wake = json.loads(line)
    assert [item["path"] for item in wake["streams"]] == ["a"]
    assert run("subscription", "work", "s", "--once", "-b", made).out == b""
    shown = json.loads(run("subscription", "show", "s", "--json", "-b", made).out)
    cursors = {item["path"]: item["acked_offset"] for item in shown["streams"]}
    assert cursors["a"] == wake["streams"][0]["tail_offset"]


def test_work_runs_a_command_and_gives_back_what_it_fails(
    run: Run, made: str, tmp_path: Path
) -> None:
    run("append", "a", "-b", made, "--create", "hello")
    failed = run("subscription", "work", "s", "--once", "-b", made, "--exec", "exit 3")
    assert (failed.code, "the command ended with 3" in failed.err) == (1, True)
    file = tmp_path / "wake.json"
    done = run("subscription", "work", "s", "--once", "-b", made, "--exec", f"cat > {file}")
    assert done.code == 0, done.err
    assert json.loads(file.read_text())["generation"] == 2


def test_work_waits_until_it_is_interrupted(
    start: Start, run: Run, made: str, client: Client
) -> None:
    process = start("subscription", "work", "s", "-b", made)
    assert process.stdout is not None
    client.bucket(made).stream("b").create("text/plain", body=b"x")
    assert [item["path"] for item in json.loads(process.stdout.readline())["streams"]] == ["b"]
    client.bucket(made).stream("b").append(b"y", "text/plain")
    assert json.loads(process.stdout.readline())["generation"] == 2
    process.send_signal(2)
    assert process.wait(60) == 130

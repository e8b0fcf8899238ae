"""`create`, `append`, `close`, `rm` and `head`: what is stored, and what is rejected."""

from __future__ import annotations

import json
from pathlib import Path

from tailrace.client import Client
from tests.cli.conftest import Run


def stored(client: Client, name: str) -> bytes:
    return b"".join(chunk.data for chunk in client.stream(name).read())


def test_the_life_of_a_stream(run: Run, name: str) -> None:
    assert run("create", name, "--json", "--ttl", "3600").code == 0
    head = json.loads(run("head", name, "--json").out)
    assert (head["content_type"], head["closed"]) == ("application/json", False)
    assert 0 < head["ttl_s"] <= 3600
    assert run("append", name, "1", '"two"').code == 0
    assert run("close", name).code == 0
    assert "closed: true" in run("head", name).lines
    assert run("rm", name).code == 0
    assert run("head", name).code == 3


def test_a_successful_command_prints_nothing_to_a_pipe(run: Run, name: str) -> None:
    for args in (("create", name), ("append", name, "x"), ("close", name), ("rm", name)):
        done = run(*args)
        assert (done.code, done.out, done.err) == (0, b"", "")


def test_create_succeeds_for_an_equal_stream_only(run: Run, name: str) -> None:
    assert run("create", name).code == 0
    assert run("create", name, "--text").code == 0
    done = run("create", name, "--json")
    assert done.code == 4
    assert done.err.endswith(f"hint: see the existing stream: tailrace head {name}\n")


def test_a_stream_can_be_created_closed_and_with_an_expiry(run: Run, name: str) -> None:
    options = ("--type", "text/csv", "--closed", "--expires-at", "2100-01-01T00:00:00Z")
    assert run("create", name, *options).code == 0
    lines = run("head", name).lines
    assert "closed: true" in lines and "content_type: text/csv" in lines
    assert "expires_at: 2100-01-01T00:00:00Z" in lines


def test_options_that_exclude_each_other(run: Run) -> None:
    pairs = [("--json", "--text"), ("--type", "a/b", "--json"), ("--ttl", "1", "--expires-at", "x")]
    for options in pairs:
        done = run("create", "x", *options)
        assert done.code == 2
        assert done.err.startswith("tailrace: choose one of ")


def test_a_line_of_input_is_stored_unchanged(run: Run, name: str) -> None:
    """echo hello | tailrace append x; tailrace read x"""
    run("create", name)
    run("append", name, stdin="hello\n")
    assert run("read", name).out == b"hello\n"
    run("append", name, stdin="no end")
    assert run("read", name).out == b"hello\nno end"


def test_values_are_stored_unchanged(run: Run, client: Client, name: str) -> None:
    run("create", name)
    run("append", name, "Where ", "the ", "wåter", "--", "-n")
    assert stored(client, name) == "Where the wåter-n".encode()


def test_json_messages_keep_every_digit_and_their_form(run: Run, name: str) -> None:
    """An array is one message, and a number is not rounded."""
    values = ["[1, [2]]", "1.10", "1e400", "123456789012345678901234567890", '{"a":\t"é"}', "null"]
    run("create", name, "--json")
    assert run("append", name, *values).code == 0
    assert run("read", name).lines == values


def test_a_json_value_of_several_lines_is_one_message(run: Run, name: str, tmp_path: Path) -> None:
    run("create", name, "--json")
    file = tmp_path / "a.json"
    file.write_text('{\r\n  "a": [\n    1\n  ]\n}\n')
    assert run("append", name, "--file", str(file)).code == 0
    (line,) = run("read", name).lines
    assert json.loads(line) == {"a": [1]}


def test_no_value_is_sent_if_one_is_not_json(run: Run, name: str) -> None:
    run("create", name, "--json")
    for invalid in ("hello", "", "NaN", "{", "1 2", '{"a": 1,}'):
        done = run("append", name, "1", invalid)
        assert (done.code, run("read", name).out) == (1, b"")
        assert done.err.startswith("tailrace: value 2 is not JSON: ")


def test_lines_before_an_invalid_one_are_stored(run: Run, name: str) -> None:
    run("create", name, "--json")
    done = run("append", name, stdin='1\n\n{"b": 2}\noops\n4\n')
    assert done.code == 1
    first, hint = done.err.splitlines()
    assert first.startswith("tailrace: line 4 is not JSON: ")
    assert first.endswith("; stored before it: 2 messages")
    assert hint.startswith("hint: ")
    assert run("read", name).lines == ["1", '{"b": 2}']


def test_json_that_is_nested_too_deeply(run: Run, name: str) -> None:
    run("create", name, "--json")
    done = run("append", name, stdin="[" * 100_000)
    assert done.code == 1
    assert "nested too deeply" in done.err


def test_a_file_is_one_message(run: Run, client: Client, bucket: str, tmp_path: Path) -> None:
    """A bootstrap separates messages."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"\x00\n\xff")
    two.write_bytes(b"second\n")
    run("create", "s", "-b", bucket, "--type", "application/octet-stream")
    assert run("append", "s", "-b", bucket, "--file", str(one), "--file", str(two)).code == 0
    found = client.bucket(bucket).stream("s").bootstrap()
    assert found.messages == [one.read_bytes(), two.read_bytes()]


def test_append_creates_a_stream_only_with_create(run: Run, name: str) -> None:
    done = run("append", name, "x")
    assert (done.code, done.err.splitlines()[1]) == (
        3,
        f"hint: create it first: tailrace create {name}",
    )
    assert run("append", name, "--create", "--json", "1").code == 0
    assert run("append", name, "--create", "2").code == 0
    assert run("read", name).lines == ["1", "2"]


def test_append_with_json_needs_a_json_stream(run: Run, name: str) -> None:
    run("create", name)
    done = run("append", name, "--json", "1")
    assert (done.code, "is text/plain, not JSON" in done.err) == (4, True)


def test_append_and_close(run: Run, name: str) -> None:
    run("create", name)
    assert run("append", name, "last", "--close").code == 0
    done = run("append", name, "more")
    assert (done.code, run("read", name).out) == (4, b"last")
    assert "hint: a closed stream accepts no appends" in done.err


def test_append_nothing_and_close(run: Run, name: str) -> None:
    run("create", name)
    assert run("append", name, "--close", stdin="").code == 0
    assert "closed: true" in run("head", name).lines


def test_the_tail_after_an_append(run: Run, client: Client, name: str) -> None:
    run("create", name)
    first = run("append", name, "a", "--print-offset").text.strip()
    run("append", name, "b")
    assert run("read", name, "--offset", first).out == b"b"
    last = run("append", name, "c", "--close", "--print-offset").text.strip()
    assert last == client.stream(name).head().next_offset


def test_an_empty_message_is_rejected_before_anything_is_sent(run: Run, name: str) -> None:
    run("create", name)
    assert run("append", name, "a", "").code == 2
    assert run("read", name).out == b""


def test_each_run_of_a_producer_has_a_new_epoch(run: Run, name: str) -> None:
    """No message is taken for a duplicate, and an epoch that was used is rejected."""
    run("create", name)
    for _ in range(2):
        assert run("append", name, "x", "--producer", "job").code == 0
    assert run("read", name).out == b"xx"
    assert run("append", name, "x", "--producer", "job", "--epoch", "7").code == 0
    done = run("append", name, "x", "--producer", "job", "--epoch", "7")
    assert (done.code, "--epoch" in done.err) == (4, True)
    fenced = run("append", name, "x", "--producer", "job", "--epoch", "3")
    assert (fenced.code, "--epoch 8" in fenced.err) == (4, True)
    assert run("append", name, "x", "--epoch", "3").code == 2
    assert run("read", name).out == b"xxx"


def test_a_stream_by_its_url(run: Run, client: Client, name: str, bucket: str) -> None:
    elsewhere = "http://127.0.0.1:1"
    url = client.stream(name).url
    assert run("create", url, url=elsewhere).code == 0
    assert run("append", url, "x", url=elsewhere).code == 0
    assert run("read", name).out == b"x"
    in_bucket = client.bucket(bucket).stream("a b/c").url
    assert run("create", in_bucket, url=elsewhere).code == 1
    assert run("read", url, "-b", bucket).code == 2


def test_rm_deletes_several_streams(run: Run, bucket: str) -> None:
    for stream in "abc":
        run("create", stream, "-b", bucket)
    assert run("rm", "a", "c", "-b", bucket).code == 0
    assert run("ls", bucket).lines == ["b"]
    assert run("rm", "a", "b", "-b", bucket).code == 3


def test_half_a_surrogate_pair_is_json(run: Run, name: str) -> None:
    """It is stored and returned as it was sent."""
    run("create", name, "--json")
    assert run("append", name, "1", '"\\ud800"').code == 0
    assert run("read", name).lines == ["1", '"\\ud800"']


def test_the_unit_of_one_message_is_singular(run: Run, name: str) -> None:
    run("create", name, "--json")
    assert "; stored before it: 1 message\n" in run("append", name, stdin="1\noops\n").err


def test_rm_continues_after_a_stream_that_does_not_exist(run: Run, bucket: str) -> None:
    for stream in "ac":
        run("create", stream, "-b", bucket)
    done = run("rm", "a", "b", "c", "-b", bucket)
    assert (done.code, done.err) == (3, f"tailrace: {bucket}/b: no such stream (404)\n")
    assert run("ls", bucket).out == b""


def test_rm_without_a_server_lists_what_is_not_deleted(run: Run) -> None:
    done = run("rm", "a", "b", "--retries", "0", url="http://127.0.0.1:1")
    assert (done.code, "; not deleted: a, b\n" in done.err) == (5, True)


def test_a_fork_shares_the_content_of_its_source(run: Run, name: str) -> None:
    target = f"{name}-fork"
    assert run("create", name, "--json").code == 0
    assert run("append", name, "1", "2").code == 0
    assert run("fork", name, target).code == 0
    assert run("append", name, "3").code == 0
    assert run("append", target, "4").code == 0
    assert run("read", target).lines == ["1", "2", "4"]
    # The same fork again succeeds, another one does not.
    assert run("fork", name, target).code == 0
    other = run("fork", name, target, "--offset", "0" * 16 + "_" + "0" * 16)
    assert other.code == 4
    # The source is kept for its fork.
    assert run("rm", name).code == 0
    gone = run("read", name)
    assert gone.code == 3
    assert "kept" in gone.err or "forks" in gone.err
    assert run("head", name).code == 3
    assert run("read", target).lines == ["1", "2", "4"]


def test_a_fork_at_an_offset_and_a_sub_offset(run: Run, name: str) -> None:
    assert run("create", name).code == 0
    assert run("append", name, "hello").code == 0
    at = "0" * 16 + "_" + "0" * 16
    assert run("fork", name, f"{name}-2", "--offset", at, "--sub-offset", "4").code == 0
    assert run("read", f"{name}-2").out == b"hell"
    beyond = run("fork", name, f"{name}-3", "--offset", at, "--sub-offset", "9")
    assert beyond.code == 1
    assert "Stream-Fork-Sub-Offset" in beyond.err
    assert run("fork", name, f"{name}-3", "--sub-offset", "1").code == 2
    missing = run("fork", f"{name}-nothing", f"{name}-3")
    assert missing.code == 3
    assert "no such stream" in missing.err

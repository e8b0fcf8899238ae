"""Commands on a terminal: tables, questions, and how binary data is shown."""

from __future__ import annotations

import signal

import pytest

from tailrace.client import Client
from tests.cli.conftest import Run
from tests.cli.terminal import Terminal
from tests.support.server import ServerProcess


def test_ls_prints_a_table(server: ServerProcess, run: Run, bucket: str) -> None:
    run("create", "s", "-b", bucket, "--json")
    with Terminal(server.url, "ls", bucket) as terminal:
        assert terminal.finish() == 0
    title, row = terminal.seen.splitlines()
    assert title.split() == ["NAME", "TYPE", "SIZE", "STATE", "LAST", "WRITE"]
    assert row.split()[:5] == ["s", "application/json", "0", "B", "open"]


def test_the_result_is_printed(server: ServerProcess, name: str) -> None:
    with Terminal(server.url, "append", name, "--create", "a", "b") as terminal:
        assert terminal.finish() == 0
    assert terminal.seen.startswith(f"{name}: 2 messages appended, the tail is ")


def test_tail_follows_until_control_c(server: ServerProcess, client: Client, name: str) -> None:
    stream = client.stream(name)
    stream.create("text/plain")
    stream.append(b"one ", "text/plain")
    with Terminal(server.url, "tail", "-f", name) as terminal:
        terminal.wait_for("one ")
        stream.append(b"two", "text/plain")
        terminal.wait_for("two")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.finish() == 130
    assert "Traceback" not in terminal.seen


def test_the_prompt_begins_a_line(server: ServerProcess, run: Run, name: str) -> None:
    run("append", name, "--create", "no end")
    with Terminal(server.url, "read", name) as terminal:
        terminal.finish()
    assert terminal.seen == "no end\n"


def test_binary_data_is_not_printed(server: ServerProcess, client: Client, name: str) -> None:
    stream = client.stream(name)
    stream.create("application/octet-stream")
    stream.append(b"text so far\n")
    with Terminal(server.url, "read", name) as terminal:
        assert terminal.finish() == 0
    stream.append(b"\x00\x01")
    with Terminal(server.url, "read", name) as terminal:
        assert terminal.finish() == 2
    assert "the data is binary" in terminal.seen and "\x00" not in terminal.seen
    with Terminal(server.url, "read", name, "--force") as terminal:
        assert terminal.finish() == 0
    assert "\x00" in terminal.seen


@pytest.mark.slow
def test_binary_data_is_found_at_the_end(server: ServerProcess, client: Client, name: str) -> None:
    stream = client.stream(name)
    stream.create("application/octet-stream", body=b"x" * 900 + b"\x1b[2J")
    for args in (("read", name), ("export", name, "-")):
        with Terminal(server.url, *args) as terminal:
            assert terminal.finish() == 2
        assert "the data is binary" in terminal.seen and "\x1b" not in terminal.seen
        # `export` has no such option.
        assert ("--force" in terminal.seen) == (args[0] == "read")


def test_control_characters_in_text_are_made_visible(
    server: ServerProcess, client: Client, name: str
) -> None:
    stream = client.stream(name)
    text = "\x1b]0;pwned\x07\ta\x7f\u009b2Jé\n"
    stream.create("text/plain", body=text.encode())
    with Terminal(server.url, "read", name) as terminal:
        assert terminal.finish() == 0
    assert terminal.seen == "^[]0;pwned^G\ta^?M-^[2Jé\n"
    with Terminal(server.url, "read", name, "--force") as terminal:
        assert terminal.finish() == 0
    assert terminal.seen == text


@pytest.mark.slow
def test_a_control_character_in_two_chunks(
    server: ServerProcess, client: Client, name: str
) -> None:
    stream = client.stream(name)
    stream.create("text/plain", body=b"a\xc2")
    with Terminal(server.url, "tail", "-f", name) as terminal:
        terminal.wait_for("a")
        stream.append(b"\x9bm", "text/plain", close=True)
        assert terminal.finish() == 0
    assert terminal.seen == "aM-^[m\n"


@pytest.mark.slow
def test_control_characters_in_json_are_made_visible(
    server: ServerProcess, client: Client, name: str
) -> None:
    stream = client.stream(name)
    stream.create("application/json")
    stream.append('"\x7f\u009b"'.encode(), "application/json")
    with Terminal(server.url, "read", name) as terminal:
        assert terminal.finish() == 0
    assert terminal.seen == '"^?M-^["\n'


def test_a_pipe_gets_control_characters_unchanged(run: Run, name: str) -> None:
    text = b"\x1b]0;pwned\x07\x7f\xc2\x9b\xc2"
    run("append", name, "--create", stdin=text)
    assert run("read", name).out == text


def test_ls_reports_an_empty_bucket(server: ServerProcess, bucket: str) -> None:
    with Terminal(server.url, "ls", bucket) as terminal:
        assert terminal.finish() == 0
    assert terminal.seen == f"{bucket}: no streams\n"


@pytest.mark.slow
def test_the_prompt_begins_a_line_after_a_question(server: ServerProcess, name: str) -> None:
    with Terminal(server.url, "rm", name) as terminal:
        terminal.wait_for("[y/N]: ")
        terminal.enter("\x04")
        assert terminal.finish() == 130
    assert terminal.seen.endswith("[y/N]: \n")


def test_rm_asks_for_confirmation(server: ServerProcess, run: Run, name: str) -> None:
    run("create", name)
    with Terminal(server.url, "rm", name) as terminal:
        terminal.wait_for(f"Delete {name} permanently? [y/N]")
        terminal.enter("n\n")
        assert terminal.finish() == 1
    assert run("head", name).code == 0
    with Terminal(server.url, "rm", name) as terminal:
        terminal.wait_for("[y/N]")
        terminal.enter("y\n")
        assert terminal.finish() == 0
    assert run("head", name).code == 3


@pytest.mark.slow
def test_rm_with_yes_does_not_ask(server: ServerProcess, run: Run, name: str) -> None:
    run("create", name)
    with Terminal(server.url, "rm", name, "--yes") as terminal:
        assert terminal.finish() == 0
    assert run("head", name).code == 3


def test_append_reads_typed_lines(server: ServerProcess, run: Run, name: str) -> None:
    run("create", name)
    with Terminal(server.url, "append", name) as terminal:
        terminal.wait_for("end with Ctrl-D")
        terminal.enter("hello\n\x04")
        assert terminal.finish() == 0
    assert run("read", name).out == b"hello\n"

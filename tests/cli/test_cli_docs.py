"""
docs/cli.md has every command and option, and its examples print what it says.

Method: compare the page with the tree of commands, and run the examples in order against one
server.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tailrace.cli import main
from tailrace.exceptions import ExitCode
from tests.docs.test_docs import RUNNERS, doc, examples
from tests.support.server import ServerProcess

PAGE = "docs/cli.md"
SERVER_OPTIONS = {"--url", "--token", "-H", "--header", "--timeout", "--retries", "-h", "--help"}
STREAM_OPTIONS = {"-b", "--bucket"}
_OPTION = re.compile(r"(?<![\w-])--?[a-zA-Z][a-z-]*")


def commands(
    command: click.Command = main, words: tuple[str, ...] = ()
) -> Iterator[tuple[str, click.Command]]:
    """Every command that is not a group, by its words."""
    if not isinstance(command, click.Group):
        yield " ".join(words), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None
        yield from commands(below, (*words, name))


COMMANDS = dict(commands())


def options_of(command: click.Command) -> set[str]:
    context = click.Context(command, help_option_names=["-h", "--help"])
    found: set[str] = set()
    for item in command.get_params(context):
        if isinstance(item, click.Option):
            found |= {*item.opts, *item.secondary_opts}
    return found


def arguments_of(command: click.Command) -> list[str]:
    context = click.Context(command)
    items = [item for item in command.params if isinstance(item, click.Argument)]
    return [item.make_metavar(context) for item in items]


def sections() -> dict[str, str]:
    """The text below each heading."""
    _, *found = re.split(r"^## ", doc(PAGE), flags=re.MULTILINE)
    return dict(section.split("\n", 1) for section in found)


def options_in_tables(text: str) -> set[str]:
    rows = re.findall(r"^\| (`-.*?) \|", text, re.MULTILINE)
    return {option for row in rows for option in _OPTION.findall(row)}


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_is_documented_with_its_options(words: str) -> None:
    (heading,) = [each for each in sections() if re.match(rf"`tailrace {words}[ `]", each)]
    documented = options_in_tables(sections()[heading])
    if words == "serve":
        # Its options are the settings, which tests/docs checks.
        assert documented == set()
        return
    command = COMMANDS[words]
    assert documented == options_of(command) - SERVER_OPTIONS - STREAM_OPTIONS
    if words != "completion":
        wanted = ["`tailrace", *words.split(), *arguments_of(command)]
        assert heading == " ".join(wanted) + "`"


def test_shared_options_are_documented() -> None:
    shared = options_in_tables(sections()["Streams and servers"])
    assert shared == SERVER_OPTIONS | STREAM_OPTIONS
    assert shared <= options_of(COMMANDS["read"])


def test_the_page_has_no_option_or_command_that_does_not_exist() -> None:
    there = {"--version"}.union(*map(options_of, COMMANDS.values()))
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", doc(PAGE)))
    assert named <= there
    headings = [each for each in sections() if each.startswith("`tailrace")]
    assert len(headings) == len(COMMANDS)


def test_every_exit_code_is_documented() -> None:
    documented = re.findall(r"^\| (\d+) \|", sections()["Exit codes"], re.MULTILINE)
    assert [int(code) for code in documented] == list(ExitCode)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_example_prints_what_it_says(tmp_path: Path) -> None:
    blocks = examples(PAGE)
    programs = Path(sys.executable).parent
    with ServerProcess(tmp_path / "data") as server:
        environment = {
            **os.environ,
            "TAILRACE_URL": server.url,
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        }
        run = [index for index, (language, _) in enumerate(blocks) if language == "sh"]
        assert len(run) > 10
        for index in run:
            text = blocks[index][1]
            done = subprocess.run(
                [*RUNNERS["sh"], text],
                capture_output=True,
                text=True,
                timeout=60,
                cwd=tmp_path,
                env=environment,
            )
            assert (done.returncode, done.stderr) == (0, ""), text
            following = blocks[index + 1 :][:1]
            expected = following[0][1] if following and following[0][0] == "text" else ""
            # The age depends on the machine.
            printed = re.sub(r"\d+s ago", "0s ago", done.stdout)
            assert printed.strip() == expected.strip(), text

"""`tailrace token`: its output, and its changes to the access file."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import tomllib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner

from tailrace.cli import main
from tailrace.exceptions import ExitCode
from tailrace.server.guard.access import Access, Operation
from tailrace.server.guard.access.token_editor import add_token
from tailrace.server.message import Request
from tests.cli.conftest import COMMAND, Done

TOKEN = re.compile(r"trt_[a-z0-9]{10}_[A-Za-z0-9_-]{43}")

Token = Callable[..., Done]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "access.toml"


@pytest.fixture
def token(file: Path) -> Token:
    """Run `tailrace token` on the file; it needs no server."""

    def run(*args: str) -> Done:
        result = CliRunner().invoke(main, ["token", *args, "--file", str(file)])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Done(result.exit_code, result.stdout_bytes, result.stderr)

    return run


def made(done: Done) -> str:
    assert done.code == ExitCode.DONE, done.err
    (text,) = done.lines
    assert TOKEN.fullmatch(text)
    return text


def asked(text: str) -> Request:
    return Request("GET", b"/", b"", {b"authorization": b"Bearer " + text.encode()}, b"")


def test_a_new_token_works_and_is_not_stored(token: Token, file: Path) -> None:
    done = token(
        "new", "--name", "chat backend", "--grant", "read,append:/chat-rooms",
        "--grant", "create:/chat-rooms/user-*", "--expires", "30d",
    )  # fmt: skip
    text = made(done)
    principal = Access(file).identify(asked(text))
    assert principal.may(Operation.APPEND, b"chat-rooms\0a")
    assert principal.may(Operation.CREATE, b"chat-rooms\0user-1")
    assert not principal.may(Operation.DELETE, b"chat-rooms\0a")
    assert principal.expires_at is not None
    secret = text.split("_", 2)[2]
    assert secret not in file.read_text()
    # Standard error says what to do next, and can be shown to anybody.
    assert secret not in done.err
    assert "reload" in done.err and "curl" in done.err
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_tokens_are_listed_without_secrets(token: Token) -> None:
    first = made(token("new", "--name", "a b", "--grant", "read:/chat-rooms"))
    made(token("new", "--name", "ends", "--grant", "*:/", "--expires", "2100-01-31"))
    lines = token("list").lines
    assert lines[0].split() == ["ID", "NAME", "GRANTS", "CREATED", "EXPIRES"]
    assert re.fullmatch(r"\w+  a b   read:/chat-rooms  \d{4}-\d\d-\d\d  never", lines[1])
    assert lines[2].endswith("2100-01-31")
    found = [json.loads(line) for line in token("list", "--json").lines]
    assert found[0]["id"] == first.split("_")[1]
    assert found[0] | {"id": "", "created": ""} == {
        "id": "", "name": "a b", "grants": ["read:/chat-rooms"], "created": "", "expires": None,
        "expired": False,
    }  # fmt: skip
    assert found[1]["expires"] == "2100-01-31T00:00:00Z"


def test_an_expired_token_is_listed_as_such(token: Token, file: Path) -> None:
    made(token("new", "--name", "a", "--grant", "read:/"))
    file.write_text(file.read_text() + "expires = 2020-01-01\n")
    assert token("list").lines[1].endswith("expired")
    assert json.loads(token("list", "--json").text)["expired"] is True


def test_revoke_removes_one_token_only(token: Token, file: Path) -> None:
    texts = [made(token("new", "--name", name, "--grant", "read:/")) for name in "abc"]
    access = Access(file)
    assert token("revoke", texts[1].split("_")[1]).code == ExitCode.DONE
    access.reload()
    assert [line.split()[1] for line in token("list").lines[1:]] == ["a", "c"]
    for text in (texts[0], texts[2]):
        assert access.identify(asked(text)).id == "token:" + text.split("_")[1]
    done = token("revoke", texts[1].split("_")[1])
    assert done.code == ExitCode.NOT_FOUND
    assert "no token has the id" in done.err
    for text in (texts[0], texts[2]):
        assert token("revoke", text.split("_")[1]).code == ExitCode.DONE
    assert token("list").lines == []
    made(token("new", "--name", "again", "--grant", "read:/"))


def test_other_contents_of_the_file_are_kept(token: Token, file: Path) -> None:
    """Comments, other tables and their order, and the mode of the file."""
    by_hand = f"""\
# Ours.

[[token]]  # of the old days
id = "byhand"  # keep
hash = "sha256:{"0" * 64}"
grants = [
    "read:/chat-rooms",  # for the page
]

[anonymous]
grants = ["read:/public-feeds"]  # anybody

# The end, without the end of a line"""
    file.write_text(by_hand)
    file.chmod(0o640)
    text = made(token("new", "--name", 'a "quoted"\nname', "--grant", "read:/"))
    assert file.read_text().startswith(by_hand + "\n")
    assert tomllib.loads(file.read_text())["token"][1]["name"] == 'a "quoted"\nname'
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert token("revoke", text.split("_")[1]).code == ExitCode.DONE
    assert tomllib.loads(file.read_text()) == tomllib.loads(by_hand)
    for comment in re.findall(r"#.*", by_hand):
        assert comment in file.read_text()
    assert token("revoke", "byhand").code == ExitCode.DONE
    assert list(tomllib.loads(file.read_text())) == ["anonymous"]
    assert "# anybody" in file.read_text()


def test_a_symbolic_link_stays(token: Token, file: Path, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere.toml"
    target.write_text("# here\n")
    file.symlink_to(target)
    made(token("new", "--name", "a", "--grant", "read:/"))
    assert file.is_symlink()
    assert "[[token]]" in target.read_text()


def test_revoke_does_not_read_keys_of_jwts(token: Token, file: Path) -> None:
    """The command may not have permission to read them."""
    file.write_text('[jwt]\nissuer = "a"\naudience = "b"\njwks = "/nowhere/keys.json"\n')
    text = made(token("new", "--name", "a", "--grant", "read:/"))
    assert token("revoke", text.split("_")[1]).code == ExitCode.DONE


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--name", "a"], "--grant"),
        (["--grant", "read:/"], "--name"),
        (["--name", "a", "--grant", "write:/chat-rooms"], "'write' is not a list of operations"),
        (["--name", "a", "--grant", "read:/*"], "/ alone is everything"),
        (["--name", "a", "--grant", "read:/", "--expires", "soon"], "'soon'"),
        (["--name", "a", "--grant", "read:/", "--expires", "2020-01-01"], "is in the past"),
        (["--name", "a", "--grant", "read:/", "--expires", "0d"], "is in the past"),
        (["--name", "a", "--grant", "read:/", "--expires", "999999w"], "'999999w'"),
    ],
)
def test_an_invalid_call_creates_no_file(
    token: Token, file: Path, args: list[str], said: str
) -> None:
    done = token("new", *args)
    assert done.code == ExitCode.USAGE
    assert said in done.err
    assert not file.exists()


def test_an_invalid_file_is_not_changed(token: Token, file: Path) -> None:
    file.write_text("[[token]]\nid = 1\n")
    for args in (["new", "--name", "a", "--grant", "read:/"], ["list"], ["revoke", "abcd"]):
        done = token(*args)
        assert done.code == ExitCode.FAILED
        assert "[[token]] number 1: id" in done.err
    assert file.read_text() == "[[token]]\nid = 1\n"


def test_list_and_revoke_need_a_file(token: Token, file: Path) -> None:
    for args in (["list"], ["revoke", "abcd"]):
        done = token(*args)
        assert done.code == ExitCode.FAILED
        assert "tailrace token new" in done.err
    assert not file.exists()


def test_concurrent_changes_are_all_stored(file: Path) -> None:
    """File locks apply between threads as well, because each opens the file itself."""
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: add_token(file, "a", ["read:/"]), range(40)))
    access = Access(file)
    assert len({access.identify(asked(text)).id for _, text in made}) == 40
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_the_servers_variable_selects_the_file(file: Path) -> None:
    environment = {**os.environ, "TAILRACE_ACCESS": str(file)}
    args = [*COMMAND, "token", "new", "--name", "a", "--grant", "read:/"]
    done = subprocess.run(args, capture_output=True, text=True, env=environment, timeout=60)
    assert Access(file).identify(asked(done.stdout.strip())).id.startswith("token:")


def test_tokens_do_not_load_cryptography() -> None:
    """Nor does a server without JWTs: the libraries are slow to load."""
    check = (
        "import sys; import tailrace.server.guard.access.token_editor; "
        "sys.exit('cryptography' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", check], check=True, timeout=60)

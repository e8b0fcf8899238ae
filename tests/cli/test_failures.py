"""How commands fail: an exit code, one line, an optional hint, and no stack trace."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tailrace.client import Client
from tailrace.exceptions import ExitCode
from tests.cli.conftest import Run

DRIVER = "tailrace.client.sync.driver._Exchange"
NOWHERE = "http://127.0.0.1:1"


@pytest.fixture
def responding() -> Iterator[Callable[..., str]]:
    """The URL of a server that sends the same response to every request."""
    servers: list[ThreadingHTTPServer] = []

    def start(status: int, headers: dict[str, str] | None = None, body: bytes = b"") -> str:
        class Handler(BaseHTTPRequestHandler):
            def handle_any(self) -> None:
                self.rfile.read(int(self.headers.get("content-length", 0)))
                self.send_response(status)
                for name, value in (headers or {}).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any

            def log_message(self, *args: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


CODES = [
    (400, ExitCode.FAILED),
    (401, ExitCode.UNAUTHORIZED),
    (403, ExitCode.UNAUTHORIZED),
    (404, ExitCode.NOT_FOUND),
    (409, ExitCode.CONFLICT),
    (410, ExitCode.GONE),
    (413, ExitCode.FAILED),
    (429, ExitCode.FAILED),
    (500, ExitCode.FAILED),
    (507, ExitCode.FAILED),
]


def test_each_status_has_its_exit_code(run: Run, responding: Callable[..., str]) -> None:
    for status, code in CODES:
        done = run(
            "close", "x", "--retries", "0", url=responding(status, body=b"no\x1b[2J\nand no")
        )
        assert done.code == code
        first, *hints = done.err.splitlines()
        assert first == f"tailrace: x: no?[2J and no ({status})"
        assert len(hints) < 2 and all(hint.startswith("hint: ") for hint in hints)


def test_a_401_has_a_hint_about_tokens(run: Run, responding: Callable[..., str]) -> None:
    done = run("head", "x", url=responding(401))
    assert (done.code, "--token" in done.err) == (6, True)


def test_a_server_of_another_kind_has_a_hint_about_the_url(
    run: Run, responding: Callable[..., str]
) -> None:
    done = run("head", "x", url=responding(200, body=b"<html>"))
    assert (done.code, "hint: is this the URL" in done.err) == (1, True)


def test_a_long_retry_after_is_not_waited_for(
    run: Run, responding: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(f"{DRIVER}.wait", lambda _, seconds: pauses.append(seconds))
    done = run("head", "x", url=responding(503, {"Retry-After": "1000"}))
    assert done.code == ExitCode.FAILED
    assert len(pauses) == 4 and max(pauses) <= 1.0


COMMANDS = [
    ("create", "x"),
    ("append", "x", "1"),
    ("read", "x"),
    ("tail", "-f", "x"),
    ("head", "x"),
    ("close", "x"),
    ("rm", "x"),
    ("ls", "buck"),
    ("bucket", "create", "buck"),
    ("bucket", "info", "buck"),
    ("bucket", "rm", "buck"),
    ("snapshot", "get", "x", "-b", "buck"),
    ("snapshot", "put", "x", "-b", "buck", "--offset", "0", "-"),
    ("bootstrap", "x", "-b", "buck"),
    ("import", "-", "x"),
    ("export", "x", "-"),
]


def test_without_a_server_every_command_says_so(run: Run) -> None:
    for args in COMMANDS:
        done = run(*args, "--retries", "0", url=NOWHERE)
        assert (done.code, done.out) == (5, b"")
        first, hint = done.err.splitlines()
        assert first.startswith(f"tailrace: cannot reach {NOWHERE}/")
        assert hint == "hint: is the server running? start one with: tailrace serve"


INVALID = [
    ("nothing",),
    ("read",),
    ("read", ""),
    ("read", "x", "--nothing"),
    ("read", "x", "--url", "localhost:4437"),
    ("read", "x", "--url", "http://host:port"),
    ("read", "http://"),
    ("read", "x", "--header", "no colon"),
    ("read", "x", "--header", "a: b\nc: d"),
    ("read", "x", "--timeout", "0"),
    ("tail", "x", "-n", "-1"),
    ("import", "file"),
    ("snapshot", "put", "x", "-b", "buck", "-"),
    ("completion", "cmd"),
    ("read", "\udcff"),
    ("rm", "\udcff"),
    ("import", "-", "\udcff"),
    ("read", "x", "-b", "\udcff"),
    ("read", "x", "-b", "a b"),
    ("bucket", "create", "v1"),
    ("bucket", "create", ""),
    ("ls", "buck", "--prefix", "\udcff"),
    ("ls", "buck", "--after", "\udcff"),
    ("read", "x", "--offset", "\udcff"),
    ("create", "x", "--type", "\udcff"),
    ("create", "x", "--type", "a/b\nc: d"),
    ("create", "x", "--type", "日"),
    ("create", "x", "--type", ""),
    ("append", "x", "1", "--producer", "\udcff"),
    ("append", "x", "1", "--producer", ""),
    ("append", "x", "1", "--producer", "p", "--epoch", str(2**53)),
    ("read", "x", "--timeout", "nan"),
    ("read", "x", "--timeout", "inf"),
    ("read", "x", "--timeout", "1e300"),
    ("demo", "--pause", "nan"),
    ("read", "x", "--url", "\udcff"),
    ("read", "x", "--url", "http://a b/"),
    ("read", "x", "--url", "http://.../"),
    ("read", "x", "--url", f"http://{'a' * 80}/"),
    ("read", "x", "--url", "http://host/ä"),
    ("read", "x", "--url", "http://host/?a=b"),
    ("read", "x", "--url", "http://host/#a"),
    ("read", "HTTP://..."),
    ("read", "http://host/x?a=b"),
    ("read", "x", "-H", "content-length: 1"),
    ("read", "x", "-H", "Host: a"),
]


def test_an_invalid_call_is_reported_in_one_line(run: Run) -> None:
    for args in INVALID:
        done = run(*args)
        assert (done.code, done.out) == (2, b"")
        first, hint = done.err.splitlines()
        assert first.startswith("tailrace: ")
        assert hint.startswith("hint: tailrace ") and hint.endswith("--help")


def test_a_group_without_a_command_prints_its_help(run: Run) -> None:
    done = run("snapshot")
    assert (done.code, "Usage: tailrace snapshot" in done.err) == (2, True)


def test_an_invalid_setting(run: Run) -> None:
    done = run("serve", "--port", "x")
    assert (done.code, done.err) == (2, "tailrace: --port must be a whole number, not 'x'\n")


def test_a_password_is_not_repeated(run: Run) -> None:
    for url in ("http://me:secret@host/", "http://me:secret@host:port/"):
        for args in (("read", "x", "--url", url), ("read", url)):
            done = run(*args)
            assert (done.code, "secret" in done.err) == (2, False)


def test_a_value_that_begins_with_a_dash_has_a_hint(run: Run) -> None:
    done = run("append", "x", "-5")
    assert (done.code, "after --" in done.err) == (2, True)


def test_the_scheme_of_a_url_may_be_in_capitals(run: Run, name: str, client: Client) -> None:
    run("append", name, "--create", "x")
    url = client.stream(name).url.replace("http:", "HTTP:")
    assert run("read", url, url=NOWHERE).out == b"x"


def test_the_reason_is_printed_although_responses_to_head_have_none(run: Run) -> None:
    done = run("read", "a//b")
    assert (done.code, "must not have an empty segment" in done.err) == (1, True)


def test_a_refusal_without_a_reason(run: Run, responding: Callable[..., str]) -> None:
    assert run("head", "x", url=responding(400)).err == "tailrace: x: the server refused it (400)\n"


def test_the_target_of_a_redirect_is_printed(run: Run, responding: Callable[..., str]) -> None:
    done = run("head", "x", url=responding(302, {"Location": "https://there/x"}))
    assert (done.code, "https://there/x" in done.err) == (1, True)


def test_bootstrap_gives_up_as_soon_as_other_commands(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nested retries would be twenty-five attempts."""
    pauses: list[float] = []
    monkeypatch.setattr(f"{DRIVER}.wait", lambda _, seconds: pauses.append(seconds))
    assert run("bootstrap", "x", "-b", "buck", url=NOWHERE).code == 5
    assert len(pauses) == 4

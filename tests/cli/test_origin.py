"""TAILRACE_TOKEN is sent to the server at --url, and to no other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.cli.conftest import Run

TOKEN = "not-for-everybody"
BEARER = f"Bearer {TOKEN}"
NOTICE = "TAILRACE_TOKEN is for "


class Listener:
    """A server that records the Authorization headers that it gets."""

    def __init__(self) -> None:
        heard: list[str | None] = []

        class Handler(BaseHTTPRequestHandler):
            def do_DELETE(self) -> None:
                heard.append(self.headers.get("authorization"))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *args: object) -> None:
                pass

        self.heard = heard
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,)).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_TOKEN", TOKEN)


@pytest.mark.parametrize(
    "home", ["http://127.0.0.1:9", "https://127.0.0.1:{port}", "http://localhost:{port}"]
)
def test_another_origin_does_not_get_the_token(run: Run, listener: Listener, home: str) -> None:
    home = home.format(port=listener.port)
    done = run("rm", "--yes", f"{listener.url}/v1/stream/x", url=home)
    assert (done.code, listener.heard) == (0, [None])
    (line,) = done.err.splitlines()
    assert line.startswith(f"tailrace: {NOTICE}{home} ") and "--token" in line
    assert TOKEN not in line


def test_the_notice_is_printed_once_for_many_paths(run: Run, listener: Listener) -> None:
    paths = [f"{listener.url}/v1/stream/{name}" for name in "abc"]
    done = run("rm", "--yes", *paths, url="http://127.0.0.1:9")
    assert (done.code, listener.heard) == (0, [None] * 3)
    assert done.err.count(NOTICE) == 1


@pytest.mark.parametrize("path", ["x", "{url}/v1/stream/x", "HTTP://127.0.0.1:{port}/v1/stream/x"])
def test_the_server_at_url_gets_the_token(run: Run, listener: Listener, path: str) -> None:
    where = path.format(url=listener.url, port=listener.port)
    done = run("rm", "--yes", where, url=listener.url)
    assert (done.code, listener.heard, done.err) == (0, [BEARER], "")


@pytest.mark.parametrize("option", [("--token", "mine"), ("-H", "authorization: Bearer mine")])
def test_options_are_sent_to_any_server(
    run: Run, listener: Listener, option: tuple[str, str]
) -> None:
    done = run("rm", "--yes", *option, f"{listener.url}/v1/stream/x", url="http://127.0.0.1:9")
    assert (done.code, listener.heard, done.err) == (0, ["Bearer mine"], "")

"""
Screenshots of the web page for the documentation: `python -m tools.screenshots`.

Starts a server with sample streams and a browser, and writes to docs/images/.
"""

import json
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import Browser, Page

from tests.support.http import Connection
from tests.support.server import REPO_ROOT, ServerProcess
from tests.ui.browser import find_chromium, open_browser

IMAGES = REPO_ROOT / "docs" / "images"
DESKTOP = (1280, 860)
PHONE = (360, 740)
WORDS = ("harbour", "lantern", "meadow", "orchard", "pebble", "river", "thicket", "willow")


def main() -> None:
    """Fill a server and take the screenshots."""
    executable = find_chromium()
    if executable is None:
        raise SystemExit("no Chromium found: install one, such as Debian's package chromium")
    IMAGES.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as directory,
        ServerProcess(Path(directory), "--engine", "rocksdb") as server,
        Connection("127.0.0.1", server.port) as connection,
        open_browser(executable) as browser,
    ):
        _fill(connection)
        base = f"{server.url}/-/ui/"
        _take(browser, f"{base}#/b/agents/session-2041", "ui-stream-light", "light", DESKTOP)
        _take(browser, f"{base}#/b/agents/session-2041", "ui-stream-dark", "dark", DESKTOP)
        _take(browser, f"{base}#/b/agents", "ui-streams-light", "light", DESKTOP)
        _take(browser, f"{base}#/b/agents/session-2041", "ui-stream-phone", "light", PHONE)
        _take(browser, f"{base}#/b/agents", "ui-streams-phone", "dark", PHONE)
        _dashboard(browser, connection, f"{base}#/dashboard")


def _put(connection: Connection, path: str, content_type: str, body: bytes, **more: str) -> None:
    headers = {"Content-Type": content_type, **{k.replace("_", "-"): v for k, v in more.items()}}
    response = connection.request("PUT", path, headers, body)
    assert response.status in (201, 204), response.body


def _fill(connection: Connection) -> None:
    for bucket, streams in (("agents", 60), ("chat-rooms", 12), ("sensors", 34), ("audit-log", 3)):
        _put(connection, f"/{bucket}", "text/plain", b"")
        for at in range(streams):
            word = WORDS[at % len(WORDS)]
            kind = ("application/json", "text/plain", "application/octet-stream")[at % 3]
            body = b'[{"at":%d}]' % at if at % 3 == 0 else word.encode() * (at % 9 + 1)
            life = {"Stream_TTL": "86400"} if at % 4 == 0 else {}
            closed = {"Stream_Closed": "true"} if at % 7 == 3 else {}
            _put(connection, f"/{bucket}/{word}-{at:03d}", kind, body, **life, **closed)
    path = "/agents/session-2041"
    _put(connection, path, "application/json", b"", Stream_TTL="7200")
    for at in range(64):
        message = {
            "id": 9007199254740993 + at,
            "role": ("user", "assistant", "tool")[at % 3],
            "text": f"The {WORDS[at % 8]} is {WORDS[(at * 3 + 1) % 8]}-shaped.",
            "tokens": at * 7 + 3,
            "done": at % 3 == 2,
        }
        producer = {"Producer-Id": f"worker-{at % 3}", "Producer-Epoch": "1"}
        headers = {"Content-Type": "application/json", "Producer-Seq": str(at // 3), **producer}
        response = connection.request("POST", path, headers, json.dumps(message).encode())
        assert response.status == 200, response.body
    tail = connection.request("HEAD", path).headers["stream-next-offset"]
    assert tail
    places = {"places": [{"bucket": "agents", "stream": "session-2041", "message": 12}]}
    response = connection.request("POST", "/-/offsets", {}, json.dumps(places).encode())
    offset = json.loads(response.body)["places"][0]["offset"]
    _put(connection, f"{path}/snapshot/{quote(offset)}", "application/json", b'{"turns":12}')


def _open(browser: Browser, url: str, scheme: str, size: tuple[int, int]) -> Page:
    context = browser.new_context(
        color_scheme="dark" if scheme == "dark" else "light",
        viewport={"width": size[0], "height": size[1]},
        reduced_motion="reduce",
    )
    page = context.new_page()
    page.goto(url)
    return page


def _take(browser: Browser, url: str, name: str, scheme: str, size: tuple[int, int]) -> None:
    page = _open(browser, url, scheme, size)
    page.wait_for_selector(".messages [data-number], .streams a")
    page.wait_for_function("!document.querySelector('.pill.busy')")
    page.screenshot(path=IMAGES / f"{name}.png", full_page=size == PHONE and "stream-" in name)
    page.context.close()


def _dashboard(browser: Browser, connection: Connection, url: str) -> None:
    """Take the dashboard while appends run, so that its charts have data."""
    page = _open(browser, url, "dark", DESKTOP)
    readers: list[Connection] = []
    until = time.monotonic() + 45
    at = 0
    while time.monotonic() < until:
        at += 1
        if at % 40 == 1 and len(readers) < 12:
            readers.append(Connection("127.0.0.1", int(connection.host_header.split(":")[1])))
            target = "/sensors/harbour-000?offset=now&live=sse"
            readers[-1].send(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        for _ in range(20 + at % 30):
            body = json.dumps({"at": at, "pad": "x" * (at % 400)}).encode()
            headers = {"Content-Type": "application/json"}
            connection.request("POST", "/agents/session-2041", headers, body)
        # Playwright handles the browser's events while it waits.
        page.wait_for_timeout(60)
    page.screenshot(path=IMAGES / "ui-dashboard-dark.png")
    for reader in readers:
        reader.close()
    page.context.close()


if __name__ == "__main__":
    main()

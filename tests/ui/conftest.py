"""
A browser and a server per test module, and a page per test.

Not per session: while Playwright is open its event loop counts as running in this thread, and tests
of other directories start their own loops.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.support.server import BaseServerProcess, ServerProcess
from tests.support.streams import Api
from tests.ui.browser import Watched, find_chromium, open_browser, watch

TIMEOUT_MS = 60_000
SIZE = {"width": 1200, "height": 900}

_names = itertools.count()


def part(text: str) -> str:
    return quote(text, safe="")


class Ui:
    """A page in the browser, and the server behind it."""

    def __init__(self, watched: Watched, server: BaseServerProcess) -> None:
        self.watched = watched
        self.page: Page = watched.page
        self.server = server
        self.api = Api(server)

    def open(self, address: str = "#/") -> Page:
        self.page.goto(f"{self.server.url}/-/ui/{address}")
        return self.page

    def button(self, name: str, within: Page | Locator | None = None) -> Locator:
        return (within or self.page).get_by_role("button", name=name, exact=True)

    def messages(self) -> Locator:
        return self.page.locator(".messages [data-number]")

    def dialog(self) -> Locator:
        return self.page.locator("dialog[open]")

    # What other clients do.

    def bucket(self) -> str:
        name = f"bucket-{next(_names):03d}"
        assert self.api.request("PUT", f"{self.server.base_path}/{name}").status == 201
        return name

    def stream(
        self,
        bucket: str,
        stream_id: str = "s",
        content_type: str = "application/json",
        body: bytes | None = None,
        **headers: str,
    ) -> str:
        """Create a stream; returns its address in the page."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        self.api.create(content_type, body, sent, self.api.in_bucket(bucket, part(stream_id)))
        return f"#/b/{bucket}/{part(stream_id)}"

    def append(
        self, bucket: str, value: Any, stream_id: str = "s", content_type: str = "application/json"
    ) -> None:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        path = self.api.in_bucket(bucket, part(stream_id))
        self.api.append(path, body, content_type=content_type)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    executable = find_chromium()
    if executable is None:
        pytest.skip(
            "no Chromium: install it (on Debian: apt-get install chromium) to test the web page"
        )
    expect.set_options(timeout=TIMEOUT_MS)
    with open_browser(executable) as opened:
        yield opened


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("ui"), "--engine", "memory") as started:
        yield started


OpenUi = Callable[..., Ui]


@pytest.fixture
def open_ui(browser: Browser) -> Iterator[OpenUi]:
    """Open pages on any server with any context options; their problems are checked at the end."""
    opened: list[Ui] = []

    def open_page(server: BaseServerProcess, **options: Any) -> Ui:
        context = browser.new_context(**{"viewport": SIZE, **options})
        context.set_default_timeout(TIMEOUT_MS)
        opened.append(Ui(watch(context, server.url), server))
        return opened[-1]

    yield open_page
    for ui in opened:
        ui.api.close()
    for ui in opened:
        with ui.page.context:
            ui.watched.check()


@pytest.fixture
def ui(open_ui: OpenUi, server: ServerProcess) -> Ui:
    return open_ui(server)

"""A browser's own `EventSource` follows a stream through restarts of the server."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.support.server import ServerProcess
from tests.support.streams import Api
from tests.ui.conftest import TIMEOUT_MS

_FOLLOW = """
(url) => {
  window.seen = [];
  window.offsets = [];
  window.source = new EventSource(url);
  source.addEventListener("data", (event) => seen.push(event.data));
  source.addEventListener("control", (event) => offsets.push(event.lastEventId));
}
"""


def wait_for(page: Page, count: int) -> list[str]:
    page.wait_for_function("(count) => seen.length >= count", arg=count, timeout=TIMEOUT_MS)
    found: list[str] = page.evaluate("seen")
    return found


# A browser waits for seconds before it reconnects.
@pytest.mark.slow
@pytest.mark.parametrize("offset", ["-1", "now"])
def test_it_repeats_and_loses_nothing(browser: Browser, tmp_path: Path, offset: str) -> None:
    """The URL stays that of the first request: only `Last-Event-ID` tells where to continue."""
    with ServerProcess(tmp_path) as server, browser.new_context() as context:
        api = Api(server)
        path = api.create()
        page = context.new_page()
        page.goto(f"{server.url}/-/health")
        page.evaluate(_FOLLOW, f"{path}?offset={offset}&live=sse")
        page.wait_for_function("offsets.length > 0", timeout=TIMEOUT_MS)
        texts = ["one", "zwei €"]
        for text in texts:
            api.append(path, text.encode())
        assert wait_for(page, 2) == texts
        for restart in (server.restart, server.restart):
            api.close()
            restart()
            texts.append(f"after restart {len(texts)}")
            api.append(path, texts[-1].encode())
            assert wait_for(page, len(texts)) == texts
        tail = api.append(path, b"last")
        assert wait_for(page, 5) == [*texts, "last"]
        page.wait_for_function("(tail) => offsets.at(-1) === tail", arg=tail, timeout=TIMEOUT_MS)
        page.evaluate("source.close()")
        api.close()

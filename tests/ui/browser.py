"""Debian's Chromium, driven by Playwright, and everything that a page did that it should not."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage",
]  # fmt: skip

# Runs before any script of the page: what its policy stopped is counted.
_WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation",
  (event) => window.violations.push(`${event.violatedDirective} ${event.blockedURI}`));
"""


def find_chromium() -> str | None:
    """The browser of this machine, if it has one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@contextmanager
def open_browser(executable: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        yield browser
        browser.close()


@dataclass
class Watched:
    """A page, and what it did beside what it was asked to."""

    page: Page
    origin: str
    trouble: list[str] = field(default_factory=list)
    expected: tuple[str, ...] = ()
    """Beginnings of what may happen: a refused request shows in the console, and must."""

    def check(self) -> None:
        """No error, no dialog, no request to elsewhere, nothing that the policy had to stop."""
        stopped = self.page.evaluate("window.violations ?? []")
        found = [*self.trouble, *(f"policy: {item}" for item in stopped)]
        unexpected = [item for item in found if not item.startswith(self.expected or ("\0",))]
        assert not unexpected, unexpected


def watch(context: BrowserContext, url: str) -> Watched:
    """A new page that is looked after."""
    context.add_init_script(_WATCH)
    page = context.new_page()
    parts = urlsplit(url)
    watched = Watched(page, f"{parts.scheme}://{parts.netloc}")

    def dismissed(dialog: object) -> None:
        watched.trouble.append(f"dialog: {dialog}")
        dialog.dismiss()  # type: ignore[attr-defined]

    page.on("dialog", dismissed)
    page.on("pageerror", lambda error: watched.trouble.append(f"error: {error}"))
    page.on(
        "console",
        lambda line: (
            watched.trouble.append(f"console: {line.text}")
            if line.type in ("error", "warning")
            else None
        ),
    )
    page.on(
        "request",
        lambda request: (
            None
            if request.url.startswith(watched.origin + "/")
            else watched.trouble.append(f"request: {request.url}")
        ),
    )
    return watched

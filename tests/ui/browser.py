"""The system's Chromium, driven by Playwright, and a record of what a page must not do."""

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

# Runs before any script of the page, and records what its policy blocked.
_WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation",
  (event) => window.violations.push(`${event.violatedDirective} ${event.blockedURI}`));
"""


def find_chromium() -> str | None:
    """The path of the machine's browser, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@contextmanager
def open_browser(executable: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        yield browser
        browser.close()


@dataclass
class Watched:
    """A page, and its errors, dialogs and requests to other hosts."""

    page: Page
    origin: str
    problems: list[str] = field(default_factory=list)
    expected: tuple[str, ...] = ()
    """Prefixes of problems that the test expects, such as a rejected request in the console."""

    def check(self) -> None:
        """Fail on an error, a dialog, a request to another host or a policy violation."""
        blocked = self.page.evaluate("window.violations ?? []")
        found = [*self.problems, *(f"policy: {item}" for item in blocked)]
        unexpected = [item for item in found if not item.startswith(self.expected or ("\0",))]
        assert not unexpected, unexpected


def watch(context: BrowserContext, url: str) -> Watched:
    """Open a page and record its problems."""
    context.add_init_script(_WATCH)
    page = context.new_page()
    parts = urlsplit(url)
    watched = Watched(page, f"{parts.scheme}://{parts.netloc}")

    def dismiss(dialog: object) -> None:
        watched.problems.append(f"dialog: {dialog}")
        dialog.dismiss()  # type: ignore[attr-defined]

    page.on("dialog", dismiss)
    page.on("pageerror", lambda error: watched.problems.append(f"error: {error}"))
    page.on(
        "console",
        lambda line: (
            watched.problems.append(f"console: {line.text}")
            if line.type in ("error", "warning")
            else None
        ),
    )
    page.on(
        "request",
        lambda request: (
            None
            if request.url.startswith(watched.origin + "/")
            else watched.problems.append(f"request: {request.url}")
        ),
    )
    return watched

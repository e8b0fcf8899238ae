"""
A JWK set that is fetched from a URL.

Rule 1: a thread fetches it; a lookup never waits. The set is fetched at the start, every five
minutes, and when a token names an unknown key, but at most every ten seconds. Until that fetch is
done, requests with such a token get a 503 response.

Rule 2: if a fetch fails or its result is unusable, the previous keys stay, and it is retried after
ten seconds.

Rule 3: only the configured URL is trusted: redirects are not followed.

`jwt.PyJWKClient` is not used: it fetches in the thread of the lookup, which here is the event loop,
has no limits of size and total time, and drops its keys when they get old.
"""

import threading
import time
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from typing import Any, Final

import structlog

from tailrace.server.guard.access.errors import KeysNotReady
from tailrace.server.guard.access.jwks import Jwk, Jwks, JwksInvalid, parse_jwks

__all__ = ["FETCH_S_MAX", "JWKS_BYTES_MAX", "REFRESH_S", "REFRESH_S_MIN", "JwksFetcher", "fetch"]

JWKS_BYTES_MAX: Final = 1 << 20
REFRESH_S: Final = 300.0
REFRESH_S_MIN: Final = 10.0
FETCH_S_MAX: Final = 10.0
_WANTED_KIDS_MAX: Final = 256

log = structlog.get_logger("tailrace")


class JwksFetcher:
    """The keys of the last successful fetch."""

    def __init__(self, url: str, on_change: Callable[[], None]) -> None:
        self.url = url
        self._on_change = on_change
        # The keys, and when their fetch started. Replaced as a whole by the thread.
        self._fetched: tuple[Jwks, float] | None = None
        # Unknown keys that tokens name, and since when they are looked for.
        self._wanted_kids: dict[str, float] = {}
        self._wanted = threading.Event()
        self._closed = threading.Event()
        threading.Thread(target=self._run, name="tailrace-jwks", daemon=True).start()

    @property
    def current(self) -> Jwks | None:
        return None if self._fetched is None else self._fetched[0]

    def find(self, kid: str | None, algorithm: str) -> Jwk | None:
        """
        The key that a token names, if there is one.

        Raises:
            CredentialsRefused: Several keys fit.
            KeysNotReady: The key is unknown and being fetched.
        """
        if self._fetched is None:
            raise KeysNotReady
        keys, fetched_at = self._fetched
        key = keys.find(kid, algorithm)
        if key is None and kid is not None and not self._fetched_or_requested(kid, fetched_at):
            raise KeysNotReady
        return key

    def refresh(self) -> None:
        """Fetch soon."""
        self._wanted.set()

    def close(self) -> None:
        """Stop fetching. The result of a fetch in progress is dropped."""
        self._closed.set()
        self._wanted.set()

    def _fetched_or_requested(self, kid: str, fetched_at: float) -> bool:
        """Whether a recent fetch started after this key was requested; if not, request it."""
        now = time.monotonic()
        wanted_at = self._wanted_kids.get(kid)
        if wanted_at is not None and wanted_at < fetched_at and now < fetched_at + REFRESH_S_MIN:
            return True
        if wanted_at is None or wanted_at < fetched_at:
            self._wanted_kids.pop(kid, None)
            if len(self._wanted_kids) >= _WANTED_KIDS_MAX:
                self._wanted_kids.pop(next(iter(self._wanted_kids)))
            self._wanted_kids[kid] = now
            self.refresh()
        return False

    def _run(self) -> None:
        while not self._closed.is_set():
            self._wanted.clear()
            is_fetched = self._fetch()
            self._closed.wait(REFRESH_S_MIN)
            if is_fetched and not self._closed.is_set():
                self._wanted.wait(max(0.0, REFRESH_S - REFRESH_S_MIN))

    def _fetch(self) -> bool:
        started = time.monotonic()
        try:
            keys = parse_jwks(fetch(self.url))
        except Exception as error:
            # The thread must survive any response.
            is_expected = isinstance(error, OSError | ValueError | HTTPException | JwksInvalid)
            log.error(
                "fetching the JWK set failed; the previous keys stay in use",
                error=str(error)[:200],
                exc_info=not is_expected,
            )
            return False
        before, self._fetched = self.current, (keys, started)
        if before is None or before.thumbprints != keys.thumbprints:
            log.info("keys of JWTs changed", count=len(keys.keys))
            if before is not None and not self._closed.is_set():
                self._on_change()
        return True


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **options: Any) -> None:
        return None


def fetch(url: str) -> bytes:
    """
    The body at a URL.

    Raises:
        OSError: It cannot be fetched, or not in time.
        ValueError: It is too large.
    """
    deadline = time.monotonic() + FETCH_S_MAX
    # http:// is allowed for loopback only, where no proxy must be used.
    proxies = {name: at for name, at in urllib.request.getproxies().items() if name == "https"}
    opener = urllib.request.build_opener(_NoRedirects, urllib.request.ProxyHandler(proxies))
    request = urllib.request.Request(url, headers={"Accept": "application/json"})
    with opener.open(request, timeout=FETCH_S_MAX) as response:
        body = b""
        while piece := response.read1(65_536):
            body += piece
            if len(body) > JWKS_BYTES_MAX:
                raise ValueError(f"the JWK set has more than {JWKS_BYTES_MAX} bytes")
            if time.monotonic() > deadline:
                raise TimeoutError("the JWK set took too long")
    return body
